"""The background process that stops the embedded server after its last user."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from testproject.embedded.server import EmbeddedServer


def keep(server: EmbeddedServer) -> None:
    """Go on in the background until nobody uses the server, then stop it.

    Does nothing if there is a keeper already. The calling process ends as soon as the keeper's
    lock is held, so that whoever ran it knows.
    """
    try:
        keeper = server.lock("keeper.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    if os.fork():
        os._exit(0)
    # A Ctrl-C in the terminal is for the users.
    os.setsid()
    # Whoever reads our starter's errors to their end must not wait for us.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    users = server.lock("users.lock", fcntl.LOCK_EX)
    try:
        # Who has removed the folder under its users has begun anew, with a server that has a keeper of its own.
        if server.still_has("users.lock", users):
            server.stop()
    finally:
        # In this order: the next user, who waits for `users`, must see that it needs a keeper.
        keeper.close()
        users.close()


if __name__ == "__main__":
    keep(EmbeddedServer(Path(sys.argv[1])))

"""Ports for the programs that a test starts."""

from __future__ import annotations

import random
import socket

# Below those that systems give to connections: what is free now is still free when the program has started.
PORTS = range(20_000, 30_000)


def free_port() -> int:
    """Return a port of this machine that nobody uses."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port

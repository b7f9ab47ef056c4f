"""Run a command with the embedded server as DATABASE_URL: `python -m testproject.embedded psql`."""

from __future__ import annotations

import os
import subprocess
import sys

from testproject.embedded.server import CHECKOUT, EmbeddedServer

if __name__ == "__main__":
    server = EmbeddedServer(CHECKOUT / ".postgres")
    server.use()
    environment = os.environ | {"DATABASE_URL": server.url}
    sys.exit(subprocess.run(sys.argv[1:], check=False, env=environment).returncode)

"""How much memory a process uses."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from pathlib import Path

_PAGE = resource.getpagesize()
_HAS_PROC = Path("/proc/self/statm").exists()


def resident_bytes(pid: int | None = None) -> int:
    """Return the resident memory of a process (None: this one) in bytes; 0 if it is gone."""
    pid = os.getpid() if pid is None else pid
    if _HAS_PROC:
        try:
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
        except (OSError, IndexError):
            return 0
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ps of a number
    return int(listed.stdout.strip() or 0) * 1024


def parse_bytes(text: str) -> int:
    """Return the bytes of a size like 512M or 2G (powers of 1024). Raises ValueError for any other text."""
    match = re.fullmatch(r"(\d+)([KMG])(i?B)?", text.strip(), re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a size like 512M or 2G")
    return int(match[1]) << {"K": 10, "M": 20, "G": 30}[match[2].upper()]

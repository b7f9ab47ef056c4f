"""A virtual environment for each peer, under a folder that git ignores, of the same Python as ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from testproject.benchmarks.contestants import Contestant


class Environments:
    """The environments of the peers in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def python_of(self, contestant: Contestant) -> Path:
        """Return the interpreter to run a contestant with; it may not be there yet."""
        return self._folder_of(contestant) / "bin" / "python" if contestant.packages else Path(sys.executable)

    def has(self, contestant: Contestant) -> bool:
        """Return whether all that a contestant needs is installed."""
        return not contestant.packages or (self._folder_of(contestant) / "complete").exists()

    def install(self, contestant: Contestant) -> None:
        """Make the environment and install the peer with pip."""
        folder = self._folder_of(contestant)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(self.python_of(contestant)), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *contestant.packages], check=True)
        (folder / "complete").touch()

    def versions(self, contestant: Contestant) -> list[str]:
        """Return what is installed, as `name==version`."""
        if not contestant.packages:
            return []
        freeze = [str(self.python_of(contestant)), "-m", "pip", "freeze"]
        return subprocess.run(freeze, check=True, capture_output=True, text=True).stdout.split("\n")[:-1]

    def _folder_of(self, contestant: Contestant) -> Path:
        # Contestants of one driver differ in their settings only.
        return self.folder / contestant.driver

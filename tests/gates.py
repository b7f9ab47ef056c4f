"""The test's side of the gates at which `interrupted_tasks` wait."""

from __future__ import annotations

from pathlib import Path

from tests.actors import wait_for


def wait_at_gate(folder: Path, name: str = "gate") -> None:
    """Return when a task stands at the gate."""
    wait_for_word(folder, f"{name}.reached")


def open_gate(folder: Path, name: str = "gate") -> None:
    Path(folder, f"{name}.open").touch()


def wait_for_word(folder: Path, name: str) -> str:
    """Return what a task left under this name, when it has."""
    wait_for(Path(folder, name).exists, what=f"a task to leave {name!r}")
    return Path(folder, name).read_text()

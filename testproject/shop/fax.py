"""A stand-in for the fax machine, which nobody has plugged in."""

from __future__ import annotations


class NoDialTone(Exception):
    """The line is dead."""


def send(text: str) -> None:
    """Raise NoDialTone, always."""
    raise NoDialTone(f"could not fax {text!r}: no dial tone")

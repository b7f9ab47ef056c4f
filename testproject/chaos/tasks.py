"""Where the package looks for the tasks of this app: loads every kind of work."""

from __future__ import annotations

from testproject.chaos.work import KINDS

__all__ = ["KINDS"]

"""Four exercises on PostgreSQL: `manage.py exercise 1` to `4`. What they show is told in docs/exercises."""

from __future__ import annotations

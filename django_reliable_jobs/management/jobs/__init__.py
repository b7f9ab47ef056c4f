"""The verbs of `manage.py jobs`. Each takes the database's alias and the parsed options, and returns a Report."""

from __future__ import annotations

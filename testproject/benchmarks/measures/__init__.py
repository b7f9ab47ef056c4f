"""The questions, one module each: `measure(bench) -> list[Comparison]`."""

from __future__ import annotations

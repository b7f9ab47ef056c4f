"""The kinds of work. Every module here that defines `KIND` takes part."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from testproject.chaos.kind import Kind

KINDS: list[Kind] = [
    import_module(f"{__name__}.{module.name}").KIND
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name)
]

"""The last release and this code on one database: during a deploy, each meets the schema of the other.

`python check_upgrade.py OLD_PYTHON NEW_PYTHON`, each with its version installed, with DATABASE_URL set.

A deploy starts new workers before the migration, or runs the old ones on after it. In both, what either enqueues must
be run by either.
"""

from __future__ import annotations

import sys
from pathlib import Path

from check_wheel import CHECK, ENQUEUE, empty_project, manage


def check_each_with_each(folder: Path, pythons: dict[str, str], schema: str) -> None:
    """Enqueue with each version and run it with each."""
    for enqueuer, enqueuing in pythons.items():
        for worker, running in pythons.items():
            print(f"{schema} schema: the {enqueuer} code enqueues, the {worker} worker runs", flush=True)
            manage(folder, "shell", "--verbosity", "0", "-c", ENQUEUE, python=enqueuing)
            manage(folder, "runworker", "--burst", python=running)
            manage(folder, "shell", "--verbosity", "0", "-c", CHECK, python=enqueuing)


def main(old: str, new: str) -> None:
    """Check each with each on the old schema, migrate, and check it again."""
    pythons = {"old": old, "new": new}
    with empty_project() as folder:
        manage(folder, "migrate", "--verbosity", "0", python=old)
        check_each_with_each(folder, pythons, "old")
        manage(folder, "migrate", "--verbosity", "0", python=new)
        check_each_with_each(folder, pythons, "new")


if __name__ == "__main__":
    main(*sys.argv[1:])

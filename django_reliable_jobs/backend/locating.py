"""From the path in a row to the Task in the code, and to nothing else."""

from __future__ import annotations

import importlib
import logging
from typing import Any

from django.apps import apps

from django_reliable_jobs import conf
from django_reliable_jobs.tasks_framework import Task

logger = logging.getLogger("django_reliable_jobs")


def locate(path: str) -> Task[..., Any] | None:
    """Return the Task at a module path, or None.

    Only modules of installed apps and of TASK_MODULES are imported, and only what was declared as a Task under this
    very path is returned: a row can't make a worker call anything else.
    """
    module_name, _, name = path.rpartition(".")
    if not is_open(module_name):
        return None
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if not _names(error, module_name):
            logger.exception("the module of the task %s can't be imported", path)
        return None
    found = getattr(module, name, None)
    return found if isinstance(found, Task) and found.module_path == path else None


def is_open(module_name: str) -> bool:
    """Return whether the Tasks of a module may be run by name."""
    packages = {config.name for config in apps.get_app_configs()}
    inside = f"{module_name}."
    return module_name in conf.task_modules() or any(inside.startswith(f"{package}.") for package in packages)


def _names(error: Exception, module_name: str) -> bool:
    """Return whether the error says that the module itself, or a package around it, does not exist."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return missing is not None and f"{module_name}.".startswith(f"{missing}.")

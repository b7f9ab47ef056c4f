"""Finding the project's tasks when Django starts."""

from __future__ import annotations

import importlib

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import module_has_submodule

from django_reliable_jobs import conf


def autodiscover() -> None:
    """Import the `tasks` module of each installed app, and TASK_MODULES. An error in one is raised, never swallowed."""
    for config in apps.get_app_configs():
        if config.module is not None and module_has_submodule(config.module, "tasks"):
            importlib.import_module(f"{config.name}.tasks")
    for module in conf.task_modules():
        _import_task_module(module)


def _import_task_module(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the module imports is missing
        raise ImproperlyConfigured(
            f"RELIABLE_JOBS['TASK_MODULES'] names {module!r}, but there is no module {error.name!r}."
        ) from error

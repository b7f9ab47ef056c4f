from __future__ import annotations

import json
import os
from importlib import import_module
from typing import Any

from django.apps import AppConfig


class TestsConfig(AppConfig):
    """Lets a test set constants of `processes` in the workers that it starts: {"deadlines.CHECK_SECONDS": 0.01}."""

    name = "tests"

    def ready(self) -> None:
        for path, value in json.loads(os.environ.get("TESTS_CONSTANTS", "{}")).items():
            module, _, name = path.rpartition(".")
            setattr(import_module(f"django_reliable_jobs.processes.{module}"), name, value)
        if "TESTS_LISTEN_TO_TASKS" in os.environ:
            listen_to_tasks()


def listen_to_tasks() -> None:
    """Leave an effect for each signal of Django's Tasks framework."""
    from django_reliable_jobs.tasks_framework import task_finished, task_started
    from tests.models import Effect

    def started(task_result: Any, **_: Any) -> None:
        Effect.objects.create(name=f"started {task_result.id} {task_result.status}")

    def finished(task_result: Any, **_: Any) -> None:
        Effect.objects.create(name=f"finished {task_result.id} {task_result.status}")

    task_started.connect(started, weak=False)
    task_finished.connect(finished, weak=False)

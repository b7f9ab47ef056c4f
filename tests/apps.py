from __future__ import annotations

import json
import os
from importlib import import_module

from django.apps import AppConfig


class TestsConfig(AppConfig):
    """Lets a test set constants of `processes` in the workers that it starts: {"deadlines.CHECK_SECONDS": 0.01}."""

    name = "tests"

    def ready(self) -> None:
        for path, value in json.loads(os.environ.get("TESTS_CONSTANTS", "{}")).items():
            module, _, name = path.rpartition(".")
            setattr(import_module(f"django_reliable_jobs.processes.{module}"), name, value)

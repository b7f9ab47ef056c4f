from __future__ import annotations

import json
import os

from django.apps import AppConfig


class TestsConfig(AppConfig):
    """Lets a test set the hours of the thread that ends attempts, in the worker processes that it starts."""

    name = "tests"

    def ready(self) -> None:
        from django_reliable_jobs.processes import deadlines

        for name, seconds in json.loads(os.environ.get("TESTS_DEADLINES", "{}")).items():
            setattr(deadlines, name, seconds)

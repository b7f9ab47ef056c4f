"""The benchmark as a Django app: its command and its tasks."""

from __future__ import annotations

from django.apps import AppConfig


class BenchmarksConfig(AppConfig):
    """Nothing to connect; the tasks are found in `tasks`."""

    name = "testproject.benchmarks"
    label = "benchmarks"

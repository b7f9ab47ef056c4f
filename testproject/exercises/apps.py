from __future__ import annotations

from django.apps import AppConfig


class ExercisesConfig(AppConfig):
    """Nothing to connect; the tasks are found in `tasks`, and there are no models."""

    name = "testproject.exercises"
    label = "exercises"

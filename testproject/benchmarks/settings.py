"""Settings of the measured processes: the test project's as they would be in production."""

from __future__ import annotations

from testproject.settings import *  # noqa: F403

DEBUG = False
LOGGING["loggers"]["django_reliable_jobs"]["level"] = "WARNING"  # noqa: F405

"""Settings of the measured processes: the test project's as they would be in production."""

from __future__ import annotations

from testproject.settings import *  # noqa: F403

DEBUG = False
if env.bool("BENCHMARK_PREPARED", default=False):  # noqa: F405
    DATABASES["default"]["OPTIONS"] = {"server_side_binding": True, "prepare_threshold": 5}  # noqa: F405
LOGGING["loggers"]["django_reliable_jobs"]["level"] = "WARNING"  # noqa: F405

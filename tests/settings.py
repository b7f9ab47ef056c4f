"""The test project's settings, with tasks and tables of the tests, and short leases."""

from __future__ import annotations

import json
import os

from testproject.settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "tests"]  # noqa: F405

RELIABLE_JOBS = {
    "TASK_MODULES": ["tests.tasks"],
    **json.loads(os.environ.get("TESTS_RELIABLE_JOBS", "{}")),
}

# Set by tests for the processes that they start: the database that the test runner made.
if "TESTS_DATABASE_NAME" in os.environ:
    DATABASES["default"]["NAME"] = os.environ["TESTS_DATABASE_NAME"]  # noqa: F405

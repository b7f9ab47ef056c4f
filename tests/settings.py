"""The test project's settings, with tasks and tables of the tests, and short leases."""

from __future__ import annotations

import json
import os

from testproject.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "tests"]  # noqa: F405

RELIABLE_JOBS = {
    "TASK_MODULES": [
        "tests.tasks",
        "tests.interrupted_tasks",
        "tests.hostile_tasks",
        "tests.limited_tasks",
        "tests.batch_tasks",
        "tests.step_tasks",
        "tests.slow_step_tasks",
        "tests.async_tasks",
    ],
    **json.loads(os.environ.get("TESTS_RELIABLE_JOBS", "{}")),
}

# Read by Django 6.0 and later, and by the backport.
TASKS = {
    "default": {"BACKEND": "django_reliable_jobs.backend.ReliableBackend", "QUEUES": []},
    "patient": {
        "BACKEND": "django_reliable_jobs.backend.ReliableBackend",
        "QUEUES": ["default", "patient"],
        "OPTIONS": {
            "max_attempts": 3,
            "backoff": lambda attempt, error: 0,
            "POLICIES": {"tests.framework_tasks.unique": {"unique": "key", "on_duplicate": "keep"}},
        },
    },
}

# Set by a test for the children of a supervisor, which know themselves by a variable that it gives them.
if os.environ.get("TESTS_BREAK_CHILDREN", "nothing") in os.environ:
    raise ImportError("this process is not to start")

# Lets several people run the suite against one server.
DATABASES["default"]["TEST"] = {"NAME": f"test_reliable_jobs{os.environ.get('TESTS_SUFFIX', '')}"}  # noqa: F405

# Set by tests for the processes that they start: the database that the test runner made, and the way to it.
for key in ("NAME", "HOST", "PORT"):
    if f"TESTS_DATABASE_{key}" in os.environ:
        DATABASES["default"][key] = os.environ[f"TESTS_DATABASE_{key}"]  # noqa: F405

DATABASES["default"].setdefault("OPTIONS", {}).update(json.loads(os.environ.get("TESTS_DATABASE_OPTIONS", "{}")))  # noqa: F405

# And a second one, where a test has made it: what differs from the first.
if "TESTS_SECOND_DATABASE" in os.environ:
    DATABASES["second"] = {**DATABASES["default"], **json.loads(os.environ["TESTS_SECOND_DATABASE"])}  # noqa: F405

# Users are made by the hundred, and nobody guesses their passwords.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

if "TESTS_LOG_FORMAT" in os.environ:
    LOGGING["formatters"]["terminal"]["format"] = os.environ["TESTS_LOG_FORMAT"]  # noqa: F405
    LOGGING["root"] = {"handlers": ["terminal"], "level": "INFO"}  # noqa: F405

if "TESTS_SENTRY_FILE" in os.environ:
    from tests import sentry

    sentry.set_up(os.environ["TESTS_SENTRY_FILE"])

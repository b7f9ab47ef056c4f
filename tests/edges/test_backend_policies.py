"""ReliableBackend: retries, limits and the rest for Tasks of the framework, in settings and in their decorator."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from types import FunctionType
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings

pytest.importorskip("django_reliable_jobs.tasks_framework", exc_type=ImportError)

from django_reliable_jobs import registry
from django_reliable_jobs.backend import ReliableTask, policies
from django_reliable_jobs.models import Job
from django_reliable_jobs.task_options import Options
from django_reliable_jobs.tasks_framework import InvalidTask, task_backends
from tests import framework_tasks as tasks

pytestmark = pytest.mark.django_db
BACKEND = "django_reliable_jobs.backend.ReliableBackend"
PATH = "tests.framework_tasks.effect"


def a_function(name: str, *, of: Any = tasks.leave_effect) -> Any:
    """Return a new function as if it stood in the module of the test's tasks."""
    return FunctionType(of.__code__, of.__globals__, name) if (of.__qualname__ != name) else of


@pytest.fixture
def declare() -> Iterator[Any]:
    """Declare Tasks at the top level of a module, for the time of the test."""
    names: list[str] = []

    def declare(name: str, **options: Any) -> Any:
        function = a_function(name)
        function.__qualname__ = name
        if not hasattr(type(tasks.nothing), "max_attempts") or not _takes_policies():
            pytest.skip("Django 6.0 passes no further keywords on")
        declared = tasks.task(**options)(function)
        setattr(tasks, name, declared)
        names.append(name)
        return declared

    yield declare
    for name in names:
        delattr(tasks, name)


def _takes_policies() -> bool:
    try:
        tasks.task(max_attempts=2)
    except TypeError:
        return False
    return True


def with_options(**options: Any) -> Any:
    return override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}})


def test_options_hold_for_all_tasks_and_policies_for_one() -> None:
    policies = {PATH: {"max_attempts": 7, "timeout": 60, "unique": "name", "concurrency": 2}}
    with with_options(max_attempts=3, expires=timedelta(hours=1), POLICIES=policies):
        one, other = tasks.effect.using(backend="default").enqueue("a"), tasks.answer.enqueue()
        again = tasks.effect.using(backend="default").enqueue("a")
        rows = {str(job.pk): job for job in Job.objects.all()}
        assert again.id == one.id  # unique
        assert (rows[one.id].max_attempts, rows[other.id].max_attempts) == (7, 3)
        assert rows[other.id].expires_at is not None
        assert rows[one.id].concurrency_key is not None
        assert registry.get(PATH).timeout == timedelta(minutes=1)
        assert ("concurrency", PATH) in registry.declared_limits()
    tasks.effect.enqueue("a")
    assert registry.get(PATH).timeout is None


def test_every_option_of_our_decorator_may_be_said_but_what_the_framework_says_itself() -> None:
    of_the_framework = {"name", "aliases", "queue_name", "priority"}
    assert set(Options.__annotations__) - of_the_framework == set(policies.FOR_ONE)
    said_in_the_decorator = {each.name for each in fields(ReliableTask)}
    assert set(policies.FOR_ONE) <= said_in_the_decorator


def test_a_task_is_found_by_its_name_before_anybody_enqueued_it() -> None:
    with with_options(max_attempts=3):  # what was found before is forgotten
        assert PATH not in registry.known_names()
        assert registry.get(PATH).max_attempts == 3
    with with_options(max_attempts=4):
        found = registry.find(f"{PATH}@default")
        assert found is not None and found.max_attempts == 4
        assert registry.is_found_on_demand(PATH) and PATH in registry.known_names()


def test_the_result_of_a_duplicate_is_that_of_the_live_job() -> None:
    first, second = tasks.unique.enqueue("a"), tasks.unique.enqueue("a", 2)
    assert (second.id, second.kwargs, second.args) == (first.id, {}, ["a"])


def test_the_decorator_takes_our_keywords(declare: Any) -> None:
    task = declare("declared_here", max_attempts=4, timeout=5, rate_limit="10/s", priority=3)
    assert isinstance(task, ReliableTask) and task.using(priority=1).max_attempts == 4
    job = Job.objects.get(pk=task.enqueue("a").id)
    assert (job.max_attempts, job.rate_key is not None, job.priority) == (4, True, 3)


def test_settings_win_over_the_decorator(declare: Any) -> None:
    task = declare("declared_here", max_attempts=4, timeout=5)
    policies = {"tests.framework_tasks.declared_here": {"max_attempts": 9}}
    with with_options(max_attempts=2, timeout=1, POLICIES=policies):
        assert Job.objects.get(pk=task.enqueue("a").id).max_attempts == 9
        assert registry.get(task.module_path).timeout == timedelta(seconds=5)


def test_a_keyword_that_cannot_hold_is_refused_where_it_stands(declare: Any) -> None:
    with pytest.raises(InvalidTask, match=r"max_attempts must be .*not 0"):
        declare("declared_here", max_attempts=0)
    with pytest.raises(InvalidTask, match="unique names the argument 'nobody'"):
        declare("declared_here", unique="nobody")
    with pytest.raises(TypeError, match="max_attempt"):
        declare("declared_here", max_attempt=2)


def test_on_dead_may_be_a_task_of_the_framework() -> None:
    with with_options(POLICIES={PATH: {"on_dead": tasks.echo}}):
        job = Job.objects.get(pk=tasks.effect.enqueue("a").id)
    assert job.meta == {"on_dead": "tests.framework_tasks.echo"}


def test_the_checks_find_nothing_wrong_with_the_test_projects_settings() -> None:
    assert [message for alias in task_backends for message in task_backends[alias].check()] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempt": 3}, "OPTIONS has no key 'max_attempt': did you mean 'max_attempts'?"),
        ({"database": "nowhere"}, "OPTIONS['database'] must be one of"),
        ({"POLICIES": []}, "OPTIONS['POLICIES'] must be a dict"),
        ({"POLICIES": {PATH: 3}}, f"OPTIONS['POLICIES'][{PATH!r}] must be a dict"),
        ({"POLICIES": {PATH: {"retries": 3}}}, f"OPTIONS['POLICIES'][{PATH!r}] has no key 'retries'"),
        ({"POLICIES": {"tests.framework_tasks.nobody": {}}}, "names 'tests.framework_tasks.nobody', which is no Task"),
        ({"POLICIES": {PATH: {"max_attempts": 0}}}, f"{PATH}: max_attempts must be"),
        ({"timeout": -1}, "timeout must be"),
    ],
)
def test_the_systems_check_tells_mistakes_in_options(options: dict[str, Any], message: str) -> None:
    with with_options(**options), pytest.raises(SystemCheckError) as error:
        call_command("check")
    assert message in str(error.value) and "reliable_jobs.E022" in str(error.value)


def test_the_check_names_the_app_that_is_missing(settings: Any) -> None:
    backend = task_backends["default"]
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "django_reliable_jobs"]
    [message] = backend.check()
    assert (message.id, message.hint) == ("reliable_jobs.E021", "Add 'django_reliable_jobs' to INSTALLED_APPS.")


def test_a_task_whose_policy_cannot_hold_is_not_run_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with with_options(POLICIES={PATH: {"max_attempts": 0}}):
        assert registry.find(PATH) is None
        with pytest.raises(InvalidTask, match="max_attempts"):
            tasks.effect.enqueue("a")
    assert "max_attempts must be" in caplog.text
    assert "tests.framework_tasks" in sys.modules

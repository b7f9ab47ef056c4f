"""What a Task is, and how tasks are found: by name, and when Django starts."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_reliable_jobs import registry, task
from django_reliable_jobs.exceptions import InvalidTask, UnknownTask

CHECKOUT = Path(__file__).resolve().parent.parent.parent


@task(queue_name="billing", max_attempts=3, aliases=["old.charge", "older.charge"])
def charge(order_id: int, kind: str = "full") -> tuple[int, str]:
    """Charge the customer of an order."""
    return order_id, kind


@task()
async def charge_later(order_id: int) -> int:
    return order_id


def other() -> None:
    pass


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))


def test_calling_a_task_calls_its_function() -> None:
    assert charge(1, kind="half") == (1, "half")
    coroutine = charge_later(1)
    assert inspect.iscoroutine(coroutine)
    coroutine.close()


def test_a_task_looks_like_its_function() -> None:
    assert charge.__name__ == charge.__qualname__ == "charge"
    assert charge.__module__ == "tests.unit.test_registry"
    assert charge.__doc__ == "Charge the customer of an order."
    assert inspect.unwrap(charge) is charge.function  # type: ignore[arg-type]
    assert list(inspect.signature(charge).parameters) == ["order_id", "kind"]
    assert inspect.getdoc(charge) == "Charge the customer of an order."


def test_its_repr_names_it_and_what_is_not_default() -> None:
    assert repr(charge) == (
        "<Task tests.unit.test_registry.charge queue_name='billing' max_attempts=3"
        " aliases=('old.charge', 'older.charge')>"
    )
    assert repr(charge_later) == "<Task tests.unit.test_registry.charge_later>"


def test_it_is_pickled_and_copied_by_name() -> None:
    assert pickle.loads(pickle.dumps(charge)) is charge
    assert copy.deepcopy([charge]) == [charge]
    assert pickle.loads(pickle.dumps(charge.using(priority=3))) == charge.using(priority=3)


def test_another_process_finds_the_declaration_that_was_pickled(tmp_path: Path) -> None:
    (tmp_path / "pickled").write_bytes(pickle.dumps(charge))
    code = f"import pickle; print(pickle.load(open({str(tmp_path / 'pickled')!r}, 'rb')).name)"
    assert (
        run_python(code, path=tmp_path, settings="tests.settings").stdout.strip() == "tests.unit.test_registry.charge"
    )


def test_a_task_can_not_be_changed() -> None:
    with pytest.raises(AttributeError):
        charge.queue_name = "other"  # type: ignore[misc]


def test_it_is_found_by_its_name_and_by_its_aliases() -> None:
    for name in ("tests.unit.test_registry.charge", "old.charge", "older.charge"):
        assert registry.find(name) is registry.get(name) is charge
    assert [each for each in registry.all_tasks() if each is charge] == [charge]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    assert registry.find("tests.unit.test_registry.chrge") is None
    with pytest.raises(UnknownTask, match=r"did you mean 'tests\.unit\.test_registry\.charge'\?"):
        registry.get("tests.unit.test_registry.chrge")
    with pytest.raises(UnknownTask, match="is its module among the `tasks` modules or TASK_MODULES"):
        registry.get("zzz")


def test_a_name_that_was_given_by_its_end_is_answered_with_the_whole() -> None:
    for name in ("charge_later", "chrge_later", "an.old.place.charge_later"):
        with pytest.raises(UnknownTask, match=r"did you mean 'tests\.unit\.test_registry\.charge_later'\?"):
            registry.get(name)


@pytest.mark.parametrize("options", [{"name": "old.charge"}, {"aliases": ["tests.unit.test_registry.charge"]}])
def test_two_tasks_can_not_claim_one_name(options: dict[str, Any]) -> None:
    before = dict(registry._tasks)
    with pytest.raises(
        InvalidTask, match=r"two tasks claim the name .*: tests.*charge and tests.*other; give one of them"
    ):
        task(**options)(other)
    assert registry._tasks == before


def test_a_module_that_is_loaded_again_declares_its_tasks_again() -> None:
    again = task(name=charge.name)(charge.function)
    assert registry.get(charge.name) is again


PROJECT_SETTINGS = """
SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["django_reliable_jobs", {apps}]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "unused"}}}}
RELIABLE_JOBS = {{"TASK_MODULES": {modules}}}
"""
A_TASK = """
from django_reliable_jobs import task

@task()
def charge(order_id):
    pass
"""
SHOW_TASKS = """
import django
django.setup()
from django_reliable_jobs import registry
print(*(each.name for each in registry.all_tasks() if not each.name.startswith("django_reliable_jobs.")))
"""


def run_python(code: str, *, path: Path, settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{path}:{CHECKOUT}", "DJANGO_SETTINGS_MODULE": settings},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def start_project(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that writes a project's files, starts Django in it and prints the names of its tasks."""

    def start(files: dict[str, str], *, apps: str, modules: str = "[]") -> subprocess.CompletedProcess[str]:
        for name, content in {**files, "settings.py": PROJECT_SETTINGS.format(apps=apps, modules=modules)}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        return run_python(SHOW_TASKS, path=tmp_path, settings="settings")

    return start


StartProject = Callable[..., subprocess.CompletedProcess[str]]


def test_the_tasks_modules_of_apps_and_task_modules_are_imported(start_project: StartProject) -> None:
    project = start_project(
        {"shop/__init__.py": "", "shop/tasks.py": A_TASK, "extra/__init__.py": "", "extra/jobs.py": A_TASK},
        apps="'shop'",
        modules="['extra.jobs']",
    )
    assert (project.stdout.split(), project.stderr) == (["extra.jobs.charge", "shop.tasks.charge"], "")


def test_an_app_whose_config_lies_elsewhere_is_found_by_its_module(start_project: StartProject) -> None:
    config = (
        "from django.apps import AppConfig\nclass Config(AppConfig):\n    name = 'deep.shop'\n    label = 'other'\n"
    )
    project = start_project(
        {"deep/shop/__init__.py": "", "deep/shop/tasks.py": A_TASK, "deep/shop/apps.py": config},
        apps="'deep.shop.apps.Config'",
    )
    assert (project.stdout.split(), project.stderr) == (["deep.shop.tasks.charge"], "")


def test_an_app_without_tasks_and_one_that_is_a_plain_module_are_fine(start_project: StartProject) -> None:
    plain = "__file__ = __file__\n"
    project = start_project({"empty/__init__.py": "", "plain.py": plain}, apps="'empty', 'plain'")
    assert (project.stdout.split(), project.stderr) == ([], "")


def test_a_broken_tasks_module_stops_the_start_with_its_traceback(start_project: StartProject) -> None:
    project = start_project({"shop/__init__.py": "", "shop/tasks.py": "x = 1\ny = x / 0\n"}, apps="'shop'")
    assert project.returncode != 0
    assert 'shop/tasks.py", line 2' in project.stderr
    assert "ZeroDivisionError" in project.stderr


def test_a_tasks_module_that_misses_an_import_stops_the_start(start_project: StartProject) -> None:
    project = start_project({"shop/__init__.py": "", "shop/tasks.py": "import absent_package\n"}, apps="'shop'")
    assert project.returncode != 0
    assert "No module named 'absent_package'" in project.stderr


@pytest.mark.parametrize("module", ["absent", "absent.jobs", "shop.absent", "shop.tasks.absent"])
def test_a_task_module_that_does_not_exist_is_named_with_its_setting(start_project: StartProject, module: str) -> None:
    project = start_project({"shop/__init__.py": "", "shop/tasks.py": A_TASK}, apps="'shop'", modules=f"['{module}']")
    assert project.returncode != 0
    last = project.stderr.strip().splitlines()[-1]
    assert last.startswith("django.core.exceptions.ImproperlyConfigured: RELIABLE_JOBS['TASK_MODULES'] names")
    assert repr(module) in last


def test_a_task_module_that_misses_an_import_keeps_its_own_error(start_project: StartProject) -> None:
    project = start_project({"extra.py": "import absent\n"}, apps="", modules="['extra']")
    assert project.returncode != 0
    assert project.stderr.strip().splitlines()[-1] == "ModuleNotFoundError: No module named 'absent'"


def test_tasks_can_be_declared_before_django_is_configured() -> None:
    code = (
        "from django_reliable_jobs import *\n"
        "@task(unique=True, backoff=exponential(first=2), priority=1)\n"
        "def charge(order_id): return order_id\n"
        "placement = charge.using(priority=3, unique_key='x')\n"
        "assert charge(3) == 3\n"
        "import sys; assert 'django.db' not in sys.modules, 'models and databases are left alone'\n"
    )
    result = run_python(code, path=CHECKOUT, settings="")
    assert (result.returncode, result.stderr) == (0, "")

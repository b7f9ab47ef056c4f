"""The code on the pages is the code of this package: it compiles, its names exist, and what says that it runs, runs."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError

from django_reliable_jobs import declared_schedules, registry
from tests.pages import CHECKOUT, Block, all_pages, blocks_of

PAGES = all_pages()
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
WITH_COMMANDS = [block for block in BLOCKS if any(block.commands())]
PAGES_THAT_RUN = sorted({block.page for block in PYTHON if block.runs})
OWN_COMMANDS = {name for name, app in get_commands().items() if app != "django.core"}


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_every_python_sample_is_python(block: Block) -> None:
    tree_of(block)


def tree_of(block: Block) -> ast.AST:
    """Some end with the decorator that they are about."""
    is_headless = block.code.rstrip().splitlines()[-1].startswith("@")
    code = block.code + "def anything(): ...\n" * is_headless
    return compile(code, str(block), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_what_a_sample_imports_from_the_package_is_there(block: Block) -> None:
    for node in ast.walk(tree_of(block)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "django_reliable_jobs":
            module = importlib.import_module(node.module or "")
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("block", WITH_COMMANDS, ids=str)
def test_every_command_takes_what_a_page_tells_it(block: Block) -> None:
    for name, *arguments in block.commands():
        if name not in OWN_COMMANDS:
            continue
        command = load_command_class(get_commands()[name], name)
        command._called_from_command_line = False  # so that a mistake raises, and does not end this process
        parser = command.create_parser("manage.py", name)
        refuse_abbreviations(parser)
        try:
            parser.parse_args(arguments)
        except (CommandError, SystemExit) as error:
            pytest.fail(f"{block}: manage.py {name} {' '.join(arguments)}: {error}")


def refuse_abbreviations(parser: argparse.ArgumentParser) -> None:
    parser.allow_abbrev = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for of_verb in action.choices.values():
                refuse_abbreviations(of_verb)


@pytest.mark.django_db
@pytest.mark.parametrize("page", PAGES_THAT_RUN, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_what_a_page_says_that_runs_runs(page: Path) -> None:
    module = types.ModuleType(f"samples_of_{page.stem.replace('-', '_')}")
    with _as_a_module_of_the_project(module):
        for block in blocks_of(page):
            if block.runs and block.language == "python":
                # Behind as many empty lines as on the page, so that a traceback names its line.
                code = "\n" * block.line + block.code
                exec(compile(code, str(page), "exec"), module.__dict__)


@contextmanager
def _as_a_module_of_the_project(module: types.ModuleType) -> Iterator[None]:
    """Its tasks and schedules are known for as long as its page runs."""
    sys.modules[module.__name__] = module
    tasks, schedules = dict(registry._tasks), dict(declared_schedules._declared)
    try:
        yield
    finally:
        del sys.modules[module.__name__]
        for place, before in ((registry._tasks, tasks), (declared_schedules._declared, schedules)):
            place.clear()
            place.update(before)


@pytest.mark.parametrize(
    "patience",
    [r"TimeoutStopSec=(\d+)", r"terminationGracePeriodSeconds: (\d+)", r"stop_grace_period: (\d+)s"],
)
def test_whoever_stops_a_worker_waits_for_longer_than_it_may_take(patience: str) -> None:
    [block] = [
        block
        for block in BLOCKS
        if block.page.name == "deploying.md" and re.search(patience, block.code) and "runworker" in block.code
    ]
    allowed = int(re.findall(r"--shutdown-timeout[\", ]+(\d+)", block.code)[0])
    assert int(re.findall(patience, block.code)[0]) >= allowed + 10

"""The reference pages say what the code says, and links lead somewhere."""

from __future__ import annotations

import argparse
import inspect
import re
import tomllib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.contrib.admin import site
from django.core.management import get_commands, load_command_class
from django.dispatch import Signal

import django_reliable_jobs
from django_reliable_jobs import Cron, exceptions, registry, scheduled, signals, task_options
from django_reliable_jobs.conf import Settings
from django_reliable_jobs.context import JobContext
from django_reliable_jobs.models import Alert, Attempt, Checkpoint, Job, Slot
from tests.pages import CHECKOUT, DOCS, all_pages

# What every Django command has.
OF_DJANGO = {
    *("--help", "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color"),
    *("--force-color", "--skip-checks"),
}
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def missing(page: str, names: Iterable[str], form: str = "`{}`") -> list[str]:
    """Those that do not stand on the page in code."""
    text = (DOCS / page).read_text()
    return [name for name in names if form.format(name) not in text]


def test_every_setting_stands_in_the_reference_with_its_default() -> None:
    page = (DOCS / "reference" / "settings.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert list(rows) == [each.name for each in fields(Settings)]
    for each in fields(Settings):
        if isinstance(each.default, int | float):
            assert rows[each.name].split("|")[2].strip(" `") == str(each.default)


def test_every_option_of_a_task_a_call_and_a_schedule_stands_in_the_reference() -> None:
    page = "reference/task-options.md"
    assert missing(page, [*task_options.DEFAULTS, "takes_context"]) == []
    assert missing(page, task_options.Choices.__annotations__) == []
    of_schedules = list(inspect.signature(scheduled).parameters)
    assert of_schedules[0] == "recurrence"
    assert missing(page, of_schedules[1:]) == []
    assert missing(page, inspect.signature(Cron).parameters, form="{}") == []
    assert set(task_options.DEFAULTS) <= set(inspect.signature(registry.Task).parameters) | {
        *("backoff", "retry_on", "give_up_on"),  # kept as one policy
    }


def test_every_status_stands_in_the_reference() -> None:
    page = "reference/statuses.md"
    choices = (Job.Status, Job.Compensation, Attempt.Outcome, Slot.Outcome, Slot.Reason, Checkpoint.State)
    assert missing(page, [value for each in choices for value in each.values]) == []


def test_every_kind_of_alert_stands_on_its_page() -> None:
    assert missing("how-to/alerts.md", Alert.Kind.values) == []


def test_every_command_verb_and_option_stands_in_the_reference() -> None:
    text = (DOCS / "reference" / "commands.md").read_text()
    commands = [name for name, app in get_commands().items() if app == "django_reliable_jobs"]
    assert len(commands) >= 4
    for name in commands:
        parser = load_command_class("django_reliable_jobs", name).create_parser("manage.py", name)
        [*groups] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        if not groups:
            assert undocumented(parser, section(text, f"## {name}")) == []
        for verb, of_verb in groups[0].choices.items() if groups else ():
            told = section(text, f"### {name} {verb}")
            assert [option for option in undocumented(of_verb, told) if option not in ("--json", "--database")] == []


def section(text: str, heading: str) -> str:
    assert f"\n{heading}\n" in text, f"reference/commands.md lacks {heading!r}"
    return re.split(r"\n##", text.partition(f"\n{heading}\n")[2])[0]


def undocumented(parser: argparse.ArgumentParser, text: str) -> list[str]:
    options = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    return [name for name in options if name not in OF_DJANGO and not re.search(rf"`{name}[` ]", text)]


def test_every_signal_stands_in_the_reference() -> None:
    assert missing("reference/signals.md", [name for name, each in vars(signals).items() if type(each) is Signal]) == []


def test_every_check_stands_in_the_reference() -> None:
    sources = (DOCS.parent / "django_reliable_jobs").rglob("*.py")
    found = {found for source in sources for found in re.findall(r"\"(reliable_jobs\.[EW]\d{3})\"", source.read_text())}
    assert len(found) >= 9
    page = (DOCS / "reference" / "checks.md").read_text()
    assert found == set(re.findall(r"^\| `(reliable_jobs\.[EW]\d{3})`", page, re.MULTILINE))


def test_every_exception_stands_in_the_reference() -> None:
    classes = {
        name: each
        for name, each in vars(exceptions).items()
        if inspect.isclass(each) and issubclass(each, BaseException) and each.__module__ == exceptions.__name__
    }
    # Endings with what they take.
    text = (DOCS / "reference" / "exceptions.md").read_text()
    assert [name for name in classes if not re.search(rf"`{name}[`(]", text)] == []
    page = (DOCS / "reference" / "exceptions.md").read_text()
    assert [name for name in re.findall(r"^\| `(\w+)", page, re.MULTILINE) if name not in classes] == []


def test_every_name_to_import_stands_in_the_reference() -> None:
    assert missing("reference/names.md", django_reliable_jobs.__all__) == []


def test_all_that_a_context_has_stands_in_the_reference() -> None:
    public = [name for name in {*vars(JobContext), *JobContext.__annotations__} if not name.startswith("_")]
    text = (DOCS / "reference" / "names.md").read_text()
    assert [name for name in sorted(public) if not re.search(rf"`{name}[`(]", text)] == []


def test_every_metric_stands_on_its_page() -> None:
    source = (DOCS.parent / "django_reliable_jobs" / "metrics.py").read_text()
    names = re.findall(r"\"(?:reliable_jobs_)([a-z_]+)\"", source) + re.findall(r"_gauge\(\s*\"([a-z_]+)\"", source)
    assert len(names) >= 10
    assert missing("how-to/metrics.md", names, form="_{}") == []


def test_every_option_of_the_tasks_backend_stands_on_its_page() -> None:
    pytest.importorskip("django_reliable_jobs.tasks_framework", exc_type=ImportError)
    from django_reliable_jobs.backend import policies

    assert missing("how-to/django-tasks.md", (*policies.FOR_ONE, *policies.OTHER_OPTIONS)) == []


def test_every_source_file_that_an_explanation_names_is_there() -> None:
    """`claim.py` is one of the package or of the tests, `engine/claim.py` is in that room."""
    sources = [str(path.relative_to(CHECKOUT)) for room in ("django_reliable_jobs", "tests") for path in _python(room)]
    named = {
        name for page in (DOCS / "explanation").glob("*.md") for name in re.findall(r"`([\w/]+\.py)", page.read_text())
    }
    named.discard("manage.py")
    assert len(named) > 40
    assert [name for name in sorted(named) if not any(f"/{source}".endswith(f"/{name}") for source in sources)] == []


def _python(room: str) -> list[Path]:
    return list((CHECKOUT / room).rglob("*.py"))


def test_every_model_in_the_admin_and_every_permission_stands_in_the_reference() -> None:
    models = [model for model in site._registry if model._meta.app_label == "django_reliable_jobs"]
    assert len(models) >= 5
    names = [str(model._meta.verbose_name_plural).capitalize() for model in models]
    assert missing("reference/admin.md", names, form="**{}**") == []
    permissions = [name for model in models for name, _ in model._meta.permissions]
    assert len(permissions) >= 4
    assert missing("reference/admin.md", permissions, form="`django_reliable_jobs.{}`") == []


def links() -> list[tuple[Path, str]]:
    return [(page, link) for page in all_pages() for link in LINK.findall(page.read_text())]


def anchors_of(page: Path) -> set[str]:
    """As GitHub and MyST make them of headings."""
    headings = HEADING.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_between_pages_leads_to_one_and_to_its_heading() -> None:
    inside = [(page, *link.partition("#")[::2]) for page, link in links() if not urlsplit(link).scheme]
    assert len(inside) > 100
    broken = []
    for page, target, anchor in inside:
        file = page.parent / target if target else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append((str(page.relative_to(CHECKOUT)), target, anchor))
    assert broken == []


def test_one_page_says_how_to_install_it_and_what_is_in_its_extras() -> None:
    installs = re.compile(r"pip install.*(django-reliable-jobs|PATH_OF\w+)")
    told = {page.relative_to(CHECKOUT).as_posix(): set(installs.findall(page.read_text())) for page in all_pages()}
    of_clone = {page for page, names in told.items() if names}
    assert of_clone == {"README.md", "docs/how-to/installing.md", "docs/tutorial/nightly-invoices.md"}
    assert {name for names in told.values() for name in names} == {"PATH_OF_A_CLONE"}, "until the first release"
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert missing("how-to/installing.md", project["optional-dependencies"]) == []


def test_every_link_to_elsewhere_is_an_address() -> None:
    outside = [link for _, link in links() if urlsplit(link).scheme]
    assert outside
    assert [link for link in outside if urlsplit(link).scheme != "https" or "." not in urlsplit(link).netloc] == []


def test_every_page_is_within_reach_of_the_first() -> None:
    reached, left = set(), [DOCS / "index.md"]
    while left:
        page = left.pop().resolve()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        left += [page.parent / link.partition("#")[0] for link in LINK.findall(page.read_text()) if "://" not in link]
    pages = {page.resolve() for page in all_pages() if DOCS in page.parents}
    assert {page.name for page in pages - reached} == set()

"""What a schedule may say: checked once, here, for code, admin and commands; and its forms in the table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django_reliable_jobs import arguments, recurrence
from django_reliable_jobs.alert_channels import is_web_address
from django_reliable_jobs.declaration import MAX_NAME, Declaration
from django_reliable_jobs.exceptions import InvalidArguments, InvalidRecurrence, InvalidSchedule, InvalidTask
from django_reliable_jobs.recurrence import Cron, Recurrence
from django_reliable_jobs.retry import as_seconds

if TYPE_CHECKING:
    from django_reliable_jobs.registry import Task

OVERLAPS = ("allow", "skip", "queue", "replace")
CATCH_UPS = ("none", "latest", "all")
MOST_CAUGHT_UP = 1000
MAX_ADDRESS = 500
SPANS = ("start_deadline", "jitter", "alert_after")

# Fields that decide when slots are due: a change of one starts the schedule anew from now.
TIMING = ("recurrence", "starts_at", "ends_at")


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """What a schedule says, in checked form. Raises InvalidSchedule, which names the field and the way out."""

    recurrence: Recurrence
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    overlap: str = "skip"
    catch_up: str = "latest"
    catch_up_limit: int = 100
    start_deadline: timedelta | None = None
    jitter: timedelta | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    queue_name: str = ""
    priority: int | None = None
    alert_after: timedelta | None = None
    ping_url: str = ""
    keep_succeeded: int | None = None
    keep_failed: int | None = None

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        if not isinstance(self.recurrence, Recurrence):
            raise InvalidSchedule(
                "recurrence", f"the recurrence must be Cron(…), Every(…) or Once(…), not {self.recurrence!r}"
            )
        _check_choice("overlap", self.overlap, OVERLAPS)
        _check_choice("catch_up", self.catch_up, CATCH_UPS)
        _check_count("catch_up_limit", self.catch_up_limit, 1, MOST_CAUGHT_UP)
        for name in SPANS:
            put(name, _checked_span(name, getattr(self, name)))
        for name in ("starts_at", "ends_at"):
            put(name, _checked_moment(name, getattr(self, name)))
        for name in ("keep_succeeded", "keep_failed"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), 0, 1_000_000)
        put("ping_url", _checked_address(self.ping_url or ""))
        put("queue_name", _checked("queue_name", self.queue_name or "", self.queue_name))
        _checked("priority", self.priority, self.priority is not None)
        self._check_together()

    def _check_together(self) -> None:
        if self.start_deadline and self.jitter and self.jitter >= self.start_deadline:
            raise InvalidSchedule(
                "jitter", "jitter must be shorter than start_deadline: a job could be too late before it is due"
            )
        if self.starts_at and self.ends_at and self.ends_at < self.starts_at:
            raise InvalidSchedule("ends_at", "ends_at lies before starts_at")

    def check_task(self, task: Task[..., Any], *, max_bytes: int) -> None:
        """Raise InvalidSchedule if the task does not take the arguments."""
        if not isinstance(self.kwargs, Mapping):
            raise InvalidSchedule("kwargs", f"kwargs must be a dict of the task's arguments, not {self.kwargs!r:.80}")
        try:
            arguments.dump_arguments(
                task.signature, (), self.kwargs, task=task.name, max_bytes=max_bytes, sensitive=task.sensitive
            )
        except InvalidArguments as error:
            raise InvalidSchedule("kwargs", str(error)) from None

    def as_columns(self) -> dict[str, Any]:
        """Return the columns of a row, `auto` rules resolved beside the recurrence as it was written."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        is_cron = isinstance(self.recurrence, Cron)
        return {
            **columns,
            "kwargs": dict(self.kwargs),
            "recurrence": self.recurrence.as_dict(),
            "effective_gap": self.recurrence.effective_gap if is_cron else "",  # type: ignore[union-attr]
            "effective_fold": self.recurrence.effective_fold if is_cron else "",  # type: ignore[union-attr]
        }

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> ScheduleOptions:
        """Make the options that a row's columns hold. Raises InvalidSchedule."""
        values = {each.name: columns[each.name] for each in fields(cls) if each.name in columns}
        if isinstance(values.get("recurrence"), Mapping):
            try:
                values["recurrence"] = recurrence.from_dict(values["recurrence"])
            except InvalidRecurrence as error:
                raise InvalidSchedule("recurrence", str(error)) from None
        return cls(**values)


FIELDS = tuple(each.name for each in fields(ScheduleOptions))


def as_json(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared fields of a row's columns in a form that JSON keeps and `==` compares."""
    return {name: _json_value(columns[name]) for name in ("task", *FIELDS)}


def from_json(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns from the form that `as_json` made."""
    columns = dict(stored)
    for name in SPANS:
        if columns.get(name) is not None:
            columns[name] = timedelta(seconds=columns[name])
    for name in ("starts_at", "ends_at"):
        if columns.get(name) is not None:
            columns[name] = datetime.fromisoformat(columns[name])
    return columns


def checked_name(value: Any) -> str:
    """Return the name of a schedule. Raises InvalidSchedule."""
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= MAX_NAME
        or not value.isprintable()
        or value.strip() != value
    ):
        raise InvalidSchedule(
            "name", f"a schedule's name must be text of 1 to {MAX_NAME} printable characters, not {value!r:.80}"
        )
    return value


def _json_value(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidSchedule(name, f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


def _check_count(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidSchedule(name, f"{name} must be a whole number from {least} to {most}, not {value!r}")


def _checked_span(name: str, value: Any) -> timedelta | None:
    try:
        seconds = as_seconds(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if name == "jitter" and seconds == 0:
        return None
    if seconds is not None and seconds <= 0:
        raise InvalidSchedule(name, f"{name} must be a timedelta or a number of seconds, more than 0, not {value!r}")
    return None if seconds is None else timedelta(seconds=seconds)


def _checked_moment(name: str, value: Any) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidSchedule(name, f"{name} must be an aware datetime, not {value!r}")
    return value.astimezone(UTC)


def _checked_address(value: Any) -> str:
    if value and (not isinstance(value, str) or len(value) > MAX_ADDRESS or not is_web_address(value)):
        raise InvalidSchedule(
            "ping_url",
            f"ping_url must be an http(s) address of at most {MAX_ADDRESS} characters, without a user's name",
        )
    return str(value)


def _checked(name: str, value: Any, is_given: Any) -> Any:
    if not is_given:
        return value
    try:
        return getattr(Declaration("the schedule"), name)(value)
    except InvalidTask as error:
        raise InvalidSchedule(name, str(error)) from None

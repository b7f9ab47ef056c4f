"""The form of a schedule: its fields are checked by the same code as a declaration in Python."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib.admin.widgets import AdminTextareaWidget, AdminTextInputWidget
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs import registry
from django_reliable_jobs.admin.form_fields import MomentField, SpanField, TextWithSuggestions
from django_reliable_jobs.admin.schedule_arguments import shown_arguments, task_choices, with_kept_values
from django_reliable_jobs.engine import schedules
from django_reliable_jobs.engine.inspection import now
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.exceptions import InvalidRecurrence, InvalidSchedule
from django_reliable_jobs.models import Schedule
from django_reliable_jobs.preview import never_runs
from django_reliable_jobs.recurrence import Cron, Every, Once, Recurrence
from django_reliable_jobs.recurrence.every import EPOCH
from django_reliable_jobs.schedule_options import FIELDS, ScheduleOptions, checked_name
from django_reliable_jobs.slots import Timeline

KINDS = [
    ("cron", _("Cron: at times of a clock")),
    ("every", _("Every: at a fixed interval of elapsed time")),
    ("once", _("Once: at one moment")),
]
GAP_RULES = [
    ("auto", _("auto: as cron does; skip where the minute or hour is *, else after")),
    ("after", _("after: run at the first moment after the change")),
    ("shift", _("shift: run as much later as the clock jumped")),
    ("skip", _("skip: do not run")),
]
FOLD_RULES = [
    ("auto", _("auto: as cron does; both where the minute or hour is *, else first")),
    ("first", _("first: run the first time only")),
    ("second", _("second: run the second time only")),
    ("both", _("both: run both times")),
]


class RecurrenceForm(forms.Form):
    """When a schedule runs: what the preview needs to know."""

    kind = forms.ChoiceField(label=_("Runs"), choices=KINDS, widget=forms.RadioSelect, initial="cron")
    expression = forms.CharField(
        label=_("Cron expression"),
        required=False,
        max_length=255,
        widget=AdminTextInputWidget,
        help_text=_("Minute, hour, day of the month, month, weekday: 30 2 * * 1-5 is 02:30, Monday to Friday."),
    )
    timezone = forms.CharField(label=_("Time zone"), required=False, max_length=64, widget=TextWithSuggestions)
    on_gap = forms.ChoiceField(
        label=_("Times that a clock change skips"), choices=GAP_RULES, required=False, initial="auto"
    )
    on_fold = forms.ChoiceField(
        label=_("Times that a clock change repeats"), choices=FOLD_RULES, required=False, initial="auto"
    )
    interval = SpanField(label=_("Interval"), required=False, help_text=_("90s, 15m, 1h30m or 2d"))
    anchor = MomentField(
        label=_("Counted from"),
        required=False,
        help_text=_("Left empty: from the beginning of 1970, UTC."),
    )
    at = MomentField(label=_("Moment"), required=False)
    starts_at = MomentField(label=_("Not before"), required=False)
    ends_at = MomentField(label=_("Not after"), required=False)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors.keys() & RecurrenceForm.base_fields.keys():
            return cleaned
        kind = cleaned.get("kind")
        try:
            cleaned["recurrence"] = self._recurrence(kind, cleaned)
        except InvalidRecurrence as error:
            field = {"cron": "expression", "every": "interval", "once": "at"}[str(kind)]
            if str(error).startswith("timezone"):
                field = "timezone"
            self.add_error(field, str(error))
        return cleaned

    def timeline(self) -> Timeline | None:
        """Return the slots of what was entered; None if that can't hold."""
        if "recurrence" not in self.cleaned_data:
            return None
        return Timeline(
            self.cleaned_data["recurrence"], self.cleaned_data.get("starts_at"), self.cleaned_data.get("ends_at")
        )

    def _recurrence(self, kind: Any, cleaned: dict[str, Any]) -> Recurrence:
        if kind == "cron":
            return Cron(
                cleaned.get("expression") or "",
                timezone=cleaned.get("timezone") or timezone.get_default_timezone_name(),
                on_gap=cleaned.get("on_gap") or "auto",
                on_fold=cleaned.get("on_fold") or "auto",
            )
        if kind == "every":
            if cleaned.get("interval") is None:
                raise InvalidRecurrence("an interval is needed: 90s, 15m, 1h30m or 2d")
            return Every(seconds=cleaned["interval"].total_seconds(), anchor=cleaned.get("anchor") or EPOCH)
        if cleaned.get("at") is None:
            raise InvalidRecurrence("a moment is needed")
        return Once(at=cleaned["at"])


def recurrence_initial(schedule: Schedule) -> dict[str, Any]:
    """Return the form's values for a row's recurrence, as it was written."""
    stored = dict(schedule.recurrence)
    initial: dict[str, Any] = {"kind": stored.get("kind")}
    match initial["kind"]:
        case "cron":
            initial |= {name: stored.get(name) for name in ("expression", "timezone", "on_gap", "on_fold")}
        case "every":
            anchor = datetime.fromisoformat(stored["anchor"])
            initial["interval"] = timedelta(seconds=stored["seconds"])
            initial["anchor"] = None if anchor == EPOCH else anchor
        case "once":
            initial["at"] = datetime.fromisoformat(stored["at"])
    return initial


class ScheduleForm(RecurrenceForm, forms.ModelForm):  # type: ignore[type-arg]
    """Everything that a schedule says. Saving is left to `engine.schedules`."""

    name = forms.CharField(label=_("Name"), max_length=255, widget=AdminTextInputWidget)
    task = forms.ChoiceField(label=_("Task"))
    kwargs = forms.JSONField(
        label=_("Arguments"),
        required=False,
        widget=AdminTextareaWidget(attrs={"rows": 3, "class": "vLargeTextField code"}),
        help_text=_('The task\'s keyword arguments as JSON: {"kind": "full"}'),
    )
    start_deadline = SpanField(
        label=_("Start deadline"),
        required=False,
        help_text=_("Not started so long after its time, a run is left out: 1h. Empty: never too late."),
    )
    jitter = SpanField(label=_("Jitter"), required=False, help_text=_("Start up to so much later, to spread load: 2m"))
    alert_after = SpanField(
        label=_("Alert after"), required=False, help_text=_("So long without a success is reported: 26h")
    )

    class Meta:
        model = Schedule
        fields = [
            *("overlap", "catch_up", "catch_up_limit", "ping_url", "queue_name", "priority"),
            *("keep_succeeded", "keep_failed"),
        ]
        help_texts = {
            "overlap": _("When a run has not ended at the time of the next."),
            "catch_up": _("Which of the runs that were missed while no scheduler ran are made up for."),
            "ping_url": _("A monitor outside hears of each start, success and death: https://hc-ping.com/…"),
            "queue_name": _("Left empty: the task's."),
            "priority": _("-100 to 100, higher first. Left empty: the task's."),
            "keep_succeeded": _("Left empty: as long as the setting RETENTION says."),
            "keep_failed": _("Left empty: as long as the setting RETENTION says."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        instance: Schedule | None = kwargs.get("instance")
        if instance is not None and instance.pk:
            fields = ("name", "task", "kwargs", "start_deadline", "jitter", "alert_after", "starts_at", "ends_at")
            given = {name: getattr(instance, name) for name in fields}
            if declared := registry.find(instance.task):
                given["task"] = declared.name  # where the row has an alias
                given["kwargs"] = shown_arguments(instance)
            kwargs["initial"] = {**recurrence_initial(instance), **given, **(kwargs.get("initial") or {})}
        super().__init__(*args, **kwargs)
        self.fields["timezone"].initial = self.initial.get("timezone") or timezone.get_default_timezone_name()
        for field_name, field in self.fields.items():
            if isinstance(field, MomentField):
                field.kept = self.initial.get(field_name)
        self.initial.setdefault("timezone", timezone.get_default_timezone_name())
        if "kwargs" in self.fields:
            self.initial.setdefault("kwargs", {})
        if "task" in self.fields:
            self.fields["task"].choices = list(task_choices(self.instance.task))  # type: ignore[attr-defined]

    def clean_name(self) -> str:
        try:
            name = checked_name(self.cleaned_data["name"])
        except InvalidSchedule as error:
            raise forms.ValidationError(str(error)) from None
        same = Schedule.objects.using(default_database()).filter(name=name).exclude(pk=self.instance.pk)
        if same.exists():
            raise forms.ValidationError(_("There is a schedule of this name already."))
        return name

    def clean_kwargs(self) -> Any:
        entered = self.cleaned_data["kwargs"]
        if not isinstance(entered, dict):
            return entered
        try:
            return with_kept_values(self.instance, self.task_name(), entered)
        except ValueError as error:
            raise forms.ValidationError(
                _("Enter these values again, they are not kept for another task: %s") % error
            ) from None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if not self.errors:
            try:
                options = self.options()
                schedules.check(self.task_name(), options)
            except InvalidSchedule as error:
                self.add_error(error.field if error.field in self.fields else None, str(error))
        if not self.errors and self._is_moved():
            reason = never_runs(
                Timeline(options.recurrence, options.starts_at, options.ends_at), now(default_database())
            )
            if reason:
                self.add_error({"cron": "ends_at", "every": "ends_at", "once": "at"}[cleaned["kind"]], reason)
        return cleaned

    def options(self) -> ScheduleOptions:
        """Return what was entered, checked. Raises InvalidSchedule."""
        values = {name: self.cleaned_data[name] for name in FIELDS if name in self.cleaned_data}
        values["kwargs"] = values.get("kwargs") or {}
        values["queue_name"] = values.get("queue_name") or ""
        return ScheduleOptions(**values)

    def task_name(self) -> str:
        """Return the task entered, or that of a schedule whose task the code decides."""
        return str(self.cleaned_data.get("task") or self.instance.task)

    def _is_moved(self) -> bool:
        timing = {*RecurrenceForm.base_fields}
        return not self.instance.pk or bool(timing & set(self.changed_data))

    def _post_clean(self) -> None:
        """Leave the instance as it is in the table: what was entered is checked above, and written by the engine."""

    def save(self, commit: bool = True) -> Any:
        return self.instance

    def save_m2m(self) -> None:
        """Save nothing: there is nothing of the kind."""

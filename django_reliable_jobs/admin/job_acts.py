"""What people do to jobs: each act with its form, the engine's function, and what is told of what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext, ngettext_lazy

from django_reliable_jobs.admin.queues import is_queue_name
from django_reliable_jobs.admin.words import number
from django_reliable_jobs.engine import lifecycle, rearranging, revival
from django_reliable_jobs.models import Job
from django_reliable_jobs.processes.tally import announce_cancelled
from django_reliable_jobs.spans import parse_span

Counts = Counter[str]
Done = tuple[Sequence[int], Counts]  # the ids that were changed, and what became of all


class NothingToAsk(forms.Form):
    """A question of yes or no."""


class SpreadForm(forms.Form):
    spread = forms.CharField(
        label=_("Spread over"),
        required=False,
        max_length=20,
        widget=AdminTextInputWidget,
        help_text=_("Each begins at a moment of its own within this span: 10m, 2h. Left empty: all at once."),
    )

    def clean_spread(self) -> Any:
        text = self.cleaned_data["spread"].strip()
        try:
            return parse_span(text) if text else None
        except ValueError as error:
            raise ValidationError(str(error)) from None


class RetryForm(SpreadForm):
    from_start = forms.BooleanField(
        label=_("From the start"),
        required=False,
        help_text=_("A new run, which has no checkpoint and no step of the run before."),
    )


class CancelForm(forms.Form):
    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=500,
        widget=AdminTextInputWidget,
        help_text=_("Kept with the job. What runs is asked to end, and ends at its next safe point."),
    )
    children = forms.BooleanField(
        label=_("With their children"),
        required=False,
        help_text=_("Also the jobs that they started to wait for them, and so on."),
    )


class MoveForm(forms.Form):
    queue_name = forms.CharField(label=_("Queue"), max_length=64, widget=AdminTextInputWidget)

    def clean_queue_name(self) -> str:
        name = str(self.cleaned_data["queue_name"])
        if not is_queue_name(name):
            raise ValidationError(_("No queue can have this name."))
        return name


class PriorityForm(forms.Form):
    priority = forms.IntegerField(
        label=_("Priority"), min_value=-100, max_value=100, help_text=_("-100 to 100, higher first.")
    )


@dataclass(frozen=True)
class Act:
    """One thing that may be done to jobs of some statuses, by who has a permission."""

    name: str
    title: Any
    question: Any  # ngettext_lazy
    permission: str
    statuses: tuple[str, ...]
    form: type[forms.Form]
    do: Callable[[str, Sequence[int], dict[str, Any], str], Done]  # database, ids, what was entered, by whom
    told: str  # the key of what was done, in TOLD
    is_loss: bool = False
    compensation: str | None = None  # only for what has come so far with its undo
    not_compensation: str | None = None  # not for that

    def allows(self, job: Job) -> bool:
        """Return whether a job is in a state for it, as far as its row tells."""
        if self.compensation is not None and job.compensation != self.compensation:
            return False
        return job.status in self.statuses and job.compensation not in (Job.Compensation.RUNNING, self.not_compensation)


def _retry(using: str, ids: Sequence[int], entered: dict[str, Any], by: str) -> Done:
    spread = {"spread": entered["spread"]} if entered.get("spread") else {}
    done = revival.revive(using, ids, from_start=entered.get("from_start", False), **spread)
    counts = Counter(retried=len(done.revived), duplicate=len(done.has_live_duplicate))
    return done.revived, _with_rest(counts, ids)


def _retry_from_start(using: str, ids: Sequence[int], entered: dict[str, Any], by: str) -> Done:
    return _retry(using, ids, {**entered, "from_start": True}, by)


def _retry_undo(using: str, ids: Sequence[int], entered: dict[str, Any], by: str) -> Done:
    done = revival.retry_undo(using, ids)
    return done, _with_rest(Counter(undoing=len(done)), ids)


def _cancel(using: str, ids: Sequence[int], entered: dict[str, Any], by: str) -> Done:
    reason = entered.get("reason") or f"cancelled by {by}"
    done = lifecycle.cancel(using, ids, reason=reason, children=entered.get("children", False))
    announce_cancelled(using, done.cancelled)
    own, changed = set(ids), [*done.cancelled, *done.asked]
    counts = Counter(cancelled=len(own.intersection(done.cancelled)), asked=len(own.intersection(done.asked)))
    return changed, _with_rest(counts, ids) + Counter(children=len(set(changed) - own))


def _move(using: str, ids: Sequence[int], entered: dict[str, Any], by: str) -> Done:
    done = rearranging.move(using, ids, entered["queue_name"])
    return done, _with_rest(Counter(moved=len(done)), ids)


def _reprioritise(using: str, ids: Sequence[int], entered: dict[str, Any], by: str) -> Done:
    done = rearranging.reprioritise(using, ids, entered["priority"])
    return done, _with_rest(Counter(reprioritised=len(done)), ids)


def _delete(using: str, ids: Sequence[int], entered: dict[str, Any], by: str) -> Done:
    done = rearranging.delete(using, ids)
    return done, _with_rest(Counter(deleted=len(done)), ids)


def _with_rest(counts: Counts, ids: Sequence[int]) -> Counts:
    counts["moved_on"] = len(ids) - counts.total()
    return counts


def _statuses(*statuses: Job.Status) -> tuple[str, ...]:
    return tuple(each.value for each in statuses)


_AT_REST = _statuses(Job.Status.SCHEDULED, Job.Status.READY, Job.Status.WAITING)

ACTS = {
    act.name: act
    for act in (
        Act(
            "retry",
            _("Retry"),
            ngettext_lazy("Retry %s job?", "Retry %s jobs?"),
            "retry",
            (*_statuses(*Job.ENDED), Job.Status.SCHEDULED.value),
            *(RetryForm, _retry, "retried"),
            not_compensation="failed",
        ),
        Act(
            "retry_from_start",
            _("Retry from the start"),
            ngettext_lazy(
                "Retry %s job from the start, without its checkpoints and steps?",
                "Retry %s jobs from the start, without their checkpoints and steps?",
            ),
            *("retry", _statuses(*Job.ENDED), SpreadForm, _retry_from_start, "retried"),
        ),
        Act(
            "retry_undo",
            _("Go on undoing"),
            ngettext_lazy("Go on undoing what %s job did?", "Go on undoing what %s jobs did?"),
            *("retry", _statuses(Job.Status.DEAD, Job.Status.CANCELLED), NothingToAsk, _retry_undo, "undoing"),
            compensation="failed",
        ),
        Act(
            "cancel",
            _("Cancel"),
            ngettext_lazy("Cancel %s job?", "Cancel %s jobs?"),
            *("cancel", (*_AT_REST, Job.Status.RUNNING.value), CancelForm, _cancel, "cancelled"),
            is_loss=True,
        ),
        Act(
            "move_queue",
            _("Move to another queue"),
            ngettext_lazy("Move %s job to another queue?", "Move %s jobs to another queue?"),
            *("move", _AT_REST, MoveForm, _move, "moved"),
        ),
        Act(
            "change_priority",
            _("Change the priority"),
            ngettext_lazy("Change the priority of %s job?", "Change the priority of %s jobs?"),
            *("move", _AT_REST, PriorityForm, _reprioritise, "reprioritised"),
        ),
        Act(
            "delete_jobs",
            _("Delete"),
            ngettext_lazy(
                "Delete %s job, with its attempts and checkpoints?",
                "Delete %s jobs, with their attempts and checkpoints?",
            ),
            *("remove", _statuses(*Job.ENDED), NothingToAsk, _delete, "deleted"),
            is_loss=True,
        ),
    )
}


def in_words(act: Act, counts: Counts) -> str:
    """Return how many jobs were changed, and how many not and why."""
    sentences = [_sentence(name, counts[name]) for name in counts if counts[name]]
    return " ".join(sentences or [_sentence(act.told, 0)])


def _sentence(name: str, count: int) -> str:
    text = {
        "retried": ngettext("%s job is tried again.", "%s jobs are tried again.", count),
        "duplicate": ngettext(
            "%s was left as it is: a live job has its unique key.",
            "%s were left as they are: live jobs have their unique keys.",
            count,
        ),
        "undoing": ngettext("%s job goes on undoing.", "%s jobs go on undoing.", count),
        "cancelled": ngettext("%s job was cancelled.", "%s jobs were cancelled.", count),
        "asked": ngettext(
            "%s runs, and ends at its next safe point.", "%s run, and end at their next safe points.", count
        ),
        "children": ngettext(
            "%s job that they had started ends with them.", "%s jobs that they had started end with them.", count
        ),
        "moved": ngettext("%s job was moved.", "%s jobs were moved.", count),
        "reprioritised": ngettext("%s job has the new priority.", "%s jobs have the new priority.", count),
        "deleted": ngettext("%s job was deleted.", "%s jobs were deleted.", count),
        "moved_on": ngettext(
            "%s had moved on, or can't be changed in this way.",
            "%s had moved on, or can't be changed in this way.",
            count,
        ),
    }[name]
    return text % number(count)

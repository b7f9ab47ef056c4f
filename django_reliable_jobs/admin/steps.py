"""The steps of a job, on its page."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.admin.read_only import ReadOnly
from django_reliable_jobs.engine import history
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.models import Checkpoint

LONGEST_RESULT = 200


class StepsOfRun(BaseInlineFormSet):  # type: ignore[type-arg]
    """The steps of the job's current run."""

    @cached_property
    def _steps(self) -> Any:
        return history.find_steps(super().get_queryset(), self.instance.pk, self.instance.run)

    def get_queryset(self) -> Any:
        return self._steps


class StepInline(ReadOnly, admin.TabularInline):  # type: ignore[type-arg]
    model = Checkpoint
    formset = StepsOfRun
    extra = 0
    verbose_name_plural = _("Steps, sleeps and waits of this run")
    fields = ("name", "kind", "state_now", "tries", "since", "took", "until_when", "came_of_it")
    readonly_fields = fields

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let whoever may view a job view its steps."""
        return True

    @admin.display(description=_("state"))
    def state_now(self, row: Checkpoint) -> str:
        return str(Checkpoint.State(_status(row).state).label)

    @admin.display(description=_("since"))
    def since(self, row: Checkpoint) -> str:
        return as_local(_status(row).since)

    @admin.display(description=_("took"))
    def took(self, row: Checkpoint) -> str:
        took = _status(row).took
        return "-" if took is None else f"{took.total_seconds():.3f} s"

    @admin.display(description=_("until"))
    def until_when(self, row: Checkpoint) -> str:
        return "-" if row.until is None else as_local(row.until)

    @admin.display(description=_("result"))
    def came_of_it(self, row: Checkpoint) -> str:
        text = row.error or json.dumps(row.value, ensure_ascii=False)
        return Truncator(text).chars(LONGEST_RESULT)


def _status(row: Checkpoint) -> history.StepStatus:
    return history.status_of(row, timezone.now())

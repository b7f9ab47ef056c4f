"""Job, its attempts, and the wish to cancel it."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Coalesce, Now
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models import awaiting

# Jobs with the same keys of limits stand in one line. The claim of limited jobs writes the same expression.
# Its keywords stand in the order of the alphabet, as migrations write them: two orders are two expressions to Django.
LINE = Func(
    *(Coalesce(key, Value("")) for key in ("concurrency_key", "rate_key", "serial_key")),
    arg_joiner=" || chr(10) || ",
    output_field=models.TextField(),
    template='(%(expressions)s) COLLATE "C"',
)


class Job(models.Model):
    """One call of a task, from enqueue to its end.

    Written at insert, promotion, claim and end, and not in between. The partial indexes hold only what their reader
    needs: an ordinary job that succeeds writes six index entries in its life.
    """

    class Status(models.TextChoices):
        SCHEDULED = "SCHEDULED", _("scheduled")
        READY = "READY", _("ready")
        RUNNING = "RUNNING", _("running")
        WAITING = "WAITING", _("waiting")
        SUCCEEDED = "SUCCEEDED", _("succeeded")
        DEAD = "DEAD", _("dead")
        CANCELLED = "CANCELLED", _("cancelled")

    class Compensation(models.TextChoices):
        NONE = "none", _("none")
        RUNNING = "running", _("running")
        DONE = "done", _("done")
        FAILED = "failed", _("failed")

    LIVE = (Status.SCHEDULED, Status.READY, Status.RUNNING, Status.WAITING)
    ENDED = (Status.SUCCEEDED, Status.DEAD, Status.CANCELLED)

    task = models.CharField(_("task"), max_length=255)
    queue_name = models.CharField(_("queue"), max_length=64, db_default="default")
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    args = models.JSONField(_("positional arguments"), db_default=models.Value([], models.JSONField()))
    kwargs = models.JSONField(_("keyword arguments"), db_default=models.Value({}, models.JSONField()))
    status = models.CharField(_("status"), max_length=10, choices=Status, db_default=Status.READY)
    run_after = models.DateTimeField(_("due"), db_default=Now())
    created_at = models.DateTimeField(_("enqueued"), db_default=Now())
    first_started_at = models.DateTimeField(_("first started"), null=True)
    started_at = models.DateTimeField(_("last started"), null=True)
    finished_at = models.DateTimeField(_("finished"), null=True)
    attempt = models.SmallIntegerField(_("attempts used"), db_default=0)
    max_attempts = models.SmallIntegerField(_("attempts allowed"), db_default=1)
    claims = models.IntegerField(_("claims"), db_default=0)
    losses = models.SmallIntegerField(_("consecutive losses"), db_default=0)
    run = models.SmallIntegerField(_("run"), db_default=1)
    token = models.BigIntegerField(_("token"), null=True)  # the fence; stays after the end
    worker_id = models.BigIntegerField(_("worker"), null=True)  # of the last claim; no foreign key: workers come and go
    result = models.JSONField(_("result"), null=True)
    reason = models.TextField(_("reason"), null=True)  # noqa: DJ001 - NULL keeps the ordinary row narrow
    unique_hash = models.BinaryField(_("unique key (hash)"), max_length=16, null=True)
    unique_until_start = models.BooleanField(_("unique until start"), db_default=False)
    concurrency_key = models.CharField(_("concurrency key"), max_length=255, null=True)  # noqa: DJ001
    rate_key = models.CharField(_("rate key"), max_length=255, null=True)  # noqa: DJ001
    serial_key = models.CharField(_("serial key"), max_length=255, null=True)  # noqa: DJ001
    schedule_id = models.BigIntegerField(_("schedule"), null=True)
    slot = models.DateTimeField(_("slot"), null=True)
    start_before = models.DateTimeField(_("start before"), null=True)
    expires_at = models.DateTimeField(_("expires"), null=True)
    parent_id = models.BigIntegerField(_("parent"), null=True)
    batch_id = models.BigIntegerField(_("batch"), null=True)
    meta = models.JSONField(_("meta"), null=True)
    compensation = models.CharField(_("compensation"), max_length=8, choices=Compensation, db_default=Compensation.NONE)
    ends_as = models.CharField(_("ends as"), max_length=9, null=True)  # noqa: DJ001 - when what it did is undone

    wait, await_result = awaiting.wait, awaiting.await_result
    created = True  # False on the job that enqueue() found instead of inserting one

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions = [
            ("enqueue_job", _("Can enqueue jobs by hand")),
            ("retry_job", _("Can retry jobs")),
            ("cancel_job", _("Can cancel jobs")),
            ("move_job", _("Can move jobs to other queues and change their priority")),
        ]
        constraints = [
            models.CheckConstraint(
                name="reliable_job_priority_in_range",
                condition=Q(priority__gte=-100, priority__lte=100),
            ),
            models.CheckConstraint(
                name="reliable_job_running_has_owner",
                condition=~Q(status="RUNNING")
                | Q(token__isnull=False, worker_id__isnull=False, started_at__isnull=False),
            ),
            models.CheckConstraint(
                name="reliable_job_ended_has_moment",
                condition=Q(finished_at__isnull=False, status__in=("SUCCEEDED", "DEAD", "CANCELLED"))
                | Q(
                    finished_at__isnull=True,
                    status__in=("SCHEDULED", "READY", "RUNNING", "WAITING"),
                ),
            ),
            models.CheckConstraint(
                name="reliable_job_counts_in_range",
                condition=Q(attempt__gte=0, max_attempts__gte=1, losses__gte=0, run__gte=1)
                & Q(claims__gte=F("attempt")),
            ),
            models.UniqueConstraint(
                name="reliable_job_unique",
                fields=["unique_hash"],
                condition=Q(
                    unique_hash__isnull=False,
                    status__in=("SCHEDULED", "READY", "RUNNING", "WAITING"),
                ),
            ),
        ]
        indexes = [
            models.Index(
                name="reliable_job_ready",
                fields=["queue_name", "priority", "run_after", "id"],
                condition=Q(
                    status="READY",
                    concurrency_key__isnull=True,
                    rate_key__isnull=True,
                    serial_key__isnull=True,
                ),
            ),
            models.Index(
                "queue_name",
                LINE,
                F("priority").desc(),
                "run_after",
                "id",
                name="reliable_job_limited",
                condition=Q(status="READY")
                & (Q(concurrency_key__isnull=False) | Q(rate_key__isnull=False) | Q(serial_key__isnull=False)),
            ),
            models.Index(
                name="reliable_job_holds_place",
                fields=["concurrency_key"],
                condition=Q(status="RUNNING", concurrency_key__isnull=False),
            ),
            models.Index(
                name="reliable_job_holds_turn",
                fields=["serial_key"],
                condition=Q(status="RUNNING", serial_key__isnull=False),
            ),
            models.Index(
                name="reliable_job_due", fields=["run_after", "id"], condition=Q(status__in=("SCHEDULED", "WAITING"))
            ),
            models.Index(name="reliable_job_running", fields=["worker_id"], condition=Q(status="RUNNING")),
            models.Index(
                name="reliable_job_ended",
                fields=["status", "task", "queue_name", "finished_at"],
                condition=Q(finished_at__isnull=False),
            ),
            models.Index(
                name="reliable_job_not_succeeded",
                fields=["status", "id"],
                condition=Q(status__in=("DEAD", "CANCELLED")),
            ),
            models.Index(name="reliable_job_dead", fields=["task", "id"], condition=Q(status="DEAD")),
            models.Index(name="reliable_job_died", fields=["finished_at"], condition=Q(status="DEAD")),
            models.Index(
                name="reliable_job_of_batch",
                fields=["batch_id", "finished_at"],
                condition=Q(batch_id__isnull=False),
            ),
            models.Index(name="reliable_job_undo_failed", fields=["id"], condition=Q(compensation="failed")),
            models.Index(
                name="reliable_job_of_schedule",
                fields=["schedule_id", "status", "finished_at"],
                condition=Q(schedule_id__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task} #{self.pk}"

    @property
    def has_ended(self) -> bool:
        return self.status in self.ENDED


class Attempt(models.Model):
    """One execution that did not succeed. A success writes none: the job's own row tells it."""

    class Outcome(models.TextChoices):
        FAILED = "failed", _("failed")
        LOST = "lost", _("lost")
        INTERRUPTED = "interrupted", _("interrupted")
        SNOOZED = "snoozed", _("snoozed")
        CANCELLED = "cancelled", _("cancelled")

    job = models.ForeignKey(Job, models.CASCADE, related_name="attempts", verbose_name=_("job"))
    number = models.SmallIntegerField(_("attempt"))
    claim = models.IntegerField(_("claim"))
    run = models.SmallIntegerField(_("run"), db_default=1)
    outcome = models.CharField(_("outcome"), max_length=11, choices=Outcome)
    started_at = models.DateTimeField(_("started"))
    finished_at = models.DateTimeField(_("finished"))
    worker = models.CharField(_("worker"), max_length=255)
    error_class = models.CharField(_("error class"), max_length=255, db_default="")
    error_message = models.TextField(_("error message"), db_default="")
    traceback = models.TextField(_("traceback"), db_default="")

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        ordering = ["claim"]
        constraints = [models.UniqueConstraint(name="reliable_attempt_once", fields=["job", "claim"])]

    def __str__(self) -> str:
        return f"#{self.job_id} {self.number}: {self.outcome}"

    @property
    def duration(self) -> timedelta:
        return self.finished_at - self.started_at


class Checkpoint(models.Model):
    """A named JSON value that a running job saved, of one run; or a step, a sleep or a wait, with what came of it.

    The steps, sleeps and waits of a run in the order of their ids are its history.
    """

    class Kind(models.TextChoices):
        CHECKPOINT = "checkpoint", _("checkpoint")
        STEP = "step", _("step")
        SLEEP = "sleep", _("sleep")
        EVENT = "event", _("event")
        CHILD = "child", _("child")
        CHILDREN = "children", _("children")

    class State(models.TextChoices):
        DONE = "done", _("done")
        TRYING = "trying", _("trying")  # failed, and is tried again
        WAITING = "waiting", _("waiting")
        FAILED = "failed", _("failed")

    job = models.ForeignKey(Job, models.CASCADE, db_index=False, related_name="checkpoints", verbose_name=_("job"))
    run = models.SmallIntegerField(_("run"))
    name = models.CharField(_("name"), max_length=255)
    kind = models.CharField(_("kind"), max_length=10, choices=Kind, db_default=Kind.CHECKPOINT)
    state = models.CharField(_("state"), max_length=8, choices=State, db_default=State.DONE)
    value = models.JSONField(_("value"))
    function = models.CharField(_("function"), max_length=255, null=True)  # noqa: DJ001
    args = models.JSONField(_("arguments"), null=True)
    undo = models.CharField(_("undo"), max_length=255, null=True)  # noqa: DJ001
    is_atomic = models.BooleanField(_("atomic"), db_default=False)  # and so is its undo
    tries = models.SmallIntegerField(_("tries"), null=True)
    error = models.TextField(_("error"), null=True)  # noqa: DJ001
    started_at = models.DateTimeField(_("started"), null=True)
    until = models.DateTimeField(_("until"), null=True)  # a sleep ends or a wait is given up
    undo_state = models.CharField(_("undo state"), max_length=8, choices=State, null=True)  # noqa: DJ001
    undo_tries = models.SmallIntegerField(_("undo tries"), null=True)
    undo_error = models.TextField(_("undo error"), null=True)  # noqa: DJ001
    undone_at = models.DateTimeField(_("undone"), null=True)
    token = models.BigIntegerField(_("token"))  # of the claim that saved it last
    saved_at = models.DateTimeField(_("saved"))

    class Meta:
        verbose_name = _("checkpoint")
        verbose_name_plural = _("checkpoints")
        constraints = [models.UniqueConstraint(name="reliable_checkpoint_once", fields=["job", "run", "name", "kind"])]

    def __str__(self) -> str:
        return f"#{self.job_id} {self.name}"


class CancelRequest(models.Model):
    """The wish that a running job ends. Read with the heartbeat of its worker; gone when the attempt ends."""

    job = models.OneToOneField(Job, models.CASCADE, primary_key=True, related_name="+", verbose_name=_("job"))
    requested_at = models.DateTimeField(_("requested"), db_default=Now())
    reason = models.TextField(_("reason"), db_default="")
    with_children = models.BooleanField(_("with its children"), db_default=False)

    class Meta:
        verbose_name = _("cancel request")
        verbose_name_plural = _("cancel requests")

    def __str__(self) -> str:
        return f"#{self.job_id}"

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.functions.datetime
from django.db import migrations, models

import django_reliable_jobs.models.fleet


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.SmallIntegerField(verbose_name="attempt")),
                ("claim", models.IntegerField(verbose_name="claim")),
                ("run", models.SmallIntegerField(db_default=1, verbose_name="run")),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("failed", "failed"),
                            ("lost", "lost"),
                            ("interrupted", "interrupted"),
                            ("snoozed", "snoozed"),
                            ("cancelled", "cancelled"),
                        ],
                        max_length=11,
                        verbose_name="outcome",
                    ),
                ),
                ("started_at", models.DateTimeField(verbose_name="started")),
                ("finished_at", models.DateTimeField(verbose_name="finished")),
                ("worker", models.CharField(max_length=255, verbose_name="worker")),
                ("error_class", models.CharField(db_default="", max_length=255, verbose_name="error class")),
                ("error_message", models.TextField(db_default="", verbose_name="error message")),
                ("traceback", models.TextField(db_default="", verbose_name="traceback")),
            ],
            options={
                "verbose_name": "attempt",
                "verbose_name_plural": "attempts",
                "ordering": ["claim"],
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                ("queue_name", models.CharField(db_default="default", max_length=64, verbose_name="queue")),
                ("priority", models.SmallIntegerField(db_default=0, verbose_name="priority")),
                (
                    "args",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()), verbose_name="positional arguments"
                    ),
                ),
                (
                    "kwargs",
                    models.JSONField(db_default=models.Value({}, models.JSONField()), verbose_name="keyword arguments"),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("SCHEDULED", "scheduled"),
                            ("READY", "ready"),
                            ("RUNNING", "running"),
                            ("WAITING", "waiting"),
                            ("SUCCEEDED", "succeeded"),
                            ("DEAD", "dead"),
                            ("CANCELLED", "cancelled"),
                        ],
                        db_default="READY",
                        max_length=10,
                        verbose_name="status",
                    ),
                ),
                (
                    "run_after",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="due"),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="enqueued"),
                ),
                ("first_started_at", models.DateTimeField(null=True, verbose_name="first started")),
                ("started_at", models.DateTimeField(null=True, verbose_name="last started")),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished")),
                ("attempt", models.SmallIntegerField(db_default=0, verbose_name="attempts used")),
                ("max_attempts", models.SmallIntegerField(db_default=1, verbose_name="attempts allowed")),
                ("claims", models.IntegerField(db_default=0, verbose_name="claims")),
                ("losses", models.SmallIntegerField(db_default=0, verbose_name="consecutive losses")),
                ("run", models.SmallIntegerField(db_default=1, verbose_name="run")),
                ("token", models.BigIntegerField(null=True, verbose_name="token")),
                ("worker_id", models.BigIntegerField(null=True, verbose_name="worker")),
                ("result", models.JSONField(null=True, verbose_name="result")),
                ("reason", models.TextField(null=True, verbose_name="reason")),
                ("unique_hash", models.BinaryField(max_length=16, null=True, verbose_name="unique key (hash)")),
                ("unique_until_start", models.BooleanField(db_default=False, verbose_name="unique until start")),
                ("concurrency_key", models.CharField(max_length=255, null=True, verbose_name="concurrency key")),
                ("rate_key", models.CharField(max_length=255, null=True, verbose_name="rate key")),
                ("serial_key", models.CharField(max_length=255, null=True, verbose_name="serial key")),
                ("schedule_id", models.BigIntegerField(null=True, verbose_name="schedule")),
                ("slot", models.DateTimeField(null=True, verbose_name="slot")),
                ("start_before", models.DateTimeField(null=True, verbose_name="start before")),
                ("expires_at", models.DateTimeField(null=True, verbose_name="expires")),
                ("parent_id", models.BigIntegerField(null=True, verbose_name="parent")),
                ("batch_id", models.BigIntegerField(null=True, verbose_name="batch")),
                ("meta", models.JSONField(null=True, verbose_name="meta")),
                (
                    "compensation",
                    models.CharField(
                        choices=[("none", "none"), ("running", "running"), ("done", "done"), ("failed", "failed")],
                        db_default="none",
                        max_length=8,
                        verbose_name="compensation",
                    ),
                ),
                ("ends_as", models.CharField(max_length=9, null=True, verbose_name="ends as")),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "permissions": [
                    ("enqueue_job", "Can enqueue jobs by hand"),
                    ("retry_job", "Can retry jobs"),
                    ("cancel_job", "Can cancel jobs"),
                    ("move_job", "Can move jobs to other queues and change their priority"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run", models.SmallIntegerField(verbose_name="run")),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("checkpoint", "checkpoint"),
                            ("step", "step"),
                            ("sleep", "sleep"),
                            ("event", "event"),
                            ("child", "child"),
                            ("children", "children"),
                        ],
                        db_default="checkpoint",
                        max_length=10,
                        verbose_name="kind",
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("done", "done"), ("trying", "trying"), ("waiting", "waiting"), ("failed", "failed")],
                        db_default="done",
                        max_length=8,
                        verbose_name="state",
                    ),
                ),
                ("value", models.JSONField(verbose_name="value")),
                ("function", models.CharField(max_length=255, null=True, verbose_name="function")),
                ("args", models.JSONField(null=True, verbose_name="arguments")),
                ("undo", models.CharField(max_length=255, null=True, verbose_name="undo")),
                ("is_atomic", models.BooleanField(db_default=False, verbose_name="atomic")),
                ("tries", models.SmallIntegerField(null=True, verbose_name="tries")),
                ("error", models.TextField(null=True, verbose_name="error")),
                ("started_at", models.DateTimeField(null=True, verbose_name="started")),
                ("until", models.DateTimeField(null=True, verbose_name="until")),
                (
                    "undo_state",
                    models.CharField(
                        choices=[("done", "done"), ("trying", "trying"), ("waiting", "waiting"), ("failed", "failed")],
                        max_length=8,
                        null=True,
                        verbose_name="undo state",
                    ),
                ),
                ("undo_tries", models.SmallIntegerField(null=True, verbose_name="undo tries")),
                ("undo_error", models.TextField(null=True, verbose_name="undo error")),
                ("undone_at", models.DateTimeField(null=True, verbose_name="undone")),
                ("token", models.BigIntegerField(verbose_name="token")),
                ("saved_at", models.DateTimeField(verbose_name="saved")),
            ],
            options={
                "verbose_name": "checkpoint",
                "verbose_name_plural": "checkpoints",
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255, unique=True, verbose_name="name")),
                ("payload", models.JSONField(verbose_name="payload")),
                (
                    "emitted_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="emitted"),
                ),
                ("is_new", models.BooleanField(db_default=True, verbose_name="new")),
            ],
            options={
                "verbose_name": "event",
                "verbose_name_plural": "events",
            },
        ),
        migrations.CreateModel(
            name="Leader",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False, verbose_name="name")),
                ("holder", models.BigIntegerField(verbose_name="holder")),
                ("term", models.BigIntegerField(verbose_name="term")),
                ("host", models.CharField(max_length=128, verbose_name="host")),
                ("pid", models.IntegerField(verbose_name="process")),
                ("elected_at", models.DateTimeField(verbose_name="elected")),
                ("expires_at", models.DateTimeField(verbose_name="term ends")),
                ("clock_offset", models.FloatField(null=True, verbose_name="clock ahead by (seconds)")),
            ],
            options={
                "verbose_name": "leader",
                "verbose_name_plural": "leaders",
            },
        ),
        migrations.CreateModel(
            name="Limit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("concurrency", "jobs at once"), ("rate", "starts in a time")],
                        max_length=11,
                        verbose_name="kind",
                    ),
                ),
                ("name", models.CharField(max_length=100, verbose_name="name")),
                ("allowed", models.PositiveIntegerField(verbose_name="allowed")),
                ("period", models.PositiveIntegerField(null=True, verbose_name="in seconds")),
                ("burst", models.PositiveIntegerField(null=True, verbose_name="burst")),
                (
                    "override_allowed",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="allowed instead"),
                ),
                (
                    "override_period",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="in seconds, instead"),
                ),
                ("override_burst", models.PositiveIntegerField(blank=True, null=True, verbose_name="burst instead")),
                (
                    "declared_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="declared"),
                ),
            ],
            options={
                "verbose_name": "limit",
                "verbose_name_plural": "limits",
                "ordering": ["name", "kind"],
            },
        ),
        migrations.CreateModel(
            name="MinuteCount",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "minute",
                        "queue_name",
                        "task",
                        "outcome",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("minute", models.DateTimeField(verbose_name="minute")),
                ("queue_name", models.CharField(max_length=64, verbose_name="queue")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("succeeded", "succeeded"),
                            ("failed", "failed, tried again"),
                            ("dead", "dead"),
                            ("cancelled", "cancelled"),
                            ("snoozed", "snoozed"),
                            ("interrupted", "interrupted"),
                            ("lost", "lost"),
                            ("unknown", "task not known"),
                        ],
                        max_length=11,
                        verbose_name="outcome",
                    ),
                ),
                ("count", models.BigIntegerField(verbose_name="attempts")),
                ("seconds", models.FloatField(verbose_name="seconds that they ran")),
            ],
            options={
                "verbose_name": "count of a minute",
                "verbose_name_plural": "counts of minutes",
            },
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("channel", models.CharField(max_length=64, verbose_name="channel")),
                (
                    "event",
                    models.CharField(
                        choices=[("opened", "opened"), ("repeated", "still open"), ("resolved", "resolved")],
                        max_length=8,
                        verbose_name="event",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="since"),
                ),
                (
                    "due_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="due"),
                ),
                ("tries", models.PositiveSmallIntegerField(db_default=0, verbose_name="tries")),
                ("error", models.TextField(db_default="", verbose_name="error")),
            ],
            options={
                "verbose_name": "notice",
                "verbose_name_plural": "notices",
            },
        ),
        migrations.CreateModel(
            name="Pace",
            fields=[
                ("key", models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="key")),
                ("paid_until", models.DateTimeField(verbose_name="paid until")),
            ],
            options={
                "verbose_name": "pace",
                "verbose_name_plural": "paces",
            },
        ),
        migrations.CreateModel(
            name="Pinged",
            fields=[
                ("schedule_id", models.BigIntegerField(primary_key=True, serialize=False, verbose_name="schedule")),
                ("told", models.JSONField(default=list, verbose_name="told")),
            ],
            options={
                "verbose_name": "record of pings",
                "verbose_name_plural": "records of pings",
            },
        ),
        migrations.CreateModel(
            name="Progress",
            fields=[
                ("token", models.BigIntegerField(primary_key=True, serialize=False, verbose_name="token")),
                ("run", models.SmallIntegerField(verbose_name="run")),
                ("claim", models.IntegerField(verbose_name="claim")),
                ("done", models.BigIntegerField(verbose_name="done")),
                ("total", models.BigIntegerField(null=True, verbose_name="total")),
                ("skipped", models.BigIntegerField(db_default=0, verbose_name="skipped")),
                ("rate", models.FloatField(null=True, verbose_name="per second")),
                ("message", models.TextField(db_default="", verbose_name="message")),
                ("told_at", models.DateTimeField(verbose_name="told")),
            ],
            options={
                "verbose_name": "progress",
                "verbose_name_plural": "progress",
            },
        ),
        migrations.CreateModel(
            name="Pulse",
            fields=[
                ("task", models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="task")),
                (
                    "watched_since",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="watched since"
                    ),
                ),
                ("succeeded_at", models.DateTimeField(null=True, verbose_name="last success")),
            ],
            options={
                "verbose_name": "pulse",
                "verbose_name_plural": "pulses",
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False, verbose_name="name")),
                ("paused_at", models.DateTimeField(blank=True, null=True, verbose_name="paused")),
                ("resume_at", models.DateTimeField(blank=True, null=True, verbose_name="resumes")),
                ("concurrency", models.PositiveIntegerField(blank=True, null=True, verbose_name="concurrency")),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "permissions": [("pause_queue", "Can pause and resume queues")],
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255, unique=True, verbose_name="name")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                ("kwargs", models.JSONField(blank=True, default=dict, verbose_name="arguments")),
                ("recurrence", models.JSONField(verbose_name="recurrence")),
                (
                    "effective_gap",
                    models.CharField(blank=True, default="", max_length=8, verbose_name="rule for skipped times"),
                ),
                (
                    "effective_fold",
                    models.CharField(blank=True, default="", max_length=8, verbose_name="rule for repeated times"),
                ),
                (
                    "overlap",
                    models.CharField(
                        choices=[
                            ("allow", "allow: they run side by side"),
                            ("skip", "skip: the new one is left out"),
                            ("queue", "queue: one waits its turn"),
                            ("replace", "replace: the older one is cancelled"),
                        ],
                        default="skip",
                        max_length=8,
                        verbose_name="overlap",
                    ),
                ),
                (
                    "catch_up",
                    models.CharField(
                        choices=[("none", "none"), ("latest", "the latest"), ("all", "all, up to the limit")],
                        default="latest",
                        max_length=8,
                        verbose_name="catch up",
                    ),
                ),
                ("catch_up_limit", models.PositiveSmallIntegerField(default=100, verbose_name="catch up at most")),
                ("start_deadline", models.DurationField(blank=True, null=True, verbose_name="start deadline")),
                ("jitter", models.DurationField(blank=True, null=True, verbose_name="jitter")),
                ("starts_at", models.DateTimeField(blank=True, null=True, verbose_name="starts")),
                ("ends_at", models.DateTimeField(blank=True, null=True, verbose_name="ends")),
                ("queue_name", models.CharField(blank=True, default="", max_length=64, verbose_name="queue")),
                ("priority", models.SmallIntegerField(blank=True, null=True, verbose_name="priority")),
                ("alert_after", models.DurationField(blank=True, null=True, verbose_name="alert after")),
                ("ping_url", models.CharField(blank=True, default="", max_length=500, verbose_name="ping")),
                (
                    "keep_succeeded",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="succeeded jobs kept"),
                ),
                ("keep_failed", models.PositiveIntegerField(blank=True, null=True, verbose_name="failed jobs kept")),
                (
                    "managed_by",
                    models.CharField(
                        choices=[("code", "code"), ("admin", "admin")],
                        default="admin",
                        max_length=8,
                        verbose_name="managed by",
                    ),
                ),
                ("declared", models.JSONField(null=True, verbose_name="declared in code")),
                ("paused_at", models.DateTimeField(blank=True, null=True, verbose_name="paused")),
                ("resume_at", models.DateTimeField(blank=True, null=True, verbose_name="resumes")),
                ("pause_reason", models.TextField(blank=True, default="", verbose_name="why it is paused")),
                ("decided_until", models.DateTimeField(verbose_name="decided until")),
                ("next_run_at", models.DateTimeField(null=True, verbose_name="next run")),
                ("horizon", models.DateTimeField(null=True, verbose_name="horizon")),
                ("planned", models.JSONField(default=list, verbose_name="next runs when last decided")),
                (
                    "watched_since",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="watched since"
                    ),
                ),
                ("succeeded_at", models.DateTimeField(null=True, verbose_name="last success")),
                ("error", models.TextField(blank=True, default="", verbose_name="error")),
                ("error_at", models.DateTimeField(null=True, verbose_name="broken since")),
                ("retry_at", models.DateTimeField(null=True, verbose_name="tried again")),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="created"),
                ),
                (
                    "changed_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="changed"),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "ordering": ["name"],
                "permissions": [("pause_schedule", "Can pause and resume schedules")],
            },
        ),
        migrations.CreateModel(
            name="Slot",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "schedule_id", "slot", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("schedule_id", models.BigIntegerField(verbose_name="schedule")),
                ("slot", models.DateTimeField(verbose_name="slot")),
                (
                    "outcome",
                    models.CharField(
                        choices=[("job", "job"), ("missed", "missed"), ("skipped", "skipped")],
                        max_length=8,
                        verbose_name="outcome",
                    ),
                ),
                (
                    "reason",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("deadline", "decided after its start deadline"),
                            ("misfire", "missed, and not caught up"),
                            ("limit", "missed, and beyond the limit of catching up"),
                            ("overlap", "an earlier job had not ended"),
                            ("replaced", "a later slot was due too"),
                            ("duplicate", "a live job had the same unique key"),
                            ("paused", "the schedule was paused"),
                            ("edited", "the schedule was changed before it was decided"),
                        ],
                        default="",
                        max_length=10,
                        verbose_name="reason",
                    ),
                ),
                ("job_id", models.BigIntegerField(null=True, verbose_name="job")),
                (
                    "decided_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="decided"),
                ),
            ],
            options={
                "verbose_name": "slot",
                "verbose_name_plural": "slots",
            },
        ),
        migrations.CreateModel(
            name="SlotRange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("schedule_id", models.BigIntegerField(verbose_name="schedule")),
                ("first", models.DateTimeField(verbose_name="first")),
                ("last", models.DateTimeField(verbose_name="last")),
                ("count", models.PositiveIntegerField(null=True, verbose_name="slots")),
                (
                    "outcome",
                    models.CharField(
                        choices=[("job", "job"), ("missed", "missed"), ("skipped", "skipped")],
                        max_length=8,
                        verbose_name="outcome",
                    ),
                ),
                (
                    "reason",
                    models.CharField(
                        choices=[
                            ("deadline", "decided after its start deadline"),
                            ("misfire", "missed, and not caught up"),
                            ("limit", "missed, and beyond the limit of catching up"),
                            ("overlap", "an earlier job had not ended"),
                            ("replaced", "a later slot was due too"),
                            ("duplicate", "a live job had the same unique key"),
                            ("paused", "the schedule was paused"),
                            ("edited", "the schedule was changed before it was decided"),
                        ],
                        max_length=10,
                        verbose_name="reason",
                    ),
                ),
                (
                    "decided_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="decided"),
                ),
            ],
            options={
                "verbose_name": "range of slots",
                "verbose_name_plural": "ranges of slots",
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False, verbose_name="id")),
                ("host", models.CharField(max_length=128, verbose_name="host")),
                ("pid", models.IntegerField(verbose_name="process")),
                ("queues", django_reliable_jobs.models.fleet.TextArrayField(null=True, verbose_name="queues")),
                (
                    "excluded_queues",
                    django_reliable_jobs.models.fleet.TextArrayField(db_default=[], verbose_name="except"),
                ),
                ("threads", models.IntegerField(verbose_name="threads")),
                ("tasks", django_reliable_jobs.models.fleet.TextArrayField(null=True, verbose_name="tasks")),
                (
                    "started_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="started"),
                ),
                (
                    "heartbeat_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="last heartbeat"
                    ),
                ),
                ("expires_at", models.DateTimeField(verbose_name="lease ends")),
                ("lost_at", models.DateTimeField(null=True, verbose_name="declared lost")),
                ("is_idle", models.BooleanField(db_default=False, verbose_name="idle")),
                ("is_stopping", models.BooleanField(db_default=False, verbose_name="stopping")),
                ("clock_offset", models.FloatField(null=True, verbose_name="clock ahead by (seconds)")),
                ("memory", models.BigIntegerField(null=True, verbose_name="memory (bytes)")),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
            },
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("schedule_silent", "schedule without success"),
                            ("schedule_broken", "schedule that can't be decided"),
                            ("schedule_failing", "schedule that fails again and again"),
                            ("schedule_overdue", "slot that nobody decides"),
                            ("schedule_moved", "schedule whose next runs moved"),
                            ("slot_missed", "missed slot"),
                            ("no_scheduler", "no scheduler"),
                            ("task_silent", "task without success"),
                            ("task_unknown", "task that no worker knows"),
                            ("dead_letters", "new dead letters"),
                            ("runs_long", "job that runs too long"),
                            ("queue_ageing", "queue in which jobs wait too long"),
                            ("queue_unserved", "queue that no worker serves"),
                            ("worker_lost", "lost worker"),
                            ("undo_failed", "undo that failed"),
                            ("old_transaction", "old transaction that holds back vacuum"),
                            ("clock_off", "host whose clock is off"),
                        ],
                        max_length=32,
                        verbose_name="kind",
                    ),
                ),
                ("subject", models.CharField(max_length=255, verbose_name="subject")),
                (
                    "severity",
                    models.CharField(
                        choices=[("warning", "warning"), ("critical", "critical")],
                        max_length=8,
                        verbose_name="severity",
                    ),
                ),
                ("message", models.TextField(verbose_name="message")),
                ("count", models.PositiveIntegerField(db_default=1, verbose_name="count")),
                (
                    "opened_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="since"),
                ),
                (
                    "seen_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="last change"
                    ),
                ),
                ("told_at", models.DateTimeField(null=True, verbose_name="last told")),
                ("resolved_at", models.DateTimeField(null=True, verbose_name="resolved")),
                ("acknowledged_at", models.DateTimeField(null=True, verbose_name="acknowledged")),
                ("acknowledged_by", models.CharField(db_default="", max_length=150, verbose_name="acknowledged by")),
            ],
            options={
                "verbose_name": "alert",
                "verbose_name_plural": "alerts",
                "ordering": ["-opened_at", "-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("resolved_at__isnull", False)),
                        fields=["resolved_at"],
                        name="reliable_alert_resolved",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("resolved_at__isnull", True)),
                        fields=("kind", "subject"),
                        name="reliable_alert_open_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Batch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("parent_id", models.BigIntegerField(null=True, verbose_name="parent")),
                ("on_success", models.CharField(max_length=255, null=True, verbose_name="on success")),
                ("on_failure", models.CharField(max_length=255, null=True, verbose_name="on failure")),
                ("on_finish", models.CharField(max_length=255, null=True, verbose_name="on finish")),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="created"),
                ),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished")),
                ("succeeded", models.IntegerField(null=True, verbose_name="succeeded")),
                ("failed", models.IntegerField(null=True, verbose_name="failed")),
            ],
            options={
                "verbose_name": "batch",
                "verbose_name_plural": "batches",
                "indexes": [
                    models.Index(
                        condition=models.Q(("parent_id__isnull", False)),
                        fields=["parent_id"],
                        name="reliable_batch_parent",
                    ),
                    models.Index(
                        condition=models.Q(("finished_at__isnull", True)), fields=["id"], name="reliable_batch_open"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="CancelRequest",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="django_reliable_jobs.job",
                        verbose_name="job",
                    ),
                ),
                (
                    "requested_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="requested"
                    ),
                ),
                ("reason", models.TextField(db_default="", verbose_name="reason")),
                ("with_children", models.BooleanField(db_default=False, verbose_name="with its children")),
            ],
            options={
                "verbose_name": "cancel request",
                "verbose_name_plural": "cancel requests",
            },
        ),
        migrations.CreateModel(
            name="Wait",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="django_reliable_jobs.job",
                        verbose_name="job",
                    ),
                ),
                ("event", models.CharField(max_length=255, null=True, verbose_name="event")),
                ("batches", models.JSONField(null=True, verbose_name="batches")),
                (
                    "since",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="since"),
                ),
                ("is_satisfied", models.BooleanField(db_default=False, verbose_name="satisfied")),
            ],
            options={
                "verbose_name": "wait",
                "verbose_name_plural": "waits",
            },
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(
                    ("concurrency_key__isnull", True),
                    ("rate_key__isnull", True),
                    ("serial_key__isnull", True),
                    ("status", "READY"),
                ),
                fields=["queue_name", "priority", "run_after", "id"],
                name="reliable_job_ready",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                models.F("queue_name"),
                models.Func(
                    django.db.models.functions.comparison.Coalesce("concurrency_key", models.Value("")),
                    django.db.models.functions.comparison.Coalesce("rate_key", models.Value("")),
                    django.db.models.functions.comparison.Coalesce("serial_key", models.Value("")),
                    arg_joiner=" || chr(10) || ",
                    output_field=models.TextField(),
                    template='(%(expressions)s) COLLATE "C"',
                ),
                models.OrderBy(models.F("priority"), descending=True),
                models.F("run_after"),
                models.F("id"),
                condition=models.Q(
                    ("status", "READY"),
                    models.Q(
                        ("concurrency_key__isnull", False),
                        ("rate_key__isnull", False),
                        ("serial_key__isnull", False),
                        _connector="OR",
                    ),
                ),
                name="reliable_job_limited",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("concurrency_key__isnull", False), ("status", "RUNNING")),
                fields=["concurrency_key"],
                name="reliable_job_holds_place",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("serial_key__isnull", False), ("status", "RUNNING")),
                fields=["serial_key"],
                name="reliable_job_holds_turn",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status__in", ("SCHEDULED", "WAITING"))),
                fields=["run_after", "id"],
                name="reliable_job_due",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status", "RUNNING")), fields=["worker_id"], name="reliable_job_running"
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("finished_at__isnull", False)),
                fields=["status", "task", "queue_name", "finished_at"],
                name="reliable_job_ended",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status__in", ("DEAD", "CANCELLED"))),
                fields=["status", "id"],
                name="reliable_job_not_succeeded",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(condition=models.Q(("status", "DEAD")), fields=["task", "id"], name="reliable_job_dead"),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status", "DEAD")), fields=["finished_at"], name="reliable_job_died"
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("batch_id__isnull", False)),
                fields=["batch_id", "finished_at"],
                name="reliable_job_of_batch",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("compensation", "failed")), fields=["id"], name="reliable_job_undo_failed"
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("schedule_id__isnull", False)),
                fields=["schedule_id", "status", "finished_at"],
                name="reliable_job_of_schedule",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(("priority__gte", -100), ("priority__lte", 100)),
                name="reliable_job_priority_in_range",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status", "RUNNING"), _negated=True),
                    models.Q(("started_at__isnull", False), ("token__isnull", False), ("worker_id__isnull", False)),
                    _connector="OR",
                ),
                name="reliable_job_running_has_owner",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("finished_at__isnull", False), ("status__in", ("SUCCEEDED", "DEAD", "CANCELLED"))),
                    models.Q(
                        ("finished_at__isnull", True), ("status__in", ("SCHEDULED", "READY", "RUNNING", "WAITING"))
                    ),
                    _connector="OR",
                ),
                name="reliable_job_ended_has_moment",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("attempt__gte", 0),
                    ("losses__gte", 0),
                    ("max_attempts__gte", 1),
                    ("run__gte", 1),
                    ("claims__gte", models.F("attempt")),
                ),
                name="reliable_job_counts_in_range",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("status__in", ("SCHEDULED", "READY", "RUNNING", "WAITING")), ("unique_hash__isnull", False)
                ),
                fields=("unique_hash",),
                name="reliable_job_unique",
            ),
        ),
        migrations.AddField(
            model_name="attempt",
            name="job",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="attempts",
                to="django_reliable_jobs.job",
                verbose_name="job",
            ),
        ),
        migrations.AddField(
            model_name="checkpoint",
            name="job",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="checkpoints",
                to="django_reliable_jobs.job",
                verbose_name="job",
            ),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(condition=models.Q(("is_new", True)), fields=["id"], name="reliable_event_new"),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["emitted_at"], name="reliable_event_old"),
        ),
        migrations.AddConstraint(
            model_name="limit",
            constraint=models.UniqueConstraint(fields=("kind", "name"), name="reliable_limit_once"),
        ),
        migrations.AddConstraint(
            model_name="limit",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("burst__isnull", True), ("kind", "concurrency"), ("period__isnull", True)),
                    models.Q(
                        ("burst__gte", 1),
                        ("burst__isnull", False),
                        ("kind", "rate"),
                        ("period__in", (1, 60, 3600)),
                        ("period__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="reliable_limit_is_complete",
            ),
        ),
        migrations.AddConstraint(
            model_name="limit",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("override_allowed__isnull", True),
                        ("override_burst__isnull", True),
                        ("override_period__isnull", True),
                    ),
                    models.Q(
                        ("override_allowed__isnull", False),
                        ("kind", "concurrency"),
                        ("override_burst__isnull", True),
                        ("override_period__isnull", True),
                    ),
                    models.Q(
                        ("kind", "rate"),
                        ("override_allowed__isnull", False),
                        ("override_period__isnull", False),
                        ("override_burst__gte", 1),
                        ("override_burst__isnull", False),
                        ("override_period__in", (1, 60, 3600)),
                    ),
                    _connector="OR",
                ),
                name="reliable_limit_override_is_complete",
            ),
        ),
        migrations.AddField(
            model_name="notice",
            name="alert",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="notices",
                to="django_reliable_jobs.alert",
                verbose_name="alert",
            ),
        ),
        migrations.AddField(
            model_name="progress",
            name="job",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="progress",
                to="django_reliable_jobs.job",
                verbose_name="job",
            ),
        ),
        migrations.AddConstraint(
            model_name="queue",
            constraint=models.CheckConstraint(
                condition=models.Q(("resume_at__isnull", True), ("paused_at__isnull", False), _connector="OR"),
                name="reliable_queue_resumes_if_paused",
            ),
        ),
        migrations.AddConstraint(
            model_name="queue",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("name", "*"), _negated=True), ("concurrency__isnull", True), _connector="OR"
                ),
                name="reliable_queue_all_have_no_limit",
            ),
        ),
        migrations.AddIndex(
            model_name="schedule",
            index=models.Index(
                condition=models.Q(("next_run_at__isnull", False)),
                fields=["next_run_at", "id"],
                name="reliable_schedule_due",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("next_run_at__isnull", True), ("next_run_at__gt", models.F("decided_until")), _connector="OR"
                ),
                name="reliable_schedule_next_is_undecided",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("paused_at__isnull", True),
                    ("resume_at__isnull", False),
                    ("next_run_at__isnull", True),
                    _connector="OR",
                ),
                name="reliable_schedule_paused_has_no_next",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("paused_at__isnull", False),
                    models.Q(("pause_reason", ""), ("resume_at__isnull", True)),
                    _connector="OR",
                ),
                name="reliable_schedule_resumes_if_paused",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("ends_at__isnull", True),
                    ("starts_at__isnull", True),
                    ("ends_at__gte", models.F("starts_at")),
                    _connector="OR",
                ),
                name="reliable_schedule_ends_after_start",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("horizon__isnull", True), ("horizon__lte", models.F("decided_until")), _connector="OR"
                ),
                name="reliable_schedule_horizon_is_decided",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("error", ""), ("error_at__isnull", True), ("retry_at__isnull", True)),
                    models.Q(
                        models.Q(("error", ""), _negated=True), ("error_at__isnull", False), ("retry_at__isnull", False)
                    ),
                    _connector="OR",
                ),
                name="reliable_schedule_broken_is_complete",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("priority__isnull", True),
                        models.Q(("priority__gte", -100), ("priority__lte", 100)),
                        _connector="OR",
                    ),
                    ("catch_up_limit__gte", 1),
                    ("catch_up_limit__lte", 1000),
                ),
                name="reliable_schedule_values_in_range",
            ),
        ),
        migrations.AddConstraint(
            model_name="slot",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("job_id__isnull", False), ("outcome", "job"), ("reason", "")),
                    models.Q(
                        ("job_id__isnull", True),
                        ("outcome__in", ("missed", "skipped")),
                        models.Q(("reason", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="reliable_slot_has_job_or_reason",
            ),
        ),
        migrations.AddIndex(
            model_name="slotrange",
            index=models.Index(fields=["schedule_id", "last"], name="reliable_range_of_schedule"),
        ),
        migrations.AddConstraint(
            model_name="slotrange",
            constraint=models.CheckConstraint(
                condition=models.Q(("last__gte", models.F("first"))), name="reliable_range_runs_forward"
            ),
        ),
        migrations.AddConstraint(
            model_name="slotrange",
            constraint=models.CheckConstraint(
                condition=models.Q(("outcome__in", ("missed", "skipped"))), name="reliable_range_has_no_job"
            ),
        ),
        migrations.AddIndex(
            model_name="wait",
            index=models.Index(
                condition=models.Q(("event__isnull", False)), fields=["event"], name="reliable_wait_event"
            ),
        ),
        migrations.AddIndex(
            model_name="wait",
            index=models.Index(
                condition=models.Q(("is_satisfied", True)), fields=["job"], name="reliable_wait_satisfied"
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.UniqueConstraint(fields=("job", "claim"), name="reliable_attempt_once"),
        ),
        migrations.AddConstraint(
            model_name="checkpoint",
            constraint=models.UniqueConstraint(fields=("job", "run", "name", "kind"), name="reliable_checkpoint_once"),
        ),
        migrations.AddIndex(
            model_name="notice",
            index=models.Index(fields=["channel", "due_at"], name="reliable_notice_due"),
        ),
    ]

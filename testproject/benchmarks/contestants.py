"""Who is measured: what each needs, with which settings it runs, and what its tables say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from django_reliable_jobs.engine.plain import INSERT_ONE

_ROWS = "generate_series(1, {rows}) AS given(number)"
_OURS = "INSERT INTO django_reliable_jobs_job (task, kwargs, status, created_at, run_after"
_KWARGS = "jsonb_build_object('number', number, 'note', 'two JSON arguments')"

_TASK_RESULT = """INSERT INTO django_tasks_database_dbtaskresult (id, status, enqueued_at, args_kwargs, priority,
    task_path, worker_ids, queue_name, backend_name, run_after, exception_class_path, traceback"""
_TASK_PATH = "testproject.benchmarks.peers.django_tasks_db_tasks.noop"
_TASK_ARGUMENTS = f"jsonb_build_object('args', '[]'::jsonb, 'kwargs', {_KWARGS})"


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One system, or one way to run it. The SQL is about its own tables; {rows} stands for a number."""

    name: str
    driver: str  # a module of `peers`
    packages: tuple[str, ...] = ()  # none: it runs in our environment
    concurrency: int = 1
    settings: str  # in words, for the report
    left: str | None = None  # is any job left that is not finished and not in the future? None: no table to ask
    tables: str | None = None  # whose `setup` it uses, if not its own
    finished: tuple[str, ...] = ()  # makes rows of finished jobs
    future: tuple[str, ...] = ()  # makes rows of jobs that are due in a month
    environment: dict[str, str] = field(default_factory=dict)
    needs_redis: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether `manage.py runworker` is its worker."""
        return self.driver in ("ours", "ours_steps")

    def with_concurrency(self, concurrency: int | None) -> Contestant:
        """Return the same with another concurrency, if one is given."""
        return self if concurrency is None else replace(self, concurrency=concurrency)


_LEFT = """SELECT EXISTS (SELECT 1 FROM django_reliable_jobs_job WHERE status = 'READY' AND concurrency_key IS NULL
                            AND rate_key IS NULL AND serial_key IS NULL AND queue_name = 'default')
               OR EXISTS (SELECT 1 FROM django_reliable_jobs_job WHERE status = 'RUNNING' AND worker_id > 0
                            AND task = 'benchmark.noop')"""

OURS = Contestant(
    name="ours",
    driver="ours",
    concurrency=8,
    settings="manage.py runworker, {concurrency} threads, everything else default",
    left=_LEFT,
    finished=(
        f"""{_OURS}, attempt, claims, token, worker_id, first_started_at, started_at, finished_at)
            SELECT 'benchmark.noop', {_KWARGS}, 'SUCCEEDED', at, at, 1, 1, number, 1, at, at, at
              FROM {_ROWS},
                   LATERAL (SELECT now() - interval '1 day' - number * interval '0.1 second' AS at) moment""",
    ),
    future=(
        f"""{_OURS}) SELECT 'benchmark.noop', {_KWARGS}, 'SCHEDULED', now(), now() + interval '30 days'
              FROM {_ROWS}""",
    ),
)

# Only where no transaction pooler stands between Django and PostgreSQL.
OURS_PREPARED = replace(
    OURS,
    name="ours-prepared",
    settings="as ours, with server_side_binding and prepare_threshold=5 in the OPTIONS of the database",
    environment={"BENCHMARK_PREPARED": "1"},
)

RAW_SQL = Contestant(
    name="raw-sql",
    driver="raw_sql",
    concurrency=100,
    settings="one psycopg connection on our table: claim {concurrency}, run, finish {concurrency}; prepared statements",
    left=_LEFT,
    tables="ours",
    finished=OURS.finished,
    future=OURS.future,
)

RAW_SQL_UNPREPARED = replace(
    RAW_SQL,
    name="raw-sql-unprepared",
    settings=RAW_SQL.settings.replace("prepared statements", "as Django has psycopg connect: nothing is prepared"),
    environment={"BENCHMARK_PREPARED": "0"},
)

RAW_SQL_SAME = replace(
    RAW_SQL,
    name="raw-sql-same",
    settings=f"{RAW_SQL.settings}; enqueues by the very statement of ours, with its look for an idle worker",
    environment={"BENCHMARK_INSERT": INSERT_ONE},
)

PGQUEUER = Contestant(
    name="pgqueuer",
    driver="pgqueuer",
    packages=("pgqueuer==1.6.0", "asyncpg", "uvloop", "psycopg[binary]"),
    concurrency=500,
    settings="asyncpg and uvloop, batch_size {concurrency} (its default is 10)",
    left="SELECT EXISTS (SELECT 1 FROM pgqueuer WHERE execute_after <= now())",
    finished=(
        f"""INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint, aggregated)
            SELECT number, 'successful', 0, 'noop', true FROM {_ROWS}""",
    ),
    future=(
        f"""INSERT INTO pgqueuer (priority, status, entrypoint, payload, execute_after)
            SELECT 0, 'queued', 'noop', '{{"number": 1, "note": ""}}'::bytea, now() + interval '30 days'
              FROM {_ROWS}""",
    ),
)

PROCRASTINATE = Contestant(
    name="procrastinate",
    driver="procrastinate",
    packages=("procrastinate==3.10.0", "psycopg[binary]"),
    concurrency=20,
    settings="asynchronous worker, concurrency {concurrency}, a pool of 4 to 20, finished jobs kept (default)",
    left="""SELECT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing')
                            AND (scheduled_at IS NULL OR scheduled_at <= now()))""",
    finished=(
        f"""SET session_replication_role = replica;
            INSERT INTO procrastinate_jobs (queue_name, task_name, priority, args, status, attempts)
            SELECT 'default', 'noop', 0, {_KWARGS}, 'succeeded', 1 FROM {_ROWS}""",
    ),
    future=(
        f"""SET session_replication_role = replica;
            INSERT INTO procrastinate_jobs (queue_name, task_name, priority, args, status, scheduled_at)
            SELECT 'default', 'noop', 0, {_KWARGS}, 'todo', now() + interval '30 days' FROM {_ROWS}""",
    ),
)

DJANGO_TASKS_DB = Contestant(
    name="django-tasks-db",
    driver="django_tasks_db",
    packages=("django-tasks-db==0.13.0", "psycopg[binary]"),
    settings="db_worker, CONN_MAX_AGE=None, interval 1 s (default); one job at a time",
    left="""SELECT EXISTS (SELECT 1 FROM django_tasks_database_dbtaskresult WHERE status IN ('READY', 'RUNNING')
                            AND NOT (run_after > now() + interval '1 day' AND run_after < '9000-01-01'))""",
    finished=(
        f"""{_TASK_RESULT}, started_at, finished_at, return_value)
            SELECT gen_random_uuid(), 'SUCCESSFUL', now(), {_TASK_ARGUMENTS}, 0, '{_TASK_PATH}', '["x"]', 'default',
                   'default', '9999-01-01', '', '', now(), now(), 'null' FROM {_ROWS}""",
    ),
    future=(
        f"""{_TASK_RESULT})
            SELECT gen_random_uuid(), 'READY', now(), {_TASK_ARGUMENTS}, 0, '{_TASK_PATH}', '[]', 'default', 'default',
                   now() + interval '30 days', '', '' FROM {_ROWS}""",
    ),
)

OBAN = Contestant(
    name="oban",
    driver="oban",
    packages=("oban==0.7.0", "uvloop", "psycopg[binary]"),
    concurrency=100,
    settings="asyncio and uvloop, queue limit {concurrency}, pool of 1 to 10 connections",
    left="SELECT EXISTS (SELECT 1 FROM oban_jobs WHERE state IN ('available', 'executing'))",
)

CELERY = Contestant(
    name="celery",
    driver="celery",
    packages=("celery[redis]==5.7.0",),
    concurrency=2,
    settings="Redis (snapshots, no append-only file), prefork pool of {concurrency}, prefetch 16, results ignored",
    needs_redis=True,
)

CELERY_THREADS = Contestant(
    name="celery-threads",
    driver="celery",
    packages=CELERY.packages,
    concurrency=10,
    settings="Redis (snapshots, no append-only file), threads pool of {concurrency}, prefetch 16, results ignored",
    environment={"BENCHMARK_POOL": "threads"},
    needs_redis=True,
)

DBOS = Contestant(
    name="dbos",
    driver="dbos",
    packages=("dbos==3.4.0", "psycopg[binary]"),
    concurrency=8,
    settings="workflows of steps called directly in {concurrency} threads: no queue between",
    left="SELECT EXISTS (SELECT 1 FROM dbos.workflow_status WHERE status IN ('PENDING', 'ENQUEUED'))",
)

ABSURD = Contestant(
    name="absurd",
    driver="absurd",
    packages=("absurd-sdk==0.5.1", "psycopg[binary]"),
    concurrency=8,
    settings="synchronous worker, concurrency {concurrency}; tables by the file in ABSURD_SQL",
    left="SELECT EXISTS (SELECT 1 FROM absurd.t_default WHERE state NOT IN ('completed', 'failed', 'cancelled'))",
)

PEERS = {
    each.name: each
    for each in (
        OURS_PREPARED,
        RAW_SQL,
        RAW_SQL_UNPREPARED,
        RAW_SQL_SAME,
        PGQUEUER,
        PROCRASTINATE,
        DJANGO_TASKS_DB,
        OBAN,
        CELERY,
        CELERY_THREADS,
        DBOS,
        ABSURD,
    )
}

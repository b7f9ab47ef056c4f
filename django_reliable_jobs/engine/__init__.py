"""How rows change: short transactions; no threads, no sleeping, no code of the project.

Three chains:  enqueue -> claim -> (processes.execution) -> Outcome -> lifecycle
               exchange = lifecycle.SUCCEED + claim.CLAIM in one round trip
               schedule -> tick -> scheduled_jobs, and then as after enqueue

Who writes a job's status, and nothing else does:

    enqueue, scheduled_jobs
                 nothing -> SCHEDULED, READY        (and SCHEDULED/READY -> SCHEDULED: a postponed duplicate)
    maintenance  SCHEDULED -> READY                 when due
    claim        READY -> RUNNING
    lifecycle    RUNNING -> anything; SCHEDULED, READY, WAITING -> CANCELLED
    revival      ended, SCHEDULED -> READY          when a person asks
    atomic       RUNNING -> SUCCEEDED, with the task's own writes

Every write for an attempt names the token of its claim. Zero rows: the attempt was replaced, or somebody holds the row
at this moment; `lifecycle.sort_out` tells which.

Lock order: schedules ascending by id, job rows ascending by id, then what hangs on them. Locks on jobs are FOR NO KEY
UPDATE: a transaction of the project that references a job by foreign key holds FOR KEY SHARE, which FOR UPDATE SKIP
LOCKED would pass over.

Time: conditions compare with `statement_timestamp()`, which does not stand still in a caller's transaction as `now()`
does. `clock.moment()` replaces it in tests. Leases know only the database's clock.
"""

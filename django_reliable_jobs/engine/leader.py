"""Who is leader: one row per office, with a holder, a term, and an end on the database's clock.

Leadership spares work, it guarantees nothing: two leaders at once, or one that was stopped and wakes up after its term,
decide no slot twice, since the slot's primary key does not let them. So the rules are simple. A holder is a random
number per start of a process, never a host's name. Taking an office raises its term. Renewal names holder and term, so
that who was followed by another can't renew; any error, a read-only server included, means "not leader". Who resigns
ends the term at once and tells the others.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import DatabaseError, connections

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.heartbeat import Identity
from django_reliable_jobs.engine.transaction import short_transaction
from django_reliable_jobs.engine.wakeup import notify_schedulers

# SKIP LOCKED: somebody who renews or takes it at this moment is not waited for.
TAKE = """
WITH free AS MATERIALIZED (
    SELECT name, expires_at FROM django_reliable_jobs_leader
     WHERE name = %(name)s AND (expires_at <= clock_timestamp() OR holder = %(holder)s) FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE django_reliable_jobs_leader leader
   SET holder = %(holder)s, term = leader.term + 1, host = %(host)s, pid = %(pid)s, elected_at = clock_timestamp(),
       expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
  FROM free WHERE leader.name = free.name
RETURNING leader.term, free.expires_at, leader.elected_at
"""

FOUND = """
INSERT INTO django_reliable_jobs_leader (name, holder, term, host, pid, elected_at, expires_at)
VALUES (%(name)s, %(holder)s, 1, %(host)s, %(pid)s, clock_timestamp(),
        clock_timestamp() + make_interval(secs => %(seconds)s))
    ON CONFLICT (name) DO NOTHING RETURNING term, NULL, NULL
"""

RENEW = """
UPDATE django_reliable_jobs_leader
   SET expires_at = clock_timestamp() + make_interval(secs => %(seconds)s),
       clock_offset = %(host_clock)s - extract(epoch FROM clock_timestamp())::float8
 WHERE name = %(name)s AND holder = %(holder)s AND term = %(term)s AND expires_at > clock_timestamp()
"""

RESIGN = """
UPDATE django_reliable_jobs_leader SET expires_at = clock_timestamp()
 WHERE name = %(name)s AND holder = %(holder)s AND term = %(term)s AND expires_at > clock_timestamp()
"""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A process that wants an office; `term` is the one it holds, None if it is not leader.

    `vacancy` is from when to when nobody held the office before its term; None: nobody ever had.
    """

    name: str
    identity: Identity
    term: int | None = None
    vacancy: tuple[datetime, datetime] | None = None


def stand(using: str, candidate: Candidate) -> Candidate:
    """Renew the term, or take the office if it is free; return the candidate as it is now. Never raises DatabaseError.

    After an error the connection is closed: after a failover it may lead to a server that can't be written to.
    """
    try:
        with short_transaction(using, lock_timeout=1, statement_timeout=settings.LEADER_SECONDS / 3) as cursor:
            if candidate.term is not None:
                cursor.execute(RENEW, _parameters(candidate))
                return candidate if cursor.rowcount else replace(candidate, term=None)
            cursor.execute(TAKE, _parameters(candidate))
            row = cursor.fetchone()
            if row is None:
                cursor.execute(FOUND, _parameters(candidate))
                row = cursor.fetchone()
            if row is None:
                return candidate
            term, vacant_since, elected_at = row
            return replace(candidate, term=term, vacancy=(vacant_since, elected_at) if vacant_since else None)
    except DatabaseError:
        connections[using].close()
        return replace(candidate, term=None)


def resign(using: str, candidate: Candidate) -> None:
    """End the term now, if it is still this candidate's, and wake the others."""
    if candidate.term is None:
        return
    with short_transaction(using, lock_timeout=1, statement_timeout=2) as cursor:
        cursor.execute(RESIGN, _parameters(candidate))
        notify_schedulers(using)


def _parameters(candidate: Candidate) -> dict[str, Any]:
    identity = candidate.identity
    return {
        "name": candidate.name,
        "holder": identity.id,
        "term": candidate.term,
        "host": identity.host,
        "pid": identity.pid,
        "seconds": settings.LEADER_SECONDS,
        "host_clock": time.time(),
    }

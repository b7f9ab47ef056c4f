"""Settings of the processes of a run: the test project's, with short leases and nothing pruned."""

from __future__ import annotations

from testproject.settings import *  # noqa: F403

DEBUG = False

RELIABLE_JOBS = {
    "LEASE_SECONDS": env.float("CHAOS_LEASE_SECONDS", default=4.0),  # noqa: F405
    "LEADER_SECONDS": env.float("CHAOS_LEASE_SECONDS", default=4.0),  # noqa: F405
    "POLL_SECONDS": 0.5,
    "RETENTION": {"SUCCEEDED": None, "CANCELLED": None, "DEAD": None},
}

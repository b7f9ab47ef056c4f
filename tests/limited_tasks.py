"""Tasks with limits, for tests and their workers."""

from __future__ import annotations

import time

from django_reliable_jobs import Concurrency, Rate, task
from tests.interrupted_tasks import stand_at_gate
from tests.tasks import leave_effect


@task(concurrency=1)
def one_at_a_time(name: str = "one", seconds: float = 0) -> None:
    leave_effect(name)
    time.sleep(seconds)


@task(concurrency=3)
def three_at_a_time(seconds: float = 0, folder: str = "", gate: str = "") -> None:
    time.sleep(seconds)
    if gate:
        stand_at_gate(folder, gate)


@task(concurrency=Concurrency(1, per="customer_id"))
def per_customer(customer_id: int, seconds: float = 0) -> None:
    time.sleep(seconds)


@task(concurrency=Concurrency(2, name="crm"))
def crm_read(name: str = "read", seconds: float = 0) -> None:
    leave_effect(name)
    time.sleep(seconds)


@task(concurrency=Concurrency(2, name="crm"), queue_name="exports")
def crm_export(name: str = "export", seconds: float = 0) -> None:
    leave_effect(name)
    time.sleep(seconds)


@task(rate_limit="10/s")
def ten_a_second() -> None:
    pass


@task(rate_limit=Rate("60/m", burst=2))
def one_a_second(name: str = "mail") -> None:
    leave_effect(name)


@task(concurrency=Concurrency(1, per="customer_id"), rate_limit=Rate("1000/h", name="api", burst=3))
def call_api(customer_id: int, name: str = "call") -> None:
    leave_effect(f"{name} {customer_id}")


@task(concurrency=1, max_attempts=1)
def once_and_alone(seconds: float = 0) -> None:
    leave_effect("once")
    time.sleep(seconds)


@task(concurrency=1, unique="key", unique_until="start", on_duplicate="replace")
def rebuild(key: str, name: str = "rebuild") -> None:
    leave_effect(f"{name} {key}")


@task(concurrency=Concurrency(1, per="customer_id"), unique="key", on_duplicate="replace")
def for_customer(key: str, customer_id: int) -> None:
    pass


@task(concurrency=1)
def bury_alone(job_id: int) -> None:
    leave_effect(f"buried {job_id}")


@task(max_attempts=1, on_dead=bury_alone)
def dies() -> None:
    raise ValueError("dead")

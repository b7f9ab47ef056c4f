"""The package's own tasks."""

from __future__ import annotations

from django_reliable_jobs import web_requests
from django_reliable_jobs.conf import settings
from django_reliable_jobs.registry import task
from django_reliable_jobs.retry import exponential


@task(
    name="django_reliable_jobs.ping",
    max_attempts=12,
    backoff=exponential(first=5, factor=2, maximum=900),
    timeout=60,
    sensitive=["url"],
)
def ping(url: str, body: str = "") -> None:
    """Tell a monitor outside, by one POST, how a job of a schedule fared. The address is as good as a password."""
    _post(url, body)


@task(name="django_reliable_jobs.ping_start", max_attempts=3, expires=60, timeout=60, sensitive=["url"])
def ping_start(url: str) -> None:
    """Tell a monitor that a job of a schedule has started; told late, it would confuse more than it tells."""
    _post(url, "")


def _post(url: str, body: str) -> None:
    web_requests.send("POST", url, body=body.encode(), allow_private=settings.ALLOW_PRIVATE_ADDRESSES)

"""Unique jobs: one waiting job per key, and the last change of every caller is seen by a job that started after it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from django.db.models import F

from django_reliable_jobs import exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import MUST_SUCCEED, Kind, leave, spend
from testproject.chaos.models import Topic

TOPICS = 8


@task(
    name="chaos.index",
    unique="topic",
    unique_until="start",
    max_attempts=50,
    backoff=exponential(first=0.2, maximum=2),
)
def index(topic: str) -> None:
    leave("begin")
    version = Topic.objects.get(pk=topic).version
    spend(0.02)
    Topic.objects.filter(pk=topic, seen__lt=version).update(seen=version)


@task(name="chaos.publish", unique="topic", max_attempts=50, backoff=exponential(first=0.2, maximum=2))
def publish(topic: str, seconds: float) -> None:
    """Unique until its end, so that two of a topic never run at the same time."""
    leave("begin")
    spend(seconds)
    leave("end")


def enqueue(dice: Random) -> Sequence[Job]:
    topic = f"topic {dice.randrange(TOPICS)}"
    if dice.random() < 0.3:
        return [publish.enqueue(topic, round(dice.uniform(0, 1), 3))]
    # The order of locks is the same for all callers: the topic, then its job.
    if not Topic.objects.filter(pk=topic).update(version=F("version") + 1):
        Topic.objects.get_or_create(pk=topic)
    return [index.enqueue(topic)]


KIND = Kind(
    name="unique",
    weight=15,
    enqueue=enqueue,
    forbidden={
        "the last change of a caller was seen by no job": """
            SELECT max(jobs.id) FROM chaos_topic topic
                JOIN jobs ON jobs.task = 'chaos.index' AND jobs.args ->> 0 = topic.name
               WHERE topic.seen < topic.version GROUP BY topic.name""",
        "two jobs of a key ran at the same time": """
            SELECT one.id FROM (
                SELECT jobs.id, max(effects.at) FILTER (WHERE lost.id IS NULL) AS last_at,
                       lead(min(effects.at)) OVER (PARTITION BY jobs.args ->> 0 ORDER BY jobs.id) AS next_at
                  FROM jobs JOIN effects ON effects.job_id = jobs.id
                  LEFT JOIN django_reliable_jobs_attempt lost
                         ON lost.job_id = jobs.id AND lost.claim = effects.claim AND lost.outcome = 'lost'
                 WHERE jobs.task = 'chaos.publish' GROUP BY jobs.id, jobs.args) one
               WHERE one.last_at > one.next_at""",
        **MUST_SUCCEED,
    },
)

"""`python -m testproject.chaos.producer`: enqueues without a pause, in transactions of which some roll back.

It reaches the database as the workers do, through the proxy, and is killed like them.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from random import Random

import django
from django.db import Error, connection, transaction

ROLLED_BACK = 0.1  # of the transactions
PARTLY_ROLLED_BACK = 0.1  # to a savepoint
MEDDLES = 0.02


class RolledBack(Exception):
    """Raised inside a transaction to roll it back."""


class Producer:
    """Makes transactions at `rate` a second until it is asked to stop, and counts what became of them."""

    def __init__(self, dice: Random, rate: float) -> None:
        from testproject.chaos.work import KINDS

        self.dice = dice
        self.rate = rate
        self.counts: Counter[str] = Counter()
        self.stopping = threading.Event()
        self._kinds = KINDS

    def run(self) -> None:
        pause = 0.0
        while not self.stopping.wait(pause):
            pause = self.dice.expovariate(self.rate)
            try:
                self._act()
            except RolledBack:
                self.counts["rolled back"] += 1
            except Error as error:
                self.counts["failed"] += 1
                print(f"failed: {type(error).__name__}: {str(error).strip()}", flush=True)  # noqa: T201 - its log
                connection.close()
                pause = 0.2

    def _act(self) -> None:
        meddlers = [kind.meddle for kind in self._kinds if kind.meddle]
        if meddlers and self.dice.random() < MEDDLES:
            with transaction.atomic():
                self.dice.choice(meddlers)(self.dice)
            return
        with transaction.atomic():
            self._enqueue()
            if self.dice.random() < PARTLY_ROLLED_BACK:
                self._enqueue_in_vain()
            if self.dice.random() < ROLLED_BACK:
                raise RolledBack
        self.counts["committed"] += 1

    def _enqueue_in_vain(self) -> None:
        try:
            with transaction.atomic():
                self._enqueue()
                raise RolledBack
        except RolledBack:
            self.counts["savepoints rolled back"] += 1

    def _enqueue(self) -> None:
        from testproject.chaos.models import Receipt

        [kind] = self.dice.choices(self._kinds, [kind.weight for kind in self._kinds])
        jobs = kind.enqueue(self.dice)
        Receipt.objects.bulk_create([Receipt(kind=kind.name, job_id=job.pk, created=job.created) for job in jobs])


def main(seed: str, rate: str) -> None:
    """Run until SIGTERM; the last line of the output has the counts, as does one every five seconds."""
    django.setup()
    producer = Producer(Random(seed), float(rate))  # noqa: S311 - not a secret
    signal.signal(signal.SIGTERM, lambda *_: producer.stopping.set())
    reporter = threading.Thread(target=_report, args=(producer,), daemon=True)
    reporter.start()
    producer.run()
    reporter.join()


def _report(producer: Producer) -> None:
    while not producer.stopping.wait(1):
        _print_counts(producer)
    _print_counts(producer)


def _print_counts(producer: Producer) -> None:
    print("counts:", ";".join(f"{name}={count}" for name, count in list(producer.counts.items())), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])

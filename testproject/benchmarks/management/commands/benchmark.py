"""`manage.py benchmark`: measure this project, alone or by turns with its peers."""

from __future__ import annotations

import json
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from testproject.benchmarks import report
from testproject.benchmarks.arena import Arena, Failed
from testproject.benchmarks.bench import Bench
from testproject.benchmarks.contestants import OURS, PEERS
from testproject.benchmarks.environments import Environments

MEASURES = ["enqueue", "bulk", "drain", "latency", "idle", "history", "future", "bloat", "startup", "hostage"]
MEASURES += ["batches", "claims", "limited", "otp", "schedules", "steps", "waiting", "children", "admin", "shards"]


class Command(BaseCommand):
    """Parse the arguments, run the measures, print and keep the report."""

    help = "Measure this project on a private PostgreSQL, alone or by turns with its peers."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add what may be chosen."""
        add = parser.add_argument
        add("measures", nargs="*", metavar="MEASURE", help=f"which of {', '.join(MEASURES)}; default: all")
        add("--peer", action="append", choices=[*PEERS], default=[], dest="peers", help="repeat for more")
        add("--install-peers", action="store_true", help="first make the environments of the peers named by --peer")
        add("--rounds", type=int, default=3, metavar="N", help="turns of each contestant (default: 3)")
        add("--jobs", type=int, metavar="N", help="jobs in a run; default: what each measure says")
        add("--rows", type=int, metavar="N", help="rows beside the jobs in history and future (default: 1,000,000)")
        add("--seconds", type=float, metavar="N", help="how long enqueue and idle run; how long hostage's job naps")
        add("--processes", type=int, default=1, metavar="N", help="worker processes (default: 1)")
        add("--threads", type=int, default=OURS.concurrency, metavar="N", help="of our worker (default: 8)")
        add("--concurrency", type=int, metavar="N", help="of the peers: jobs at once, or the size of a batch")
        add("--postgres", type=Path, metavar="DIR", help="programs of another PostgreSQL than the embedded one")
        add("--json", type=Path, metavar="FILE", help="write all figures to this file")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it."""
        unknown = set(options["measures"]) - set(MEASURES)
        if unknown:
            raise CommandError(f"there is no measure {', '.join(sorted(unknown))}; choose from {', '.join(MEASURES)}")
        # An exception, so that the private server is stopped.
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        home = settings.BASE_DIR / ".benchmarks"
        try:
            peers = self.find_peers(options, Environments(home / "peers"))
            with Arena(home, options["postgres"]) as arena:
                names = ("rounds", "jobs", "rows", "seconds", "processes", "threads")
                bench = Bench(arena=arena, peers=peers, say=self.say, **{name: options[name] for name in names})
                self.run(bench, options["measures"] or MEASURES, options["json"])
        except Failed as error:
            raise CommandError(str(error)) from error
        finally:
            signal.signal(signal.SIGTERM, before)

    def run(self, bench: Bench, measures: list[str], file: Path | None) -> None:
        """Run the measures, print each comparison when it is known, and keep what there is after each."""
        comparisons = []
        for name in measures:
            self.stdout.write(self.style.MIGRATE_HEADING(name))
            for comparison in import_module(f"testproject.benchmarks.measures.{name}").measure(bench):
                comparisons.append(comparison)
                self.stdout.write("\n".join(report.lines(comparison)))
            if file is not None:
                file.write_text(json.dumps(report.as_json(bench, comparisons), indent=1))

    def find_peers(self, options: dict[str, Any], environments: Environments) -> list[Any]:
        """Return the peers that were asked for, installed."""
        peers = [PEERS[name].with_concurrency(options["concurrency"]) for name in options["peers"]]
        for peer in peers:
            if options["install_peers"] and not environments.has(peer):
                self.say(f"installing {peer.name}: {', '.join(peer.packages)}")
                environments.install(peer)
            if not environments.has(peer):
                raise CommandError(f"{peer.name} is not installed: add --install-peers")
        return peers

    def say(self, text: str) -> None:
        """Print progress."""
        self.stdout.write(text)
        self.stdout.flush()

"""Do what docs/tutorial/nightly-invoices.md tells, word for word, in an empty folder.

`python run_tutorial.py PAGE`, by a Python that has the package, and with DATABASE_URL set. The folder and the database
that it makes are removed. Only where the page tells the reader to sleep, this waits for what the sleep is there for: a
machine may be slow.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

DATABASE = "reliable_jobs_tutorial"
PART = re.compile(r"^<!-- (run|write \S+|append \S+) -->\n```\w+\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.M | re.S)
END = "== end of part"
SLEEP = re.compile(r"^sleep \d+$", re.M)
PATIENCE_SECONDS = 240
# What each sleep of the page, in order, waits for: true in the tutorial's database.
AWAITED = (
    "SELECT count(*) > 0 FROM django_reliable_jobs_leader",  # the worker has started, and schedules
    # Batches are committed, and how far they came was told. One invoice is there from before.
    "SELECT (SELECT count(*) FROM billing_invoice) > 20 AND EXISTS (SELECT FROM django_reliable_jobs_progress)",
    "SELECT count(*) = 0 FROM billing_invoice WHERE mailed_at IS NULL",
)


def do(page: str, folder: Path, environment: dict[str, str]) -> None:
    """Write the files and run the commands in one shell, since later ones use the variables of earlier ones."""
    parts = PART.findall(page)
    shell = subprocess.run(
        ["/bin/bash", "-c", script_of(parts, folder)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
    )
    outputs = shell.stdout.split(f"{END}\n")
    for (_, _, told), output in zip(parts, outputs, strict=False):
        print(output, end="")
        compare(told, output)
    if shell.returncode:
        sys.exit(f"The tutorial fails: {outputs[len(outputs) - 1]}")
    check(outputs)


def script_of(parts: list[tuple[str, str, str]], folder: Path) -> str:
    """The parts of the page as one script; what goes into files lies beside it."""
    script = ["set -euo pipefail"]
    awaited = iter(AWAITED)
    for number, (action, code, _) in enumerate(parts):
        if action == "run":
            script.append(SLEEP.sub(lambda _: command_until(next(awaited)), code))
        else:
            kind, name = action.split()
            (folder / f"part-{number}").write_text(code)
            script.append(f"cat part-{number} {'>' if kind == 'write' else '>>'} {name}")
        script.append(f"echo '{END}'")
    if list(awaited):
        sys.exit("The tutorial sleeps less often than there are things to wait for.")
    return "\n".join(script)


def command_until(query: str) -> str:
    """The command that waits for what a sleep is there for."""
    return shlex.join([sys.executable, str(Path(__file__).resolve()), "--until", query])


def wait_until(query: str) -> None:
    """Ask the database of the tutorial until it says yes: a slow machine gets its time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with psycopg.connect(dbname=DATABASE, autocommit=True) as connection:
        while connection.execute(query).fetchone() != (True,):
            if time.monotonic() > deadline:
                sys.exit(f"Not so after {PATIENCE_SECONDS} s: {query}")
            time.sleep(0.1)


def compare(told: str, output: str) -> None:
    """Each line that the page shows must come, but for numbers, moments, hosts, and what `…` stands for."""
    came = [shape(line) for line in output.splitlines()]
    missing = [line for line in told.splitlines() if line.strip() not in ("", "…") and shape(line) not in came]
    if missing:
        sys.exit("The tutorial shows what does not come:\n" + "\n".join(missing))


def shape(line: str) -> str:
    """A line without what differs from run to run."""
    line = re.sub(r"\S+:\d+", "#", re.sub(r"\bon [\w.-]+", "on #", line))
    line = re.sub(r"\d+([.+-]\d+)*", "#", line)
    return " ".join(re.sub(r"# (d|h|min|s|ms)\b( # (d|h|min|s|ms)\b)*", "#", line).split())


def check(outputs: list[str]) -> None:
    """What the reader is told to see."""
    counts = re.findall(r"(\d+) invoices, (\d+) mailed, (\d+) customers with two", "".join(outputs))
    if len(counts) != 2:
        sys.exit(f"The tutorial counts {len(counts)} times.")
    (before, _, _), after = counts
    if not (0 < int(before) < 200 and int(before) % 10 == 0 and after == ("200", "200", "0")):
        sys.exit(f"The tutorial comes to {counts}.")


def main(page: str) -> None:
    """Run the page on a database of its own."""
    url = os.environ["DATABASE_URL"]
    server = conninfo_to_dict(url)
    environment = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DATABASE_NAME": DATABASE,
        **{f"PG{key.upper()}": str(server[key]) for key in ("host", "port", "user", "password") if server.get(key)},
    }
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
        try:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                try:
                    do(Path(page).read_text(), folder, environment)
                finally:
                    stop_worker(folder / "worker.pid")
        finally:
            connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def stop_worker(file: Path) -> None:
    """One that a part which failed has left behind."""
    try:
        os.kill(int(file.read_text()), signal.SIGKILL)
    except (OSError, ValueError):
        return


if __name__ == "__main__":
    if sys.argv[1] == "--until":
        wait_until(sys.argv[2])
    else:
        main(sys.argv[1])

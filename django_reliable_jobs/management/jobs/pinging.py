"""`jobs ping`: whether a process on this machine lives, for probes that run a command."""

from __future__ import annotations

import http.client

from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb
from django_reliable_jobs.management.jobs.report import Report, printable_lines
from django_reliable_jobs.management.probing import port_number


def add_ping(verbs: Verbs) -> None:
    parser = add_verb(verbs, "ping", ping, "Ask a worker or scheduler at its --health-port whether its loops turn.")
    parser.add_argument("--port", type=port_number, required=True, metavar="PORT", help="its --health-port")
    parser.add_argument("--host", default="127.0.0.1", metavar="NAME", help="where it runs (default: here)")
    parser.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS", help="for its answer (default: 5)")


def ping(using: str, options: Options) -> Report:
    """Ask; the database is not looked at."""
    host, port = options["host"], options["port"]
    connection = http.client.HTTPConnection(host, port, timeout=options["timeout"])
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        lines = printable_lines(answer.read(10_000).decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException) as error:
        failure = f"nobody answers at {host}:{port}: {type(error).__name__}: {error}"
        return Report({"alive": False, "complaints": [failure]}, failure=failure)
    finally:
        connection.close()
    if answer.status == 200:
        return Report({"alive": True, "complaints": []}, lines)
    return Report({"alive": False, "complaints": lines}, failure="; ".join(lines))

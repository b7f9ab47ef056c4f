"""`manage.py benchmark` measures real workers on a private server; here so few jobs that only its honesty is tested."""

from __future__ import annotations

import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from testproject.benchmarks import contestants, report
from testproject.benchmarks.measures import admin, claims, otp
from testproject.benchmarks.measures import shards as shards_measure
from testproject.benchmarks.peers import marks
from testproject.benchmarks.rounds import Comparison, Run, Spread, by_turns, ratios


def run(*arguments: str, file: Path) -> tuple[str, dict[str, Any]]:
    output = io.StringIO()
    call_command("benchmark", *arguments, "--rounds=1", f"--json={file}", stdout=output, no_color=True)
    return output.getvalue(), json.loads(file.read_text())


def test_a_drain_beside_raw_sql_counts_every_job_once(tmp_path: Path) -> None:
    text, result = run("drain", "--peer=raw-sql", "--jobs=300", "--threads=2", file=tmp_path / "figures")
    [drain] = result["comparisons"]
    for runs in drain["runs"].values():
        assert [each["details"]["jobs"] for each in runs] == [300]
        assert all(each["value"] > 0 and each["details"]["wal_bytes_per_job"] > 100 for each in runs)
    [ours], [raw] = drain["runs"]["ours"], drain["runs"]["raw-sql"]
    assert drain["ratios"] == {"ours / raw-sql": [ours["value"] / raw["value"]]}
    assert result["contestants"]["ours"]["settings"].startswith("manage.py runworker, 2 threads")
    assert result["postgresql_settings"]["fsync"] == "on"
    assert "ours / raw-sql" in text and "bytes of WAL/job" in text


def test_schedules_that_are_due_at_once_are_all_decided(tmp_path: Path) -> None:
    text, result = run("schedules", "--rows=60", "--jobs=55", file=tmp_path / "figures")
    due, common, sparse = result["comparisons"]
    assert due["runs"]["ours"][0]["details"]["jobs"] == 55
    assert due["runs"]["ours"][0]["details"]["ticks"] == 2, "fifty in one transaction"
    assert len(common["runs"]) == 5 and len(sparse["runs"]) == 3
    assert all(0 < each["value"] < 10_000 for runs in sparse["runs"].values() for each in runs)
    assert "55 of 60 schedules due at once" in text


def test_claims_from_few_keys_and_from_many_take_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "CLAIMS", 5)
    monkeypatch.setattr(claims, "SHAPES", {"2 keys": (2, 0), "50 keys, 40 of them at their limit": (50, 40)})
    _, result = run("claims", "--jobs=200", file=tmp_path / "figures")
    [claim] = result["comparisons"]
    assert set(claim["runs"]) == {"2 keys", "50 keys, 40 of them at their limit"}
    assert all(run["value"] > 0 for runs in claim["runs"].values() for run in runs)


def test_batches_and_the_loop_written_by_hand_go_through_all_rows(tmp_path: Path) -> None:
    _, result = run("batches", "--rows=2500", file=tmp_path / "figures")
    reading, writing = result["comparisons"]
    for comparison in (reading, writing):
        assert set(comparison["runs"]) == {"batches", "by hand"}
        assert [runs[0]["details"]["jobs"] for runs in comparison["runs"].values()] == [2500, 2500]
    assert "2,500 rows in batches of 1,000, writing" in writing["measure"]


def test_each_page_of_the_admin_is_asked_for_and_lists_what_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "TURNS", 1)
    text, result = run("admin", "--rows=1000", file=tmp_path / "figures")
    pages, beside_live_ones = result["comparisons"]
    assert set(pages["runs"]) == set(beside_live_ones["runs"])
    listed = {name: runs[0]["details"]["listed"] for name, runs in pages["runs"].items()}
    assert all(run["value"] > 0 and run["details"]["statements"] > 1 for runs in pages["runs"].values() for run in runs)
    assert listed["list, all"] == listed["list, task=mail"] == 50
    assert listed["list, task=yearly"] == listed["list, queue=rare"] == listed["list, search for yearly"] == 30
    assert listed["list, schedule that hardly runs"] == 30
    assert listed["list, a task that only waits"] == listed["list, a unique key"] == listed["list, an id"] == 1
    assert {listed[f"list, {name}"] for name in ("task=none", "queue=none", "search for none")} == {0}
    assert "pages of the admin, 1,000 ended jobs and 25 live ones" in text and "statements" in text
    assert "pages of the admin, 100 ended jobs and 1,000 live ones" in text


def test_two_databases_are_not_measured_on_one_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    with pytest.raises(CommandError, match="Two databases are measured on two cores, and there is one"):
        run("shards", "--jobs=300", file=tmp_path / "figures")


def test_two_databases_run_all_their_jobs_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(shards_measure, "two_cores", lambda: [cores[0], cores[-1]])  # the same, if there is one
    _, result = run("shards", "--jobs=300", file=tmp_path / "figures")
    [shards] = result["comparisons"]
    [one], [two] = shards["runs"]["one database"], shards["runs"]["two databases"]
    assert (len(one["details"]["each"]), len(two["details"]["each"])) == (1, 2)
    assert min(*one["details"]["each"], *two["details"]["each"]) > 0
    assert two["value"] == sum(two["details"]["each"])
    assert sorted(os.sched_getaffinity(0)) == cores, "this process may go on everywhere"


def test_passwords_beside_reports_all_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otp, "SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(otp, "REPORTS", 400)
    monkeypatch.setattr(otp, "WORKERS", {otp.RECIPE: otp.WORKERS[otp.RECIPE]})
    _, result = run("otp", "--jobs=10", "--seconds=0.5", file=tmp_path / "figures")
    [figures] = result["comparisons"][0]["runs"][otp.RECIPE]
    assert figures["value"] > 0 and figures["details"]["reports_running"] > 0


def test_the_server_and_its_folder_are_gone_afterwards(settings: Any) -> None:
    # A short path of its own: the server's user must get there.
    with tempfile.TemporaryDirectory(prefix="reliable-jobs-") as folder:
        settings.BASE_DIR = Path(folder)
        run("enqueue", "--seconds=0.1", file=Path(folder, "figures"))
        assert [each.name for each in Path(folder, ".benchmarks").iterdir()] == []


def test_unknown_measures_and_peers_that_are_not_installed_are_refused(settings: Any, tmp_path: Path) -> None:
    settings.BASE_DIR = tmp_path
    with pytest.raises(CommandError, match="no measure speed; choose from enqueue, bulk, drain"):
        call_command("benchmark", "speed")
    with pytest.raises(CommandError, match="pgqueuer is not installed: add --install-peers"):
        call_command("benchmark", "drain", "--peer=pgqueuer")


def test_contestants_run_by_turns() -> None:
    order: list[str] = []

    def contestant(name: str) -> Run:
        order.append(name)
        return Run(value=float(len(order)))

    runs = by_turns(2, {"A": lambda: contestant("A"), "B": lambda: contestant("B")}, lambda _: None)
    assert order == ["A", "B", "A", "B"]
    assert ratios(runs, "A", "B") == [1 / 2, 3 / 4]
    assert Spread.of(ratios(runs, "B", "A")) == Spread(median=(2 + 4 / 3) / 2, least=4 / 3, most=2)


def test_a_noisy_run_is_called_noisy() -> None:
    def told(outside: float) -> str:
        run = Run(value=1.0, details={"outside_cores": outside})
        return "\n".join(report.lines(Comparison(measure="drain", unit="jobs/s", runs={"ours": [run]})))

    assert "noisy" in told(0.5)
    assert "noisy" not in told(0.05)


def test_marks_count_every_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import threading

    monkeypatch.setenv("BENCHMARK_MARKS", str(tmp_path))
    monkeypatch.setattr(marks, "_pages", [])
    monkeypatch.setattr(marks, "_slot", marks._Slot())
    threads = [threading.Thread(target=lambda: [marks.ran() for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count, started = marks.count(tmp_path)
    assert count == 4000
    assert started is not None
    marks.stamp(7)
    assert list(marks.stamps(tmp_path, "started")) == [7]


def test_every_peer_says_how_it_runs() -> None:
    for peer in contestants.PEERS.values():
        assert "{" not in peer.settings.format(concurrency=peer.concurrency)
        assert peer.left or peer.needs_redis

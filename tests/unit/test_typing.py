from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
SAMPLE = Path(__file__).with_name("typed_sample.py")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MYPYPATH": str(CHECKOUT)}
    return subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=300)


def expected_refusals() -> dict[int, str]:
    """The lines that must be refused, and what mypy says of each."""
    lines = enumerate(SAMPLE.read_text().splitlines(), start=1)
    return {number: line.partition("# refused: ")[2] for number, line in lines if "# refused: " in line}


def test_mypy_holds_calls_and_options_against_the_declaration(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    options = ["--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    checked = run(sys.executable, "-m", "mypy", *options, str(SAMPLE))
    refused: dict[int, str] = {}
    for number, message in re.findall(r"^[^:]+:(\d+): error: (.*)$", checked.stdout, re.MULTILINE):
        refused[int(number)] = f"{refused.get(int(number), '')}\n{message}"
    expected = expected_refusals()
    assert refused.keys() == expected.keys(), checked.stdout + checked.stderr
    assert [text for number, text in expected.items() if text not in refused[number]] == [], checked.stdout


def test_pyright_refuses_the_same_and_nothing_else() -> None:
    pytest.importorskip("pyright")
    checked = run(sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", str(SAMPLE))
    found = json.loads(checked.stdout)["generalDiagnostics"]
    refused = {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}
    assert refused == expected_refusals().keys(), json.dumps(found, indent=2)

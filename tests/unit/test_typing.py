from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
SAMPLE = Path(__file__).with_name("typed_sample.py")


def test_a_type_checker_holds_calls_and_options_against_the_declaration(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    checked = subprocess.run(
        [*command, str(SAMPLE)],
        cwd=CHECKOUT,
        env={**os.environ, "MYPYPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    refused: dict[int, str] = {}
    for number, message in re.findall(r"^[^:]+:(\d+): error: (.*)$", checked.stdout, re.MULTILINE):
        refused[int(number)] = f"{refused.get(int(number), '')}\n{message}"
    lines = enumerate(SAMPLE.read_text().splitlines(), start=1)
    expected = {number: line.partition("# refused: ")[2] for number, line in lines if "# refused: " in line}
    assert refused.keys() == expected.keys(), checked.stdout + checked.stderr
    assert [text for number, text in expected.items() if text not in refused[number]] == [], checked.stdout

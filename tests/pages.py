"""The pages of the documentation, and the code on them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
DOCS = CHECKOUT / "docs"

# A fence; the line before it may say that it runs. Comments `given` and `then` run too, and readers do not see them.
_BLOCK = re.compile(
    r"(?P<runs><!-- runs -->\n+)?^(?P<indent> *)```(?P<language>\w+)\n(?P<code>.*?)^(?P=indent)```$"
    r"|^<!-- (?:given|then)\n(?P<hidden>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
# At a prompt, in a unit of systemd, a Procfile or a list of words in YAML.
_COMMAND = re.compile(r"^(?:(?:\$|\w+:|ExecStart=\S*|command:|test:) ?)?(?:\S*python\S* )?(?:\./)?manage\.py ([^|>&]+)")


@dataclass(frozen=True)
class Block:
    """A piece of code on a page."""

    page: Path
    line: int
    language: str
    code: str
    runs: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(CHECKOUT)}:{self.line}"

    def commands(self) -> Iterator[list[str]]:
        """The words behind `manage.py` of each line that calls it."""
        for line in self.code.replace("\\\n", " ").splitlines():
            if match := _COMMAND.match(_without_list(line.strip())):
                try:
                    words = shlex.split(re.sub(r"\$\w+", "1", match[1]), comments=True)
                except ValueError:  # a quotation that goes on in the next line: code for the shell of Django
                    continue
                if words and not any(word in ("...", "…") for word in words):
                    yield words


def all_pages() -> list[Path]:
    found = [page for page in DOCS.rglob("*.md") if "_build" not in page.parts]
    return [CHECKOUT / "README.md", *sorted(found)]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            page=page,
            line=text.count("\n", 0, match.start()) + 1,
            language=match["language"] or "python",
            code=_without(match["code"] or match["hidden"], match["indent"] or ""),
            runs=bool(match["runs"] or match["hidden"]),
        )
        for match in _BLOCK.finditer(text)
    ]


def _without_list(line: str) -> str:
    """The words of a list in YAML, `["python", "manage.py", "jobs"]`, as at a prompt."""
    return re.sub(r"^(\w+: )\[(?:\"CMD\", )?\"(.*)\"\]$", lambda found: found[1] + found[2].replace('", "', " "), line)


def _without(code: str, indent: str) -> str:
    return "".join(line.removeprefix(indent) for line in code.splitlines(keepends=True))

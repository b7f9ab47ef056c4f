"""Every text of the package has a German translation, compiled; no tool is needed to see that.

To add one, with gettext installed: `cd django_reliable_jobs; django-admin makemessages -l de --add-location=never
--no-wrap`, fill in what is empty, `django-admin compilemessages`.
"""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator
from pathlib import Path

import django_reliable_jobs

PACKAGE = Path(django_reliable_jobs.__file__).parent
CATALOGUE = PACKAGE / "locale" / "de" / "LC_MESSAGES" / "django.mo"
ONE = {"_", "gettext", "gettext_lazy"}
TWO = {"ngettext", "ngettext_lazy"}
WITH_CONTEXT = {"pgettext", "pgettext_lazy"}
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd]|\{[^{}]*\}(?!\")")


def of_sources() -> Iterator[tuple[str, ...]]:
    """Yield what is translated in Python: (text,), (context, text) with EOT between them, or (singular, plural)."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if node.func.id in ONE and texts:
                yield (texts[0],)
            elif node.func.id in TWO:
                yield (texts[0], texts[1])
            elif node.func.id in WITH_CONTEXT:
                yield (f"{texts[0]}\x04{texts[1]}",)


def of_templates() -> Iterator[tuple[str, ...]]:
    """Yield what is translated in templates, with %(name)s for each variable."""
    for path in PACKAGE.rglob("*.html"):
        text = path.read_text()
        for quoted, _, context in re.findall(r"{% translate (\"[^\"]*\"|'[^']*')( context \"([^\"]*)\")? %}", text):
            yield (f"{context}\x04{quoted[1:-1]}" if context else quoted[1:-1].replace("%", "%%"),)
        for block in re.findall(r"{% blocktranslate[^%]*%}(.*?){% endblocktranslate %}", text, re.DOTALL):
            yield tuple(re.sub(r"{{ (\w+) }}", r"%(\1)s", part) for part in re.split(r"{% plural %}", block))


def catalogue() -> dict[object, str]:
    with CATALOGUE.open("rb") as file:
        found: dict[object, str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return found


def test_every_text_is_translated() -> None:
    texts, known = {*of_sources(), *of_templates()}, catalogue()
    assert len(texts) > 300
    missing = [each for each in texts if not (known.get(each[0]) or known.get((each[0], 0)))]
    assert missing == []


def test_what_is_translated_names_the_same_values() -> None:
    for text, german in catalogue().items():
        singular = text[0] if isinstance(text, tuple) else text
        if singular and not isinstance(text, tuple):
            assert sorted(PLACEHOLDER.findall(str(singular))) == sorted(PLACEHOLDER.findall(german)), singular


def test_the_compiled_catalogue_is_that_of_the_source() -> None:
    source = CATALOGUE.with_suffix(".po").read_text()
    known = {str(each) for each in catalogue().values()}
    written = re.findall(r"^msgstr(?:\[\d\])? \"(.+)\"$", source, re.MULTILINE)
    assert "fuzzy" not in source
    missing = [each for each in written if each.replace('\\"', '"') not in known]
    assert missing == []

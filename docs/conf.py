"""How Sphinx builds these pages: `sphinx-build -W --keep-going -n -b dirhtml docs docs/_build`.

Sphinx, since it checks every link and anchor between pages and takes Markdown by MyST; Furo, since a page of it asks
nothing of other servers. Why: docs/contributing.md.
"""

from __future__ import annotations

project = "django-reliable-jobs"
author = "The django-reliable-jobs contributors"
copyright = f"2026, {author}"
extensions = ["myst_parser"]
exclude_patterns = ["_build", "chaos"]

# Headings are anchors, as on GitHub: docs/how-to/limits.md#per-argument.
myst_heading_anchors = 3
myst_enable_extensions = ["deflist", "colon_fence"]

html_theme = "furo"
html_title = "django-reliable-jobs"
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

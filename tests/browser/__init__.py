"""The admin in a real browser: Chromium without a window, driven by Playwright."""

from __future__ import annotations

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")  # no longer: while it is open, an event loop runs in the thread of the tests
def chromium() -> Iterator[Any]:
    """A browser; tests that need it are skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"there is no browser: none of {', '.join(CHROMIUM)} is on the PATH (Debian: apt install chromium)")
    # Playwright's event loop lives in the test's thread, where Django would take it for one that must not be blocked.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def open_page(transactional_db: None, chromium: Any, live_server: Any) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a page of the admin for a superuser, and fails if the page reports an error.

    Nothing inline is obeyed: the browser holds the pages to a strict Content-Security-Policy.
    """
    user = User.objects.create_superuser("root")
    client = Client()
    client.force_login(user)
    cookie = {"name": settings.SESSION_COOKIE_NAME, "value": client.cookies[settings.SESSION_COOKIE_NAME].value}
    contexts: list[Any] = []
    errors: list[str] = []

    def open_(path: str, **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        context.set_default_timeout(60_000)
        context.add_cookies([{**cookie, "url": live_server.url}])
        page = context.new_page()
        page.route("**/*", _strictly)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        page.goto(f"{live_server.url}{path}")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert errors == []


def _strictly(route: Any) -> None:
    if route.request.resource_type != "document":
        route.continue_()
        return
    response = route.fetch(max_redirects=0)
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'"
    )
    route.fulfill(response=response, headers={**response.headers, "content-security-policy": policy})

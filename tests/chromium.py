"""A real browser for tests of pages: Debian's Chromium without a window, which asks no host for anything by itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--window-size=1280,1000",
)
_MISSING = "no Chromium: apt-get install chromium chromium-driver, and pip install selenium"


@contextmanager
def chromium(folder: Path) -> Iterator[Chrome]:
    """Start a browser with a profile of its own; skip the test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason=_MISSING)
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip(_MISSING)
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = binary
    for flag in (*_FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser: Chrome = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


def _log(browser: Chrome, name: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = browser.get_log(name)  # type: ignore[no-untyped-call]
    return found


def complaints(browser: Chrome) -> list[str]:
    """Return what the console says since it was last asked."""
    return [str(line["message"]) for line in _log(browser, "browser")]


def requests(browser: Chrome) -> list[str]:
    """Return the addresses that were asked for since the last time."""
    events = (json.loads(line["message"])["message"] for line in _log(browser, "performance"))
    return [str(e["params"]["request"]["url"]) for e in events if e["method"] == "Network.requestWillBeSent"]


def in_light(browser: Chrome, scheme: str) -> None:
    """Let pages see a light or a dark screen."""
    asked = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", asked)


def until(browser: Chrome, condition: str, seconds: float = 20.0) -> None:
    """Wait until an expression of the page is true."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser, seconds, 0.05).until(lambda one: one.execute_script(f"return Boolean({condition})"))

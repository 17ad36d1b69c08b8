"""A browser on this machine, for tests that open pages in one."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager

import pytest


def chromium():
    """Return the path of chromium or chrome; skip the test without one, but fail in continuous integration."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if found is None:
        if os.environ.get("CI", "false") != "false":
            pytest.fail("no browser found, and CI must open pages in one: install chromium")
        pytest.skip("no chromium or chrome on this machine: pages are not opened in a browser")
    return found


@contextmanager
def launched():
    """Open a headless browser of playwright; skip the test without playwright."""
    path = chromium()
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the extra dev has it")
    with playwright.sync_playwright() as run:
        opened = run.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()

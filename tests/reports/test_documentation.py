"""Pages of the documentation and the card of a notebook in a real browser, at two widths, light and dark."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from metricforge_cases.browser import launched

import metricforge as mf
from metricforge.registry.progress import Event, line

pytestmark = pytest.mark.xdist_group("browser")

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("index", "methods/kcr", "guides/shell")
VIEWS = [(400, "dark"), (1400, "light")]


@pytest.fixture(scope="module")
def browser():
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def pages(browser, tmp_path_factory):
    """Three pages, built with the settings of the whole documentation, but without the API and the gallery."""
    pytest.importorskip("sphinx", reason="sphinx is not installed: the extra docs has it")
    source, built = tmp_path_factory.mktemp("docs"), tmp_path_factory.mktemp("html")
    for name in ("conf.py", "mathml.py"):
        shutil.copy(DOCS / name, source / name)
    for folder in ("_static", "_templates", "images"):
        shutil.copytree(DOCS / folder, source / folder)
    for page in PAGES:
        (source / page).parent.mkdir(exist_ok=True)
        shutil.copy(DOCS / f"{page}.md", source / f"{page}.md")
    command = [sys.executable, "-m", "sphinx", "-Q", "-b", "html", "-D", "extensions=mathml,myst_parser"]
    subprocess.run([*command, str(source), str(built)], check=True, timeout=240)
    return built


@pytest.fixture
def opened(browser):
    """Open a page in a window of some width; problems and what it asks of other machines are collected."""
    windows = []

    def open_(address, width, scheme):
        window = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        window.problems = []
        window.on("pageerror", lambda error: window.problems.append(str(error)))
        window.on("request", lambda one: one.url.startswith(("file:", "data:")) or window.problems.append(one.url))
        window.on("requestfailed", lambda one: window.problems.append(one.url))
        windows.append(window)
        window.goto(address)
        return window

    yield open_
    for window in windows:
        assert window.problems == []
        window.close()


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_and_needs_nothing_from_outside(pages, opened, page, width, scheme):
    window = opened((pages / f"{page}.html").as_uri(), width, scheme)
    assert window.evaluate("() => document.documentElement.scrollWidth") <= width
    assert window.evaluate("() => [...document.images].every(one => one.complete && one.naturalWidth > 0)")
    ink, paper = window.evaluate(
        "() => [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert ink != paper
    if width == 1400:
        cut = window.eval_on_selector_all(
            ".bd-article pre", "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length"
        )
        assert cut == 0  # lines of code fit
        tops = window.eval_on_selector_all(
            ".bd-header .nav-item", "all => [...new Set(all.map(one => Math.round(one.getBoundingClientRect().top)))]"
        )
        assert len(tops) <= 1  # the navigation is one line


def test_formulas_are_formulas(pages, opened):
    window = opened((pages / "methods/kcr.html").as_uri(), 1400, "light")
    sizes = window.eval_on_selector_all("math", "all => all.map(one => one.getBoundingClientRect().height)")
    assert len(sizes) >= 1
    assert min(sizes) > 10
    assert "\\sum" not in window.inner_text(".bd-article")


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_the_card_and_the_bar_of_a_notebook(opened, tmp_path, width, scheme):
    """A cell of a notebook shows what was written to stderr as text, and below it the card of its last value."""
    X, y = mf.datasets.load("wine")
    metric = mf.learn(X, y, method="krca")
    bar = line(Event("krca on 178 rows", 3, 8, info={"objective": 0.125}), 2.0)
    style = "body { color-scheme: light dark; color: CanvasText; background: Canvas } pre { white-space: pre-wrap }"
    page = f"<!doctype html><meta charset=utf-8><style>{style}</style><pre>{bar}</pre>{metric._repr_html_()}"
    (tmp_path / "notebook.html").write_text(page)
    window = opened((tmp_path / "notebook.html").as_uri(), width, scheme)
    assert window.evaluate("() => document.documentElement.scrollWidth") <= width
    box = window.locator(".metricforge-card").bounding_box()
    assert box["width"] <= width
    text = window.inner_text(".metricforge-card")
    assert "krca" in text
    assert "178 rows" in text
    paper = "rgb(18, 18, 18)" if scheme == "dark" else "rgb(255, 255, 255)"
    assert window.evaluate("() => getComputedStyle(document.body).backgroundColor") == paper
    ink = window.evaluate("() => getComputedStyle(document.querySelector('.metricforge-card td')).color")
    assert ink != paper  # the card takes the ink of the page around it

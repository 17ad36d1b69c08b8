"""The page in a real browser: a run by keys, undo, reload, two people, hostile text, two widths."""

from __future__ import annotations

import pytest
from metricforge_cases.asking import X, Y, serving
from metricforge_cases.browser import chromium

import metricforge as mf

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def browser():
    path = chromium()
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the extra dev has it")
    with playwright.sync_playwright() as run:
        opened = run.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser):
    found = browser.new_page(viewport={"width": 1400, "height": 900})
    found.problems = []
    found.on("pageerror", lambda error: found.problems.append(str(error)))
    found.on("dialog", lambda dialog: found.problems.append(f"dialog {dialog.message}"))
    yield found
    found.close()
    assert found.problems == []


def opened(page, server):
    page.goto("about:blank")
    page.goto(server.url)
    page.wait_for_selector(".card")


def press(page, key):
    before = page.inner_text("#facts")
    page.keyboard.press(key)
    page.wait_for_function("before => document.getElementById('facts').innerText !== before", arg=before)


def answer(page, server, session):
    """Press the key that the classes of the rows ask for."""
    question = server.desk._open[server.desk._current]
    i, j = question.rows
    press(page, "a" if Y[i] == Y[j] else "u")


def test_thirty_answers_by_keys_then_undo_and_reload(page, tmp_path):
    session = mf.ask.Session(X, tmp_path / "a.jsonl", by="eva")
    with serving(session) as server:
        opened(page, server)
        assert page.url.endswith(f":{server.port}/")  # the token is not in the address any more
        for _ in range(30):
            answer(page, server, session)
        assert session.progress().answers == 30
        for left in (29, 28):
            press(page, "z")
            assert session.progress().answers == left
        page.reload()
        page.wait_for_selector(".card")
        assert "28" in page.inner_text("#facts")
        page.keyboard.press("?")
        assert page.is_visible("#help")
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        assert page.is_visible("#command")
        page.click("text=Cannot say")
        page.wait_for_selector("#facts dd >> text=29")
    again = mf.ask.Session(X, tmp_path / "a.jsonl", by="eva")
    assert again.progress().answers == 29
    groups = again.groups()
    assert all(len(set(Y[groups == g])) == 1 for g in set(groups[groups >= 0]))


def test_two_people_with_one_file(page, browser, tmp_path):
    eva, tom = (mf.ask.Session(X, tmp_path / "a.jsonl", by=name) for name in ("eva", "tom"))
    other = browser.new_page()
    with serving(eva) as first, serving(tom) as second:
        opened(page, first)
        opened(other, second)
        for _ in range(5):
            answer(page, first, eva)
            answer(other, second, tom)
        assert "by eva" in other.inner_text("#facts")
        assert eva.progress().people == tom.progress().people == {"eva": 5, "tom": 5}
    other.close()


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_text_is_text_at_both_widths(page, width, scheme):
    script = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    columns = {script: [f"{script}{k % 2}" for k in range(40)], "note": [f"word{k} same" for k in range(40)]}
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    with serving(cards=mf.ask.Cards(columns, text="note")) as server:
        opened(page, server)
        assert page.query_selector("main img, main script") is None
        assert script in page.inner_text("main")
        assert page.locator("mark").count() >= 2
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        contrast = page.evaluate(
            "getComputedStyle(document.body).color !== getComputedStyle(document.body).backgroundColor"
        )
        assert contrast


def test_every_control_has_a_name_and_can_be_reached(page):
    with serving() as server:
        opened(page, server)
        names = page.eval_on_selector_all("button", "all => all.map(one => one.innerText.trim())")
        assert all(names)
        reached = set()
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.innerText.trim()"))
        assert {"Alike A", "Unlike U"} <= {" ".join(name.split()) for name in reached}
        assert page.get_attribute("#question", "aria-live") == "polite"


def test_a_program_that_has_stopped_is_said(page):
    with serving() as server:
        opened(page, server)
    page.keyboard.press("a")
    page.wait_for_selector("#message.error")
    assert "Your answers are kept" in page.inner_text("#message")

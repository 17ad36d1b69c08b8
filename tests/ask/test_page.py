"""The page in a real browser: a run by keys, undo, reload, two people, hostile text, two widths."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_cases.asking import X, Y, drive, serving
from metricforge_cases.browser import launched

import metricforge as mf

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def browser():
    with launched() as found:
        yield found


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
    i, *others = question.rows
    same = [place for place, row in enumerate(others, start=1) if Y[row] == Y[i]]
    if question.kind == "pair":
        press(page, "a" if same else "u")
    elif question.kind == "lineup":
        press(page, str(same[0]) if same else "0")
    else:
        press(page, "1" if abs(int(Y[i]) - Y[others[0]]) <= abs(int(Y[i]) - Y[others[1]]) else "2")
    return question.kind


def test_thirty_answers_by_keys_then_undo_and_reload(page, tmp_path):
    session = mf.ask.Session(X, tmp_path / "a.jsonl", by="eva")
    with serving(session) as server:
        server.desk.command = "metricforge learn d.csv --answers a.jsonl"
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
        assert page.inner_text("#command") == server.desk.command  # as it is copied, wherever its lines break
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


@pytest.mark.parametrize("width", [400, 1400])
def test_a_line_up_by_keys_with_names_of_groups(page, width, tmp_path):
    session = mf.ask.Session(X, tmp_path / "a.jsonl", lineup=True)
    page.set_viewport_size({"width": width, "height": 800})
    with serving(session) as server:
        opened(page, server)
        kinds = [answer(page, server, session) for _ in range(15)]
        assert kinds.count("lineup") >= 5
        while server.desk._open[server.desk._current].kind != "lineup":
            answer(page, server, session)
        assert page.locator(".card").count() == 4
        names = page.eval_on_selector_all(
            ".card", "all => all.map(one => [...one.querySelectorAll('th')].map(th => th.textContent).join())"
        )
        assert len(set(names)) == 1  # the columns are in one order, so that cells stand side by side
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click("#groups summary")
        page.fill("#groups input >> nth=0", "1 z <b>")  # keys of the page are letters here
        page.keyboard.press("Tab")
        page.wait_for_selector("#message >> text=Group 1 is named")
        before = session.progress().answers
        assert session.progress().names[0] == "1 z <b>"
        with page.expect_download() as found:
            page.click("#download-groups")
        lines = found.value.path().read_text().splitlines()
        assert len(lines) == len(X) + 1
        assert "1 z <b>" in lines
        page.click("text=None of these")
        page.wait_for_function("() => document.getElementById('message').innerText.startsWith('The row opened group')")
        assert session.progress().answers == before + 1
    groups = mf.ask.Session(X, tmp_path / "a.jsonl").groups()
    assert len(set(groups[groups >= 0])) == 4  # three classes, and the row that was called none of these


def test_triplets_with_pictures_and_text(page, tmp_path):
    from matplotlib.image import imsave

    for row in range(len(X)):
        imsave(tmp_path / f"{row}.png", np.full((8, 8, 3), Y[row] / 2))
    columns = {"picture": [f"{row}.png" for row in range(len(X))], "note": [f"the class {y} of it" for y in Y]}
    cards = mf.ask.Cards(columns, text="note", image="picture", image_root=tmp_path)
    session = mf.ask.Session(X, rule="triplets")
    with serving(session, cards) as server:
        opened(page, server)
        assert [answer(page, server, session) for _ in range(12)] == ["triplet"] * 12
        page.wait_for_function("() => [...document.images].every(one => one.naturalWidth === 8)")
        assert page.locator(".card").count() == 3
        page.click(".zoom >> nth=0")
        assert page.get_attribute(".zoom >> nth=0", "aria-pressed") == "true"
        marked = page.eval_on_selector_all("mark", "all => all.map(one => one.textContent.trim())")
        assert set(marked) <= {"0", "1", "2"}  # only the word that differs
    assert len(session.hints()) == len(X)


def test_two_people_who_disagree_see_how_often(page, tmp_path):
    eva = mf.ask.Session(X, tmp_path / "a.jsonl", by="eva", seed=1)
    drive(eva, 30)
    tom = mf.ask.Session(X, tmp_path / "a.jsonl", by="tom", seed=1)
    for entry in eva._answers[:8]:  # tom contradicts the first four, and agrees with the others
        rows = tuple(int(row) for row in entry.rows)
        flipped = {"alike": "unlike", "unlike": "alike"}[entry.answer] if entry.n <= 4 else entry.answer
        tom.answer(mf.ask.Question("pair", rows, "overlap"), flipped)
    with serving(tom) as server:
        opened(page, server)
        facts = page.inner_text("#facts")
        known = tom.progress()
        assert known.contradictions == len(tom.contradictions()) == 4
        assert f"agreement (κ)\n{known.agreement:.2f}" in facts
        # half of 4 disagreements each, and 20 answers with the assumed share of 10 %
        assert known.errors == pytest.approx({"eva": 4 / 28, "tom": 4 / 28})
        assert "about 14 % wrong" in facts
        assert " – ".join(tom.contradictions()[0]) in facts


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
    columns = {f"column {k}": np.random.default_rng(k).normal(size=40) for k in range(40)}
    page.set_viewport_size({"width": 400, "height": 700})
    with serving(cards=mf.ask.Cards(columns)) as server:
        opened(page, server)
    page.keyboard.press("a")
    page.wait_for_selector("#message.error")
    assert "Your answers are kept" in page.inner_text("#message")
    box = page.locator("#message").bounding_box()
    assert box["y"] + box["height"] <= 700  # without scrolling past the cards


def test_the_last_answer_ends_the_page(page):
    rows = np.random.default_rng(0).normal(size=(6, 2))
    session = mf.ask.Session(rows)
    with serving(session, mf.ask.Cards({"a": rows[:, 0]})) as server:
        opened(page, server)
        while server.desk._current is not None:
            press(page, "a")
        assert "Every row has been placed" in page.inner_text("#question")
        assert page.inner_text("#message") == "Your answers are kept. You may close this page."
        assert not page.is_visible("#command")  # a session of a program has none


def test_a_triplet_on_a_narrow_screen_has_its_alternatives_side_by_side(page):
    page.set_viewport_size({"width": 400, "height": 800})
    with serving(mf.ask.Session(X, rule="triplets")) as server:
        opened(page, server)
        head, first, second = (page.locator(".card").nth(place).bounding_box() for place in range(3))
    assert first["y"] == second["y"] >= head["y"] + head["height"]

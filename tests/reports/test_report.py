"""The HTML report: what it says, what it escapes, and how a real browser shows it."""

from __future__ import annotations

import html
import json
import re
import subprocess

import dask.array as da
import numpy as np
import pytest
from markupsafe import escape
from metricforge_cases.browser import chromium

import metricforge as mf
from metricforge.errors import InputError
from metricforge.reports import page as report

HOSTILE = '<script>alert("1")</script> & $x_1$'


@pytest.fixture(scope="module")
def fit():
    X, y = mf.datasets.load("toy")
    return mf.learn(X, y, method="lpdesign"), X, y


@pytest.fixture(scope="module")
def page(fit):
    metric, _, y = fit
    labels = np.where(y == 0, HOSTILE, "plain")
    names = [HOSTILE, *(f"f{i}" for i in range(10))]
    return report.html(metric, labels, names=names, source=HOSTILE, command=f"metricforge learn {HOSTILE}")


def test_it_says_what_was_learned_from_what(page):
    text = html.unescape(re.sub(r"<[^>]+>", " ", page))
    for words in (
        "A metric learned by lpdesign",
        "Learned from 100 labels in 2 classes (the largest 50.0 %) over 100 rows of 11 features",
        "Labels (100) → Triplets",
        "rows whose nearest other row is of their class",
        "Kernel matrix",
        "Map",
        "Satisfied relations",
        "Convergence",
        "The certificate (upper minus lower bound of the linear program) is",
        "Features",
        "How to reproduce this",
        f"metricforge learn {HOSTILE}",
        f"metricforge {mf.__version__}",
        f"numpy {np.__version__}",
    ):
        assert words in " ".join(text.split()), words
    assert page.count('src="data:image/png;base64,') == 7  # two matrices, two maps, bars, curve, weights


def test_what_came_from_the_user_is_escaped_and_nothing_is_fetched(page):
    assert "<script" not in page
    assert str(escape(HOSTILE)) in page
    assert not re.findall(r"(?:src|href)=[\"'](?!data:)", page)
    assert "http://" not in page
    assert "https://" not in page


def test_the_numbers_are_those_of_the_fit(fit):
    metric, X, y = fit
    page = report.html(metric, y)
    before = mf.tasks.satisfied(report.starting_kernel(metric, X), X, mf.Labels(y))
    after = mf.tasks.satisfied(metric, X, mf.Labels(y))
    for b, a in zip(before, after, strict=True):
        assert f"{b.count} of {b.total}</td><td class='number'>{a.count} of {a.total}" in page
    assert f"{metric.report.gap:.3g}" in page


def test_one_of_anything_is_singular():
    assert mf.Labels(["a"]).describe() == "1 label in 1 class"
    assert mf.Chunklets([0, 0]).describe() == "1 group of 2 rows"
    assert mf.Triplets([(0, 1, 2)], n=3).describe() == "1 triplet"
    X = np.arange(6.0)[:, None]
    metric = mf.learn(X, [0, 1, 0, 1, 0, 1], method="krca", kernel="linear")
    assert "6 rows of 1 feature," in report.html(metric, [0, 1, 0, 1, 0, 1])


def test_arrays_inside_the_kernel_that_a_fit_started_from_are_not_printed(fit):
    _, X, y = fit
    first = mf.learn(X, y, method="krca", kernel="rbf")
    page = report.html(mf.learn(X, y, method="krca", kernel=first), y)
    assert "starting from ChunkletKernel(base=RBF(gamma=" in page
    assert "rows=array(…), sizes=array(…), factor=array(…)" in page
    assert "array([" not in page


def maps_of(metric, hint, monkeypatch, **options):
    """The axes of the two maps of a page."""
    drawn = []
    monkeypatch.setattr(report, "_figure", lambda display, alt, caption: drawn.append((alt, display)) or "")
    page = report.html(metric, hint, **options)
    return [display for alt, display in drawn if alt in ("map before", "map after")], page


@pytest.mark.parametrize("most", [100, 7])
@pytest.mark.parametrize("classes", [False, True])
def test_pairs_are_lines_between_their_rows_in_the_maps(fit, monkeypatch, most, classes):
    from matplotlib.collections import LineCollection

    monkeypatch.setattr(report.plotting, "MOST_LINES", most)
    _, X, y = fit
    hint = hints(y)["pairs"]
    metric = mf.learn(X, hint, method="krca", kernel="linear")
    maps, page = maps_of(metric, hint, monkeypatch, y=y if classes else None)
    assert ("At most 7 of a kind are drawn." in page) == (most == 7)
    for shown in maps:
        lines = [c for c in shown.ax_.collections if isinstance(c, LineCollection)]
        for part, ends in zip(lines, (hint.similar, hint.dissimilar), strict=True):
            segments = {tuple(map(tuple, segment)) for segment in part.get_segments()}
            assert len(segments) == min(most, len(ends))
            assert segments <= {tuple(map(tuple, shown.points[pair])) for pair in ends}
        assert lines[0].get_linestyle() == [(0, None)]
        assert lines[1].get_linestyle() != [(0, None)]
        said = [text.get_text() for text in shown.ax_.get_legend().get_texts()]
        assert said == ["similar pair", "dissimilar pair"]
    E = metric.transform(X) - metric.transform(X).mean(axis=0)
    far = [np.linalg.norm(E[i] - E[j]) for i, j in hint.dissimilar]
    flat = [np.linalg.norm(maps[1].points[i] - maps[1].points[j]) for i, j in hint.dissimilar]
    assert all(f <= d + 1e-8 for f, d in zip(flat, far, strict=True))  # a plane shortens, so rows are not mixed up


@pytest.mark.parametrize("kind", ["labels with holes", "triplets", "few groups"])
def test_other_hints_draw_no_lines(fit, monkeypatch, kind):
    from matplotlib.collections import LineCollection

    _, X, y = fit
    maps, page = maps_of(mf.learn(X, hints(y)[kind], method="krca", kernel="linear"), hints(y)[kind], monkeypatch)
    assert not any(isinstance(c, LineCollection) for shown in maps for c in shown.ax_.collections)
    assert "Lines join" not in page


def hints(y):
    return {
        "labels with holes": mf.Labels(np.where(np.arange(len(y)) % 3 == 0, None, y)),
        "pairs": mf.Pairs.from_labels(y, n_pairs=40, seed=0),
        "similar pairs only": mf.Pairs(mf.Pairs.from_labels(y, n_pairs=40, seed=0).similar, n=len(y)),
        "small groups": mf.Chunklets.from_labels(y, components=0.5, seed=0),
        "few groups": mf.Chunklets(y),
        "triplets": mf.Triplets.from_labels(y, n_triplets=50, seed=0),
    }


ORDERED = {  # whether the hint says in which order rows belong
    "labels with holes": True,
    "pairs": False,
    "similar pairs only": False,
    "small groups": False,
    "few groups": True,
    "triplets": False,
}


@pytest.mark.parametrize("kind", ORDERED)
def test_every_kind_of_hint_has_a_page(fit, kind, monkeypatch):
    _, X, y = fit
    monkeypatch.setattr(report.plotting, "png", lambda figure, dpi: b"")  # the drawing is tested elsewhere
    hint = hints(y)[kind]
    metric = mf.learn(X, hint, method="krca", kernel="linear")
    page = report.html(metric, hint)
    assert str(escape(hint.describe())) in page
    assert ("rows ordered by class" in page) == ORDERED[kind]
    assert ("rows in the order of the learned map" in page) != ORDERED[kind]


def test_a_kind_that_the_core_does_not_know_has_a_page(fit, comparisons, plug, monkeypatch):
    _, X, y = fit
    hint = comparisons(y)

    def to_pairs(constraint, *, seed=0):
        near, far = constraint.quadruples[:, :2], constraint.quadruples[:, 2:]
        return mf.Pairs(near, far, n=constraint.n, dropped=constraint.dropped)

    plug(("constraint", "comparisons", type(hint)), ("conversion", "comparisons->pairs", to_pairs))
    metric = mf.learn(X, hint, method="krca", kernel="linear")
    drawn = []
    monkeypatch.setattr(report, "_figure", lambda display, alt, caption: drawn.append(alt) or "")
    page = report.html(metric, hint)
    assert "Learned from 60 comparisons over 100 rows of 11 features" in page
    assert "Comparisons (60) → Pairs" in page
    assert "Lines join the pairs" in page
    (before,), (after,) = (mf.tasks.satisfied(one, X, hint) for one in (metric.start, metric))
    assert f"{before.count} of 60</td><td class='number'>{after.count} of 60" in page
    assert "satisfied relations before and after learning" in drawn
    monkeypatch.setattr(type(hint), "satisfied", mf.Constraint.satisfied)
    assert "Comparisons has no relation that can be counted, or does not define satisfied()" in report.html(
        metric, hint
    )


def test_rows_that_are_strings_sparse_or_on_dask(fit, monkeypatch):
    import scipy.sparse as sp

    monkeypatch.setattr(report.plotting, "png", lambda figure, dpi: b"")
    _, X, y = fit
    strings = np.array(["ACDE" * 3 if c else "WYV" * 4 for c in y], dtype=object)
    strings = strings + np.array(list("ACDEFGHIKL") * 10, dtype=object)
    for rows, kernel in (
        (strings, "spectrum"),
        (sp.csr_matrix(X), "linear"),
        (da.from_array(X, chunks=(40, -1)), "rbf"),
    ):
        kernel = mf.kernels.Spectrum(2) if kernel == "spectrum" else kernel
        metric = mf.learn(rows, y, method="krca", kernel=kernel)
        assert "Satisfied relations" in report.html(metric, y)


def test_many_rows_are_sampled_and_the_page_says_so(monkeypatch):
    monkeypatch.setattr(report, "MOST_ROWS", 30)
    monkeypatch.setattr(report.plotting, "png", lambda figure, dpi: b"")
    X, y = mf.datasets.load("toy")
    assert "A sample of 30 of the 100 rows." in report.html(mf.learn(X, y, method="krca"), y)


def test_the_start_of_a_fit_is_known_or_asked_for(fit):
    metric, X, y = fit
    start = mf.kernels.Standardized(mf.kernels.RBF(), by="range").resolve(X, seed=0)
    assert report.starting_kernel(metric, X) == metric.start == start
    mixed = 0.5 * metric + 0.5 * metric
    assert mixed.start == 0.5 * metric.start + 0.5 * metric.start
    assert "by 0.5 · (lpdesign)" in report.html(mixed, y)
    unknown = mf.Metric(metric.kernel, mf.metric.Report({"method": "mine"}), metric.rows)
    with pytest.raises(InputError, match="before is missing"):
        report.html(unknown, y)
    assert "learned by mine" in report.html(unknown, y, before="linear")
    with pytest.raises(InputError, match="is about 3 rows"):
        report.html(metric, y[:3])


def test_it_is_written_whole(fit, tmp_path):
    metric, _, y = fit
    report.write(tmp_path / "r.html", metric, y)
    assert (tmp_path / "r.html").read_text().endswith("</html>\n")
    with pytest.raises(InputError, match="there is no folder"):
        report.write(tmp_path / "no" / "r.html", metric, y)


# -------------------------------------------------------------------------------------------------- in a real browser

HARNESS = """<!doctype html><meta charset="utf-8"><title>harness</title>
<iframe id="page" width="{width}" height="900" style="border: 0" srcdoc="{page}"></iframe><pre id="seen"></pre><script>
document.getElementById("page").addEventListener("load", function () {{
  const view = this.contentWindow, page = this.contentDocument;
  document.getElementById("seen").textContent = JSON.stringify({{
    width: view.innerWidth,
    scroll: page.documentElement.scrollWidth,
    pictures: [...page.images].map(i => i.complete && i.naturalWidth > 0 ? i.getBoundingClientRect().width : 0),
    font: parseFloat(view.getComputedStyle(page.querySelector("p")).fontSize),
    cut: [...page.querySelectorAll("p, td, th, h1, h2, pre, .tile")]
      .filter(e => e.scrollWidth > e.clientWidth + 1).length,
    fetched: view.performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith("data:")),
  }});
}});
</script>"""


@pytest.fixture(scope="module")
def browser():
    return chromium()


def look(browser, page, width, folder):
    """Return what a browser measures of a page in a frame of some width, and what it complains about."""
    harness = folder / f"harness{width}.html"
    harness.write_text(HARNESS.format(width=width, page=html.escape(page)), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr"]
    done = subprocess.run(
        [
            browser,
            *flags,
            f"--user-data-dir={folder}/profile",
            "--virtual-time-budget=5000",
            "--dump-dom",
            harness.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    seen = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert seen, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(seen.group(1))), console


@pytest.mark.parametrize("width", [390, 1100])
def test_a_browser_shows_all_of_it_at_the_width_of_a_phone_and_of_a_desk(browser, page, width, tmp_path):
    seen, console = look(browser, page, width, tmp_path)
    assert console == []
    assert seen["width"] == width
    assert seen["scroll"] <= width  # nothing sticks out to the side
    assert seen["cut"] == 0
    assert len(seen["pictures"]) == 7
    assert min(seen["pictures"]) > 300
    assert seen["font"] >= 14
    assert seen["fetched"] == []


def test_a_browser_shows_pairs_at_the_width_of_a_phone(browser, fit, tmp_path):
    _, X, y = fit
    hint = hints(y)["pairs"]
    seen, console = look(browser, report.html(mf.learn(X, hint), hint), 400, tmp_path)
    assert (console, seen["cut"]) == ([], 0)
    assert seen["scroll"] <= 400
    assert min(seen["pictures"]) > 300


def test_the_browser_would_notice(browser, tmp_path):
    bad = (
        "<!doctype html><p style='width: 900px; font-size: 8px'>wide</p><img src='data:image/png;base64,AAAA'>"
        "<script>console.error('trouble')</script>"
    )
    seen, console = look(browser, bad, 390, tmp_path)
    assert seen["scroll"] > 390
    assert seen["pictures"] == [0]
    assert seen["font"] == 8
    assert any("trouble" in line for line in console)

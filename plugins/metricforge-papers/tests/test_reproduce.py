from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from metricforge_papers import (
    appending,
    defaults,
    idealized,
    krca,
    lpdesign,
    pages,
    prepared,
    programs,
    simplenpkl,
    ways,
)
from metricforge_papers.dominated import least_row_sum
from metricforge_papers.entries import ENTRIES, find, reproduce
from metricforge_papers.experiment import DEFAULT, Run
from metricforge_papers.printed import paper_file, printed
from metricforge_papers.result import Result
from metricforge_papers.scores import add_clustering, outstanding
from metricforge_papers.verdict import Cell

import metricforge as mf
from metricforge.cli import program as cli
from metricforge.errors import InputError, UnknownNameError

RESULTS = Path(__file__).parents[3] / "docs" / "results"
PAPERS = sorted({entry.paper for entry in ENTRIES})
NEEDS_FILES = {("krca", "table2")}  # nothing stands in for the proteins


@pytest.fixture
def no_data(monkeypatch, tmp_path_factory):
    """An empty data folder: what is bundled and drawn is all there is."""
    monkeypatch.setenv("METRICFORGE_DATA", str(tmp_path_factory.mktemp("empty")))


@cache
def recorded(paper, name):
    """Run an entry quickly; return the result, and the options of the last fit before each number was added."""
    return listen(find(paper, name)[0])


def listen(entry):
    fits, added = [], []

    def listening(learn):
        def fit(X, hints, **options):
            fits.append(options)
            return learn(X, hints, **options)

        return fit

    class Listening(Run):
        def add(self, measure, row, column, value):
            added.append((self.variants.get(column, ""), column, fits[-1] if fits else None))
            super().add(measure, row, column, value)

    with pytest.MonkeyPatch.context() as patch:
        for module in (defaults, import_module(f"metricforge_papers.{entry.paper}")):
            patch.setattr(module, "learn", listening(module.learn))
        patch.setattr("metricforge_papers.entries.Run", Listening)
        return reproduce(entry, quick=True), added


def quick(paper, name):
    return recorded(paper, name)[0]


# ---------------------------------------------------------------------------------------------------------- every entry


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.paper}-{e.name}")
def test_every_entry_runs_without_data_files(entry, no_data):
    result = quick(entry.paper, entry.name)
    told = json.loads(pages.to_json(result))
    assert told["command"].startswith(f"metricforge reproduce {entry.paper} {entry.name} --repeats ")
    assert told["command"].endswith("--quick")
    assert (told["seed"], told["repeats"]) == (0, min(2, entry.repeats))
    assert told["protocol"]
    assert told["where"]
    assert told["reference"]
    if (entry.paper, entry.name) in NEEDS_FILES:
        assert not told["cells"]
        assert any("SCOP" in sentence for sentence in told["missing"])
        return
    assert told["cells"]
    for cell in told["cells"]:
        assert {"ours", "std", "repeats", "paper", "paper_std"} <= set(cell)
        assert np.isfinite(cell["ours"])
        assert cell["std"] is None or cell["std"] >= 0
    if entry.kind == "figure":
        assert result.picture[:8] == b"\x89PNG\r\n\x1a\n"
        # only the peers' own figure says nothing without them
        assert told["claims"] or (entry.paper, entry.name) == ("lpdesign", "figure3")
    else:
        assert not result.picture


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.paper}-{e.name}")
def test_what_is_called_default_names_the_method_and_nothing_else(entry, no_data):
    _, added = recorded(entry.paper, entry.name)
    assert not_default(entry, added) == []
    # the tables of every paper have one, and so has the figure that compares with others
    if (entry.kind == "table" or entry == find("lpdesign", "figure3")[0]) and entry_runs(entry):
        assert called_default(added)


@pytest.fixture
def proteins(monkeypatch):
    """Drawn strings in place of the proteins: three classes, each of letters in proportions of its own."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 24)
    X = np.array(
        ["".join(rng.choice(list("ACDEFG"), 40, p=rng.dirichlet(np.eye(6)[c] + 0.5))) for c in y], dtype=object
    )
    monkeypatch.setattr(krca.datasets, "load", lambda name, **_: mf.datasets.Dataset(name, X, y, "", ""))


@pytest.mark.parametrize("option", [{}, {"epsilon": 0.1}])
def test_the_default_of_the_proteins_too(option, proteins, monkeypatch):
    if option:

        def with_option(method, X, hints, seed):
            return krca.learn(X, hints, method=method, seed=seed, **option)

        monkeypatch.setattr(krca, "by_default", with_option)
    entry = find("krca", "table2")[0]
    added = listen(entry)[1]
    assert called_default(added)
    assert bool(not_default(entry, added)) == bool(option)


def called_default(added):
    return [(column, fit) for variant, column, fit in added if "default" in f"{variant} {column}"]


def not_default(entry, added):
    """The columns called default whose numbers come from a call with options, or of another method, or from none."""
    return [
        (column, fit)
        for column, fit in called_default(added)
        if fit is None or set(fit) != {"method", "seed"} or fit["method"] != entry.paper
    ]


@pytest.mark.parametrize(
    ("paper", "name", "option"),
    [
        ("simplenpkl", "table4", {"tol": 1e-2}),
        ("kcr", "table1", {"tol": 0.1}),
        ("krca", "table1", {"epsilon": 0.1}),
        ("krca", "table4", {"kernel": mf.kernels.Linear()}),
        ("lpdesign", "figure2", {"rank": "auto"}),
        ("idealized", "table4", {"nu": 0.3}),
    ],
)
def test_an_option_of_what_is_called_default_is_found(paper, name, option, no_data, monkeypatch):
    """Each entry is changed to pass an option in the call that it labels as the default."""
    entry = find(paper, name)[0]
    module = import_module(f"metricforge_papers.{paper}")

    def with_option(method, X, hints, seed):
        return module.learn(X, hints, method=method, seed=seed, **option)

    monkeypatch.setattr(module, "by_default", with_option)
    found = not_default(entry, listen(entry)[1])
    assert found
    assert all(set(option) <= set(fit) for _, fit in found)


def entry_runs(entry):
    return (entry.paper, entry.name) not in NEEDS_FILES


def numbers(cells):
    """Everything but times, which no run repeats."""
    return [(c["measure"], c["row"], c["column"], c["ours"], c["std"]) for c in cells if not c["timed"]]


@pytest.mark.parametrize(
    ("paper", "name"),
    [
        ("krca", "table4"),
        ("lpdesign", "figure2"),
        ("idealized", "table4"),
        ("kcr", "table1"),
        ("simplenpkl", "table2"),
        ("simplenpkl", "table4"),
    ],
)
def test_its_command_gives_the_same_numbers(paper, name, no_data, capsys):
    first = quick(paper, name)
    for module in (lpdesign,):  # what one process keeps between figures must not be what makes them equal
        module.split.cache_clear()
        module.tuned.cache_clear()
    assert cli.main([*first.command.split()[1:], "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["command"] == first.command
    assert numbers(second["cells"]) == numbers(first.as_dict()["cells"])
    assert numbers(second["cells"])


def test_another_seed_gives_other_numbers(no_data):
    first = quick("krca", "table4")
    other = reproduce(find("krca", "table4")[0], quick=True, seed=5)
    assert numbers(other.as_dict()["cells"]) != numbers(first.as_dict()["cells"])


def test_with_the_papers_sets(data_folder):
    table4 = reproduce(find("krca", "table4")[0], quick=True)
    assert {cell.row for cell in table4.cells} == {f"{s}, {side}" for s in ("glass", "heart") for side in krca.SIDES}
    assert all(cell.paper is not None for cell in table4.cells if cell.column == "KRCA" and cell.measure == krca.RAND)
    table2 = reproduce(find("krca", "table2")[0], quick=True)
    assert any("95 %" in sentence for sentence in table2.missing)
    plain = {c.column: c.ours for c in table2.cells if c.row.endswith("no KRCA")}
    # a Gaussian of a distance ranks as the distance does
    assert plain["spectrum"] == pytest.approx(plain["spectrum + Gaussian"], abs=1e-12)


def test_a_set_that_is_not_available_is_named(no_data):
    run = Run("krca", "table4", 1)
    assert run.load("glass", "glass") is None
    assert run.load("glass", "glass") is None
    assert len(run.missing) == 1
    assert run.missing[0].startswith("glass: ")
    result = quick("krca", "table4")
    assert [sentence.split(":")[0] for sentence in result.missing] == ["glass", "heart"]
    assert "Not available: glass: " in pages.markdown(result)


# ------------------------------------------------------------------------------------------------------- printed values


@pytest.mark.parametrize("paper", PAPERS)
def test_paper_files_are_well_formed(paper):
    content = paper_file(paper)
    assert set(content) == {"reference", "entries"}
    assert set(content["entries"]) == {entry.name for entry in find(paper)}
    for name in content["entries"]:
        there = printed(paper, name)
        assert there.where
        assert there.about.endswith(".")
        assert there.measures or there.says
        for measure in there.measures.values():
            assert measure.better in ("higher", "lower")
            assert measure.grain >= 0
            for row, values in measure.values.items():
                for column in values:
                    assert np.isfinite(measure.mean(row, column))
                    assert measure.std(row, column) is None or measure.std(row, column) >= 0
                    assert ", " not in column, "what follows a comma names a variant of ours"
            for row, column in measure.marks.items():
                assert column in measure.values[row]
        assert callable(getattr(import_module(f"metricforge_papers.{paper}"), name))


@pytest.mark.parametrize(
    ("paper", "name", "measure", "row", "column", "mean", "std"),
    [
        ("krca", "table1", "Rand index", "Gaussian", "RCA", 1.0, None),
        ("krca", "table4", "Rand index", "ionosphere, little", "KRCA", 0.830, None),
        ("idealized", "table4", "error %", "wine, linear", "learned", 10.13, None),
        ("idealized", "table4", "alignment", "toy, linear", "training after", 0.62, None),
        ("kcr", "table1", "test error %", "balance", "KCR", 8.94, 3.12),
        ("simplenpkl", "table2", "Rand index %", "sonar", "LL", 70.2, 10.0),
        ("simplenpkl", "table4", "Rand index %", "a5a", "SHL", 61.9, 1.7),
    ],
)
def test_printed_values(paper, name, measure, row, column, mean, std):
    found = printed(paper, name).measures[measure]
    assert (found.mean(row, column), found.std(row, column)) == (mean, std)


def test_every_row_of_table_4_but_two_has_a_mark():
    marks = printed("krca", "table4").measures["Rand index"].marks
    assert set(printed("krca", "table4").measures["Rand index"].values) - set(marks) == {
        "german, little",
        "image, little",
    }


def test_baselines_and_times_are_not_judged():
    run = Run("simplenpkl", "table2", 2)
    run.timed, run.variants, run.baselines = {"CPU seconds"}, {"LL": "our default"}, {"sonar"}
    for measure, row in (("CPU seconds", "iris"), ("Rand index %", "iris"), ("Rand index %", "sonar")):
        run.add(measure, row, "LL", 1.0)
        run.add(measure, row, "LL", 3.0)
    cells = {(c.measure, c.row): c for c in run.cells()}
    assert [bool(c.variant) for c in cells.values()] == [False, True, False]
    iris = cells["Rand index %", "iris"]
    assert (iris.ours, iris.std, iris.repeats, iris.paper) == (2.0, pytest.approx(np.sqrt(2)), 2, 97.4)


def test_a_mark_needs_a_sure_difference():
    run = Run("krca", "table4", 8)
    rng = np.random.default_rng(0)
    for _ in range(8):
        for column, mean in (("no RCA", 0.5), ("RCA", 0.6), ("KRCA", 0.9)):
            run.add("Rand index", "clear", column, mean + 0.01 * rng.normal())
        for column in ("no RCA", "RCA", "KRCA"):
            run.add("Rand index", "chance", column, 0.5 + 0.01 * rng.normal())
    assert outstanding(run, "Rand index", ("no RCA", "RCA", "KRCA")) == {"clear": "KRCA"}


def test_clusterings_come_with_ari_and_the_one_cluster_rand():
    run = Run("idealized", "table3", 1)
    y = np.array([0, 0, 0, 1])
    add_clustering(run, "toy", "learned", y, np.array([1, 1, 1, 0]), measure="clustering error %", scale=-100)
    add_clustering(run, "toy", "Euclidean", y, np.zeros(4, int), measure="clustering error %", scale=-100)
    found = {(c.measure, c.column): c.ours for c in run.cells()}
    assert found["clustering error %", "learned"] == 0
    assert found["ARI", "learned"] == 1
    assert found["ARI", "Euclidean"] == 0
    # three of six pairs are similar
    assert found["clustering error %", "Euclidean"] == found["clustering error %", "everything in one cluster"] == 50


# ---------------------------------------------------------------------------------------------------------------- pages


def result_of(ours, *, std=0.02, repeats=100):
    """Table I of krca with these two numbers; the paper has 0.502 and 1.000, higher is better."""
    cells = [
        Cell("Rand index", row, "RCA", value, std, repeats, paper, variant=DEFAULT)
        for row, value, paper in zip(("linear", "Gaussian"), ours, (0.502, 1.0), strict=True)
    ]
    return Result("krca", "table1", repeats, 0, "command", "protocol", tuple(cells))


def test_json_holds_all_but_the_picture(no_data):
    first = quick("krca", "figure1")
    again = Result.from_dict(json.loads(pages.to_json(first)))
    assert pages.to_json(again) == pages.to_json(first)
    assert pages.markdown(replace(again, picture=first.picture)) == pages.markdown(first)


def test_markdown_shows_both_numbers(no_data):
    result = result_of((0.51, 0.99), std=0.02)
    page = pages.markdown(replace(result, why="Because."))
    assert "0.510 ± 0.020 (0.502)" in page
    assert "0.990 ± 0.020 (1.000)" in page
    assert "100 (the paper: 300)" in page
    assert "Because." in page


def test_summary_has_a_row_for_everything(tmp_path):
    pages.write(result_of((0.6, 0.9)), tmp_path)
    table = pages.summary(pages.read(tmp_path)).split("## Table by table")[1]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == len(ENTRIES)
    (row,) = [row for row in rows if "krca, Table I]" in row]
    assert "[krca, Table I](krca-table1.md)" in row
    assert "| not (our default) | 1, 0, of 2 | 1.00 (least 1.00) | 0.75 | 0.751 |  |" in row
    assert "## Why" not in table
    assert sum("| not run |" in row for row in rows) == len(ENTRIES) - 1
    with pytest.raises(InputError, match="holds no results"):
        pages.read(tmp_path / "nowhere")


def test_the_summary_shows_gains_over_the_baseline_and_counts(tmp_path):
    """Table I of krca prints 0.503 and 0.528 before learning; ours here are 0.5 and 0.8."""
    result = result_of((0.6, 0.9))
    before = [
        Cell("Rand index", row, "no RCA", value, 0.02, 100) for row, value in (("linear", 0.5), ("Gaussian", 0.8))
    ]
    pages.write(replace(result, cells=(*result.cells, *before)), tmp_path)
    text = pages.summary(pages.read(tmp_path))
    assert "| 0.75 | 0.751 | 0.1, 0.24 |" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| **our default**: the call")]
    assert line.endswith("| 0 | 0 | 1 |")
    # of Table II the baseline is a row; errors gain where they fall
    text = pages.summary(pages.read(RESULTS))
    assert "| 0.042, 0.13<br>" in text
    assert re.search(r"kcr, Table 1.*\| 3\.\d, 6\.1<br>", text)


# -------------------------------------------------------------------------------------------------------------- command


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.paper}-{e.name}")
def test_committed_results_are_whole_runs_and_their_pages_follow(entry):
    name = f"{entry.paper}-{entry.name}"
    told = json.loads((RESULTS / f"{name}.json").read_text())
    result = Result.from_dict(told)
    assert result.command.startswith(f"metricforge reproduce {entry.paper} {entry.name} --repeats {entry.repeats}")
    assert "--quick" not in result.command
    assert result.cells
    # versions of NumPy add up in different orders
    assert [_rounded(verdict) for verdict in told["verdicts"]] == list(map(_rounded, result.as_dict()["verdicts"]))
    picture = RESULTS / f"{name}.png"
    assert picture.is_file() == (entry.kind == "figure")
    page = pages.markdown(replace(result, picture=b"drawn" if picture.is_file() else b""))
    assert (RESULTS / f"{name}.md").read_text() == page


def _rounded(verdict):
    return {key: round(value, 9) if isinstance(value, float) else value for key, value in verdict.items()}


def test_the_committed_summary_follows_from_the_results():
    assert (RESULTS / "summary.md").read_text() == pages.summary(pages.read(RESULTS))


def test_list(capsys):
    assert cli.main(["reproduce"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for entry in ENTRIES:
        assert any(line.split()[:2] == [entry.paper, entry.name] for line in lines)
    assert cli.main(["reproduce", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(ENTRIES)


def test_one_entry_is_printed_and_written(no_data, tmp_path, capsys):
    folder = tmp_path / "new"
    assert cli.main(["reproduce", "krca", "figure1", "--quick", "--out", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "rows on their side of the best line" in out
    assert sorted(path.name for path in folder.iterdir()) == [
        "krca-figure1.json",
        "krca-figure1.md",
        "krca-figure1.png",
        "summary.md",
    ]
    assert "krca, Fig. 1" in (folder / "summary.md").read_text()


def test_an_interrupted_run_continues(no_data, tmp_path, monkeypatch):
    entry, partial = find("krca", "table1")[0], tmp_path / "partial.jsonl"
    monkeypatch.setattr(krca, "SCAN_DRAWS", 0)
    whole = reproduce(entry, repeats=3)
    reproduce(entry, repeats=2, partial=partial)
    assert len(partial.read_text().splitlines()) == 2
    fits = []
    monkeypatch.setattr(defaults, "learn", lambda *a, **k: fits.append(k) or mf.learn(*a, **k))
    again = reproduce(entry, repeats=3, partial=partial)
    assert [fit["seed"] for fit in fits] == [2]
    assert again.cells == whole.cells
    reproduce(entry, repeats=3, seed=5, partial=partial)
    assert [fit["seed"] for fit in fits] == [2, 5, 6, 7]  # of another seed: nothing is kept


def test_two_jobs_of_one_name_are_refused(tmp_path):
    """The file of an interrupted run would give one the numbers of the other, as it once did in idealized's Table 4."""
    run = Run("idealized", "table4", 2, partial=tmp_path / "partial.jsonl")
    for name, seed in run.each([("toy", 0), ("toy", 1)]):
        run.add("error %", f"{name}, linear", "learned", float(seed))
    with pytest.raises(ValueError, match=r"two jobs of idealized table4 are called \('toy', 0\)"):
        list(run.each([("toy", 0)]))
    assert run.samples == {("error %", "toy, linear", "learned"): [0.0, 1.0]}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.paper}-{e.name}")
def test_no_repeat_is_counted_twice(entry):
    told = json.loads((RESULTS / f"{entry.paper}-{entry.name}.json").read_text())
    for cell in told["cells"]:
        most = lpdesign.ORDER_SPLITS if cell["measure"] == lpdesign.ORDER else told["repeats"]
        assert cell["repeats"] <= most, cell


def test_numbers_of_other_libraries_are_kept(no_data, tmp_path):
    peer = Cell("error %", "toy, linear", "Xing", 5.0, 1.0, 7, 9.83)
    failed = "Xing on wine, split 3: TimeoutError: over 60 s"
    earlier = Result("idealized", "table2", 7, 0, "command", "protocol", (peer,), missing=(failed, "wine: no file"))
    found = reproduce(find("idealized", "table2")[0], quick=True, repeats=1, earlier=earlier)
    assert [cell for cell in found.cells if cell.column == "Xing"] == [peer]
    assert any("Xing: from an earlier run with --peers on the same splits, 7 repeats" in note for note in found.notes)
    assert [sentence for sentence in found.missing if "Xing" in sentence] == [failed]


def test_the_order_in_figure_3_is_judged_in_pairs(no_data, monkeypatch):
    """On splits of both; a set on which the peer fails is left out, and said."""

    def answers(folder, code, peers, parts, seconds):
        failed = {"percent": None, "error": "TimeoutError: over 60 s"}
        return {
            (peer, part): failed if "wine" in part else {"percent": 40.0 + int(part[-1]), "error": ""}
            for peer in peers
            for part in parts
        }

    entry = find("lpdesign", "figure3")[0]
    monkeypatch.setattr(lpdesign, "environment", lambda: Path("python"))
    monkeypatch.setattr(lpdesign, "peer_results", answers)
    found = reproduce(entry, quick=True, repeats=4, peers=True)
    (claim,) = found.claims
    at = {(c.measure, c.row, c.column): c for c in found.cells}
    weak, xing = (at[lpdesign.ORDER, "iris", column] for column in ("weak", "Xing (MMC)"))
    assert (weak.repeats, xing.repeats, xing.ours) == (4, 4, 41.5)
    assert claim.margin == pytest.approx(weak.ours - 41.5)
    assert claim.repeats == 4
    assert "Xing (MMC) on wine, later splits: not tried after these failures" in found.missing
    # without the peer its numbers are kept, and the error is that of two independent means
    (kept,) = reproduce(entry, quick=True, repeats=4, earlier=found).claims
    assert kept.margin == pytest.approx(claim.margin)
    assert kept.error == pytest.approx(np.sqrt((weak.std**2 + xing.std**2) / 4))


def test_quick_writes_nothing_unasked(no_data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", "krca", "figure1", "--quick", "--repeats", "1"]) == 0
    assert list(tmp_path.iterdir()) == []
    assert "--repeats 1 --seed 0 --quick" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["krac"], "did you mean 'krca'"),
        (["krca", "table9"], "krca has no 'table9'"),
        (["krca", "figure1", "--repeats", "0"], "--repeats must be a whole number of at least 1"),
        (["krca", "figure1", "--quick", "--seed", "-1"], "--seed must be a whole number of at least 0"),
    ],
)
def test_bad_input_is_a_sentence(argv, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", *argv]) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told(no_data):
    seen = []

    class Watcher:
        @mf.hookimpl
        def metricforge_step(self, event):
            seen.append(event)

    from metricforge.registry import registry

    watcher = Watcher()
    registry.register(watcher, name="watcher")
    reproduce(find("krca", "figure1")[0], quick=True)
    own = [event for event in seen if event.task == "krca figure1"]
    assert [(e.step, e.total) for e in own[:-1]] == [(0, 2), (1, 2)]
    assert own[-1].done


def test_the_data_sets_are_on_one_page(data_folder, tmp_path, capsys):
    from metricforge_papers import statistics

    assert cli.main(["reproduce", "data", "--out", str(tmp_path)]) == 0
    assert "| lpdesign, Table 1 | Wine | `wine` | 178 (178) | 13 (13) | 3 (3) |" in capsys.readouterr().out
    assert (tmp_path / "data.json").read_text() == (RESULTS / "data.json").read_text()
    assert (RESULTS / "data.md").read_text() == statistics.page(json.loads((RESULTS / "data.json").read_text()))
    lines = statistics.measured()
    assert {line["paper"] for line in lines} == set(PAPERS)
    assert sum(line["ours"] == line["printed"] for line in lines) == 37
    lymphoma = next(line for line in lines if line["set"] == "lymphoma")
    assert (lymphoma["our_sizes"], lymphoma["printed_sizes"]) == ([34, 62], [35, 61])
    assert "**34, 62** (35, 61)" in (RESULTS / "data.md").read_text()
    assert "not available (2540)" in (RESULTS / "data.md").read_text()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("lpdesign-figure3", lpdesign.unscaled_sentence),
        ("idealized-table2", idealized.starts_sentence),
        ("idealized-table2", prepared.sentence),
        ("krca-table4", krca.ahead_sentence),
        ("krca-table4", krca.tuning_sentence),
        ("krca-table2", krca.gains_sentence),
    ],
)
def test_what_was_tried_is_said_from_the_cells(name, sentence):
    result = Result.from_dict(json.loads((RESULTS / f"{name}.json").read_text()))
    text = sentence(result.cells)
    assert len(text) > 100
    assert text in result.why or text in result.notes
    assert sentence(()) == ""


def test_unknown_names():
    with pytest.raises(UnknownNameError):
        find("simplenpk")
    assert len(find()) == len(ENTRIES)
    assert {e.name for e in find("kcr")} == {"table1", "figure1"}


# ------------------------------------------------------------------------------------------------ what is computed here


def test_three_ways_to_add_a_chunklet_agree(rng):
    X = rng.normal(size=(24, 5))
    K = mf.kernels.RBF(0.2)(X)
    anew = appending.recompute(K)
    grown = appending.equation_10(appending.recompute(K[:22, :22]), K[:22, 22:], K[22:, 22:])
    np.testing.assert_allclose(grown, anew, atol=1e-12)
    # the definition: H (I + KH/c)⁻¹
    H = np.kron(np.eye(12), np.eye(2) - 0.5)
    np.testing.assert_allclose(anew, H @ np.linalg.inv(np.eye(24) + K @ H), atol=1e-12)
    _, factor = appending.timed_appends(K, 10, 6)
    np.testing.assert_allclose(factor.packed, appending.factorise(K).packed, atol=1e-12)


@pytest.mark.parametrize("solver", programs.SOLVERS)
def test_the_semidefinite_programs_find_what_the_solvers_do(solver):
    X, y = np.random.default_rng(0).normal(size=(24, 2)), np.repeat([0, 1], 12)
    pairs = mf.Pairs.from_labels(y, components=0.6, seed=0)
    L = programs.laplacian(X, 8)
    same = {"method": "simplenpkl", "kernel": mf.kernels.Linear()}
    closed = mf.learn(X, pairs, solver=simplenpkl.paper_setting(n_neighbors=8, B=1.0), **same)
    E = closed.report.embedding
    np.testing.assert_allclose(programs.linear_loss(L, pairs), E @ E.T, atol=2e-3)
    pytest.importorskip(programs.NEEDED[solver], reason=f"{solver} is not installed: it is a peer, not a part")
    K = programs.hinge_loss(L, pairs, C=0.3, solver=solver)
    hinge = simplenpkl.paper_setting(n_neighbors=8, B="unbounded", C=0.3, loss="hinge", tol=1e-3)
    report = mf.learn(X, pairs, solver=hinge, **same).report
    # the value of eq. (4) from its definition
    value = np.sum(L * K)
    for t, side in ((1, pairs.similar), (-1, pairs.dissimilar)):
        value += 0.3 * np.maximum(1 - t * K[side[:, 0], side[:, 1]], 0).sum()
    assert np.linalg.eigvalsh(K).min() > -1e-5
    assert report.lower_bound - 1e-6 < value < report.objective + 1e-6


def test_ways_are_judged_by_pairs_and_by_labels():
    tried = ways.Tried()
    for C, rand, honoured in ((0.1, 60.0, 0.9), (1.0, 80.0, 0.7)):
        tried.add("way", "iris", C, 0, rand, honoured)
    assert tried.by_pairs("way", "iris", 0) == 60
    assert tried.best("way", "iris") == 80
    assert (tried.ways, tried.sets, tried.draws) == (["way"], ["iris"], [0])
    E = np.array([[3.0, 0, 4], [0, 2, 0]])
    shapes = dict(ways.shapes(E, 2))
    np.testing.assert_allclose(np.linalg.norm(shapes["all columns, rows of norm 1"], axis=1), 1)
    assert shapes["one for each class, rows as they are"].tolist() == [[4, 3], [0, 0]]


@pytest.mark.parametrize("seed", range(10))
def test_what_dominance_leaves_of_mixtures(seed):
    """The bound by multipliers is below the least largest sum of a row by cvxpy, and near it where it exceeds 1."""
    import cvxpy as cp

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 3)) * (0.7, 2.0, 9.0)[seed % 3]
    grams = np.stack([mf.kernels.RBF(rate)(X[:, [d]]) for d in range(3) for rate in (0.5, 2.0)])
    others = grams * ~np.eye(12, dtype=bool)
    weights = cp.Variable(6)
    K = sum(weights[p] * others[p] for p in range(6))
    problem = cp.Problem(cp.Minimize(cp.max(cp.sum(cp.abs(K), axis=1))), [cp.sum(weights) == 1])
    least = problem.solve(solver="CLARABEL")
    bound = least_row_sum(grams)
    assert bound <= least * (1 + 1e-6)
    assert (bound > 1) == (least > 1)


def test_splits_are_disjoint_and_scaled_on_the_training_part():
    from metricforge_papers import kcr

    part = kcr.split("iris", 0)
    assert [len(part[f"X_{p}"]) for p in ("train", "validate", "test")] == [75, 30, 45]
    np.testing.assert_allclose([part["X_train"].min(axis=0), part["X_train"].max(axis=0)], [[0] * 4, [1] * 4])
    triples = lpdesign.split("iris", 0)["triples"]
    assert triples.shape == (1500, 3)
    assert (triples[:, 0] != triples[:, 1]).all()


def test_counts_of_substrings_stand_for_the_strings():
    from metricforge.kernels import substring_counts

    strings = ["MKVLAAGIVGLCAKVL", "AAGIVMKVLL", "GGSGGSMKV", "WWWYVLA"]
    counts = krca.LINEAR.normalized()(substring_counts(strings, 3))
    np.testing.assert_allclose(counts, mf.kernels.Spectrum(3).normalized()(strings), atol=1e-12)

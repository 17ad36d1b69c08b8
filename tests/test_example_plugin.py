"""Foreign plugins: built, installed with the project's wheel in a fresh environment, and used by name."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
COSINE, QUADS = EXAMPLES / "metricforge-cosine", EXAMPLES / "metricforge-quads"
PAPERS = ROOT / "plugins" / "metricforge-papers"

pytestmark = pytest.mark.xdist_group("examples")  # one environment, not one for each process of the suite


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A fresh environment with the wheels; third-party packages come from the one that runs the tests."""
    folder = tmp_path_factory.mktemp("foreign")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    for source in (ROOT, PAPERS, COSINE, QUADS):
        run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "wheels", source)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    python = folder / "env" / "bin" / "python"
    wheels = sorted((folder / "wheels").glob("*.whl"))
    names = [w.name.split("-")[0] for w in wheels]
    assert names == ["metricforge", "metricforge_cosine", "metricforge_papers", "metricforge_quads"]
    run(*pip, "--python", python, "install", "--quiet", "--no-index", "--no-deps", *wheels)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "third-party.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    return python, folder


def script(python, folder, code):
    return run(python, "-W", "error::UserWarning", "-c", textwrap.dedent(code), cwd=folder)


def test_the_wheel_is_what_is_imported(environment):
    python, folder = environment
    where = script(
        python, folder, "import metricforge, metricforge_cosine as c; print(metricforge.__file__, c.__file__)"
    )
    assert all(str(folder) in path for path in where.split())


def test_used_by_name(environment):
    script(
        *environment,
        """
        import numpy as np, dask.array as da, metricforge as mf
        from metricforge.testing import check_kernel, check_method, check_plugin

        plugin = {p.name: p for p in mf.plugins()}["cosine"]
        assert plugin.ok and plugin.distribution == "metricforge-cosine" and plugin.version == "0.1.0"
        assert "between" in [e.name for e in mf.methods()]
        X, y = mf.datasets.load("wine")

        metric = mf.learn(X, y, method="between", strength=2.0)
        assert metric.report.method == "between"
        assert mf.learn(X, y, method="euclidean", kernel="cosine").kernel(X[:2])[0, 0] > 0.999

        learner = mf.MetricLearner("between", random_state=0).set_params(solver__strength=3.0).fit(X, y)
        assert learner.transform(X).shape[0] == len(X)

        lazy = mf.learn(da.from_array(X, chunks=(60, -1)), y, method="between", strength=2.0)
        assert np.allclose(lazy.distance(X[:5], X), metric.distance(X[:5], X), atol=1e-8)

        metric.save("cosine.metric")
        copy = mf.load("cosine.metric")
        assert np.array_equal(copy.distance(X[:5], X), metric.distance(X[:5], X))
        check_plugin("cosine")
        check_kernel(mf.learn(X, y, method="euclidean", kernel="cosine").kernel)
        """,
    )


def test_a_file_without_its_plugin_names_the_plugin(environment):
    script(
        *environment,
        """
        import metricforge as mf
        X, y = mf.datasets.load("wine")
        mf.learn(X, y, method="between").save("orphan.metric")
        """,
    )
    # this environment has the project but not the plugin
    out = script(
        sys.executable,
        environment[1],
        """
        import metricforge as mf
        try:
            mf.load("orphan.metric")
        except mf.errors.MissingPluginError as error:
            print(error)
        """,
    )
    assert "'orphan.metric' needs kernel 'cosine' of plugin 'cosine', which is not installed" in out
    assert "pip install metricforge-cosine" in out


def test_the_small_example_is_small():
    lines = (COSINE / "metricforge_cosine.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) < 50


# ------------------------------------------------------------------------------- a distribution that uses every door


def command(python, folder, *words, code=0):
    done = subprocess.run(
        [str(python), "-m", "metricforge", *map(str, words)], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_new_kind_is_learned_by_auto_scored_drawn_reported_saved_and_loaded(environment):
    script(
        *environment,
        """
        import sys
        import numpy as np, metricforge as mf

        plugin = {p.name: p for p in mf.plugins()}["quads"]
        assert plugin.ok and plugin.distribution == "metricforge-quads"
        assert "metricforge_quads" in sys.modules and "metricforge_quads.comparisons" not in sys.modules
        X, y = mf.datasets.load("wine")
        comparisons = mf.quads.Comparisons.from_labels(y, n_comparisons=300, seed=0)

        metric = mf.learn(X, comparisons)
        assert metric.report.method == "diagonal" and metric.report.converted == () and metric.report.notes == ()
        assert metric.report.certificate.kind == "bound" and metric.report.certificate.relative < 1e-6
        assert metric.report.outcome["weights"].shape == (13,)
        before, after = (mf.tasks.satisfied(m, X, comparisons)[0] for m in (metric.start, metric))
        assert before.share < 0.85 < 0.9 < after.share

        scores = {"start": [], "diagonal": []}
        for rows, held_out in comparisons.folds(3, seed=0):
            fit = mf.learn(X[rows], comparisons[rows])
            for name, kernel in (("start", fit.start), ("diagonal", fit.kernel)):
                scores[name].append(held_out.score(mf.constraints.Distances(kernel, X)))
        assert np.mean(scores["diagonal"]) > np.mean(scores["start"]) + 0.05

        table = mf.compare(X, comparisons, seed=0)
        assert {"diagonal", "start"} <= {one.name for one in table.scores}
        measured = {one.name: one.mean for one in table.scores}
        assert measured["diagonal"] > measured["start"]
        assert "diagonal" in str(table) and len(table.to_frame()) == len(table.scores)
        assert table.fit("diagonal").report.method == "diagonal"
        assert table.fit().report.method == table.best.partition("(")[0]

        display = mf.plotting.RelationsDisplay.from_metric(metric, X, comparisons, before=metric.start)
        labels = [" ".join(t.get_text().split()) for t in display.ax_.get_yticklabels()]
        assert labels == ["comparisons whose first pair is closer"]
        map = mf.plotting.MapDisplay.from_metric(metric, X, constraint=comparisons)
        legend = [t.get_text() for t in map.ax_.get_legend().get_texts()]
        assert {"more alike pair", "less alike pair"} <= set(legend), legend
        page = mf.report.html(metric, comparisons, X=X)
        assert "300 comparisons" in page and "comparisons whose first pair is closer" in page

        metric.save("quads.metric")
        copy = mf.load("quads.metric")
        assert copy.solver == metric.solver
        assert np.array_equal(copy.distance(X[:5], X), metric.distance(X[:5], X))

        learner = mf.MetricLearner("diagonal").set_params(solver__ridge=0.1).fit(X, constraints=comparisons)
        assert learner.metric_.solver.ridge == 0.1
        converted = mf.learn(X, y, method="diagonal").report.converted
        assert [step.split(" (")[0] for step in converted] == ["Labels", "Triplets"]
        """,
    )
    # in this environment the plugin is not installed, and the kernel does not need it
    script(
        sys.executable,
        environment[1],
        """
        import metricforge as mf
        assert "quads" not in [plugin.name for plugin in mf.plugins()]
        metric = mf.load("quads.metric")
        X, y = mf.datasets.load("wine")
        assert metric.neighbors(X[:3], k=1)[0].ravel().tolist() == [0, 1, 2]
        try:
            metric.update(X, y)
        except mf.errors.MissingPluginError as error:
            assert "quads" in str(error)
        else:
            raise AssertionError("update works without the solver")
        """,
    )


def test_the_doors_of_a_foreign_distribution_on_dask_and_by_name(environment):
    script(
        *environment,
        """
        import numpy as np, dask.array as da, metricforge as mf
        from metricforge.testing import check_constraint, check_plugin, check_solver

        X, y = mf.datasets.load("wine")
        comparisons = mf.quads.Comparisons.from_labels(y, n_comparisons=300, seed=0)
        lazy = da.from_array(X, chunks=(60, -1))
        here, there = mf.learn(X, comparisons), mf.learn(lazy, comparisons)
        assert np.allclose(there.distance(X[:5], X), here.distance(X[:5], X), atol=1e-10)

        A = np.random.default_rng(0).normal(size=(700, 700))
        found = mf.eigen.top(A + A.T, 3, solver="subspace")
        assert found.solver == "subspace" and found.status == "converged"
        assert np.allclose(found[0], np.linalg.eigvalsh(A + A.T)[:-4:-1])
        assert mf.learn(X, y, method="simplenpkl", eigensolver="subspace").report.eigensolver == "subspace"

        for rows in (X, lazy):
            found = mf.neighbors.search(rows, 3, queries=X[:9], method="balltree")[0]
            assert np.array_equal(found, mf.neighbors.search(X, 3, queries=X[:9])[0])
        assert np.array_equal(here.neighbors(X, 3, method="balltree")[0], here.neighbors(X, 3)[0])

        check_plugin("quads")
        check_constraint(comparisons)
        check_solver(here.solver, mf.kernels.RBF("median"))
        """,
    )


def test_the_shell_reads_a_foreign_kind_and_runs_a_foreign_command(environment):
    python, folder = environment
    assert "draw-comparisons draw comparisons of pairs of rows" in " ".join(command(python, folder, "--help").split())
    command(python, folder, "datasets", "wine", "-o", "wine.csv")
    drawn = command(python, folder, "draw-comparisons", "wine.csv", "--label", "class", "-o", "comparisons.csv")
    assert drawn == "comparisons.csv: 200 comparisons\n"
    out = command(
        python, folder, "learn", "wine.csv", "--drop", "class", "--comparisons", "comparisons.csv", "--report", "w.html"
    )
    assert out.startswith("learned by diagonal from 200 comparisons over 178 rows of 13 features\noptimal: ")
    assert "comparisons whose first pair is closer" in out
    assert "metricforge learn wine.csv --drop class --comparisons" in (folder / "w.html").read_text()
    command(python, folder, "neighbors", "wine.metric", "wine.csv", "-k", "3", "--method", "balltree", "-o", "n.npy")
    command(python, folder, "neighbors", "wine.metric", "wine.csv", "-k", "3", "-o", "m.npy")
    np.testing.assert_allclose(np.load(folder / "n.npy"), np.load(folder / "m.npy"), atol=1e-9)
    (folder / "wrong.csv").write_text("a,b,c,d\n0,1,2,999\n")
    err = command(python, folder, "learn", "wine.csv", "--drop", "class", "--comparisons", "wrong.csv", code=2)
    assert err.startswith("metricforge: 'wrong.csv': quads")

"""A stranger's plugin: built, installed beside the project's wheel in a fresh environment, and used by name."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "metricforge-cosine"


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A fresh environment with both wheels; third-party packages are seen from the one that runs the tests."""
    folder = tmp_path_factory.mktemp("stranger")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    for source in (ROOT, EXAMPLE):
        run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "wheels", source)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    python = folder / "env" / "bin" / "python"
    wheels = sorted((folder / "wheels").glob("*.whl"))
    assert [w.name.split("-")[0] for w in wheels] == ["metricforge", "metricforge_cosine"]
    run(*pip, "--python", python, "install", "--quiet", "--no-index", "--no-deps", *wheels)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "third-party.pth").write_text(sysconfig.get_path("purelib") + "\n")
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
    python, folder = environment
    script(
        python,
        folder,
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
    python, folder = environment
    script(
        python,
        folder,
        """
        import metricforge as mf
        X, y = mf.datasets.load("wine")
        mf.learn(X, y, method="between").save("orphan.metric")
        """,
    )
    # this environment has the project but not the plugin
    out = script(
        sys.executable,
        folder,
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


def test_the_example_is_small():
    lines = (EXAMPLE / "metricforge_cosine.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) < 50

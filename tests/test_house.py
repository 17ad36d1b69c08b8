"""The rules of the house: who may import whom, what an import costs, one file per heavy dependency."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = ROOT / "metricforge"
PLUGINS = ROOT / "plugins" / "metricforge_plugins"

# A file imports only from rows above its own.
LAYERS = [
    ["errors", "__init__"],
    ["cluster", "lanczos"],
    ["rows", "psd", "eigen", "hookspecs", "storage", "files"],
    ["hamming"],
    ["neighbors", "constraints", "kernels", "progress", "datasets"],
    ["space", "registry", "standard"],
    ["problem", "modelfile"],
    ["metric"],
    ["learning"],
    ["estimator", "testing"],
    ["kernelrule", "tasks", "relations", "notation", "tables"],
    ["plotting", "runfile"],
    ["report"],
    ["cli"],
    ["commands", "demo", "reproduce"],
    ["__main__"],
]
RANK = {name: i for i, row in enumerate(LAYERS) for name in row}
UPWARD = {("constraints", "registry"): "Constraint.to walks conversions, which are edges in the registry"}
NUMERIC = {"errors", "cluster", "rows", "psd", "eigen", "neighbors", "constraints", "kernels", "space", "problem"}
HEAVY = {
    "dask": {"cluster", "rows", "storage"},
    "distributed": {"cluster"},
    "pynndescent": {"neighbors"},
    "primme": {"eigen"},
    "highspy": {"lpdesign.highs"},
    "numba": {"hamming", "kcr.loops", "lpdesign.gaussian", "neighbors"},
    "matplotlib": {"plotting"},
    "pyarrow": {"storage", "tables"},
    "zarr": {"storage"},
    "psutil": {"cluster"},
}
# Classes must exist to be subclassed, and loops to be compiled; hamming is itself imported when needed.
AT_THE_TOP = {"sklearn": {"estimator", "kernelrule"}, "numba": {"hamming"}}


def imports(path):
    """Yield (module, whether at the top of the file) for every import that runs."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = "." * node.level + (node.module or "")
            if node.module is None or prefix == "metricforge":
                yield from (
                    (f"{prefix.rstrip('.')}.{a.name}" if node.level else f"{prefix}.{a.name}", True) for a in node.names
                )
            else:
                yield prefix, id(node) in top


def core_imports(path):
    for module, _ in imports(path):
        if module.startswith(".") and not module.startswith(".."):
            name = module.lstrip(".").split(".")[0]
            yield name if (CORE / f"{name}.py").exists() else "__init__"
        elif module.startswith("metricforge."):
            yield module.split(".")[1]


CORE_FILES = sorted(CORE.glob("*.py"))
PLUGIN_FILES = sorted(PLUGINS.rglob("*.py"))
REPRODUCE_FILES = sorted((CORE / "reproduce").glob("*.py"))


@pytest.mark.parametrize("path", CORE_FILES, ids=lambda p: p.stem)
def test_a_file_imports_only_from_above(path):
    if path.stem == "__init__":
        return  # lazy names of everything
    assert path.stem in RANK, f"{path.name} has no place in LAYERS"
    for name in core_imports(path):
        if (path.stem, name) in UPWARD:
            continue
        assert RANK[name] < RANK[path.stem], f"{path.name} imports {name}, which is not above it"


@pytest.mark.parametrize("path", REPRODUCE_FILES, ids=lambda p: p.stem)
def test_the_experiments_import_only_from_above(path):
    own = {p.stem for p in REPRODUCE_FILES}
    for module, _ in imports(path):
        name = module.lstrip(".").split(".")[0]
        if module.startswith(".") and name not in own:
            assert RANK[name] < RANK["reproduce"], f"reproduce/{path.name} imports {name}, which is not above it"


@pytest.mark.parametrize("path", CORE_FILES, ids=lambda p: p.stem)
def test_only_the_experiments_know_the_built_in_methods(path):
    assert not any(module.startswith("metricforge_plugins") for module, _ in imports(path))


@pytest.mark.parametrize("path", PLUGIN_FILES, ids=lambda p: str(p.relative_to(PLUGINS)))
def test_a_plugin_imports_numeric_files_and_the_hook_only(path):
    own = path.relative_to(PLUGINS).parts[0]
    for module, _ in imports(path):
        parts = module.split(".")
        if parts[0] == "metricforge":
            assert parts[1] in NUMERIC | {"hookimpl"}, f"{path} imports {module}"
        if parts[0] == "metricforge_plugins":
            assert parts[1] == own, f"{path} imports another plugin"


@pytest.mark.parametrize(
    "path", [*CORE_FILES, *REPRODUCE_FILES, *PLUGIN_FILES], ids=lambda p: f"{p.parent.name}.{p.stem}"
)
def test_heavy_dependencies_have_one_file_each_and_load_when_needed(path):
    name = path.stem if path.parent == CORE else f"{path.parent.name}.{path.stem}"
    for module, at_top in imports(path):
        package = module.split(".")[0]
        if package in HEAVY:
            assert name in HEAVY[package], f"{name} imports {package}"
        if at_top and (package in {*HEAVY, "sklearn", "scipy", "pandas", "polars"}):
            in_own_file = name in HEAVY.get(package, ()) and path.parent != CORE
            assert in_own_file or name in AT_THE_TOP.get(package, ()), f"{name} imports {module} at the top"


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


HEAVY_MODULES = ["numba", "dask", "distributed", "highspy", "pynndescent", "primme", "matplotlib", "sklearn"]


@pytest.mark.parametrize(
    "use",
    [
        "",
        "mf.Pairs([(0, 1)], n=2); mf.kernels.RBF(1.0); mf.learn; mf.load; mf.Solver",
        "import numpy as np; X = np.eye(3); "
        "mf.learn(X, [0, 1, 1], method='euclidean', kernel=mf.kernels.RBF(1.0)).distance(X)",
    ],
    ids=["import", "names", "fit"],
)
def test_heavy_modules_stay_out(use):
    loaded = python(f"import json, sys, metricforge as mf; {use}\nprint(json.dumps(sorted(sys.modules)))")
    assert not set(HEAVY_MODULES) & set(loaded)
    if not use:
        assert "scipy" not in loaded


def test_importing_costs_at_most_twice_numpy():
    code = "import json, time; t = time.perf_counter(); import {}; print(json.dumps(time.perf_counter() - t))"
    ours, numpys = (min(python(code.format(name)) for _ in range(5)) for name in ("metricforge", "numpy"))
    assert ours <= 2 * numpys


def test_public_names_exist_and_are_typed_alike():
    import metricforge as mf

    for name in mf.__all__:
        assert getattr(mf, name) is not None
    assert set(dir(mf)) == set(mf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lern'"):
        _ = mf.lern
    tree = ast.parse((CORE / "__init__.py").read_text())
    typed = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom)
        for alias in inner.names
    }
    assert typed == set(mf.__all__) - {"__version__"}


def test_version_is_the_distributions():
    from importlib.metadata import version

    import metricforge as mf

    assert mf.__version__ == version("metricforge")


def test_nothing_prints_and_nothing_is_called_utils():
    for path in [*CORE_FILES, *REPRODUCE_FILES, *PLUGIN_FILES]:
        assert path.stem not in {"utils", "helpers", "base", "manager", "common", "misc"}


def test_every_method_has_folder_test_and_page():
    import metricforge as mf

    for entry in mf.methods():
        if mf.registry.registry.plugin(entry.plugin).distribution != "metricforge":
            continue
        assert (PLUGINS / entry.name / "solver.py").exists()
        assert (ROOT / "tests" / f"test_{entry.name}.py").exists()
        assert (ROOT / "docs" / "methods" / f"{entry.name}.md").exists()


def test_tracked_files_name_no_machine():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    for name in listed.stdout.split():
        path = Path(ROOT / name)
        if (
            path.suffix in {".py", ".md", ".toml", ".cff", ".yaml", ".json", ""}
            and path.is_file()
            and path != Path(__file__)
        ):
            text = path.read_text(errors="ignore")
            for word in ("/work/", "/root/", "/tmp/"):
                assert word not in text, f"{name} names {word}"

"""The rules of the house: who may import whom, what an import costs, one file per heavy dependency."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = ROOT / "metricforge"
PLUGINS = ROOT / "plugins" / "metricforge_plugins"

# Packages and modules in the order of imports, row by row and from left to right: each imports only what stands before.
LAYERS = [
    ["errors", "__init__", "validation", "names"],
    ["rows", "files"],
    ["kernels", "constraints", "psd", "datasets"],
    ["neighbors", "eigen", "distributed"],
    ["space", "registry"],
    ["solver", "optimize", "report", "index", "adapters"],
    ["tables", "serialization", "metric"],
    ["resolve", "diagnostics", "fitting"],
    ["figures", "evaluation", "auto", "learning"],
    ["estimators", "tasks", "plotting", "reports"],
    ["cli", "testing"],
    ["__main__"],
]
RANK = {name: i for i, name in enumerate(name for row in LAYERS for name in row)}
# Imports of what stands later, inside a function that needs it.
UPWARD = {
    ("constraints", "registry"): "Constraint.to walks conversions, which are edges in the registry",
    ("report", "reports"): "the functions that write a page of a report",
    ("rows", "distributed"): "where rows are found to be on dask",
    ("neighbors", "distributed"): "where rows are found to be on dask",
    ("eigen", "distributed"): "where a matrix is found to be on dask",
    ("metric", "fitting"): "Metric.update walks the road of a fit",
}
NUMERIC = {"errors", "validation", "optimize", "rows", "psd", "eigen", "neighbors", "constraints", "kernels", "space"}
NUMERIC |= {"solver", "distributed"}
# Files of a method's plugin that users call as they call learn(): they walk the same join, which knows the registry.
DRIVERS = {"tune": {"fitting", "registry"}}
# One file per heavy dependency; "room.file" in the core and in the plugins.
HEAVY = {
    "dask": {"distributed.cluster", "distributed.chunks", "distributed.tasks", "distributed.storage"},
    "distributed": {"distributed.cluster", "distributed.allocation"},
    "pynndescent": {"pynndescent.search"},
    "primme": {"primme.solver"},
    "highspy": {"lpdesign.highs"},
    "clarabel": {"cones.semidefinite"},
    "numba": {
        "neighbors.loops",
        "pynndescent.search",
        "kcr.loops",
        "lmnn.loops",
        "cones.gaussian",
        "nca.loops",
    },
    "matplotlib": {"figures"},
    "pandas": {"evaluation", "tables.delimited"},
    "pyarrow": {"distributed.storage"},
    "zarr": {"distributed.storage"},
    "psutil": {"rows.memory"},
    "onnx": {"adapters"},
}
# Classes must exist to be subclassed, and loops to be compiled; these files are themselves imported when needed.
AT_THE_TOP = {
    "sklearn": {"estimators.learner", "estimators.rule"},
    "numba": {"neighbors.loops", "kcr.loops", "lmnn.loops", "cones.gaussian", "nca.loops"},
    "highspy": {"lpdesign.highs"},
    "distributed": {"distributed.allocation"},
}


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
                yield from ((f"{prefix}{'' if node.level else '.'}{a.name}", id(node) in top) for a in node.names)
            else:
                yield prefix, id(node) in top


def place(path):
    """Return a core file as "room.file", or "file" where it stands beside the rooms."""
    return ".".join(path.relative_to(CORE).with_suffix("").parts)


def core_imports(path, at_top_only=False):
    """Yield the "room.file" of every import of core code, from anywhere in the core."""
    package = list(path.relative_to(CORE).parent.parts)
    for module, at_top in imports(path):
        if at_top_only and not at_top:
            continue
        if module.startswith("."):
            level = len(module) - len(module.lstrip("."))
            parts = [*package[: len(package) - level + 1], *filter(None, module.lstrip(".").split("."))]
        elif module.split(".")[0] == "metricforge":
            parts = module.split(".")[1:]
        else:
            continue
        yield named(parts)


def named(parts):
    """Return the file behind a dotted name, which may end in something that is no file."""
    for end in range(min(2, len(parts)), 0, -1):
        where = CORE.joinpath(*parts[:end])
        if where.with_suffix(".py").exists():
            return ".".join(parts[:end])
        if (where / "__init__.py").exists():
            return ".".join([*parts[:end], "__init__"])
    return "__init__"


CORE_FILES = sorted(CORE.rglob("*.py"))
PLUGIN_FILES = sorted(PLUGINS.rglob("*.py"))


@pytest.mark.parametrize("path", CORE_FILES, ids=place)
def test_a_file_imports_only_what_stands_before_its_package(path):
    package = place(path).split(".")[0]
    if package == "__init__":
        return  # lazy names of everything
    at_top = set(core_imports(path, at_top_only=True))
    for name in core_imports(path):
        other = name.split(".")[0]
        late = (package, other) in UPWARD and name not in at_top
        assert other == package or late or RANK[other] < RANK[package], f"{place(path)} imports {name}, which is later"


def test_files_import_one_another_without_cycles():
    graph = {place(path): {*core_imports(path, at_top_only=True)} - {place(path)} for path in CORE_FILES}
    order = tuple(TopologicalSorter(graph).static_order())  # raises CycleError, which names the files
    assert set(order) == set(graph)


@pytest.mark.parametrize("path", CORE_FILES, ids=place)
def test_the_core_imports_no_plugin(path):
    assert not any(module.startswith("metricforge_plugins") for module, _ in imports(path))


def names_in(node):
    """Return the last parts of all names in an expression: ``Pairs`` and ``mf.Pairs`` both give Pairs."""
    return {getattr(part, "id", getattr(part, "attr", None)) for part in ast.walk(node)}


def kinds_matched(tree, kinds):
    """Yield the line of every isinstance, issubclass, type comparison or class pattern with one of these kinds."""
    for node in ast.walk(tree):
        found = set()
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("isinstance", "issubclass"):
            found = names_in(node.args[1])
        elif isinstance(node, ast.Compare) and any("type" in names_in(side) for side in (node.left, *node.comparators)):
            found = names_in(node)
        elif isinstance(node, ast.MatchClass):
            found = names_in(node.cls)
        if found & kinds:
            yield node.lineno


@pytest.mark.parametrize("path", CORE_FILES, ids=place)
def test_no_kind_of_constraint_is_matched_by_class_outside_its_room(path):
    from metricforge import constraints

    kinds = {n for n, c in vars(constraints).items() if isinstance(c, type) and issubclass(c, constraints.Constraint)}
    if place(path).split(".")[0] != "constraints":
        found = list(kinds_matched(ast.parse(path.read_text()), kinds - {"Constraint"}))
        assert not found, f"{place(path)}, line {found[0]}: ask the constraint instead (Constraint has the methods)"


@pytest.mark.parametrize(
    ("code", "matched"),
    [
        ("isinstance(c, Pairs)", True),
        ("isinstance(c, mf.Pairs | str)", True),
        ("isinstance(c, (int, Labels))", True),
        ("type(c) is Triplets", True),
        ("Pairs == type(c)", True),
        ("match c:\n    case Pairs(): pass", True),
        ("isinstance(c, Constraint)", False),
        ("Pairs(c); c.to(Pairs); Labels.of(c)", False),
        ("type(c) is int", False),
    ],
)
def test_matching_a_kind_by_class_is_noticed(code, matched):
    assert bool(list(kinds_matched(ast.parse(code), {"Labels", "Pairs", "Triplets"}))) == matched


@pytest.mark.parametrize("path", PLUGIN_FILES, ids=lambda p: str(p.relative_to(PLUGINS)))
def test_a_plugin_imports_numeric_files_and_the_hook_only(path):
    own = path.relative_to(PLUGINS).parts[0]
    for module, _ in imports(path):
        parts = module.split(".")
        if parts[0] == "metricforge":
            allowed = NUMERIC | {"hookimpl"} | DRIVERS.get(path.stem, set())
            assert parts[1] in allowed, f"{path} imports {module}"
        if parts[0] == "metricforge_plugins":
            assert parts[1] == own, f"{path} imports another plugin"


@pytest.mark.parametrize("path", [*CORE_FILES, *PLUGIN_FILES], ids=lambda p: f"{p.parent.name}.{p.stem}")
def test_heavy_dependencies_have_one_file_each_and_load_when_needed(path):
    name = place(path) if path.is_relative_to(CORE) else f"{path.parent.name}.{path.stem}"
    for module, at_top in imports(path):
        package = module.split(".")[0]
        if package in HEAVY:
            assert name in HEAVY[package], f"{name} imports {package}"
        if at_top and package in {*HEAVY, "sklearn", "scipy", "pandas", "polars"}:
            assert name in AT_THE_TOP.get(package, ()), f"{name} imports {module} at the top"


def strings(path):
    """Yield every string literal of a file that is not a docstring."""
    tree = ast.parse(path.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


@pytest.mark.parametrize("path", CORE_FILES, ids=place)
def test_the_core_names_no_method(path):
    import metricforge as mf

    named = {entry.name for entry in mf.methods()} & set(strings(path))
    assert not named, f"{place(path)} names {', '.join(sorted(named))}: what it needs must be declared by the method"


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


HEAVY_MODULES = ["numba", "dask", "distributed", "highspy", "pynndescent", "primme", "matplotlib", "pandas", "sklearn"]


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
    from metricforge.registry import registry

    for name in mf.__all__:
        assert getattr(mf, name) is not None
    assert set(dir(mf)) == {*mf.__all__, *(entry.name for entry in registry.entries("namespace"))}
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


def test_the_environment_has_the_entry_points_of_pyproject():
    from importlib.metadata import distribution

    written = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["metricforge"]
    installed = {e.name: e.value for e in distribution("metricforge").entry_points if e.group == "metricforge"}
    assert installed == written, "the entry points have changed: install the project again (make setup)"


def test_nothing_prints_and_nothing_is_called_utils():
    for path in [*CORE_FILES, *PLUGIN_FILES]:
        assert path.stem not in {"utils", "helpers", "base", "manager", "common", "misc"}


def test_every_method_has_folder_test_and_page():
    import metricforge as mf

    for entry in mf.methods():
        if mf.registry.registry.plugin(entry.plugin).distribution != "metricforge":
            continue
        assert (PLUGINS / entry.name.split("-")[0] / "solver.py").exists()
        assert (ROOT / "tests" / "methods" / f"test_{entry.name.replace('-', '_')}.py").exists()
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


def test_tracked_files_name_no_host_of_a_package_registry():
    # packages are fetched by name, by the client that the user has set up
    hosts = re.compile(
        rb"\b(npmjs\.|yarnpkg\.|pypi\.(?:org|python)|pythonhosted\.|anaconda\.(?:org|com)|crates\.io|rubygems\.org"
        rb"|cran\.r-project|repo\d?\.maven)"
    )
    assert hosts.search(b"https://registry." + b"npmjs" + b".org/a")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout
    for name in filter(None, listed.decode().split("\0")):
        path = ROOT / name
        if path.is_file() and (found := hosts.search(path.read_bytes())):
            raise AssertionError(f"{name} names {found[0].decode()}")

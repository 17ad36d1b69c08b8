"""Plugins live on the documented surface, and the tables about them name what exists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import metricforge
from metricforge.registry import registry

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "plugins"
FOLDERS = ("metricforge_plugins", "metricforge_classics", "metricforge_ask", "metricforge-papers/metricforge_papers")


def listed(path, heading):
    """Return what the rows of the table below a heading name in backticks: a list for each row."""
    section = path.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [re.findall(r"`([^`]+)`", line) for line in section.splitlines() if line.startswith("| `")]


PAGE = ROOT / "docs" / "guides" / "plugin.md"
SURFACE = {module: set(names) for module, *names in listed(PAGE, "For plugin authors")}


def imported(path):
    """Yield (module, name) for what a file takes from metricforge, attributes of an imported module included."""
    tree = ast.parse(path.read_text())
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {a.asname or a.name: a.name for a in node.names if a.name.split(".")[0] == "metricforge"}
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "metricforge":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in SURFACE:
                    modules[alias.asname or alias.name] = whole
                else:
                    yield node.module, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id, "")
            if module and f"{module}.{node.attr}" not in SURFACE:
                yield module, node.attr


@pytest.mark.parametrize("folder", FOLDERS)
def test_plugins_import_what_the_page_for_their_authors_lists(folder):
    public = SURFACE | {"metricforge": set(metricforge.__all__)}
    unlisted = {
        f"{path.relative_to(PLUGINS)}: {module}.{name}"
        for path in (PLUGINS / folder).rglob("*.py")
        for module, name in imported(path)
        if name not in public.get(module, ())
    }
    assert not unlisted


@pytest.mark.parametrize("module", sorted(SURFACE))
def test_what_the_page_lists_exists(module):
    missing = [name for name in SURFACE[module] if not hasattr(importlib.import_module(module), name)]
    assert SURFACE[module]
    assert not missing


README = (PLUGINS / "README.md").read_text()


@pytest.mark.parametrize("name", re.findall(r"`(metricforge_plugins[\w.]+)`", README))
def test_the_table_of_equations_names_what_can_be_imported(name):
    module, function = name.rsplit(".", 1)
    assert callable(getattr(importlib.import_module(module), function))


def test_the_table_of_methods_is_complete():
    own = {m.name for m in metricforge.methods() if registry.plugin(m.plugin).distribution == "metricforge"}
    assert set(re.findall(r"^\| `([\w-]+)` \|", README, re.MULTILINE)) == own

"""The code of the README and of the pages runs as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn

ROOT = Path(__file__).parent.parent
BUILT = {"_build", "auto_gallery", "api"}
PAGES = [
    ROOT / "README.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if not BUILT & set(p.relative_to(ROOT / "docs").parts)),
]


def blocks(page):
    """The blocks of a page in their order: Python, and what is typed at a prompt as a call of the command line."""
    found = re.findall(r"```(python|console)\n(.*?)```", page.read_text(), flags=re.DOTALL)
    return [code if kind == "python" else typed(code) for kind, code in found]


def typed(text):
    lines = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ metricforge ")]
    calls = [f"assert main({shlex.split(line)[1:]!r}) == 0" for line in lines]
    return "\n".join(["from metricforge.cli.program import main", *calls])


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_code_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if any("mf.register(" in code for code in blocks(page)):  # for good: in a process of its own
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(blocks(page))], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return
    names = {}
    with sklearn.config_context():  # a page may switch metadata routing on
        for code in blocks(page):
            exec(compile(code, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_inside_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

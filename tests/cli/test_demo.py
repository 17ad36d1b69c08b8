"""``metricforge demo``."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

from metricforge_cases.shell import run

import metricforge as mf
from metricforge.cli import demo


def test_demo_prints_scores_before_and_after_and_writes_report_and_picture(here, capsys, monkeypatch):
    every = list(demo.halves())
    monkeypatch.setattr(demo, "halves", lambda: iter([every[0], every[2]]))  # the slow one is left out
    lines, compare = [], demo.compare
    monkeypatch.setattr(demo, "compare", lambda data: (lines.append(line) or line for line in compare(data)))
    assert run("demo") == 0
    out = capsys.readouterr().out
    shown = {e.name for e in mf.methods()} - {"euclidean", "mlkr"}  # learns nothing; learns from numbers, not labels
    for entry in mf.methods():
        assert (f"\n  {entry.name} " in out) == (entry.name in shown)
    for kind in ("gap", "bound", "residual"):
        assert re.search(rf" {kind} \d\.\de-\d\d ", out)
    assert "krca (kernel=linear, epsilon=0.0)" in out
    assert "krca (kernel=standardized(rbf))" in out
    assert "mf.learn(X, y), the first call" in out
    for line, following in pairwise(lines):  # what the advice says is tried before a method is called worse
        if line.error[1] > line.error[0] and not line.metric.start.scale_free:
            assert following.method == line.method
            assert following.metric.start.scale_free
    for name in ("wine.png", "report.html"):
        assert str(Path("demo") / name) in out
    picture = (here / "demo" / "wine.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(picture) > 20_000
    page = (here / "demo" / "report.html").read_text()
    assert "one half of wine" in page
    assert "on rows held out (5 folds)" in page
    assert "on the rows learned from" not in page.split("<h2")[0]
    assert demo._feature_names("wine")[6] == "flavanoids"
    assert re.search(r"± \d\.\d %", out)
    monkeypatch.setattr(demo, "halves", lambda: iter([every[0]]))
    assert run("demo", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert {line["method"] for line in told["lines"]} == shown | {demo.FIRST}
    assert told["lines"][0]["error"][1] < 0.05

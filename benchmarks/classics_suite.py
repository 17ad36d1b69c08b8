"""metric-learn's own tests, run against `metricforge_classics`.

The tests are those of metric-learn's repository (a folder ``test`` with ``metric_learn_test.py`` and others), which is
not part of this project: name the folder that holds it in METRIC_LEARN_TESTS.  Without it the table says so, and
tests/classics stands alone.  `benchmarks.classics_alias` puts our estimators in the place of metric-learn's.  A skipped
test does not apply; the reason is counted.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from .run import Table

ROOT = Path(__file__).parent.parent
QUICK = "test_constraints.py"


def run(quick: bool = False) -> Table:
    table = Table(["file", "tests", "passed", "failed", "do not apply"])
    home = os.environ.get("METRIC_LEARN_TESTS")
    if not home or not (Path(home) / "test").is_dir():
        table.notes.append("METRIC_LEARN_TESTS names no folder with metric-learn's tests: nothing was run")
        return table
    reasons: Counter[str] = Counter()
    failed = []
    for path in sorted((Path(home) / "test").glob("*.py")):
        if path.name == "__init__.py" or (quick and path.name != QUICK):
            continue
        cases = _cases(Path(home), path)
        kinds = [
            next((child.tag for child in case if child.tag in ("skipped", "failure", "error")), "") for case in cases
        ]
        count = Counter(kinds)
        bad = count["failure"] + count["error"]
        table.add(path.name, len(cases), count[""], bad, count["skipped"])
        for case, kind in zip(cases, kinds, strict=True):
            if kind == "skipped":
                reasons[_short(case.find("skipped").get("message", ""))] += 1
            elif kind:
                failed.append(case.get("name"))
    if table.rows:
        table.add("all", *(sum(row[c] for row in table.rows) for c in range(1, 5)))
    table.notes += [f"{number} do not apply: {reason}" for reason, number in reasons.most_common()]
    table.notes += [f"failed: {name}" for name in failed]
    table.notes.append("tests of the repository of metric-learn after release 0.7.0 (commit dc7e449), unchanged")
    return table


def _cases(home: Path, path: Path) -> list[ElementTree.Element]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.xml"
        options = ["-q", "-p", "benchmarks.classics_alias", "-p", "no:cacheprovider", "-W", "ignore", "-c", os.devnull]
        command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(home), f"--junitxml={out}", str(path)]
        places = [str(home), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
        subprocess.run(command, cwd=home, env=env, capture_output=True, check=False)
        return list(ElementTree.parse(out).iter("testcase"))


def _short(reason: str) -> str:
    return re.sub(
        r"uses \w+, a private (function|method) of metric-learn", "uses a private function of metric-learn", reason
    )

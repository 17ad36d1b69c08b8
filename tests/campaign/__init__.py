"""Attacks on the public API, model files, tables and the environment: counts of outcomes, and all errors found.

``make campaign SEED=S N=N`` runs it; ``python -m campaign --seed S --cases N`` in the folder ``tests`` has more
options.  A case depends on its part, seed and number only; ``--replay api:7:1234`` repeats it.  N is the number of API
cases and of model files; the other parts are scaled with it.  ``--journal FILE`` keeps the outcomes: the same command
again continues where it stopped, for instance after ``--seconds``, and the table is about all outcomes in the file, by
part and seed.

====================  ==================================================================================================
``api``               methods × hints × kernels × options × difficult rows, and the other entries of the API
``certificates``      objectives, gaps and statuses against feasible points and cvxpy with Clarabel; convergence
``invariances``       repetition, order of rows, names of classes, units of X and y, threads, chunks, sparse rows, files
``files``             model files: damaged, or forged with a valid digest
``index``             folders of indexes: damaged, also in place
``answers``           files of answers: two people, answers taken back or lost, lines cut off at any byte
``tables``            files of rows and hints, settings and arguments, through the command line
``memory``            public calls under a small budget
``faults``            signals, full disks, killed workers and schedulers, concurrent threads and processes
``soak``              two thousand fits in one process
====================  ==================================================================================================

`bounded` runs a few cases of one part, for the test suite.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .trial import GOOD, ORDER, Outcome, Verdict
from .worker import PARTS, Worker

CASES = 10_000


@dataclass
class Campaign:
    """Outcomes of many cases: ``counts`` by part, ``runs``, ``fits`` and CPU ``seconds`` by part and seed."""

    counts: dict[str, Counter[Verdict]] = field(default_factory=lambda: defaultdict(Counter))
    runs: dict[tuple[str, str], Counter[Verdict]] = field(default_factory=lambda: defaultdict(Counter))
    fits: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: Counter[tuple[str, str]] = field(default_factory=Counter)
    found: dict[tuple[Verdict, str], list[tuple[str, Outcome, str]]] = field(default_factory=lambda: defaultdict(list))
    figures: dict[str, tuple[float, str]] = field(default_factory=dict)

    def add(self, name: str, outcome: Outcome, cpu: float) -> None:
        part, seed, _ = name.split(":")
        self.counts[part][outcome.verdict] += 1
        self.runs[part, seed][outcome.verdict] += 1
        self.fits[part, seed] += outcome.fitted
        self.seconds[part, seed] += cpu
        for finding in outcome.findings:
            self.found[finding.verdict, finding.site].append((name, outcome, finding.detail))
        for what, value in outcome.figures.items():
            self.figures[what] = max(self.figures.get(what, (float("-inf"), "")), (value, name))

    @property
    def bad(self) -> int:
        """Number of cases with findings."""
        return sum(count for each in self.counts.values() for verdict, count in each.items() if verdict not in GOOD)

    def findings(self) -> Iterator[dict[str, Any]]:
        """Yield the findings, most frequent first, each with its shortest case."""
        for (verdict, site), cases in sorted(self.found.items(), key=lambda item: -len(item[1])):
            name, outcome, detail = min(cases, key=lambda case: len(" ".join(case[1].description)))
            replay = [case[0] for case in cases[:5]]
            yield {
                "verdict": str(verdict),
                "site": site,
                "cases": len(cases),
                "shortest": name,
                "description": outcome.description,
                "detail": detail,
                "replay": replay,
            }

    def page(self) -> str:
        """Return a table of the outcomes by part and seed, and the findings below it."""
        total: Counter[Verdict] = sum(self.counts.values(), Counter())
        rows: list[list[Any]] = [["part", "seed", "cases", "fits", *ORDER, "CPU s"]]
        rows.append(["---"] * len(rows[0]))
        for (part, seed), counts in self.runs.items():
            cpu, fits = round(self.seconds[part, seed]), self.fits[part, seed]
            rows.append([part, seed, counts.total(), fits, *(counts[v] for v in ORDER), cpu])
        sums = [total.total(), self.fits.total(), *(total[v] for v in ORDER), round(self.seconds.total())]
        rows.append(["all", "", *sums])
        lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes())]) + "\n"

    def notes(self) -> Iterator[str]:
        yield f"a case may take {PARTS['api'].seconds:.0f} s of CPU time; `--replay` runs one again"
        changes = {name: value for name, (value, _) in self.figures.items() if name.partition(": ")[2] in CHANGES}
        if changes:
            worst = sorted(changes.items(), key=lambda item: -item[1])[:6]
            yield "largest change of a distance: " + ", ".join(f"{name} {value:.1e}" for name, value in worst)
        added = self.figures.get("MB added by the second half")
        if added:
            fits = self.figures["fits of the soak"][0]
            yield f"soak: {fits:.0f} fits; their second half added {added[0]:.1f} MB, no thread and no open file"
        for each in self.findings():
            what = f"{each['verdict']}, {each['cases']} case(s): {each['site']} (`--replay {each['shortest']}`)"
            yield f"{what}: {each['detail']}"


CHANGES = ("order of rows", "threads", "chunks", "sparse rows", "use in chunks", "use on sparse rows")


def main() -> int:
    """Run the campaign, print its table, and return 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=CASES, help=f"API cases and model files (default: {CASES})")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other cases")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts, separated by commas")
    parser.add_argument("--replay", metavar="PART:SEED:NUMBER", help="run one case again and show it")
    parser.add_argument("--page", metavar="FILE", help="write the table and the findings there")
    parser.add_argument("--journal", metavar="FILE", help="keep outcomes there, and skip cases that it has")
    parser.add_argument("--seconds", type=float, help="stop after about this many seconds of wall time")
    arguments = parser.parse_args()
    if arguments.replay:
        return int(bool(show(arguments.replay).findings))
    campaign, seed = Campaign(), arguments.seed
    end = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    with Journal(arguments.journal) as kept:
        kept.restore(campaign)
        for part in arguments.parts.split(","):
            left = [n for n in _numbers(part, arguments.cases / CASES) if f"{part}:{seed}:{n}" not in kept.names]
            if left and (end is None or time.monotonic() < end):
                sweep(campaign, part, seed, left, end=end, report=True, journal=kept)
    page = campaign.page()
    print(page)
    if arguments.page:
        Path(arguments.page).write_text(page)
    return int(campaign.bad > 0)


def _numbers(part: str, share: float) -> range:
    """Return the cases of a part; lists of calls and scenarios are complete from a tenth of a full run on."""
    if part == "soak":  # the number is that of hundreds of fits
        fits = max(1, round(20 * share))
        return range(fits, fits + 1)
    share = min(1.0, 10 * share) if PARTS[part].numbered else share
    return range(max(1, round(PARTS[part].cases * share)))


class Journal:
    """Outcomes on disk, one line each, so that a campaign can be run in portions; without a path it keeps nothing."""

    def __init__(self, path: str | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.names: set[str] = set()

    def __enter__(self) -> Journal:
        self.file = None if self.path is None else self.path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: Any) -> None:
        if self.file is not None:
            self.file.close()

    def restore(self, campaign: Campaign) -> None:
        """Add the outcomes of earlier portions; an incomplete last line is ignored."""
        if self.path is None:
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            self.names.add(entry["name"])
            campaign.add(entry["name"], Outcome.loads(json.dumps(entry["outcome"])), entry["cpu"])

    def write(self, name: str, outcome: Outcome, cpu: float) -> None:
        self.names.add(name)
        if self.file is not None:
            self.file.write(json.dumps({"name": name, "cpu": cpu, "outcome": json.loads(outcome.dumps())}) + "\n")
            self.file.flush()


def sweep(
    campaign: Campaign,
    part: str,
    seed: int,
    numbers: Any,
    *,
    end: float | None = None,
    report: bool = False,
    journal: Journal | None = None,
) -> None:
    """Run cases of a part, at most until the time ``end``."""
    began = last = time.monotonic()
    with Worker(part) as worker:
        for done, number in enumerate(numbers, 1):
            name, before = f"{part}:{seed}:{number}", worker.cpu
            outcome = worker.run(seed, number)
            campaign.add(name, outcome, worker.cpu - before)
            if journal is not None:
                journal.write(name, outcome, worker.cpu - before)
            now = time.monotonic()
            if report and now - last > 60:
                last = now
                bad = sum(n for v, n in campaign.counts[part].items() if v not in GOOD)
                print(f"{part}: {done} of {len(numbers)}, {bad} bad, {now - began:.0f} s", file=sys.stderr, flush=True)
            if end is not None and now > end:
                break


def bounded(part: str, cases: int, seconds: float = 60, *, seed: int = 0) -> Campaign:
    """Run a few cases of a part in a limited time, for the test suite.

    The cases are always the same; a slow machine runs fewer of them.
    """
    campaign = Campaign()
    sweep(campaign, part, seed, range(cases), end=time.monotonic() + seconds)
    return campaign


def show(name: str) -> Outcome:
    """Repeat one case and print its description and findings."""
    part, seed, number = name.split(":")
    with Worker(part) as worker:
        outcome = worker.run(int(seed), int(number))
    print(f"{name}: {outcome.verdict}, {outcome.seconds:.2f} s, {outcome.peak / 1e6:.0f} MB more at its peak")
    for line in outcome.description:
        print(f"  {line}")
    if outcome.refusal:
        print(f"refused: {outcome.refusal}")
    for finding in outcome.findings:
        print(f"{finding.verdict}: {finding.site}\n  {finding.detail}")
    for what, value in outcome.figures.items():
        print(f"{what}: {value:.3g}")
    return outcome

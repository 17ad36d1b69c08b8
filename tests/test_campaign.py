"""A bounded part of the campaign: the same cases in every run."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from campaign import bounded
from campaign.trial import GOOD, Outcome, Verdict, without_folders
from campaign.worker import PARTS, Worker

SMOKE = {"api": 200, "files": 200, "answers": 60, "index": 40, "tables": 24, "certificates": 30, "invariances": 40}


@pytest.mark.parametrize(("part", "cases"), SMOKE.items())
def test_no_case_of_the_bounded_campaign_finds_an_error(part, cases):
    campaign = bounded(part, cases)
    found = list(campaign.findings())
    assert not found, json.dumps(found[:5], indent=1)
    counts = campaign.counts[part]
    assert sum(counts[verdict] for verdict in GOOD) == counts.total() > 0  # a slow machine runs fewer
    assert counts[Verdict.REFUSED] > 0 or counts.total() < cases or part in ("certificates", "invariances")
    if part == "api":
        assert campaign.fits["api", "0"] >= 0.5 * counts.total()  # most cases are valid but for one element


def test_a_finding_names_files_without_their_folders():
    text = 'File "/home/someone/lib/python3.11/threads.py", line 25, 3/4 of a/b.py, https://a.org/b/c'
    assert without_folders(text) == 'File "threads.py", line 25, 3/4 of a/b.py, https://a.org/b/c'


def test_a_case_depends_on_its_name_only():
    found = []
    for _ in range(2):
        with Worker("api") as worker:
            found.append(worker.run(0, 7))
    assert isinstance(found[0], Outcome)
    assert found[0].description == found[1].description
    assert found[0].verdict == found[1].verdict


@pytest.mark.parametrize(("part", "listed"), [("memory", "CALLS"), ("faults", "SCENARIOS")])
def test_a_full_run_goes_through_the_whole_list(part, listed):
    module = import_module(f"campaign.{part}")
    assert PARTS[part].cases >= len(getattr(module, listed))


def test_a_soak_fits_as_often_as_it_says():
    with Worker("soak") as worker:
        outcome = worker.run(0, 2)  # 200 fits: caches are still being filled in the first hundred
    assert outcome.verdict == Verdict.OK, outcome.findings
    assert outcome.figures["fits of the soak"] >= 196

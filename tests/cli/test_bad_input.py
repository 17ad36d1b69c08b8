"""Bad input to every command is one sentence and exit code 2; a fault of ours is exit code 1."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
from metricforge_cases.shell import COMMANDS, run

STRICT = ("--label", "class", "--missing", "error")
HINT = ("--label", "class", "--drop", "group", "--method", "krca")
BAD = {
    "no command": ([], "the following arguments are required: COMMAND; see metricforge --help"),
    "unknown command": (["dmeo"], "command='dmeo' is unknown; did you mean 'demo'?"),
    "unknown flag": (["demo", "--nothing"], "unrecognized arguments: --nothing; see metricforge demo --help"),
    "misspelt flag": (["learn", "toy.csv", "--standarize"], "--standarize; see metricforge learn --help"),
    "demo into a file": (["demo", "--out", "toy.csv"], "--out: cannot create the folder 'toy.csv'"),
    "learn nothing": (["learn"], "data is missing"),
    "learn without hints": (
        ["learn", "toy.csv"],
        "give one of --label, --pairs, --triplets, --quadruplets, --groups, --target, --answers\n",
    ),
    "learn LIBSVM without hints": (["learn", "toy.svm"], "the labels inside a LIBSVM file are --label label"),
    "learn FASTA without hints": (["learn", "p.fasta"], "are --label id and --label description"),
    "learn from two hints": (["learn", "toy.csv", "--label", "class", "--pairs", "pairs.csv"], "were both given"),
    "learn a missing file": (["learn", "no.csv", *HINT], "there is no file 'no.csv'"),
    "learn a folder": (["learn", "folder.csv", *HINT], "is a folder"),
    "learn a truncated array": (["learn", "huge.npy", "--label", "labels.csv"], "declares 8000000000000 bytes of data"),
    "learn an index too large": (["learn", "wide.svm", "--label", "label"], "'wide.svm' is not a LIBSVM file"),
    "learn pairs of many digits": (
        ["learn", "toy.npy", "--pairs", "digits.csv"],
        "column 'j' holds 12345678901234567890123 in entry 1, which is no row number",
    ),
    "learn an empty file": (["learn", "empty.csv", *HINT], "'empty.csv' is empty"),
    "learn names without rows": (["learn", "names.csv", "--label", "class"], "no rows below its column names"),
    "learn a wrong column": (["learn", "toy.csv", "--label", "clas"], "no column 'clas'; did you mean 'class'?"),
    "learn to drop a wrong column": (["learn", "toy.csv", *HINT, "--drop", "f99"], "no column 'f99'"),
    "learn text": (["learn", "typo.csv", "--groups", "class"], "line 3: column 'b' holds the text 'two'"),
    "learn text beside labels": (
        ["learn", "typo.csv", "--groups", "class"],
        "leave the column out with --drop b, or name it as --label or --groups or --target; if it is a category, "
        "--categories b\n",
    ),
    "learn text beside pairs": (
        ["learn", "typo.csv", "--pairs", "pairs.csv"],
        "holds the text 'two'; leave the column out with --drop b; if it is a category, --categories b\n",
    ),
    "learn nan": (["learn", "nan.csv", *STRICT], "line 3: column 'b' holds 'nan'; fill it in"),
    "learn a question mark": (
        ["learn", "unknown.csv", *STRICT],
        "line 3: column 'b' holds '?'; fill it in, remove the row, or leave the column out with --drop b\n",
    ),
    "learn a hole": (["learn", "hole.csv", *STRICT], "line 2: column 'a' is empty"),
    "learn with missing cells and no word for it": (
        ["learn", "hole.csv", "--label", "class", "--missing", "mean"],
        "--missing='mean' is unknown; did you mean 'median'?",
    ),
    "learn with an identifier that is the label": (
        ["learn", "hole.csv", "--label", "class", "--id", "class"],
        "--id and --label both name the column 'class'",
    ),
    "learn with two separators": (["learn", "toy.csv", *HINT, "--sep", ",;"], "--sep must be one character"),
    "learn in no encoding": (["learn", "toy.csv", *HINT, "--encoding", "utf-9"], "--encoding 'utf-9' is unknown"),
    "learn only a wrong column": (["learn", "toy.csv", *HINT, "--columns", "f0,f99"], "no column 'f99'"),
    "learn categories of an array": (
        ["learn", "toy.npy", "--label", "labels.csv", "--categories", "0"],
        "--categories: 'toy.npy' holds numbers only",
    ),
    "learn one class": (["learn", "one.csv", "--label", "class", "--method", "lpdesign"], "1 class(es)"),
    "learn no labels": (["learn", "unlabelled.csv", "--label", "class"], "holds no relation"),
    "learn labels of another length": (
        ["learn", "one.csv", "--drop", "class", "--label", "labels.csv"],
        "100 values for",
    ),
    "learn an unknown kind of file": (["learn", "toy.xlsx", *HINT], "unknown extension"),
    "learn an unknown method": (["learn", "toy.csv", *HINT, "--method", "krcaa"], "method='krcaa' is unknown; did you"),
    "learn an unknown kernel": (["learn", "toy.csv", *HINT, "--kernel", "rbff"], "kernel='rbff' is unknown; did you"),
    "learn an unknown parameter": (
        ["learn", "toy.csv", *HINT, "--kernel", "rbf(gama=1)"],
        "kernel='rbf(gama=1)': rbf has no parameter 'gama'; did you mean 'gamma'?",
    ),
    "learn a bad kernel": (["learn", "toy.csv", *HINT, "--kernel", "rbf(gamma=-1)"], "gamma must be"),
    "learn an unknown option": (["learn", "toy.csv", *HINT, "--option", "epsilom=1"], "option 'epsilom' is unknown"),
    "learn a bad option": (["learn", "toy.csv", *HINT, "--option", "epsilon=-1"], "epsilon must be"),
    "learn half an option": (["learn", "toy.csv", *HINT, "--option", "epsilon"], "write NAME=VALUE"),
    "learn an option of ours": (["learn", "toy.csv", *HINT, "--option", "seed=1"], "write --seed"),
    "learn a bad rank": (["learn", "toy.csv", *HINT, "--rank", "many"], "rank must be"),
    "learn a bad seed": (["learn", "toy.csv", *HINT, "--seed", "-1"], "seed must be"),
    "learn no seed": (["learn", "toy.csv", *HINT, "--seed", "x"], "invalid int value: 'x'"),
    "learn into no folder": (["learn", "toy.csv", *HINT, "-o", "no/x.metric"], "there is no folder 'no'"),
    "learn into a folder": (["learn", "toy.csv", *HINT, "-o", "."], "it is a folder"),
    "learn onto the data": (["learn", "toy.csv", *HINT, "-o", "toy.csv"], "this run reads it"),
    "learn into one file": (["learn", "toy.csv", *HINT, "-o", "x.htm", "--report", "./x.htm"], "choose two names"),
    "learn a report as what": (["learn", "toy.csv", *HINT, "--report", "r.pdf"], "ends in .html or .htm"),
    "learn rows that are their own class": (["learn", "toy.csv", "--label", "f0", "--drop", "class"], "rows share"),
    "learn a report into no folder": (["learn", "toy.csv", *HINT, "--report", "no/r.html"], "there is no folder 'no'"),
    "learn missing pairs": (["learn", "bare.csv", "--pairs", "no.csv"], "there is no file 'no.csv'"),
    "learn pairs without j": (["learn", "bare.csv", "--pairs", "labels.csv"], "no column 'i'"),
    "learn far pairs": (["learn", "nan.csv", "--drop", "b", "--drop", "class", "--pairs", "pairs.csv"], "outside 0 .."),
    "learn triplets of two": (["learn", "bare.csv", "--triplets", "pairs.csv"], "no column 'k'"),
    "learn from no scheduler": (
        ["learn", "toy.csv", *HINT, "--scheduler", "nonsense://x"],
        "no dask scheduler answers",
    ),
    "learn a missing run file": (["learn", "--config", "no.toml"], "--config: cannot read 'no.toml'"),
    "learn a broken run file": (["learn", "--config", "broken.toml"], "is not TOML"),
    "learn a strange run file": (
        ["learn", "--config", "strange.toml"],
        "sets 'metod', which is no setting; did you mean",
    ),
    "learn half an option in a run file": (["learn", "--config", "half.toml"], "write NAME=VALUE"),
    "learn no options in a run file": (
        ["learn", "--config", "number.toml"],
        'write option = ["name=value"] or a table',
    ),
    "learn a wrong run file": (["learn", "--config", "wrong.toml"], "sets seed = 'zero', which has the wrong type"),
    "learn numbers for names in a run file": (["learn", "--config", "drop.toml"], "sets drop = (1,), which has"),
    "learn two kinds of options in a run file": (["learn", "--config", "both.toml"], "sets options = 3, which has"),
    "transform onto the data": (["transform", "toy.metric", "toy.csv", "-o", "toy.csv"], "this run reads it"),
    "neighbors onto the others": (
        ["neighbors", "toy.metric", "hole.csv", "--among", "toy.csv", "-o", "toy.csv"],
        "this run reads it",
    ),
    "distance onto the others": (
        ["distance", "toy.metric", "hole.csv", "toy.csv", "-o", "toy.csv"],
        "this run reads it",
    ),
    "transform without a metric": (["transform", "no.metric", "toy.csv"], "cannot read 'no.metric'"),
    "transform by a damaged metric": (["transform", "damaged.metric", "toy.csv"], "'damaged.metric' is damaged"),
    "transform by no metric": (["transform", "toy.csv", "toy.csv"], "is not a saved metric"),
    "transform a missing file": (["transform", "toy.metric", "no.csv"], "there is no file 'no.csv'"),
    "transform an empty file": (["transform", "toy.metric", "empty.csv"], "'empty.csv' is empty"),
    "transform wrong columns": (["transform", "toy.metric", "nan.csv"], "no column 'f0'"),
    "transform another width": (["transform", "python.metric", "narrow.csv"], "has 2 features, but the metric"),
    "transform text": (
        ["transform", "python.metric", "toy.csv"],
        "holds the text 'red'; take the column out of the file\n",
    ),
    "transform text that is needed": (
        ["transform", "toy.metric", "worded.csv"],
        "column 'f3' holds the text 'x'; the metric was learned on numbers there; write numbers\n",
    ),
    "transform nan": (["transform", "python.metric", "hole.csv"], "is empty; fill it in"),
    "transform into another kind": (["transform", "toy.metric", "toy.csv", "-o", "x.xlsx"], "must be .csv, .tsv"),
    "transform into no folder": (["transform", "toy.metric", "toy.csv", "-o", "no/x.csv"], "there is no folder"),
    "neighbors without a metric": (["neighbors", "no.metric", "toy.csv"], "cannot read 'no.metric'"),
    "neighbors of a missing file": (["neighbors", "toy.metric", "no.csv"], "there is no file"),
    "neighbors, none": (
        ["neighbors", "toy.metric", "toy.csv", "-k", "0"],
        "k must be a whole number of at least 1 and at most 100",
    ),
    "neighbors, too many": (
        ["neighbors", "toy.metric", "toy.csv", "-k", "101"],
        "at most 100 (the number of training rows), got 101",
    ),
    "neighbors without itself of other rows": (
        ["neighbors", "toy.metric", "few.npy", "--exclude-self"],
        "'few.npy' has 2 rows and the metric keeps 100, so they are not the same rows",
    ),
    "neighbors into a folder": (["neighbors", "toy.metric", "toy.csv", "-o", "folder.csv"], "it is a folder"),
    "distance without a metric": (["distance", "no.metric", "toy.csv"], "cannot read 'no.metric'"),
    "distance to a missing file": (["distance", "toy.metric", "toy.csv", "no.csv"], "there is no file"),
    "distance, paired with nothing": (["distance", "toy.metric", "toy.csv", "--paired"], "give a second file"),
    "distance, unequal": (["distance", "python.metric", "toy.npy", "few.npy", "--paired"], "100 rows and B has 2"),
    "compare without hints": (["compare", "toy.csv"], "the hint is missing"),
    "compare into a picture": (
        ["compare", "toy.csv", *HINT[:4], "--report", "x.png"],
        "it is an HTML page; give a name that ends in .html",
    ),
    "evaluate without hints": (["evaluate", "toy.metric", "toy.csv"], "give one of --label, --pairs"),
    "evaluate by two hints": (
        ["evaluate", "toy.metric", "toy.csv", "--label", "class", "--pairs", "pairs.csv"],
        "give one of --label, --pairs",
    ),
    "evaluate by labels of another length": (
        ["evaluate", "python.metric", "few.npy", "--label", "labels.csv"],
        "100 values for",
    ),
    "info of nothing": (["info", "no.metric"], "cannot read 'no.metric'"),
    "info of something else": (["info", "toy.csv"], "is not a saved metric"),
    "classify without labels": (["classify", "python.metric", "toy.npy"], "keeps no labels: learn it with --label"),
    "classify by rows without labels": (
        ["classify", "toy.metric", "toy.csv", "--among", "toy.csv"],
        "name the column of their classes with --label",
    ),
    "classify within what": (
        ["classify", "toy.metric", "toy.csv", "--among", "toy.csv", "--label", "class", "--radius", "near"],
        "--radius must be a number, learned or none, got 'near'",
    ),
    "classify within a radius that was not learned": (
        ["classify", "toy.metric", "toy.csv", "--among", "toy.csv", "--label", "class", "--radius", "learned"],
        "learns no radius",
    ),
    "cluster into too many": (["cluster", "toy.metric", "toy.csv", "-k", "101"], "ask for at most 100 clusters"),
    "cluster into a folder": (["cluster", "toy.metric", "toy.csv", "-o", "folder.csv"], "it is a folder"),
    "match without pairs": (["match", "toy.metric", "toy.csv"], "--pairs is missing"),
    "match with one kind of pairs": (["match", "toy.metric", "toy.csv", "--pairs", "alike.csv"], "examples of both"),
    "match with too much precision": (
        ["match", "toy.metric", "toy.csv", "--pairs", "pairs.csv", "--precision", "2"],
        "precision must be a number above 0 and at most 1",
    ),
    "plugins of what": (["plugins", "x"], "unrecognized arguments: x"),
    "an unknown data set": (["datasets", "wien"], "unknown data set 'wien': did you mean 'wine'?"),
    "a data set into no folder": (["datasets", "wine", "-o", "no/w.csv"], "there is no folder"),
    "a data set as what": (["datasets", "wine", "-o", "w.npy"], "must be .csv or .tsv"),
    "all data sets into a file": (["datasets", "-o", "w.csv"], "name it"),
    "reproduce an unknown paper": (["reproduce", "krac"], "paper='krac' is unknown; did you mean 'krca'?"),
    "reproduce an unknown table": (["reproduce", "krca", "table9"], "krca has no 'table9'; did you mean 'table"),
    "reproduce, no repeats": (["reproduce", "krca", "figure1", "--repeats", "0"], "--repeats must be a whole number"),
    "reproduce, a bad seed": (["reproduce", "krca", "figure1", "--seed", "-1"], "--seed must be a whole number"),
    "reproduce onto a file": (["reproduce", "krca", "figure1", "--out", "toy.csv"], "cannot create the folder"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_exit_code_two(trouble, monkeypatch, capsys, case):
    words, said = BAD[case]
    monkeypatch.chdir(trouble)
    before = {path: path.stat().st_mtime_ns for path in trouble.iterdir()}
    assert run(*words) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert err.startswith("metricforge: ")
    assert err.count("\n") == 1
    assert out == ""
    assert {path: path.stat().st_mtime_ns for path in trouble.iterdir()} == before


def test_every_command_is_in_the_table_of_bad_input():
    commands = {words[0] for words, _ in BAD.values() if words}
    assert commands >= set(COMMANDS)


def test_debug_shows_where(trouble, monkeypatch, capsys):
    monkeypatch.chdir(trouble)
    for words in (["--debug", "datasets", "wien"], ["datasets", "wien", "--debug"]):
        assert run(*words) == 2
        assert "Traceback" in capsys.readouterr().err


def test_a_fault_of_ours_exits_with_one_and_without_a_traceback(monkeypatch, capsys):
    def broken(args):
        error = TypeError("it\nbroke")
        error.add_note("in solver X")
        raise error

    monkeypatch.setattr("metricforge.cli.listing.plugins", broken)
    assert run("plugins") == 1
    assert capsys.readouterr().err == (
        "metricforge: a fault, not your input: TypeError: it broke (in solver X); run again with --debug to see where\n"
    )


def test_too_little_memory_is_not_called_a_fault(monkeypatch, capsys):
    def large(args):
        raise MemoryError("Unable to allocate\n7.28 TiB")

    monkeypatch.setattr("metricforge.cli.listing.datasets", large)
    assert run("datasets") == 2
    assert capsys.readouterr().err == (
        "metricforge: there is not enough memory (MemoryError: Unable to allocate 7.28 TiB); "
        "give fewer rows or columns\n"
    )


def test_a_record_of_the_log_is_one_line():
    code = (
        "import logging; from metricforge.cli.program import main; main(['datasets']); logging.warning('two\\nlines')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "metricforge: two lines\n"


def test_a_warning_is_one_line(here, capsys):
    words = [
        "learn",
        "toy.csv",
        "--label",
        "class",
        "--drop",
        "group",
        "--method",
        "lpdesign",
        "--option",
        "max_iter=1",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # in this suite they are errors; a user sees them
        assert run(*words) == 0
    err = capsys.readouterr().err
    assert "max_iter" in err
    assert all(line.startswith("metricforge: ") for line in err.splitlines())

"""The file of answers: appended lines, torn ends, other data, several people, forged content."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from metricforge_ask.answers import read_answers
from metricforge_ask.constraint import Answers
from metricforge_ask.questions import Question
from metricforge_cases.asking import X, Y, drive, reply

import metricforge as mf
from metricforge.errors import InputError


def test_resuming_is_replaying(tmp_path):
    path = tmp_path / "a.jsonl"
    whole = drive(mf.ask.Session(X), 30)
    drive(mf.ask.Session(X, path), 12)
    again = mf.ask.Session(X, path)
    assert again.progress().answers == 12
    drive(again, 18)
    np.testing.assert_array_equal(again.groups(), whole.groups())
    assert again.next() == whole.next()
    assert again.hints() == whole.hints()
    assert path.stat().st_mode & 0o777 == 0o600


def test_undo_to_the_start(tmp_path):
    path = tmp_path / "a.jsonl"
    session = mf.ask.Session(X, path)
    first = session.next()
    drive(session, 15)
    for left in range(14, -1, -1):
        assert session.undo() is not None
        assert session.progress().answers == left
    assert session.undo() is None
    assert session.next() == first
    assert len(path.read_text().splitlines()) == 1 + 15 + 15  # nothing is ever removed from the file


def test_a_torn_last_line_is_dropped_with_a_note(tmp_path):
    path = tmp_path / "a.jsonl"
    drive(mf.ask.Session(X, path), 5)
    with path.open("a") as file:
        file.write('{"t":1,"by":"","kind":"pair","rows":["1"')
    again = mf.ask.Session(X, path)
    assert again.progress().answers == 5
    assert "not complete and was dropped" in again.notes[0]
    drive(again, 1)
    assert mf.ask.Session(X, path).progress().answers == 6


def test_a_file_that_was_cut_anywhere_is_continued(tmp_path):
    path = tmp_path / "a.jsonl"
    drive(mf.ask.Session(X, path), 3)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        session = mf.ask.Session(X, path)
        left = max(0, whole[:size].count(b"\n") - 1)
        assert session.progress().answers == left
        drive(session, 1)
        assert len(read_answers(path)[1]) == left + 1


@pytest.mark.parametrize("sent", [0, 1, 40])
def test_a_line_that_was_written_in_part_is_not_joined_to_the_next(tmp_path, monkeypatch, sent):
    path = tmp_path / "a.jsonl"
    session = drive(mf.ask.Session(X, path), 2)
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:sent]))
    with pytest.raises(InputError, match="the disk is full"):
        drive(session, 1)
    monkeypatch.undo()
    drive(session, 2)
    assert mf.ask.Session(X, path).progress().answers == 4


def test_a_line_that_another_process_left_incomplete_is_not_joined_to_the_next(tmp_path):
    path = tmp_path / "a.jsonl"
    session = drive(mf.ask.Session(X, path), 2)
    with path.open("ab") as file:
        file.write(b'{"t":17,"by":"tom","kind":"pa')
    drive(session, 2)
    assert mf.ask.Session(X, path).progress().answers == 4


@pytest.mark.parametrize("change", ["removed", "emptied", "a folder"])
def test_a_file_that_goes_away_while_it_is_open_is_an_input_error(tmp_path, change):
    path = tmp_path / "a.jsonl"
    session = drive(mf.ask.Session(X, path), 3)
    path.unlink()
    if change == "emptied":
        path.touch()
    elif change == "a folder":
        path.mkdir()
    for call in (session.progress, session.next, lambda: session.answer(Question("pair", (0, 1), "explore"), "alike")):
        with pytest.raises(InputError, match=r"a\.jsonl' .*start metricforge ask again"):
            call()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_path_that_is_no_file_is_refused(tmp_path, make):
    make(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match=r"a\.jsonl"):
        mf.ask.Session(X, tmp_path / "a.jsonl")


KILLED = """
import os, signal, sys
import numpy as np
import metricforge as mf
from metricforge_ask import answers

X = np.random.default_rng(0).normal(size=(40, 3))
X[:, 0] += 4 * (np.arange(40) % 3)
session = mf.ask.Session(X, sys.argv[1])
for k in range(6):
    session.answer(session.next(), "unlike")
    print(k, flush=True)

def half(path, *_, **__):
    with open(path, "ab") as file:
        file.write(b'{"t":17,"by":"","kind":"pa')
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

answers._append = half
session.answer(session.next(), "alike")
"""


def test_a_kill_in_mid_write_loses_only_that_answer(tmp_path):
    path = tmp_path / "a.jsonl"
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(path)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert path.read_bytes().endswith(b'"pa')
    again = mf.ask.Session(X, path)
    assert again.progress().answers == 6
    drive(again, 1)
    assert [a.n for a in read_answers(path)[1]] == list(range(1, 8))


def test_two_people_share_a_file(tmp_path):
    path = tmp_path / "a.jsonl"
    eva, tom = (mf.ask.Session(X, path, by=name) for name in ("eva", "tom"))
    for _ in range(22):
        drive(eva, 1)
        drive(tom, 1)
    known = tom.progress()
    assert known.people == {"eva": 22, "tom": 22}
    assert eva.undo().by == "eva"  # one's own answers only
    groups = mf.ask.Session(X, path).groups()
    placed = groups >= 0
    assert placed.sum() > 15
    assert all(len(set(Y[groups == g])) == 1 for g in set(groups[placed]))


@pytest.mark.parametrize("seed", range(5))
def test_a_shared_file_opens_whatever_answers_are_taken_back(tmp_path, seed):
    path, rng = tmp_path / "a.jsonl", np.random.default_rng(seed)
    people = [mf.ask.Session(X, path, by=name, lineup=True, seed=seed) for name in ("eva", "tom")]
    for _ in range(30):
        session = people[int(rng.integers(2))]
        question = session.next()
        if rng.random() < 0.3:
            session.answer(question, "skip" if question.kind == "pair" else int(rng.integers(1, len(question.rows))))
        else:
            reply(session, question)
        if rng.random() < 0.2:
            session.undo()
    header, *lines = path.read_bytes().splitlines(keepends=True)
    for _ in range(8):
        path.write_bytes(header + b"".join(line for line in lines if rng.random() < 0.7))
        again = mf.ask.Session(X, path, by="eva", lineup=True, seed=seed)
        reply(again, again.next())
        assert again.progress().placed == (again.groups() >= 0).sum()


def test_a_page_that_is_out_of_date_cannot_spoil_the_file(tmp_path):
    path = tmp_path / "a.jsonl"
    session, stale = (mf.ask.Session(X, path, lineup=True, held_out=0) for _ in range(2))
    while (question := stale.next()).kind == "pair":
        reply(session, question)
    while session.progress().answers > 1:
        session.undo()
    stale.answer(question, "none")  # of rows that are in no group any more
    again = mf.ask.Session(X, path, lineup=True, held_out=0)
    assert again.progress().answers == 2
    drive(again, 30)
    assert again.progress().placed > 10


def test_people_who_disagree(tmp_path):
    path = tmp_path / "a.jsonl"
    eva, tom = (mf.ask.Session(X, path, by=name, held_out=0) for name in ("eva", "tom"))
    for k in range(8):
        question = mf.ask.Question("pair", (k, k + 20), "overlap")
        eva.answer(question, "alike" if k % 2 else "unlike")
        tom.answer(question, "alike" if k % 4 == 1 else "unlike")
    known = mf.ask.Session(X, path).progress()
    assert known.contradictions == 2
    assert known.agreement == pytest.approx(0.5)  # 6 of 8 agree; (1/2)(1/4) + (1/2)(3/4) by chance


def test_other_data_are_refused_unless_rows_have_ids(tmp_path):
    path, named = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    drive(mf.ask.Session(X, path), 3)
    with pytest.raises(InputError, match=r"holds answers about other data: 40 rows"):
        mf.ask.Session(X + 1, path)
    ids = [f"id{i}" for i in range(40)]
    drive(mf.ask.Session(X, named, ids=ids, id_column="id"), 12)
    order = np.random.default_rng(1).permutation(40)
    moved = mf.ask.Session(X[order], named, ids=[ids[i] for i in order], id_column="id")
    assert "rows are found by their 'id'" in moved.notes[0]
    np.testing.assert_array_equal(moved.groups(), mf.ask.Session(X, named, ids=ids, id_column="id").groups()[order])


HEADER = b'{"format":"metricforge-answers","version":1,"rows":40,"columns":[],"sha256":"x"}\n'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no complete line"),
        (b"a,b\n1,2\n", "is not JSON"),
        (b'{"format":"other"}\n', "no format 'metricforge-answers'"),
        (b'{"format":"metricforge-answers","version":9}\n', "has version 9"),
        (b'{"format":"metricforge-answers","version":1,"rows":-1,"columns":[],"sha256":""}\n', "is damaged"),
        (b"[1]\n", "is not an object"),
        (
            b'{"format":"metricforge-answers","version":1,"rows":40,"columns":[],"sha256":"x"}\n{"kind":"pair"}\n',
            "answer 1",
        ),
        (b"\xff\xfe\n", "is not JSON"),
        (b"[" * 100_000 + b"\n", "is not JSON|is not an object"),
    ],
)
def test_forged_files(tmp_path, content, words):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_answers(path)


@pytest.mark.parametrize(
    ("kind", "rows", "answer"),
    [
        ("pair", [], "alike"),
        ("pair", ["1"], "alike"),
        ("pair", ["1", "1"], "alike"),
        ("pair", ["1", "2", "3"], "alike"),
        ("pair", ["1", 2], "alike"),
        ("triplet", ["1", "2"], "first"),
        ("lineup", ["1"], 1),
        ("lineup", ["1", "2", "3"], 3),
        (["pair"], ["1", "2"], "alike"),
        ("pair", ["1", "2"], 1),
        ("pair", ["1", "2"], {}),
        ("lineup", ["1", "2"], []),
    ],
)
def test_an_answer_of_a_file_is_one_that_could_be_given(tmp_path, kind, rows, answer):
    path = tmp_path / "a.jsonl"
    path.write_bytes(HEADER + json.dumps({"kind": kind, "rows": rows, "answer": answer}).encode() + b"\n")
    with pytest.raises(InputError, match=r"^answer 1 .*the file was edited"):
        read_answers(path)


@pytest.mark.parametrize("p", [pytest.param(10**400, id="10**400"), -1, 2, float("inf"), True, "x"])
def test_a_probability_of_a_file_may_be_anything(tmp_path, p):
    path = tmp_path / "a.jsonl"
    answer = {"kind": "pair", "rows": ["1", "2"], "answer": "alike", "p": p}
    path.write_bytes(HEADER + json.dumps(answer).encode() + b"\n")
    (found,) = read_answers(path)[1]
    assert 0 <= found.p <= 1


def test_learning_from_files_of_answers(tmp_path):
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    drive(mf.ask.Session(X, one, by="eva"), 20)
    drive(mf.ask.Session(X, two, by="tom", seed=5), 20)
    alone = Answers.from_file(str(one), 40, None)
    both = Answers.from_file(f"{one},{two}", 40, None)
    assert 0 < alone.size < both.size
    y = Y[both.similar]
    assert (y[:, 0] == y[:, 1]).all()
    with pytest.raises(InputError, match="about 40 rows, the data have 39"):
        Answers.from_file(str(one), 39, None)


def test_triplets_become_triplets(tmp_path):
    path = tmp_path / "t.jsonl"
    session = drive(mf.ask.Session(X, path, rule="triplets"), 25)
    hints = session.hints()
    assert isinstance(hints, mf.Triplets)
    assert Answers.from_file(str(path), 40, None) == hints
    session.export(tmp_path / "t.csv")
    assert len((tmp_path / "t.csv").read_text().splitlines()) == hints.size + 1


def test_the_shell_learns_from_answers(tmp_path, monkeypatch, capsys):
    from metricforge.cli.program import main

    monkeypatch.chdir(tmp_path)
    ids = [f"id{i}" for i in range(40)]
    lines = ["name,a,b,c", *(f"{name},{a},{b},{c}" for name, (a, b, c) in zip(ids, X.tolist(), strict=True))]
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    rows = np.loadtxt(lines[1:], delimiter=",", usecols=(1, 2, 3))
    drive(mf.ask.Session(rows, "d.answers.jsonl", ids=ids, id_column="name"), 25)
    command = ["learn", "d.csv", "--drop", "name", "--answers", "d.answers.jsonl", "--method", "llr", "--json"]
    assert main(command) in (0, None)
    assert json.loads(capsys.readouterr().out)["report"]["method"] == "llr"


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    session = drive(mf.ask.Session(X, tmp_path / "a.jsonl"), 2)

    def full(handle, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(InputError, match="No space left"):
        drive(session, 1)

"""The command `metricforge ask`: a table as it is found, the cards that show it, and the command that follows."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser

import numpy as np
import pytest
from metricforge_ask.command import arguments
from metricforge_ask.running import learn_command, prepare
from metricforge_cases.asking import drive

from metricforge.cli.program import main
from metricforge.errors import InputError


def parsed(*words):
    parser = ArgumentParser()
    arguments(parser)
    return parser.parse_args([str(word) for word in words])


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table with semicolons, decimal commas, a category, a missing cell and names, in Latin-1."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    classes = np.arange(30) % 3
    lines = ["Name;Größe;Farbe;Klasse;note"]
    for row, c in enumerate(classes):
        size = "" if row == 7 else f"{4 * c + rng.normal():.3f}".replace(".", ",")
        lines.append(f"Reihe {row};{size};{('rot', 'grün', 'blau')[c]};{c};word{row} same")
    (tmp_path / "werte.csv").write_text("\n".join(lines) + "\n", encoding="latin-1")
    return classes


def test_the_command_that_follows_reads_the_table_as_ask_does(table, capsys):
    args = parsed(
        *("werte.csv", "--id", "Name", "--text", "note", "--drop", "Klasse"),
        *("--encoding", "latin-1", "--missing", "drop", "--missing-values=-9,?x"),
    )
    session, cards = prepare(args)
    assert session.n == 29
    (card, _) = cards.shown([6, 7])  # rows 6 and 8 of the file
    cells = {field["name"]: field["text"] for field in card["fields"]}
    assert cells["Größe"].count(",") == 1  # as written, not as read
    assert cells["Farbe"] == "rot"
    kept = np.delete(table, 7)
    drive(session, 40, kept)
    groups = session.groups()
    assert all(len(set(kept[groups == g])) == 1 for g in set(groups[groups >= 0]))
    words = shlex.split(learn_command(args, session))
    assert words[0] == "metricforge"
    assert words[words.index("--missing-values") + 1] == "-9,?x"
    assert main([*words[1:], "--folds", "0"]) == 0
    assert "werte.metric" in capsys.readouterr().out


def test_names_of_groups_are_kept_and_exported_for_learn(table, capsys):
    args = parsed("werte.csv", "--id", "Name", "--drop", "Klasse,note", "--encoding", "latin-1")
    session, _ = prepare(args)
    drive(session, 30, table)
    first = session.progress().exemplars[0]
    session.name_group(first, "a name, with a comma")
    session.undo()  # takes back an answer, not the name
    again, _ = prepare(args)
    assert again.progress().names[0] == "a name, with a comma"
    assert again.progress().answers == 29
    again.export("groups.csv", "groups")
    words = ["learn", "werte.csv", "--drop", "Klasse,note,Name", "--encoding", "latin-1", "--label", "groups.csv"]
    assert main([*words, "--folds", "0"]) == 0
    assert "werte.metric" in capsys.readouterr().out
    with pytest.raises(InputError, match="in no group"):
        again.name_group(int(np.flatnonzero(again.groups() < 0)[0]), "x")
    with pytest.raises(InputError, match="at most 80 characters"):
        again.name_group(first, "x" * 81)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-"], "save standard input first"),
        (["werte.csv", "--encoding", "latin-1", "--show", "Farb"], "Farbe"),
        (["werte.csv", "--encoding", "latin-1", "--missing", "error"], "is empty; fill it in"),
        (["werte.csv", "--encoding", "latin-1", "--missing", "never"], "--missing"),
    ],
)
def test_bad_input(table, words, message):
    with pytest.raises(InputError, match=message):
        prepare(parsed(*words))

"""Small twins of published tables through every command: holes, categories, dates, commas, many columns."""

from __future__ import annotations

import gzip
import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
from metricforge_cases.shell import run

import metricforge as mf


def penguins(rng):
    """Text, a date, missing cells, an identifier, a constant column and a comment that is mostly empty."""
    lines = ["studyName,Species,Region,Island,Individual ID,Clutch,Date Egg,Length (mm),Mass (g),Sex,Comments"]
    for i in range(60):
        kind = i % 3
        cells = [f"{40 + 5 * kind + rng.normal():.1f}", f"{3500 + 700 * kind + 100 * rng.normal():.0f}"]
        cells = ["NA" if rng.random() < 0.05 else cell for cell in cells]
        sex = rng.choice(["MALE", "FEMALE", ""])
        comment = "Not enough blood, sadly" if i % 20 == 0 else "NA"
        where = ["Torgersen", "Dream", "Biscoe"][(kind + int(rng.integers(2))) % 3]
        day = f"200{7 + i % 3}-11-{10 + i % 19}"
        species = ["Adelie Penguin (P. adeliae)", "Chinstrap", "Gentoo"][kind]
        line = f'PAL{i % 2},{species},Anvers,{where},N{i}A1,Yes,{day},{cells[0]},{cells[1]},{sex},"{comment}"'
        lines.append(line)
    return "\n".join(lines) + "\n", "Species", ["--id", "Individual ID"]


def weather(rng):
    """Dates with the year first, and numbers."""
    lines = ["date,precipitation,temp_max,wind,weather"]
    for i in range(60):
        wet = i % 2
        lines.append(
            f"2012/{1 + i // 28:02d}/{1 + i % 28:02d},{wet * (1 + rng.random()):.1f},{15 - 5 * wet + rng.normal():.1f},"
            f"{rng.random() * 8:.1f},{['sun', 'rain'][wet]}"
        )
    return "\n".join(lines) + "\n", "weather", []


def commas(rng):
    """Semicolons, two more at the end of every line, decimal commas, Latin letters and an empty last row."""
    lines = ["Größe;Gewicht;Art;;"]
    for i in range(60):
        cells = [f"{v:.2f}".replace(".", ",") for v in rng.normal(size=2) + 3 * (i % 2)]
        lines.append(";".join([*cells, ["süß", "herb"][i % 2], "", ""]))
    return "\r\n".join([*lines, ";;;;"]) + "\r\n", "Art", ["--encoding", "latin-1"]


def long(rng):
    """Many rows, with holes, hours and many categories."""
    n = 600
    kind, miles = rng.integers(4, size=n), rng.integers(100, 3000, size=n)
    late = np.where(rng.random(n) < 0.03, np.nan, 10 * kind + rng.normal(size=n))
    lines = ["year,dep_delay,carrier,tailnum,dest,distance,time_hour"]
    for i in range(n):
        delay = "" if np.isnan(late[i]) else f"{late[i]:.0f}"
        hour = f"2013-01-{1 + i % 28:02d} {i % 24:02d}:00:00"
        lines.append(f"2013,{delay},{'ABCD'[kind[i]]},N{i // 3},D{miles[i] % 30},{miles[i]},{hour}")
    return "\n".join(lines) + "\n", "carrier", []


def wide(rng):
    """As many columns as there are genes."""
    y = np.arange(40) % 2
    X = rng.normal(size=(40, 500)) + y[:, None]
    lines = [",".join([*(f"g{c}" for c in range(500)), "tumour"])]
    lines += [",".join([*(f"{v:.3f}" for v in row), "yes" if label else "no"]) for row, label in zip(X, y, strict=True)]
    return "\n".join(lines) + "\n", "tumour", []


@pytest.mark.parametrize("make", [penguins, weather, commas, long, wide], ids=lambda make: make.__name__)
def test_every_command_takes_the_table_as_it_is(make, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text, label, words = make(np.random.default_rng(0))
    encoding = "latin-1" if make is commas else "utf-8"
    if make is long:
        name = "t.csv.gz"
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    else:
        name = "t.csv"
        (tmp_path / name).write_bytes(text.encode(encoding))

    def told(*typed):
        capsys.readouterr()
        assert run(*typed, "--json") == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    learned = told(
        "learn",
        name,
        "--label",
        label,
        *words,
        "--method",
        "krca",
        "--kernel",
        "linear",
        "--folds",
        "2",
        "-o",
        "m.metric",
    )
    assert learned["held_out"][0]["total"] > 0
    metric = mf.load("m.metric")
    n = len(metric.rows)
    assert np.isfinite(metric.rows).all()
    assert told("info", "m.metric")["labels"].startswith(label)
    assert told("evaluate", "m.metric", name, "--label", label, *words)["scores"]
    assert len(told("classify", "m.metric", name, "-k", "1", *words)["class"]) == n
    assert len(told("cluster", "m.metric", name, "-k", "2", *words)["clusters"]) == n
    found = told("neighbors", "m.metric", name, "-k", "2", "--exclude-self", *words)
    assert np.shape(found["indices"]) == (n, 2)
    assert np.shape(found["label"]) == (n, 2)
    assert len(told("transform", "m.metric", name, *words)["rows"]) == n
    assert told("distance", "m.metric", name, name, "--paired", *words)["distances"] == pytest.approx(
        np.zeros(n), abs=1e-6
    )
    monkeypatch.setattr("metricforge.cli.compare.compare", partial(mf.compare, candidates=["krca"]))
    compared = told("compare", name, "--label", label, "--kernel", "linear", "--sample", "50", *words)
    assert compared["rows"] <= 50
    assert {one["name"] for one in compared["candidates"]} == {"krca", "start"}
    assert told("index", "m.metric", *words)["rows"] == n
    listed = told("index", "m.metric", name, "-k", "2", *words)
    assert np.shape(listed["label"]) == (n, 2)
    (tmp_path / "pairs.csv").write_text("i,j,similar\n" + "".join(f"{i},{i + 3},1\n{i},{i + 1},0\n" for i in range(30)))
    assert run("match", "m.metric", name, "--pairs", "pairs.csv", "--precision", "0.1", "-o", "p.csv", *words) == 0


def test_what_is_said_about_the_columns_of_penguins(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text, label, words = penguins(np.random.default_rng(0))
    (tmp_path / "p.csv").write_text(text)
    assert run("learn", "p.csv", "--label", label, *words, "--method", "krca", "--folds", "0") == 0
    capsys.readouterr()
    assert run("info", "p.metric") == 0
    out = capsys.readouterr().out
    for said in (
        "Region: left out: every cell is 'Anvers'",
        "Island: 3 levels (Biscoe, Dream, Torgersen), one column of 0 and 1 each",
        "Date Egg: a date, as days since 1970-01-01",
        "Clutch: true and false, yes and no as 1 and 0",
        "Comments: left out: 57 of 60 cells are missing",
        "filled with the median",
    ):
        assert said in out


@pytest.mark.parametrize("first", [0, 1])
def test_the_index_of_a_frame_is_left_out_with_a_note(first, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"]).assign(kind=["x", "y"] * 15)
    frame.index += first
    frame.to_csv("t.csv")
    assert run("learn", "t.csv", "--label", "kind", "--method", "llr") == 0
    assert "note: a column without a name numbers the rows and was left out" in capsys.readouterr().out
    assert mf.load("t.metric").columns == ("a", "b")
    assert run("neighbors", "t.metric", "t.csv", "-k", "1") == 0
    capsys.readouterr()
    frame.set_axis(rng.permutation(30)).to_csv("t.csv")
    assert run("learn", "t.csv", "--label", "kind") == 2
    assert "column 0 (counted from 0) has no name; name it in the first line" in capsys.readouterr().err

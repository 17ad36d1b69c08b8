"""``metricforge ask``: read a table, show the page, and print what follows from the answers."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metricforge.cli import write_json, write_line
from metricforge.cli.settings import choices_of, listed
from metricforge.errors import InputError
from metricforge.tables.formats import all_columns, existing
from metricforge.tables.preparing import read_prepared
from metricforge.tables.table import STANDARD_INPUT
from metricforge.validation import nearest

from .cards import Cards
from .server import Desk, Server
from .session import Session

RULES = {"pair": "groups", "lineup": "groups", "triplet": "triplets"}


def run(args: Namespace) -> None:
    """Ask about the rows of a table until the program is interrupted."""
    session, cards = prepare(args)
    command = learn_command(args, session)
    desk = Desk(session, cards, title=Path(args.data).name, command=command, budget=args.budget)
    server = Server(desk, host=args.host, port=args.port, anywhere=args.i_know)
    write_line(f"answers go to {out_of(args)}; press Ctrl+C to end")
    for note in session.notes:
        write_line(f"note: {note}")
    write_line(f"open {server.url}")
    try:
        server.run(None if args.no_browser else server.show)
    except KeyboardInterrupt:
        write_line("")
    _print(args, session, command)


def prepare(args: Namespace) -> tuple[Session, Cards]:
    """Return the session of a command, and the cards that show its rows."""
    path = existing(args.data)
    if str(path) == STANDARD_INPUT:
        raise InputError("data: the page needs a file, which it reads again later; save standard input first")
    named = list(dict.fromkeys(name for name in (args.id, args.text, args.image) if name is not None))
    choices = choices_of(args)
    table = read_prepared(path, choices, extra=named)
    session = Session(
        table.rows,
        out_of(args),
        rule="random" if args.random else RULES[args.question],
        lineup=args.question == "lineup",
        ids=None if args.id is None else list(table.extra[args.id]),
        id_column=args.id,
        columns=table.names,
        by=args.annotator,
        select="uncertain" if args.uncertain else "random",
        seed=args.seed,
    )
    session.notes += table.notes
    columns = {"text": list(table.rows)} if table.holds_strings else all_columns(path, choices.dialect)
    if table.kept is not None:
        columns = {name: np.asarray(values)[table.kept] for name, values in columns.items()}
    shown = listed(args.show) if args.show else [c for c in choices.columns or columns if c not in choices.drop]
    _check(shown, list(columns), args.data)
    keep = {name: columns[name] for name in [*shown, *named] if name != args.id or name in shown}
    text = "text" if table.holds_strings else args.text
    return session, Cards(keep, text=text, image=args.image, image_root=args.image_root)


def _check(wanted: Sequence[str], known: Sequence[str], path: str) -> None:
    for name in wanted:
        if name not in known:
            raise InputError(f"--show: {path!r} has no column {name!r}; {nearest(name, known)}")


def out_of(args: Namespace) -> Path:
    """Return the file of answers."""
    name = Path(args.data).name.removesuffix(".gz")
    return Path(args.out) if args.out else Path(name).with_suffix(".answers.jsonl")


def learn_command(args: Namespace, session: Session) -> str:
    """Return the command that learns from the answers."""
    words = ["metricforge", "learn", args.data, "--answers", str(out_of(args))]
    words += ["--id", args.id] if args.id else []
    aside = dict.fromkeys(name for name in (args.text, args.image) if name)
    for flag in ("columns", "drop", "categories", "missing-values"):
        given = getattr(args, flag.replace("-", "_")) or []
        for text in [*given, *(map(_quoted, aside) if flag == "drop" else [])]:
            words += [f"--{flag}", text]
    for flag in ("missing", "sep", "encoding", "thousands"):
        words += [f"--{flag}", getattr(args, flag)] if getattr(args, flag) else []
    return shlex.join(words)


def _quoted(name: str) -> str:
    """Return the name of a column as an option takes it, where a comma separates names."""
    return '"' + name.replace('"', '""') + '"' if "," in name else name


def _print(args: Namespace, session: Session, command: str) -> None:
    known = session.progress()
    if args.json:
        facts: dict[str, Any] = {"answers": known.answers, "placed": known.placed, "groups": list(known.groups)}
        write_json({"file": str(out_of(args)), **facts, "held_out": known.held_out, "foretold": known.foretold})
        return
    write_line(f"{known.answers} answers, {known.placed} rows in {len(known.groups)} groups: {out_of(args)}")
    if known.foretold is not None:
        low, high = known.interval
        write_line(
            f"held-out answers predicted: {100 * known.foretold:.0f} % of {known.held_out} "
            f"({100 * low:.0f} to {100 * high:.0f} %)"
        )
    for pair in session.contradictions():
        write_line(f"answered both ways: {' and '.join(pair)}")
    write_line(f"next: {command}")

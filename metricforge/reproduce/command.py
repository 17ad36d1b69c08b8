"""The command ``metricforge reproduce``: list, run, print, write."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from .. import files, plotting
from ..cli import say, say_json
from ..errors import InputError, whole_number
from . import pages
from .entries import Entry, find, reproduce
from .result import Result, printed


def run(args: Namespace) -> None:
    """List what there is, or run what was asked for and write it beside the paper's numbers."""
    if args.paper is None and not args.quick:
        show_list(args.json)
        return
    chosen = find(None if args.paper == "all" else args.paper, args.name)
    whole_number(args.seed, "--seed", least=0)
    if args.repeats is not None:
        whole_number(args.repeats, "--repeats")
    if any(entry.kind == "figure" for entry in chosen):
        plotting.check_installed()
    folder = out_folder(args)
    results = []
    for entry in chosen:
        result = reproduce(entry, repeats=args.repeats, seed=args.seed, quick=args.quick, peers=args.peers)
        results.append(result)
        written = pages.write(result, folder) if folder is not None else []
        if not args.json:
            say(pages.markdown(result))
            say("".join(f"written: {path}\n" for path in written))
    if folder is not None:
        pages.refresh(folder)
    if args.json:
        say_json(_for_a_script(results, one=args.name is not None))


def out_folder(args: Namespace) -> Path | None:
    """Return where to write, made if need be; a quick run writes only where it is told to."""
    if args.out is None and args.quick:
        return None
    folder = Path(args.out or "results")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: cannot make the folder {str(folder)!r}: {error.strerror}; choose another") from None
    files.check_writable(folder / "summary.md")
    return folder


def show_list(as_json: bool) -> None:
    """Print one line for each table and figure."""
    entries = find()
    if as_json:
        say_json([_told(entry) for entry in entries])
        return
    for entry in entries:
        where = printed(entry.paper, entry.name).where
        say(f"{entry.paper:<11} {entry.name:<8} {where:<10} {entry.title} ({entry.repeats} repeats)")
    say(
        "\nmetricforge reproduce krca table4 runs one, metricforge reproduce krca all of a paper, --quick to try it "
        "out."
    )


def _told(entry: Entry) -> dict[str, object]:
    where = printed(entry.paper, entry.name).where
    return {
        "paper": entry.paper,
        "name": entry.name,
        "where": where,
        "title": entry.title,
        "repeats": entry.repeats,
    }


def _for_a_script(results: list[Result], *, one: bool) -> object:
    told = [result.as_dict() for result in results]
    return told[0] if one else told

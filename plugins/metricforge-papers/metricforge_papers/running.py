"""The command ``metricforge reproduce``: list, run, print, write."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from metricforge import plotting
from metricforge.cli import write_json, write_line
from metricforge.errors import InputError
from metricforge.files import atomic as files
from metricforge.validation import whole_number

from . import checking, pages, statistics
from .entries import Entry, find, reproduce
from .printed import printed
from .result import Result


def run(args: Namespace) -> None:
    """List all entries, or run those that were asked for and write the results."""
    if args.check:
        check(checking.check_folder(Path(args.out or "docs/results")), fix=args.fix, as_json=args.json)
        return
    if args.fix:
        raise InputError("--fix needs --check")
    if args.paper == statistics.NAME:
        show_data(args)
        return
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
        partial = folder / f"{entry.paper}-{entry.name}.partial.jsonl" if folder is not None else None
        if partial is not None and not args.resume:
            partial.unlink(missing_ok=True)
        earlier = pages.read_one(folder, entry) if folder is not None else None
        options = {"repeats": args.repeats, "seed": args.seed, "quick": args.quick, "peers": args.peers}
        result = reproduce(entry, **options, partial=partial, earlier=earlier)
        results.append(result)
        written = pages.write(result, folder) if folder is not None else []
        if partial is not None:
            partial.unlink(missing_ok=True)
        if not args.json:
            write_line(pages.markdown(result))
            write_line("".join(f"written: {path}\n" for path in written))
    if folder is not None:
        pages.refresh(folder)
    if args.json:
        write_json(_as_json(results, one=args.name is not None))


def show_data(args: Namespace) -> None:
    """Print the data sets of the papers beside ours, and write them where asked."""
    lines = statistics.measured()
    if args.out is not None:
        folder = out_folder(args)
        assert folder is not None
        statistics.write(folder)
    if args.json:
        write_json(lines)
    else:
        write_line(statistics.page(lines))


def check(folder: Path, *, fix: bool, as_json: bool) -> None:
    """Print what does not follow from the results, which is an error unless it is rewritten."""
    found = checking.problems(folder)
    if as_json:
        write_json(found)
    elif fix:
        checking.repair(folder)
        write_line(f"{len(found)} rewritten" if found else "nothing to rewrite")
    elif not found:
        write_line("every page and verdict follows from its results")
    if found and not fix:
        raise InputError("; ".join(found) + "; metricforge reproduce --check --fix rewrites them")


def out_folder(args: Namespace) -> Path | None:
    """Return the output folder, created if necessary; None for a quick run without ``--out``."""
    if args.out is None and args.quick:
        return None
    folder = Path(args.out or "results")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: cannot create the folder {str(folder)!r}: {error.strerror}; choose another") from None
    files.check_writable(folder / "summary.md")
    return folder


def show_list(as_json: bool) -> None:
    """Print one line for each table and figure."""
    entries = find()
    if as_json:
        write_json([_as_dict(entry) for entry in entries])
        return
    for entry in entries:
        where = printed(entry.paper, entry.name).where
        write_line(f"{entry.paper:<11} {entry.name:<8} {where:<10} {entry.title} ({entry.repeats} repeats)")
    write_line(
        "\nmetricforge reproduce krca table4 runs one, metricforge reproduce krca all of a paper, --quick to try it "
        "out."
    )


def _as_dict(entry: Entry) -> dict[str, object]:
    where = printed(entry.paper, entry.name).where
    return {
        "paper": entry.paper,
        "name": entry.name,
        "where": where,
        "title": entry.title,
        "repeats": entry.repeats,
    }


def _as_json(results: list[Result], *, one: bool) -> object:
    content = [result.as_dict() for result in results]
    return content[0] if one else content

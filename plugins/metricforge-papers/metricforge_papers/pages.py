"""A result as Markdown and JSON, and the summary of all results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from metricforge.errors import InputError
from metricforge.files import atomic as files

from .entries import ENTRIES, Entry
from .experiment import DEFAULT, PRINTED, TUNED
from .printed import paper_file, printed
from .result import Result
from .verdict import (
    CANNOT_TELL,
    LEVEL,
    NO_WORSE,
    NOT,
    POWER,
    REPRODUCED,
    SHARE,
    WORSE,
    Cell,
    Claim,
    Verdict,
    judge_claim,
)


def stem(result: Result) -> str:
    """Return the name of a result's files."""
    return f"{result.paper}-{result.name}"


def write(result: Result, folder: Path) -> list[Path]:
    """Write NAME.json, NAME.md and, for a figure, NAME.png; return the paths."""
    content = {".json": to_json(result).encode(), ".md": markdown(result).encode()}
    if result.picture:
        content[".png"] = result.picture
    paths = []
    for suffix, raw in content.items():
        paths.append(folder / f"{stem(result)}{suffix}")
        files.write(paths[-1], raw)
    return paths


def to_json(result: Result) -> str:
    """Return the text of the JSON file, one cell per line."""
    content = result.as_dict()
    cells = [json.dumps(cell, allow_nan=False, ensure_ascii=False) for cell in content["cells"]]
    text = json.dumps({**content, "cells": []}, indent=1, allow_nan=False, ensure_ascii=False)
    return text.replace('"cells": []', '"cells": [\n  ' + ",\n  ".join(cells) + "\n ]", 1) + "\n"


def refresh(folder: Path) -> None:
    """Rewrite the pages of a folder, their verdicts and the summary from its JSON files."""
    results = read(folder)
    for result in results:
        picture = folder / f"{stem(result)}.png"
        whole = replace(result, picture=picture.read_bytes()) if picture.is_file() else result
        files.write(folder / f"{stem(result)}.md", markdown(whole).encode())
        files.write(folder / f"{stem(result)}.json", to_json(result).encode())
    files.write(folder / "summary.md", summary(results).encode())


def read_one(folder: Path, entry: Entry) -> Result | None:
    """Return the result of an entry, if the folder has it."""
    path = folder / f"{entry.paper}-{entry.name}.json"
    return Result.from_dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def read(folder: Path) -> list[Result]:
    """Return the results of a folder, in the order of the entries."""
    found = [result for entry in ENTRIES if (result := read_one(folder, entry)) is not None]
    if not found:
        raise InputError(f"{str(folder)!r} holds no results; run metricforge reproduce PAPER NAME --out {folder}")
    return found


# ----------------------------------------------------------------------------------------------------------- one result


def markdown(result: Result) -> str:
    """Return the page of a result, with every number next to that of the paper."""
    paper = result.printed
    lines = [f"# {result.paper}, {paper.where}: {result.title}", "", paper.about, ""]
    if result.picture:
        lines += [f"![{result.title}]({stem(result)}.png)", ""]
    for measure in dict.fromkeys(cell.measure for cell in result.cells):
        lines += [*_pivot([cell for cell in result.cells if cell.measure == measure], _digits(result, measure)), ""]
    if result.claims:
        lines += ["| the paper says | here | found | margin ± standard error |", "| --- | --- | --- | --- |"]
        beside = [sum(one.variants == claim.variants for one in result.claims) for claim in result.claims]
        lines += [_claim_row(claim, family) for claim, family in zip(result.claims, beside, strict=True)]
        lines.append("")
    lines += [f"**{_capital(sentence)}.**" for sentence in map(verdict_sentence, result.verdicts())]
    lines += ["", *([result.why, ""] if result.why else [])]
    theirs = f" (the paper: {paper.repeats})" if paper.repeats else ""
    lines += [
        f"- Protocol: {result.protocol}",
        f"- Repeats: {result.repeats}{theirs}; seed {result.seed}.",
        *(f"- {note}" for note in result.notes),
        *(f"- Not available: {sentence}" for sentence in result.missing),
        f"- `{result.command}`, {_time(result)}.",
        f"- {paper_file(result.paper)['reference']}",
    ]
    return "\n".join(lines) + "\n"


def _time(result: Result) -> str:
    return f"{result.cpu_seconds:.0f} CPU s" if result.cpu_seconds else f"{result.seconds:.0f} s"


def _claim_row(claim: Claim, family: int) -> str:
    holds = {NO_WORSE: "holds", WORSE: "does not hold"}.get(judge_claim(claim, family).outcome, "cannot tell")
    known = claim.margin is not None and claim.error is not None
    return f"| {claim.says} | {holds} | {claim.ours} | {f'{claim.margin:.3g} ± {claim.error:.2g}' if known else ''} |"


def _pivot(cells: Sequence[Cell], digits: int) -> list[str]:
    columns = list(dict.fromkeys(cell.column for cell in cells))
    at = {(cell.row, cell.column): cell for cell in cells}
    theirs = " (paper)" if any(cell.paper is not None for cell in cells) else ""
    lines = [
        " | ".join([f"| {cells[0].measure}: ours ± std{theirs}", *columns]) + " |",
        "| --- " * (len(columns) + 1) + "|",
    ]
    for row in dict.fromkeys(cell.row for cell in cells):
        shown = [_shown(at[row, column], digits) if (row, column) in at else "" for column in columns]
        lines.append(" | ".join([f"| {row}", *shown]) + " |")
    return lines


def _shown(cell: Cell, digits: int) -> str:
    ours = "none" if cell.ours is None else _written(cell.ours, digits) + "\\*" * cell.mark
    spread = "" if cell.std is None else f" ± {cell.std:.{digits}f}"
    paper = "" if cell.paper is None else f" ({cell.paper:.{digits}f}" + "\\*" * cell.paper_mark + ")"
    return ours + spread + paper


def _written(value: float, digits: int) -> str:
    """Return a number with a number of digits, or in scientific notation if these would show zero."""
    hidden = 1e-9 < abs(value) < 0.5 * 10.0**-digits  # below 1e-9 it is rounding
    return f"{value:.1e}" if hidden else f"{value:.{digits}f}"


def _digits(result: Result, measure: str) -> int:
    known = result.printed.measures.get(measure)
    return known.digits if known else 3


def verdict_sentence(verdict: Verdict) -> str:
    """Return the verdict as a sentence."""
    named = f" with {verdict.variant}" if verdict.variant else ""
    word = {"not": "not reproduced"}.get(verdict.word, verdict.word)
    counts = f"of {verdict.total}, {verdict.worse} worse than the paper, {verdict.undecided} cannot be told"
    better = f", {verdict.better} better" if verdict.better else ""
    power = f"; power {_power(verdict)}" if verdict.power is not None else ""
    less = verdict.gains_less and verdict.word == CANNOT_TELL and not verdict.undecided
    gain = f"; gains {verdict.gain:.2g} over its baseline, {verdict.paper_gain:.2g} in the paper" if less else ""
    return f"{word}{named}: {counts}{better}{power}{gain}"


def _power(verdict: Verdict) -> str:
    """Return the median and the least power."""
    if verdict.power is None or verdict.median_power is None:
        return "none needed"
    return f"{verdict.median_power:.2f} (least {verdict.power:.2f})"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# ---------------------------------------------------------------------------------------------------------------- all


def summary(results: Iterable[Result]) -> str:
    """Return the page with one row for each table or figure: the verdict, our numbers and those of the paper."""
    known = {(result.paper, result.name): result for result in results}
    lines = ["# The five papers beside ours", "", *_introduction(known.values()), "## Table by table", ""]
    lines += [
        "| | shows | verdict | worse, cannot tell, of | power | ours | paper | gain, paper's gain |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    reasons = []
    for entry in ENTRIES:
        result = known.get((entry.paper, entry.name))
        where = f"{entry.paper}, {printed(entry.paper, entry.name).where}"
        if result is None:
            lines.append(f"| {where} | {entry.title} | not run | | | | | |")
            continue
        verdicts = result.verdicts()
        judged = dict.fromkeys(cell.measure for cell in result.cells if cell.variant)
        cells = [
            f"[{where}]({stem(result)}.md)",
            entry.title + (f": {', '.join(judged)}" if judged else ""),
            _stacked(verdicts, lambda v: v.word + (f" ({v.variant})" if v.variant else "")) or "not run",
            _stacked(verdicts, lambda v: f"{v.worse}, {v.undecided}, of {v.total}"),
            _stacked(verdicts, _power),
            *_both(result, verdicts),
            _gains(verdicts),
        ]
        lines.append("| " + " | ".join(cells) + " |")
        reasons += [f"- **{cells[0]}.** {result.why}"] if result.why else []
    lines += ["", "## Why results differ", "", REASONS, "", *reasons] if reasons else []
    # in the built documentation this page is the parent of every page of the folder
    lines += ["", "```{toctree}", ":hidden:", ":glob:", "", "*", "```"]
    return "\n".join(lines) + "\n"


def _stacked(verdicts: Sequence[Verdict], show: Callable[[Verdict], str]) -> str:
    return "<br>".join(show(verdict) for verdict in verdicts)


STATEMENTS = "statements about figures"
"""What stands for a variant where a paper prints no numbers."""


def counts(results: Iterable[Result]) -> dict[str, tuple[int, int, int]]:
    """Return how many are reproduced, cannot be told and are not, by the variant; the most frequent one first."""
    found: dict[str, list[str]] = {}
    for result in results:
        for verdict in result.verdicts():
            found.setdefault(verdict.variant or STATEMENTS, []).append(verdict.word)
    return {
        variant: (words.count(REPRODUCED), words.count(CANNOT_TELL), words.count(NOT))
        for variant, words in sorted(found.items(), key=lambda item: -len(item[1]))
    }


REASONS = (
    'What follows "Tested" was measured, and the page of the table or figure has the numbers. The rest describes what '
    "the paper says or leaves open."
)
VARIANTS = {
    PRINTED: "constants as the paper prints them, or as its page here says where the paper prints none",
    DEFAULT: "the call `mf.learn(X, hints, method=NAME, seed=...)` with nothing else set",
    TUNED: "constants chosen from a grid, by the hints learned from (idealized), or by the score itself, so with the "
    "labels, on one further draw of hints (krca)",
    STATEMENTS: "figures of which the paper prints no numbers; what its text says of them is tested",
}
"""What the variants are that several tables have; the others are explained on the page of their table."""


def _introduction(results: Iterable[Result]) -> list[str]:
    """Say what was compared, how often each verdict was reached, and by which rule."""
    share, level = f"{100 * SHARE:g} %", f"{100 * LEVEL:g} %"
    lines = [
        "`metricforge reproduce` runs the experiments of the five papers again. The papers leave settings open, so "
        "most tables have several variants, each with a verdict of its own:",
        "",
        "| variant | reproduced | cannot tell | not |",
        "| --- | --- | --- | --- |",
    ]
    for variant, told in counts(results).items():
        about = f": {VARIANTS[variant]}" if variant in VARIANTS else ""
        lines.append(" | ".join([f"| **{variant}**{about}", *map(str, told)]) + " |")
    return [
        *lines,
        "",
        "## How a verdict is reached",
        "",
        "Each number of the method is compared with the printed one, and each statement is tested by the margin with "
        "which it holds. The spread over repeats says what chance allows: the spread of both, or ours for both where "
        "the paper prints none. All comparisons of a verdict together err with a probability of at most "
        f"{level} on each side (Bonferroni).",
        "",
        "- **Not**: at least one number is worse than the paper's, or one statement fails, by more than chance allows.",
        f"- **Cannot tell**: none is, but at least one comparison had a power below {POWER:g} and is not better than "
        f"the paper by more than chance allows. Or the method gains less than {share} of what it gains in the paper, "
        "each over its own baseline: then our better baseline may have done it.",
        f"- **Reproduced**: neither. Every comparison had a power of {POWER:g}, or is better than the paper.",
        "",
        f"**Power** is the probability of noticing that {share} of the gain is lost that the paper prints over its "
        "own baseline (for a statement: that its margin is reversed). A smaller loss may go unnoticed. The table shows "
        "the median over the comparisons, and the least. **Ours** and **paper** are means of the numbers compared. "
        "**Gain** is by how much ours are better than our baseline, and the paper's than the paper's.",
        "",
    ]


def _gains(verdicts: Sequence[Verdict]) -> str:
    gains = [_gain(verdict) for verdict in verdicts]
    return "<br>".join(gains) if any(gains) else ""


def _gain(verdict: Verdict) -> str:
    """Return the mean gain over the baseline of the numbers compared, ours and the paper's; "" if there is none."""
    if verdict.gain is None or verdict.paper_gain is None:
        return ""
    return f"{verdict.gain:.2g}, {verdict.paper_gain:.2g}"


def _both(result: Result, verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """Return our numbers and those of the paper; where it prints none, its claims and our findings."""
    if any(verdict.ours is not None for verdict in verdicts):
        return _stacked(verdicts, lambda v: f"{v.ours:.3g}"), _stacked(verdicts, lambda v: f"{v.paper:.3g}")
    return "<br>".join(claim.ours for claim in result.claims), "<br>".join(claim.says for claim in result.claims)

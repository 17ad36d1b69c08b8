"""Figure 1 of idealized's paper: what its text says of kernel matrices, as numbers, and the matrices side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge import plotting
from metricforge.kernels import Kernel
from metricforge.tasks import alignment

from .experiment import Run
from .scores import margin
from .verdict import Claim

Array = NDArray[Any]

XINGS = "Xing"
ALIGNMENT, LINES, TOY = "alignment", "rows that are lines, %", "toy, linear"
FAINT = 0.25
Panel = tuple[str, Kernel, Array, Array]
"""Title, kernel, rows and labels of a kernel matrix to draw."""


def add_matrix(run: Run, column: str, y: Array, K: Array) -> None:
    """Add the alignment of a kernel matrix, and how many of its rows hardly tell the classes apart."""
    run.add(ALIGNMENT, TOY, column, alignment(y, K=K))
    same = np.equal.outer(y, y)
    contrast = (K * same).sum(axis=1) / same.sum(axis=1) - (K * ~same).sum(axis=1) / (~same).sum(axis=1)
    run.add(LINES, TOY, column, 100 * float(np.mean(contrast < FAINT * contrast.mean())))


def matrix_claims(run: Run) -> list[Claim]:
    """Judge what the paper says of the matrices: blocks by alignment, lines by rows without contrast."""
    says = run.printed.says
    found = {c: np.array(run.samples.get((ALIGNMENT, TOY, c), ())) for c in ("Euclidean", "learned", XINGS)}
    a = found["Euclidean"]
    noisy = Claim(says[0], bool(a.mean() < 0.3), f"alignment {a.mean():.2f}", **margin([0.3] * len(a), a))
    claims = [noisy]
    for sentence, column in zip(says[1:3], ("learned", XINGS), strict=True):
        b = found[column]
        if len(b):
            blocks = margin(b, 2 * a)
            claims.append(Claim(sentence, blocks["margin"] > 0, f"alignment {b.mean():.2f}", **blocks))
    if len(found[XINGS]):
        ours, theirs = (np.array(run.samples[LINES, TOY, c]) for c in ("learned", XINGS))
        text = f"{theirs.mean():.1f} % of the rows, of the learned one {ours.mean():.1f} %"
        claims.append(Claim(says[3], bool(theirs.mean() > ours.mean()), text, **margin(theirs, ours)))
    return claims


def matrices(shown: Sequence[Panel]) -> bytes:
    """Draw kernel matrices side by side, rows ordered by class."""
    figure, axes = plotting.grid(1, len(shown), width=4.4, height=4.4)
    for ax, (title, kernel, X, y) in zip(axes[0], shown, strict=True):
        plotting.KernelDisplay.from_metric(kernel, X, y, ax=ax)
        ax.set_title(title)
    return plotting.png(figure)

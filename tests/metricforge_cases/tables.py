"""Small rows, and files that hold them, for the tests of the readers."""

from __future__ import annotations

import numpy as np

X = np.array([[1.0, 2.5], [3.0, -4.0], [0.0, 1e-3]])


def put(path, text):
    path.write_text(text)
    return path

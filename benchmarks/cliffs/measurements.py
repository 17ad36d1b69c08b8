"""A file of measurements, so that a long run can be stopped and continued."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Measurements:
    """Results by key: one JSON line each, appended as soon as there is one.

    Parameters
    ----------
    path : Path or None
        The file, which need not exist; None keeps nothing.
    complete : bool
        Whether nothing is measured: what the file lacks is "not run".
    """

    def __init__(self, path: Path | None, *, complete: bool = False) -> None:
        self.path, self.complete = path, complete
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.found = {json.dumps(key): result for key, result in map(json.loads, lines)}

    def __contains__(self, key: list[Any]) -> bool:
        return json.dumps(key) in self.found

    def get(self, key: list[Any], measure: Callable[[], Any]) -> Any:
        """Return the result kept under a key, or measure and keep it."""
        if key not in self and self.complete:
            return {"failed": "not run"}
        if key not in self:
            self.add(key, measure())
        return self.found[json.dumps(key)]

    def forget(self, key: list[Any], condition: Callable[[Any], bool]) -> None:
        """Measure again what is kept under a key, if it meets a condition."""
        if not self.complete and key in self and condition(self.found[json.dumps(key)]):
            del self.found[json.dumps(key)]

    def add(self, key: list[Any], result: Any) -> None:
        """Keep a result."""
        self.found[json.dumps(key)] = result
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps([key, result]) + "\n")

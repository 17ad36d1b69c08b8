"""One case of the campaign: its description, the calls of the library, and the findings."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
LONGEST_MESSAGE = 1500
"""Longest acceptable error message, in characters."""


DESCRIPTION_FILE = "description"
"""Name of the file, in the folder of a worker, with the description of the case that runs."""


class Verdict(StrEnum):
    """How a case ended, from the best to the worst."""

    OK = "ok"
    REFUSED = "refused"
    MESSAGE = "bad message"
    STATE = "state left"
    WARNED = "leaked warning"
    RAW = "raw exception"
    WRONG = "wrong answer"
    NAN = "NaN"
    NOT_PSD = "not PSD"
    CERTIFICATE = "false certificate"
    BUDGET = "over budget"
    HANG = "hang"
    CRASH = "crash"


GOOD = (Verdict.OK, Verdict.REFUSED)
ORDER = list(Verdict)


@dataclass(frozen=True)
class Finding:
    """An error of the library.  Findings with the same cause should have the same ``site``."""

    verdict: Verdict
    site: str
    detail: str = ""


@dataclass
class Outcome:
    """The result of a case; ``fitted``: whether a fit in it succeeded."""

    verdict: Verdict
    description: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    refusal: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    fitted: bool = False
    seconds: float = 0.0
    peak: int = 0
    poisoned: bool = False

    def add(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.verdict = max(self.verdict, finding.verdict, key=ORDER.index)

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Outcome:
        made = json.loads(text)
        found = [Finding(Verdict(f["verdict"]), f["site"], f["detail"]) for f in made["findings"]]
        return cls(**{**made, "verdict": Verdict(made["verdict"]), "findings": found})


def without_folders(text: str) -> str:
    """Return a text with absolute paths shortened to the names of the files: the folders are those of one machine."""
    return re.sub(r"""(?<![\w./])(?:/[^/\s"']+)+/([^/\s"']+)""", r"\1", text)


class Ended(Exception):  # noqa: N818 - it ends a case, it is no error
    """Ends a case after a refusal or a recorded failure."""


class Trial:
    """Records the calls and findings of one case.

    Attributes
    ----------
    description : list of str
        The steps of the case, in enough detail to reproduce them.
    findings : list of Finding
    refusal : str
        The message of the library's own error that ended the case, if one did.
    figures : dict
        Numbers worth a summary over cases (the largest is kept).
    folder : Path
        Where the case may write files.
    passed : bool
        Whether the main call of the case succeeded; later refusals do not make the case a refusal.
    fitted : bool
        Whether a call returned a metric or a fitted estimator.
    poisoned : bool
        Whether the memory of the process may be corrupt, so that it must not run another case.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.description: list[str] = []
        self.findings: list[Finding] = []
        self.refusal = ""
        self.poisoned = False
        self.passed = self.fitted = False
        self.figures: dict[str, float] = {}
        self.given: list[tuple[np.ndarray, bytes]] = []
        self.file = (folder / DESCRIPTION_FILE).open("w", encoding="utf-8", errors="replace")

    def describe(self, text: str) -> None:
        """Add to the description, also on disk, so that it survives a crash."""
        self.description.append(text if len(text) < 2000 else text[:2000] + "…")
        self.file.write(self.description[-1].replace("\n", " ") + "\n")
        self.file.flush()

    def find(self, verdict: Verdict, site: str, detail: str = "") -> None:
        self.findings.append(Finding(verdict, site, without_folders(detail)[:1500]))

    def check(self, holds: Any, verdict: Verdict, site: str, detail: str = "") -> bool:
        if not holds:
            self.find(verdict, site, detail)
        return bool(holds)

    def figure(self, name: str, value: float) -> None:
        self.figures[name] = max(value, self.figures.get(name, -np.inf))

    def call(self, what: str, function: Callable[..., Any], *args: Any, foreign: tuple = (), **options: Any) -> Any:
        """Return the result of a call; end the case if it raises.

        ``foreign`` are exceptions of the campaign's own code, for instance in a kernel, which the library propagates.
        """
        self.describe(what)
        self.given += [(a, a.tobytes()) for a in (*args, *options.values()) if isinstance(a, np.ndarray)]
        try:
            with self.listening(what):
                result = function(*args, **options)
            self.fitted |= (
                type(result).__name__ == "Metric" or hasattr(result, "metric_") or hasattr(result, "components_")
            )
            return result
        except foreign:
            raise Ended from None
        except Ended:
            raise
        except BaseException as error:
            self.judge(what, error)
            raise Ended from None
        finally:
            if any(array.tobytes() != before for array, before in self.given):
                self.find(Verdict.WRONG, "a call changed an array that was given", what)
                self.given.clear()

    def judge(self, what: str, error: BaseException) -> None:
        """Record an exception: a refusal if it is from ``metricforge.errors``, else a finding."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        text = str(error)
        if _of_sklearn(error):
            self.refusal = text[:400]
            return
        if not _of_library(error):
            where = site_of(traceback.extract_tb(error.__traceback__))
            detail = f"{what}: {type(error).__name__}: {' '.join(text.split())[:300]}"
            self.find(Verdict.RAW, f"{type(error).__name__} at {where}", detail)
            return
        if type(error).__name__ == "SolverError":  # the final check caught a NaN of a solver
            where = site_of(traceback.extract_tb(error.__traceback__))
            self.find(Verdict.NAN, f"SolverError at {where}", f"{what}: {' '.join(text.split())[:300]}")
            return
        self.refusal = text[:400]
        self.check_message(what, text, site_of(traceback.extract_tb(error.__traceback__)))

    def check_message(self, what: str, text: str, where: str) -> None:
        if "\n" in text.strip():
            self.find(Verdict.MESSAGE, f"several lines, from {where}", f"{what}: {text[:300]!r}")
        elif len(text) > LONGEST_MESSAGE:
            self.find(
                Verdict.MESSAGE, f"{LONGEST_MESSAGE} characters and more, from {where}", f"{what}: {text[:300]!r}"
            )
        elif not text.strip():
            self.find(Verdict.MESSAGE, f"empty, from {where}", what)

    @contextmanager
    def listening(self, what: str) -> Iterator[None]:
        """Record every warning that the library does not catch, with the function that caused it."""

        def hear(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
            if category.__module__ == "metricforge.errors" or category.__name__ == "DataConversionWarning":
                return
            if filename.endswith(SKLEARN_CHECKS) and category is UserWarning:
                return  # on names of columns, which scikit-learn's battery asks for
            where = site_of(traceback.extract_stack(sys._getframe(1)), f"{Path(filename).name}")
            if category in (UserWarning, FutureWarning) and where.startswith("metricforge_classics"):
                return  # sentences for the caller, which metric-learn also shows
            if category is UserWarning and "unlabelled=-1" in str(message):
                return  # whether -1 is a class only the caller knows
            text = " ".join(str(message).split())[:200]
            self.find(Verdict.WARNED, f"{category.__name__} at {where}", f"{what}: {text}")

        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = hear
            yield

    def outcome(self) -> Outcome:
        self.file.close()
        worst = max((f.verdict for f in self.findings), key=ORDER.index, default=None)
        verdict = worst or (Verdict.REFUSED if self.refusal and not self.passed else Verdict.OK)
        return Outcome(verdict, self.description, self.findings, self.refusal, self.figures, self.fitted)


def _of_library(error: BaseException) -> bool:
    """Return whether an exception is one of ``metricforge.errors``, or of a plugin of ours that derives from them."""
    return any(kind.__module__ == "metricforge.errors" for kind in type(error).__mro__)


def _of_sklearn(error: BaseException) -> bool:
    """Return whether this is an error that scikit-learn's own tests of estimators ask for.

    These are other column names than in fit, an unknown parameter, and use before fit.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = any(frame.filename.endswith(SKLEARN_CHECKS) and frame.name in SKLEARN_ERRORS for frame in frames)
    return isinstance(error, ValueError) and own


SKLEARN_CHECKS = ("sklearn/utils/validation.py", "sklearn/utils/multiclass.py", "sklearn/base.py")
SKLEARN_ERRORS = ("_check_feature_names", "set_params", "check_is_fitted")


def site_of(frames: Any, otherwise: str = "") -> str:
    """Return the innermost frame of the library as module.function, or ``otherwise`` if there is none."""
    own = [(module, frame.name) for frame in frames if (module := _module(frame.filename))]
    if own:
        return ".".join(own[-1])
    if otherwise or not len(frames):
        return otherwise or "nowhere"
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}"


def _module(filename: str) -> str:
    """Return the module of a file of the library, "" for any other file."""
    path = Path(filename)
    if ROOT in path.parents:
        path = path.relative_to(ROOT)
        path = path.relative_to("plugins") if path.parts[0] == "plugins" else path
    elif "site-packages" in path.parts:
        path = Path(*path.parts[path.parts.index("site-packages") + 1 :])
    return ".".join(path.with_suffix("").parts) if path.parts[0].startswith("metricforge") else ""


# ------------------------------------------------------------------------------------------------- state of the process


IMPORTED = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "_RJEM_MALLOC_CONF")
IMPORTED += ("MALLOC_TRIM_THRESHOLD_", "PYTHONHASHSEED", "__DASK_PARENT_PID")
"""Variables that a dependency sets when it is imported, and dask when it starts workers."""


@dataclass(frozen=True)
class State:
    """State of the process that library calls must not change."""

    errors: tuple[Any, ...]
    random: tuple[Any, ...]
    filters: tuple[Any, ...]
    environment: tuple[Any, ...]
    folder: tuple[Any, ...]
    handlers: tuple[Any, ...]

    @classmethod
    def now(cls) -> State:
        kind, keys, position, *_ = np.random.get_state()  # noqa: NPY002 - that it is untouched is what is checked
        watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        return cls(
            tuple(np.geterr().items()),
            (kind, hash(keys.tobytes()), position),
            (len(warnings.filters),),
            tuple(item for item in os.environ.items() if item[0] not in IMPORTED),
            (str(Path.cwd()),),
            tuple(map(signal.getsignal, watched)),
        )

    def compare(self, trial: Trial) -> None:
        after = State.now()
        for name in ("errors", "random", "filters", "environment", "folder", "handlers"):
            before_value, after_value = getattr(self, name), getattr(after, name)
            if before_value != after_value:
                detail = ", ".join(sorted(map(str, set(before_value) ^ set(after_value))))
                trial.find(Verdict.STATE, f"{name} of the process changed", detail)


def finite(value: Any) -> bool:
    """Return whether every number inside arrays, tuples and mappings is finite."""
    if isinstance(value, dict):
        return all(finite(part) for part in value.values())
    if isinstance(value, list | tuple):
        return all(finite(part) for part in value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())
    return not isinstance(value, float | np.floating) or bool(np.isfinite(value))

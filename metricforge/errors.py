"""The exceptions of the library.

Bad input is an ``InputError`` (a ``ValueError``): its message names the argument, what is wrong, where, and the repair.
The other classes exist because a caller handles them differently.
"""

from __future__ import annotations


class InputError(ValueError):
    """The caller's argument is wrong; the message names it and says how to repair it, in one line."""

    def __init__(self, message: object = "") -> None:
        # arrays, and errors of other libraries, bring line breaks into a sentence that quotes them
        super().__init__(" ".join(line.strip() for line in str(message).splitlines()))


class UnknownNameError(InputError, KeyError):
    """A name is not registered; the message offers the nearest known one."""

    def __str__(self) -> str:
        # KeyError would print the repr of the sentence.
        return str(self.args[0]) if self.args else ""


class InputTypeError(InputError, TypeError):
    """An argument of an estimator has a type for which scikit-learn's users expect a ``TypeError``."""


class NotAcceptedError(InputError):
    """A solver was given a kind of constraint that it cannot use."""


class MemoryBudgetError(InputError, MemoryError):
    """The call would need more memory than the budget allows; the message says how much."""


class ModelFileError(InputError):
    """A saved metric cannot be read: truncated, damaged, foreign, or from a later version."""


class MissingPluginError(ModelFileError):
    """A saved metric needs a component whose plugin is not installed."""


class PluginError(RuntimeError):
    """A plugin was refused; the message names it and the reason."""


class NotUpdatableError(InputError, NotImplementedError):
    """The method that learned a metric cannot take new rows without a new fit."""


class SolverError(RuntimeError):
    """A solver broke its contract, for instance by returning a NaN."""


class ConvergenceWarning(UserWarning):
    """A solver stopped at a limit; its certificate says how far from the optimum."""

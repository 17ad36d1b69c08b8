"""Ask a person about pairs, line-ups and triplets of rows, and learn a metric from the answers.

``metricforge ask data.csv`` opens a local page.  `Session` chooses the questions and keeps the answers; it uses no
network, so a notebook or a test can drive it.  `serve` shows a session in a browser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar

    from .cards import Cards
    from .progress import Progress
    from .questions import Question
    from .server import serve
    from .session import Session

__all__ = ["Cards", "Progress", "Question", "Session", "serve"]

_HOME = {"Cards": "cards", "Progress": "progress", "Question": "questions", "Session": "session", "serve": "server"}


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the command ``ask``, the namespace ``mf.ask`` and the kind of hint that ``learn --answers`` reads."""
    registrar.add("command", "ask", "metricforge_ask.command:COMMAND")
    registrar.add("namespace", "ask", "metricforge_ask")
    registrar.add("constraint", "answers", "metricforge_ask.constraint:Answers")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

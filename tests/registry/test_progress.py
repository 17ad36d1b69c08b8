from __future__ import annotations

import io
import sys
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import metricforge as mf
from metricforge.registry import progress, registry
from metricforge.registry.progress import Event


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    screen = Terminal()
    # pytest puts its own sys.stderr back between a fixture and its test
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=screen))
    monkeypatch.setattr(progress, "_bar", progress._Bar())
    monkeypatch.setattr(progress._Bar, "delay", 0.0)
    monkeypatch.setattr(progress._Bar, "interval", 0.0)
    return screen


def test_bar_text():
    assert progress.line(Event("krca on 9 rows", 3, 12, info={"gap": 0.25}), 2.0, width=8) == (
        "krca on 9 rows  [##......]  25%  gap 0.25  2 s"
    )
    assert progress.line(Event("krca on 9 rows", 3), 2.0) == "krca on 9 rows  step 3  2 s"


def test_bar_is_drawn_on_a_terminal_and_wiped_at_the_end(terminal):
    for k in range(3):
        progress.metricforge_step(Event("fit", k, 3))
    progress.metricforge_step(Event("fit", done=True))
    text = terminal.getvalue()
    assert "33%" in text
    assert "67%" in text
    assert text.endswith("\r\x1b[K")


def test_the_bar_moves_while_no_event_comes(terminal, monkeypatch):
    monkeypatch.setattr(progress._Bar, "idle", 0.02)
    progress.metricforge_step(Event("outer", 1, 3))
    progress.metricforge_step(Event("fit", 2, 3))
    drawn = terminal.getvalue().count("fit  [")
    for _ in range(200):  # the fit is in one long product
        time.sleep(0.02)
        if terminal.getvalue().count("fit  [") >= drawn + 3:
            break
    assert terminal.getvalue().count("fit  [") >= drawn + 3
    progress.metricforge_step(Event("fit", done=True))
    progress.metricforge_step(Event("outer", done=True))
    for _ in range(200):
        time.sleep(0.02)
        if not progress._bar.ticking:
            break
    assert not progress._bar.ticking
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_quick_fits_draw_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress._Bar, "delay", 60.0)
    progress.metricforge_step(Event("fit", 1, 3))
    progress.metricforge_step(Event("fit", done=True))
    assert terminal.getvalue() == ""


def test_silent_in_a_pipe_and_when_asked(terminal, monkeypatch):
    monkeypatch.setenv("METRICFORGE_PROGRESS", "0")
    progress.metricforge_step(Event("fit", 1, 3))
    assert terminal.getvalue() == ""
    monkeypatch.delenv("METRICFORGE_PROGRESS")
    pipe = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=pipe))
    progress.metricforge_step(Event("fit", 1, 3))
    assert pipe.getvalue() == ""


def test_a_fit_begins_and_ends_even_when_it_fails(monkeypatch, plugged):
    events = []
    with plugged(step=lambda event: events.append((event.task, event.done))):
        mf.learn(np.eye(4), [0, 0, 1, 1], method="euclidean")
        monkeypatch.setattr(
            type(mf.learn(np.eye(4), [0, 0, 1, 1], method="euclidean").solver), "_solve", lambda self, problem: 1 / 0
        )
        with pytest.raises(ZeroDivisionError) as caught:
            mf.learn(np.eye(4), [0, 0, 1, 1], method="euclidean")
    assert events == [("euclidean on 4 rows", False), ("euclidean on 4 rows", True)] * 3
    assert any("in solver Euclidean of method 'euclidean' (plugin 'euclidean')" in n for n in caught.value.__notes__)


class Notebook(io.StringIO):
    __module__ = "ipykernel.iostream"


def test_a_notebook_shows_one_line_for_each_cell(terminal, monkeypatch):
    cells: list[list[str]] = []
    shell = SimpleNamespace(execution_count=1)

    def display(data, *, raw, display_id):
        assert raw
        assert display_id
        cells.append([data["text/plain"]])
        return SimpleNamespace(update=lambda data, raw: cells[-1].append(data["text/plain"]))

    stub = SimpleNamespace(display=SimpleNamespace(display=display), get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", stub)
    cell = Notebook()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=cell))
    for shell.execution_count in (1, 1, 2):  # two fits in the first cell
        progress.metricforge_step(Event("fit", 1, 3))
        progress.metricforge_step(Event("fit", 2, 3))
        progress.metricforge_step(Event("fit", done=True))
    assert [[line[33:36] for line in lines] for lines in cells] == [["33%", "67%", ""] * 2, ["33%", "67%", ""]]
    assert cell.getvalue() == ""  # a page made from the notebook would show all that was written here


def test_it_can_be_forced(terminal, monkeypatch):
    pipe = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=pipe))
    monkeypatch.setenv("METRICFORGE_PROGRESS", "1")
    progress.metricforge_step(Event("fit", 1, 3))
    progress.metricforge_step(Event("fit", done=True))
    assert "33%" in pipe.getvalue()


def test_a_notice_starts_at_the_margin(terminal):
    progress.metricforge_step(Event("fit", 1, 3))
    progress.clear()
    terminal.write("a notice\n")
    assert terminal.getvalue().endswith("\r\x1b[Ka notice\n")
    progress.clear()
    assert terminal.getvalue().endswith("a notice\n")  # there is nothing to remove
    progress.metricforge_step(Event("fit", done=True))


def test_a_warning_during_a_fit_is_not_glued_to_the_bar(terminal):
    progress.metricforge_step(Event("fit", 1, 3))
    assert terminal.getvalue().endswith("s\r")  # where the next character is written
    progress.metricforge_step(Event("fit", done=True))


def test_a_warning_shorter_than_the_bar_leaves_no_tail_of_it(terminal):
    def show(message, *_, **__):
        terminal.write(f"warning: {message}\n")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        progress.metricforge_step(Event("a task with a long name", 1, 3))
        warnings.warn("short", stacklevel=1)
        assert terminal.getvalue().endswith("s\r\r\x1b[Kwarning: short\n")  # the bar was removed first
        progress.metricforge_step(Event("a task with a long name", 2, 3))
        progress.metricforge_step(Event("a task with a long name", done=True))
        assert warnings.showwarning is show
        with warnings.catch_warnings(record=True) as caught:
            progress.metricforge_step(Event("fit", 1, 3))
            warnings.warn("seen by a caller", stacklevel=1)
            progress.metricforge_step(Event("fit", done=True))
        assert [str(one.message) for one in caught] == ["seen by a caller"]
        warnings.warn("later", stacklevel=1)
        assert terminal.getvalue().endswith("\x1b[Kwarning: later\n")


@pytest.mark.parametrize(
    ("options", "n", "d"),
    [
        ({"method": "lsml"}, 1500, 80),
        ({"method": "itml"}, 800, 60),
        ({"method": "simplenpkl", "kernel": "linear", "loss": "hinge", "B": 9e4, "C": 2.0, "tol": 1e-3}, 150, 8),
    ],
    ids=lambda value: value["method"] if isinstance(value, dict) else "",
)
def test_a_bar_never_stands_still_for_two_seconds(options, n, d):
    """Between two events of a slow fit there are less than two seconds of CPU time."""
    y = np.arange(n) % 4
    X = np.random.default_rng(0).normal(size=(n, d))
    X[np.arange(n), y] += 2
    times: list[float] = []

    class Clock:
        @mf.hookimpl
        def metricforge_step(self, event):
            times.append(time.thread_time())

    mf.register(Clock(), name="clock")
    try:
        mf.learn(X, mf.Labels(y), **options)
    finally:
        registry.unregister("clock")
    assert len(times) > 3
    assert np.diff(times).max() < 2

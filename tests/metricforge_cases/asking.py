"""Rows with classes, and a person who answers by them, for the tests of the questions."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np
from metricforge_ask.server import Desk, Server, cards_of

import metricforge as mf

X = np.random.default_rng(0).normal(size=(40, 3))
Y = np.arange(40) % 3
X[:, 0] += 4 * Y


def reply(session, question, y=Y):
    i, *others = question.rows
    if question.kind == "lineup":
        same = [place for place, row in enumerate(others, start=1) if y[row] == y[i]]
        return session.answer(question, same[0] if same else "none")
    if question.kind == "triplet":
        near = abs(float(y[i]) - y[others[0]]) <= abs(float(y[i]) - y[others[1]])
        return session.answer(question, "first" if near else "second")
    return session.answer(question, "alike" if y[i] == y[others[0]] else "unlike")


def drive(session, count, y=Y):
    """Answer ``count`` questions, or all that there are."""
    for _ in range(count):
        question = session.next()
        if question is None:
            break
        reply(session, question, y)
    return session


@contextmanager
def serving(session=None, cards=None, *, show=False):
    """A server of a session in another thread, whose page may be opened in the default browser."""
    session = session or mf.ask.Session(X)
    server = Server(Desk(session, cards or cards_of(session), title="<b>t</b>"))
    ready = threading.Event()

    def begin():
        if show:
            server.show()
        ready.set()

    thread = threading.Thread(target=server.run, args=(begin,))
    thread.start()
    try:
        assert ready.wait(20)
        yield server
    finally:
        server.stop()
        thread.join(20)

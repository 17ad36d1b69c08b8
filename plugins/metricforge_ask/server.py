"""A local page for a session, served by tornado to this machine only.

The address has a token in its fragment, which browsers do not send; the page passes it on in a header.  Requests with
another host, another origin or without the token are refused.  The browser is started with the name of a private file
that leads to the address, because every user of a machine can read command lines.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import secrets
import tempfile
import webbrowser
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from metricforge.errors import InputError

from .cards import Cards
from .progress import Progress
from .questions import SKIP, Question
from .session import Session

log = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "localhost")
MOST_BODY = 64 * 1024
MOST_HEADER = 16 * 1024
IDLE = 60
"""Seconds after which an idle connection is closed."""
SPARSE_COLUMNS = 50
"""The columns of sparse rows that cards show."""
SHOWN = 5
"""The contradictions that the page names."""
REMEMBERED = 200
"""The number of questions whose answers are accepted, and accepted once."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DOOR = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={url}"><a href="{url}">Open</a>'
"""The page in the file that leads to the address."""
PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/ask.js": ("ask.js", "text/javascript; charset=utf-8"),
    "/ask.css": ("ask.css", "text/css; charset=utf-8"),
}


class Desk:
    """A session as the page sees it: questions with names that cannot be guessed, and answers that count once."""

    def __init__(self, session: Session, cards: Cards, *, title: str = "", command: str = "", budget: int = 0) -> None:
        self.session, self.cards = session, cards
        self.title, self.command, self.budget = title, command, budget
        self._open: OrderedDict[str, Question] = OrderedDict()
        self._done: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._current: str | None = None
        self._curve: list[tuple[int, float]] = []

    def state(self) -> dict[str, Any]:
        """Return the progress and the current question."""
        progress = self.session.progress()
        if progress.foretold is not None and (not self._curve or self._curve[-1][0] != progress.answers):
            self._curve.append((progress.answers, progress.foretold))
        return {
            "title": self.title,
            "command": self.command,
            "budget": self.budget,
            "by": self.session.by,
            "notes": self.session.notes,
            "progress": asdict(progress),
            "contradictions": self.session.contradictions()[:SHOWN],
            "pictures": self.cards.has_images,
            "curve": self._curve[-200:],
            "question": self._question(),
        }

    def answer(self, name: str, answer: str | int) -> dict[str, Any]:
        """Keep an answer; the same name a second time changes nothing."""
        if name in self._done:
            return self._done[name]
        question = self._open.get(name)
        if question is None:
            raise InputError("this question was not asked, or is too old; reload the page")
        question.check(answer)
        before = self.session.progress()
        after = self.session.answer(question, answer)
        self._current = None
        found = {**self.state(), "changed": changed(question, answer, before, after)}
        self._done[name] = found
        _forget(self._done)
        return found

    def undo(self) -> dict[str, Any]:
        """Take back the last answer."""
        taken = self.session.undo()
        self._current = None
        return {**self.state(), "undone": None if taken is None else taken.n}

    def name_group(self, row: int, name: str) -> dict[str, Any]:
        """Name the group of a row."""
        self.session.name_group(row, name)
        return self.state()

    def _question(self) -> dict[str, Any] | None:
        if self._current is None:
            question = self.session.next()
            if question is None:
                return None
            self._current = secrets.token_urlsafe(12)
            self._open[self._current] = question
            _forget(self._open)
        question = self._open[self._current]
        rows = list(question.rows)
        if question.kind == "pair" and np.random.default_rng(rows).random() < 0.5:
            rows.reverse()  # the row that is placed is not always on the left
        return {"id": self._current, "kind": question.kind, "cards": self.cards.shown(rows)}


def changed(question: Question, answer: str | int, before: Progress, after: Progress) -> str:
    """Return in words what an answer changed."""
    if answer == SKIP:
        return "Passed over: this pair will not be shown again." if question.kind == "pair" else "Passed over."
    if question.held_out:
        return "This answer is held out of learning: it tests the metric."
    if question.why == "overlap":
        return "Somebody else answered this too: it measures how far you agree."
    if question.kind == "triplet" or question.why == "loose":
        return ""
    if len(after.groups) > max(len(before.groups), 1):
        return f"The row opened group {len(after.groups)}."
    grown = [g for g, size in enumerate(after.groups) if g < len(before.groups) and size > before.groups[g]]
    if grown:
        name = after.names[grown[0]] or f"group {grown[0] + 1}"
        return f"The row joined {name}, which now has {after.groups[grown[0]]} rows."
    return "Not placed yet: the next question is about the same row." if before.groups else ""


def _forget(names: OrderedDict[str, Any]) -> None:
    while len(names) > REMEMBERED:
        names.popitem(last=False)


# ------------------------------------------------------------------------------------------------------------ requests


class _Handler(RequestHandler):
    """Checks that every request comes from the page."""

    server: Server

    def initialize(self, server: Server) -> None:
        self.server = server

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")

    def prepare(self) -> None:
        if self.request.host not in self.server.hosts:
            raise HTTPError(421)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None))[1]
        reason = str(error) if isinstance(error, InputError) else self._reason
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"error": reason}))


class _Page(_Handler):
    def get(self) -> None:
        name, kind = PAGES[self.request.path]
        self.set_header("Content-Type", kind)
        self.finish((files("metricforge_ask") / "page" / name).read_bytes())


class _Api(_Handler):
    """Requests that need the token; those that change something also need the page's origin and JSON."""

    def prepare(self) -> None:
        super().prepare()
        given = self.request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            raise HTTPError(403)
        self.server.opened()
        if self.request.method == "POST":
            if self.request.headers.get("Origin") not in self.server.origins:
                raise HTTPError(403)
            if self.request.headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
                raise HTTPError(415)

    def send(self, work: Callable[[], dict[str, Any]]) -> None:
        """Send the result of a call as JSON; what is wrong with the input is sent with the status 400."""
        try:
            found = work()
        except InputError as error:
            self.set_status(400)
            found = {"error": str(error)}
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(found))

    def body(self) -> dict[str, Any]:
        """Return the JSON object that was sent."""
        try:
            found = json.loads(self.request.body)
        except (ValueError, RecursionError):
            raise HTTPError(400) from None
        if not isinstance(found, dict):
            raise HTTPError(400)
        return found


class _State(_Api):
    def get(self) -> None:
        self.send(self.server.desk.state)


class _Answer(_Api):
    def post(self) -> None:
        body = self.body()
        name, answer = body.get("id"), body.get("answer")
        if not isinstance(name, str) or not isinstance(answer, str | int) or isinstance(answer, bool):
            raise HTTPError(400)
        self.send(lambda: self.server.desk.answer(name, answer))


class _Undo(_Api):
    def post(self) -> None:
        self.send(self.server.desk.undo)


class _Name(_Api):
    def post(self) -> None:
        body = self.body()
        row, name = body.get("row"), body.get("name")
        if not isinstance(row, int) or isinstance(row, bool) or not isinstance(name, str):
            raise HTTPError(400)
        self.send(lambda: self.server.desk.name_group(row, name))


class _Export(_Api):
    def get(self, what: str) -> None:
        self.send(lambda: _csv(self.server.desk.session, what))


class _Image(_Api):
    def get(self, row: str) -> None:
        found = self.server.desk.cards.picture(int(row))
        if found is None:
            raise HTTPError(404)
        self.set_header("Content-Type", found[0])
        self.finish(found[1])


def _csv(session: Session, what: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{what}.csv"
        session.export(path, what)
        return {"name": path.name, "text": path.read_text()}


# --------------------------------------------------------------------------------------------------------------- server


class Server:
    """A page for a session; ``url`` is its address, `run` serves until it is stopped.

    Parameters
    ----------
    desk : Desk
    host : str
        An address of this machine.  Another one than 127.0.0.1 is refused unless ``anywhere``.
    port : int
        0 for any free one.
    """

    def __init__(self, desk: Desk, *, host: str = "127.0.0.1", port: int = 0, anywhere: bool = False) -> None:
        if host not in LOOPBACK and not anywhere:
            raise InputError(
                f"host={host!r} would offer the page to other machines; use 127.0.0.1, or --i-know if that is meant"
            )
        self.desk, self.token = desk, secrets.token_urlsafe(32)
        try:
            self._sockets = bind_sockets(port, "127.0.0.1" if host == "localhost" else host)
        except OSError as error:
            raise InputError(f"port {port} of {host} cannot be used: {error.strerror}; leave --port out") from None
        self.port = self._sockets[0].getsockname()[1]
        names = {host, *(LOOPBACK if host in LOOPBACK else ())}
        self.hosts = {f"{name}:{self.port}" for name in names}
        self.origins = {f"http://{name}" for name in self.hosts}
        self.url = f"http://{host}:{self.port}/#{self.token}"
        self._stopped: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._door: Path | None = None

    def application(self) -> Application:
        """Return the tornado application."""
        own = {"server": self}
        routes: list[Any] = [(path, _Page, own) for path in PAGES]
        routes += [("/api/state", _State, own), ("/api/answer", _Answer, own), ("/api/undo", _Undo, own)]
        routes += [("/api/name", _Name, own), (r"/api/export/(hints|groups)", _Export, own)]
        routes += [(r"/api/image/(\d{1,12})", _Image, own)]
        return Application(
            routes, default_handler_class=_NotFound, default_handler_args=own, log_function=lambda handler: None
        )

    async def serve(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until `stop` is called."""
        self._stopped, self._loop = asyncio.Event(), asyncio.get_running_loop()
        http = HTTPServer(
            self.application(),
            max_body_size=MOST_BODY,
            max_buffer_size=2 * MOST_BODY,
            max_header_size=MOST_HEADER,
            idle_connection_timeout=IDLE,
            body_timeout=IDLE,
        )
        http.add_sockets(self._sockets)
        try:
            if ready is not None:
                ready()
            await self._stopped.wait()
        finally:
            self.opened()
            http.stop()
            await http.close_all_connections()

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve in this thread until `stop` is called or the program is interrupted."""
        logging.getLogger("tornado.general").setLevel(logging.ERROR)  # malformed requests are not the user's concern
        asyncio.run(self.serve(ready))

    def show(self) -> None:
        """Open the page in the default browser."""
        # beside the answers, because browsers that are confined cannot read the folder for temporary files
        handle, name = tempfile.mkstemp(".html", "metricforge-ask-", self.desk.session.folder)  # for this user only
        self._door = Path(name).absolute()
        with os.fdopen(handle, "w") as file:
            file.write(DOOR.format(url=self.url))
        webbrowser.open(self._door.as_uri())

    def opened(self) -> None:
        """Remove the file that leads to the page, which was opened."""
        if self._door is not None:
            self._door.unlink(missing_ok=True)
            self._door = None

    def stop(self) -> None:
        """End `run`; may be called from another thread."""
        if self._loop is not None and self._stopped is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)


class _NotFound(_Handler):
    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404)


def serve(
    session: Session,
    cards: Cards | None = None,
    *,
    title: str = "",
    command: str = "",
    budget: int = 0,
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
    anywhere: bool = False,
) -> None:
    """Show a session on a local page until the program is interrupted.

    Parameters
    ----------
    session : Session
    cards : Cards, optional
        What the page shows of a row; default: the columns of X.
    title, command : str
        The name of the data, and the command that learns from the answers, for the page.
    budget : int
        The number of answers to aim for; 0 for none.
    host, port
        The address; by default a free port of this machine.
    browser : bool
        Whether to open the page in the default browser.
    anywhere : bool
        Whether an address that other machines reach is allowed.
    """
    server = Server(
        Desk(session, cards or cards_of(session), title=title, command=command, budget=budget),
        host=host,
        port=port,
        anywhere=anywhere,
    )
    log.info("asking at %s", server.url)

    with suppress(KeyboardInterrupt):
        server.run(server.show if browser else None)


def cards_of(session: Session) -> Cards:
    """Return cards that show the columns of a session's rows."""
    X = session.X
    if np.ndim(X) == 1:
        return Cards({"text": list(X)}, text="text")
    if isinstance(X, np.ndarray):
        return Cards({f"column {c}": X[:, c] for c in range(X.shape[1])})
    X = X.tocsc()  # sparse: the columns with most entries
    columns = sorted(np.argsort(-np.diff(X.indptr), kind="stable")[:SPARSE_COLUMNS].tolist())
    return Cards({f"column {c}": X[:, [c]].toarray().ravel() for c in columns})

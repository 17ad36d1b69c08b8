"""The server: what it refuses, what it sends, and that text of the data never becomes markup."""

from __future__ import annotations

import http.client
import json
import time
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from metricforge_ask.server import MOST_BODY, Desk, Server, cards_of
from metricforge_cases.asking import X, serving

import metricforge as mf
from metricforge.errors import InputError

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


def call(server, method, path, body=None, **changed):
    """Send a request as the page does; returns status, headers and content."""
    host = f"127.0.0.1:{server.port}"
    headers = {"Host": host, "Authorization": f"Bearer {server.token}", "Origin": f"http://{host}"}
    headers["Content-Type"] = "application/json"
    for name, value in changed.items():
        headers[name.replace("_", "-")] = value
    headers = {name: value for name, value in headers.items() if value is not None}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def state(server):
    status, _, content = call(server, "GET", "/api/state")
    assert status == 200
    return json.loads(content)


def test_a_question_is_answered_once(server):
    known = state(server)
    name = known["question"]["id"]
    before = known["progress"]["answers"]
    for _ in range(2):
        status, _, content = call(server, "POST", "/api/answer", json.dumps({"id": name, "answer": "unlike"}))
        assert status == 200
        assert json.loads(content)["progress"]["answers"] == before + 1
    status, _, content = call(server, "POST", "/api/undo", "{}")
    assert json.loads(content)["progress"]["answers"] == before


@pytest.mark.parametrize(
    ("method", "path", "body", "changed", "status"),
    [
        ("GET", "/api/state", None, {"Host": "evil.example"}, 421),
        ("GET", "/", None, {"Host": "evil.example"}, 421),
        ("GET", "/api/state", None, {"Authorization": None}, 403),
        ("GET", "/api/state", None, {"Authorization": "Bearer guess"}, 403),
        ("GET", "/api/export/hints", None, {"Authorization": None}, 403),
        ("GET", "/api/image/0", None, {"Authorization": None}, 403),
        ("POST", "/api/answer", "{}", {"Origin": "http://evil.example"}, 403),
        ("POST", "/api/answer", "{}", {"Origin": None}, 403),
        ("POST", "/api/undo", "{}", {"Origin": "null"}, 403),
        ("POST", "/api/answer", "{}", {"Content_Type": "text/plain"}, 415),
        ("POST", "/api/answer", "[]", {}, 400),
        ("POST", "/api/answer", "{", {}, 400),
        ("POST", "/api/answer", '{"id":"x","answer":true}', {}, 400),
        ("POST", "/api/answer", '{"id":"never asked","answer":"alike"}', {}, 400),
        ("POST", "/api/name", '{"row":0,"name":"a"}', {"Origin": "http://evil.example"}, 403),
        ("POST", "/api/name", '{"row":0,"name":"a"}', {"Authorization": None}, 403),
        ("POST", "/api/name", '{"row":0,"name":"a"}', {}, 400),
        ("POST", "/api/name", '{"row":"0","name":"a"}', {}, 400),
        ("GET", "/api/export/../session", None, {}, 404),
        ("GET", "/api/image/../../etc/passwd", None, {}, 404),
        ("GET", "/api/image/-1", None, {}, 404),
        ("GET", "/api/image/0", None, {}, 404),
        ("GET", "/../session.py", None, {}, 404),
        ("GET", "/favicon.ico", None, {}, 404),
        ("DELETE", "/api/state", None, {}, 405),
    ],
)
def test_what_is_refused(server, method, path, body, changed, status):
    before = state(server)["progress"]["answers"]
    found, headers, content = call(server, method, path, body, **changed)
    assert found == status
    assert b"Traceback" not in content
    assert "Access-Control-Allow-Origin" not in headers
    assert state(server)["progress"]["answers"] == before


def test_a_body_that_is_too_large_is_refused(server):
    try:
        status = call(server, "POST", "/api/answer", json.dumps({"id": "x" * (2 * MOST_BODY)}))[0]
    except (ConnectionError, http.client.HTTPException):
        status = 400  # closed before the answer was read
    assert status in (400, 413)
    assert state(server)["progress"]["answers"] == 0


def test_the_page_has_a_policy_and_nothing_from_outside(server):
    for path in ("/", "/ask.js", "/ask.css"):
        status, headers, content = call(server, "GET", path, Authorization=None)
        assert status == 200
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert b"https://" not in content
        assert b"innerHTML" not in content.replace(b"never as HTML", b"")
    assert server.token not in call(server, "GET", "/")[2].decode()


def test_text_of_the_data_stays_text():
    script = "<script>alert(1)</script>"
    cards = mf.ask.Cards({script: [script] * 40, "note": ["a <i>b</i>", "a c"] * 20}, text="note")
    with serving(cards=cards) as server:
        known = state(server)
    assert known["title"] == "<b>t</b>"  # JSON; the page sets it by textContent
    card = known["question"]["cards"][0]
    assert card["fields"][0]["name"] == script
    assert {piece["text"] for piece in card["text"]} <= {"a <i>b</i>", "a c", "a ", "a", "<i>b</i>", "c", " "}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("good.png", True),
        ("sub/good.png", True),
        ("../outside.png", False),
        ("sub/../../outside.png", False),
        ("link.png", False),
        ("linked/outside.png", False),
        ("page.svg", False),
        ("text.png", False),
        ("missing.png", False),
        ("", False),
        ("sub", False),
    ],
)
def test_pictures_come_from_their_folder_only(tmp_path, name, found):
    root = tmp_path / "pictures"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "outside.png").write_bytes(PNG)
    for inside in ("good.png", "sub/good.png"):
        (root / inside).write_bytes(PNG)
    (root / "link.png").symlink_to(tmp_path / "outside.png")
    (root / "linked").symlink_to(tmp_path)
    (root / "page.svg").write_text("<svg onload='alert(1)'/>")
    (root / "text.png").write_text("not a picture")
    cards = mf.ask.Cards({"file": [name]}, image="file", image_root=root)
    assert (cards.picture(0) is not None) is found
    absolute = mf.ask.Cards({"file": [str(tmp_path / "outside.png")]}, image="file", image_root=root)
    assert absolute.picture(0) is None


def test_other_addresses_are_refused():
    desk = Desk(mf.ask.Session(X), cards_of(mf.ask.Session(X)))
    with pytest.raises(InputError, match="would offer the page to other machines"):
        Server(desk, host="0.0.0.0")


def test_the_browser_is_started_without_the_token(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(webbrowser, "open", shown.append)
    with serving(mf.ask.Session(X, tmp_path / "a.jsonl"), show=True) as server:
        (address,) = shown
        assert server.token not in address
        door = Path(url2pathname(urlsplit(address).path))
        assert door.stat().st_mode & 0o777 == 0o600
        assert server.url in door.read_text()
        state(server)
        assert not door.exists()  # used once
    with serving(mf.ask.Session(X, tmp_path / "a.jsonl"), show=True):
        assert Path(url2pathname(urlsplit(shown[1]).path)).exists()
    assert not Path(url2pathname(urlsplit(shown[1]).path)).exists()


def test_cards_show_what_differs_first():
    cards = mf.ask.Cards(
        {"same": [1.0, 1.0, 2.0], "far": [0.0, 10.0, 5.0], "near": [1.0, 1.1, 9.0], "gap": [None, 2, 3]}
    )
    left, right = cards.shown([0, 1])
    assert [field["name"] for field in left["fields"]] == ["far", "gap", "near", "same"]
    assert left["fields"][-1]["difference"] == 0
    assert (left["fields"][0]["place"], right["fields"][0]["place"]) == (0.0, 1.0)
    assert left["fields"][1]["text"] == ""


def test_serve_ends_with_an_interrupt(tmp_path):
    import signal
    import subprocess
    import sys

    kinds = ["red", "blue"]
    lines = [f"{a},{b},{'' if k == 3 else c},{kinds[k % 2]}" for k, (a, b, c) in enumerate(X.tolist())]
    (tmp_path / "d.csv").write_text("\n".join(["a,b,c,kind", *lines]) + "\n")  # a category and a missing cell
    command = [sys.executable, "-m", "metricforge", "ask", "d.csv", "--no-browser"]
    asking = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    lines = [asking.stdout.readline() for _ in range(2)]
    assert lines[1].startswith("open http://127.0.0.1:")
    time.sleep(0.3)
    asking.send_signal(signal.SIGINT)
    rest = asking.communicate(timeout=20)[0]
    assert asking.returncode == 0
    assert "next: metricforge learn d.csv --answers d.answers.jsonl" in rest

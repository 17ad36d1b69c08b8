"""The data sets as their public archives publish them: file formats, downloads, damage and limits."""

from __future__ import annotations

import gzip
import hashlib
import io
import socket
import struct
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from metricforge_cases.data import DATA, needs_data

from metricforge import datasets
from metricforge.datasets import _content_sum, _facts, _parsed
from metricforge.errors import InputError

KNOWN = _facts()


# --- the original files -----------------------------------------------------------------------------------------

# A line or two of each original as its archive writes it, with what they mean.
GRASS = (
    "110.0,189.0,9,0.0,0.0,1.0000004,0.66666675,1.2222223,1.1863422,12.925926,10.888889,9.222222,18.666668,"
    "-6.111111,-11.111111,17.222221,18.666668,0.50813884,1.9108642"
)
SATIMAGE = (
    "92 115 120 94 84 102 106 79 84 102 102 83 101 126 133 103 92 112 118 85 84 103 104 81 "
    "102 126 134 104 88 121 128 100 84 107 113 87"
)
SOYBEAN = "4,0,2,1,1,1,0,1,0,2,1,1,0,2,2,0,0,0,1,0,3,1,1,1,0,0,0,0,4,0,0,0,0,0,0"
GERMAN = "   1   6   4  12   5   5   3   4   1  67   3   2   1   2   1   0   0   1   0   0   1   0   0   1"
SONAR = ",".join(f"{i / 100:.4f}" for i in range(60))
IONOSPHERE = "1,0,0.99539,-0.05889," + ",".join(["0.5", "-1"] * 15)
LETTER = "T,2,8,3,5,1,8,13,0,6,6,10,8,0,8,0,8\nI,5,12,3,7,2,10,5,5,4,13,3,9,2,8,4,10\n"
DIALECTS: dict[str, tuple[str, str, list[int]]] = {
    # name: (text, the features as plain numbers, the codes)
    "letter": (LETTER, "2,8,3,5,1,8,13,0,6,6,10,8,0,8,0,8;5,12,3,7,2,10,5,5,4,13,3,9,2,8,4,10", [19, 8]),
    "satimage": (f"{SATIMAGE} 3\n", SATIMAGE.replace(" ", ","), [2]),
    "glass": (
        "1,1.52101,13.64,4.49,1.10,71.78,0.06,8.75,0.00,0.00,7\n",
        "1.52101,13.64,4.49,1.1,71.78,0.06,8.75,0,0",
        [5],
    ),
    "heart": (
        "70.0 1.0 4.0 130.0 322.0 0.0 2.0 109.0 0.0 2.4 2.0 3.0 3.0 2\n",
        "70,1,4,130,322,0,2,109,0,2.4,2,3,3",
        [1],
    ),
    "german_numeric": (f"{GERMAN}   1 \n", ",".join(GERMAN.split()), [0]),
    "vehicle": (
        "95 48 83 178 72 10 162 42 20 159 176 379 184 70 6 16 187 197 van \n",
        "95,48,83,178,72,10,162,42,20,159,176,379,184,70,6,16,187,197",
        [3],
    ),
    "soybean_small": (f"{SOYBEAN},D4\n", SOYBEAN, [3]),
    "balance_scale": ("R,1,1,1,2\nB,1,1,1,1\n", "1,1,1,1;1,1,1,2", [0, 2]),  # sorted
    "breast_cancer_original": (
        "1000025,5,1,1,1,2,1,3,1,1,2\n1057013,8,4,5,1,2,?,7,3,1,4\n1017122,8,10,10,8,7,10,9,7,1,4\n",
        "5,1,1,1,2,1,3,1,1;8,10,10,8,7,10,9,7,1",
        [0, 1],
    ),
    "segment": (";;; a\n;;; b\n\nREGION-CENTROID-COL,...\n\nGRASS," + GRASS + "\n", GRASS, [6]),
    "sonar": (f"{SONAR},R\n", SONAR, [1]),
    "ionosphere": (f"{IONOSPHERE},g\n{IONOSPHERE},b\n", f"{IONOSPHERE};{IONOSPHERE}", [1, 0]),
}


def parse_original(name: str, *texts: str) -> tuple[Any, np.ndarray]:
    facts = KNOWN[name]
    assert facts.archive is not None
    return _parsed(facts, facts.archive.format, [text.encode() for text in texts], facts.archive.options)


@pytest.mark.parametrize("name", DIALECTS)
def test_original_dialect(name: str) -> None:
    text, features, codes = DIALECTS[name]
    X, y = parse_original(name, text)
    assert X.tolist() == [[float(cell) for cell in row.split(",")] for row in features.split(";")]
    assert y.tolist() == codes


def test_every_delimited_archive_has_its_dialect_tested() -> None:
    assert set(DIALECTS) == {n for n, f in KNOWN.items() if f.archive and f.archive.format == "delimited"}


@pytest.mark.parametrize("text", ["T,2,8\n", "?,2,8,3,5,1,8,13,0,6,6,10,8,0,8,0,8\n", "<html>not found</html>"])
def test_original_of_another_form_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_original("letter", text)


# --- fetching, over loopback ------------------------------------------------------------------------------------


class Archive:
    """A server on 127.0.0.1: path -> body, or (body, length it promises)."""

    def __init__(self) -> None:
        self.served: dict[str, bytes | tuple[bytes, int]] = {}
        self.requests: list[str] = []
        archive = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                archive.requests.append(self.path)
                answer = archive.served.get(self.path)
                if answer is None:
                    self.send_error(404)
                    return
                body, length = answer if isinstance(answer, tuple) else (answer, len(answer))
                self.send_response(200)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    """An archive, no METRICFORGE_DATA, and an empty cache folder ``tmp_path / "metricforge"``."""
    monkeypatch.delenv("METRICFORGE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    archive = Archive()
    thread = threading.Thread(target=archive.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield archive
    archive.server.shutdown()
    archive.server.server_close()
    thread.join()


def zipped(**members: str | bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for member, text in members.items():
            packed.writestr(member, text)
    return buffer.getvalue()


def serve(monkeypatch: pytest.MonkeyPatch, url: str, name: str, **changes: Any) -> None:
    """Let the archive of a set be at `url` instead of its public address."""
    original = KNOWN[name].archive
    assert original is not None
    moved = replace(original, urls=[f"{url}/{u.rpartition('/')[2]}" for u in original.urls])
    facts = replace(KNOWN[name], archive=moved, **changes)
    monkeypatch.setattr(datasets, "_facts", lambda: {name: facts})


LETTER_SUM = _content_sum(*parse_original("letter", LETTER))
LETTER_ZIP = zipped(**{"letter-recognition.data": LETTER, "Index": "other"})


def cached(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "metricforge").rglob("*"))


def test_fetch_once_then_read_the_cache(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, archive.url, "letter", content=LETTER_SUM)
    archive.served["/letter+recognition.zip"] = LETTER_ZIP
    assert not datasets.table()[0].available
    first = datasets.load("letter")
    assert first.y.tolist() == [19, 8]
    assert first.source == f"{archive.url}/letter+recognition.zip"
    assert datasets.table()[0].available
    again = datasets.load("letter")
    assert np.array_equal(first.X, again.X)
    assert archive.requests == ["/letter+recognition.zip"]
    kept = tmp_path / "metricforge" / "letter"
    assert cached(tmp_path) == [kept, kept / "letter+recognition.zip"]


def test_fetch_of_several_files(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    images = struct.pack(">4B3i", 0, 0, 8, 3, 1, 28, 28) + bytes(range(256)) * 3 + bytes(16)
    labels = struct.pack(">4Bi", 0, 0, 8, 1, 1) + bytes([7])
    expected = _content_sum(np.frombuffer(images, np.uint8, offset=16).reshape(1, 784), np.array([7]))
    serve(monkeypatch, archive.url, "mnist", content=expected)
    archive.served["/train-images-idx3-ubyte.gz"] = gzip.compress(images)
    archive.served["/train-labels-idx1-ubyte.gz"] = labels  # the server may have unpacked it
    X, y = datasets.load("mnist")
    assert (X.shape, y.tolist()) == ((1, 784), [7])


def test_fetch_of_plain_text(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _content_sum(sp.csr_matrix(([1.0, 1.0], ([0, 1], [2, 122])), shape=(2, 123)), np.array([-1, 1]))
    serve(monkeypatch, archive.url, "a9a.t", content=expected)
    archive.served["/a9a.t"] = b"-1 3:1 \n+1 123:1 \n"
    X, y = datasets.load("a9a.t")
    assert (X.shape, X.nnz, y.tolist()) == ((2, 123), 2, [-1, 1])


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (zipped(**{"letter-recognition.data": LETTER.replace("T,2", "T,3")}), "content sha256"),
        (zipped(**{"letter-recognition.data": "T,2,8\n"}), "ValueError"),
        (zipped(**{"letters.data": LETTER}), "KeyError"),
        (LETTER.encode(), "BadZipFile"),
        (LETTER_ZIP[:-30], "BadZipFile"),
        (b"", "BadZipFile"),
    ],
    ids=["another letter", "few columns", "another name", "no archive", "half an archive", "nothing"],
)
def test_other_content_than_expected_is_refused_and_not_kept(
    body: bytes, complaint: str, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, archive.url, "letter", content=LETTER_SUM)
    archive.served["/letter+recognition.zip"] = body
    with pytest.raises(InputError, match=rf"other content than expected \({complaint}.*METRICFORGE_DATA"):
        datasets.load("letter")
    assert cached(tmp_path) == []
    archive.served["/letter+recognition.zip"] = LETTER_ZIP  # the failure leaves nothing in the way
    assert len(datasets.load("letter").y) == 2


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ((LETTER_ZIP[:100], len(LETTER_ZIP)), r"ended after 100 of \d+ bytes|IncompleteRead"),
        ((LETTER_ZIP + bytes(2000), len(LETTER_ZIP) + 2000), "larger than 2000 bytes"),
        (None, "404"),
    ],
)
def test_a_failed_transfer_leaves_nothing(
    answer: tuple[bytes, int] | None,
    complaint: str,
    archive: Archive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(datasets, "_MAX_BYTES", 2000)
    serve(monkeypatch, archive.url, "letter", content=LETTER_SUM)
    if answer is not None:
        archive.served["/letter+recognition.zip"] = answer
    with pytest.raises(InputError, match=rf"cannot download http.*({complaint}).*METRICFORGE_DATA"):
        datasets.load("letter")
    assert cached(tmp_path) == []


def test_download_writes_the_whole_file_or_none(archive: Archive, tmp_path: Path) -> None:
    archive.served.update({"/whole": b"abc", "/cut": (b"abc", 5)})
    datasets._download(f"{archive.url}/whole", tmp_path / "file")
    with pytest.raises(InputError, match="cannot download"):
        datasets._download(f"{archive.url}/cut", tmp_path / "file")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"abc")]


def test_a_file_that_unpacks_to_too_much_is_refused(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "_MAX_BYTES", 2000)
    serve(monkeypatch, archive.url, "letter", content=LETTER_SUM)
    archive.served["/letter+recognition.zip"] = zipped(**{"letter-recognition.data": LETTER * 1000})
    with pytest.raises(InputError, match="unpacks to more than 2000 bytes"):
        datasets.load("letter")
    assert cached(tmp_path) == []


def test_a_second_file_that_fails_drops_the_first(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, archive.url, "mnist")
    archive.served["/train-images-idx3-ubyte.gz"] = gzip.compress(b"images")
    with pytest.raises(InputError, match=r"cannot download .*train-labels-idx1-ubyte.gz .*404"):
        datasets.load("mnist")
    assert cached(tmp_path) == []


def test_connection_refused_is_one_sentence(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, never listening: connections are refused
        serve(monkeypatch, f"http://127.0.0.1:{closed.getsockname()[1]}", "letter")
        with pytest.raises(InputError, match=r"refused.*METRICFORGE_DATA") as caught:
            datasets.load("letter")
    assert "\n" not in str(caught.value)
    assert cached(tmp_path) == []


def test_a_silent_server_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("METRICFORGE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(datasets, "_TIMEOUT", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        serve(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}", "letter")
        start = time.monotonic()
        with pytest.raises(InputError, match=r"timed out.*METRICFORGE_DATA"):
            datasets.load("letter")
        assert time.monotonic() - start < 4.0
    assert cached(tmp_path) == []


def test_a_damaged_cache_says_what_to_delete(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, archive.url, "letter", content=LETTER_SUM)
    archive.served["/letter+recognition.zip"] = LETTER_ZIP
    datasets.load("letter")
    kept = tmp_path / "metricforge" / "letter"
    changed = zipped(**{"letter-recognition.data": LETTER.replace("13", "12")})
    (kept / "letter+recognition.zip").write_bytes(changed)
    with pytest.raises(InputError, match=rf"copy in {kept} is damaged \(content sha256 .*delete that folder"):
        datasets.load("letter")
    (kept / "letter+recognition.zip").unlink()
    with pytest.raises(InputError, match=r"is damaged \(FileNotFoundError"):
        datasets.load("letter")
    assert len(archive.requests) == 1


def test_another_process_that_was_first_wins(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, archive.url, "letter", content=LETTER_SUM)
    archive.served["/letter+recognition.zip"] = LETTER_ZIP
    kept = tmp_path / "metricforge" / "letter"
    check = datasets._content_sum

    def meanwhile(X: Any, y: Any) -> str:
        kept.mkdir()
        (kept / "letter+recognition.zip").write_bytes(LETTER_ZIP)
        return check(X, y)

    monkeypatch.setattr(datasets, "_content_sum", meanwhile)
    assert datasets.load("letter").y.tolist() == [19, 8]
    assert cached(tmp_path) == [kept, kept / "letter+recognition.zip"]


def test_a_given_folder_is_never_written_to(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "given"
    given.mkdir()
    monkeypatch.setenv("METRICFORGE_DATA", str(given))
    serve(monkeypatch, archive.url, "letter", content=LETTER_SUM)
    with pytest.raises(InputError, match=r"letter.csv.gz not found in .*unset METRICFORGE_DATA"):
        datasets.load("letter")
    assert archive.requests == []
    assert list(given.iterdir()) == []


def test_a_cache_folder_that_cannot_be_made(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metricforge").touch()
    serve(monkeypatch, archive.url, "letter", content=LETTER_SUM)
    with pytest.raises(InputError, match=r"cannot store data set 'letter' in .*XDG_CACHE_HOME"):
        datasets.load("letter")


def test_a_set_without_archive_says_what_to_put_where(archive: Archive) -> None:
    with pytest.raises(InputError, match=r"'colon' cannot be downloaded.*copy colon.csv.gz to.*METRICFORGE_DATA"):
        datasets.load("colon")


def test_archives_are_the_public_ones() -> None:
    hosts = {url.split("/")[2] for f in KNOWN.values() if f.archive for url in f.archive.urls}
    assert hosts == {"archive.ics.uci.edu", "www.csie.ntu.edu.tw", "ossci-datasets.s3.amazonaws.com"}
    assert all(url.startswith("https://") for f in KNOWN.values() if f.archive for url in f.archive.urls)


# --- the originals, written again from the data folder ----------------------------------------------------------


def text_of(X: Any, labels: list[str], cell: str, sep: str, *, first: bool = False, end: str = "\n") -> str:
    rows = ((label, sep.join(cell % value for value in row)) for row, label in zip(X, labels, strict=True))
    return "".join((label + sep + row if first else row + sep + label) + end for label, row in rows)


def libsvm_text(X: Any, y: np.ndarray) -> str:
    rows = np.split(X.indices + 1, X.indptr[1:-1])
    return "".join(
        f"{label:+d} {''.join(f'{j}:1 ' for j in row)}\n" for row, label in zip(rows, y.tolist(), strict=True)
    )


def a5a_test() -> str:
    """The rows of a9a that are not in a5a, where a5a's rows are the last of a9a that follow its order."""
    left, taken = (libsvm_text(*datasets.load(n)).splitlines(keepends=True) for n in ("a9a", "a5a"))
    rest = []
    for line in reversed(left):
        if taken and line == taken[-1]:
            taken.pop()
        else:
            rest.append(line)
    assert not taken
    return "".join(reversed(rest))


def original(name: str) -> dict[str, str]:
    """The files of an archive as the archive writes them: member or file name -> text."""
    if name == "a5a.t":
        return {name: a5a_test()}
    X, y = datasets.load(name)
    if sp.issparse(X):
        return {name: libsvm_text(X, y)}
    facts = KNOWN[name]
    assert facts.archive is not None
    label = [facts.archive.options["classes"][c] for c in y]
    members = list(facts.archive.members)
    if name == "satimage":
        texts = [text_of(X[r], label[r], "%d", " ") for r in (slice(4435), slice(4435, None))]
    elif name == "vehicle":
        padded = [f"{c:4}" for c in label]
        texts = [text_of(X[r : r + 94], padded[r : r + 94], "%d", " ") for r in range(0, 846, 94)]
    elif name == "glass":
        texts = [
            "".join(
                f"{i},{row[0]:.5f},{','.join(f'{v:.2f}' for v in row[1:])},{c}\n"
                for i, (row, c) in enumerate(zip(X, label, strict=True), start=1)
            )
        ]
    else:
        cell, sep, first, end = {
            "letter": ("%d", ",", True, "\n"),
            "balance_scale": ("%d", ",", True, "\n"),
            "soybean_small": ("%d", ",", False, "\n"),
            "sonar": ("%.4f", ",", False, "\n"),
            "heart": ("%.1f", " ", False, "\n"),
            "german_numeric": ("%4d", "", False, " \n"),
        }[name]
        texts = [text_of(X, [f"{c:>4}" for c in label] if not sep else label, cell, sep, first=first, end=end)]
    return dict(zip(members, texts, strict=True))


# Published sums (sha256 or md5) of the files in the archives.
PUBLISHED = {
    "a1a": {"a1a": "b62d93d768db2423dd06fadb24ea0c1f"},
    "a5a.t": {"a5a.t": "dfd287c8f2b7142d224b46fd3edaff31"},
    "a9a.t": {"a9a.t": "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"},
    "balance_scale": {"balance-scale.data": "5611187ef7345d807aa8ae22615945ade52a190537c0b1434bd44c3e877c5bb4"},
    "german_numeric": {"german.data-numeric": "2752b044394958ab6dd193a0b56ca0f0b3a2d8bc7cb8c008e35a5e84bbec02f8"},
    "glass": {"glass.data": "dd67373f4baf2807345df02cbfef2093d342e61ad0d82a4fb79af43ef8ce449d"},
    "heart": {"heart.dat": "f5f3b4204c285bafadd85cb735f38b47689f2be7047feb172dcbeab648110bf9"},
    "letter": {"letter-recognition.data": "2b89f3602cf768d3c8355267d2f13f2417809e101fc2b5ceee10db19a60de6e2"},
    "satimage": {
        "sat.trn": "e896dc88a960fa2404160fc4c3cb3dc53fcf4afd80ba920bf2d261bd42d12613",
        "sat.tst": "4b9167b8a92baafafed7c8809aef86d0683a5e685c19d98d119fa6974f0f2479",
    },
    "sonar": {"sonar.all-data": "e90434cdbf00fcf93ffa911fe447ae25606979658e60f1d32e155c3b5240234d"},
    "soybean_small": {"soybean-small.data": "f096d1675db0270071311c9f46813b204372370bd68252a5a417bdcff5879717"},
    "vehicle": {
        "xaa.dat": "58e47d145a615a66f63d6ebee1464c03",
        "xab.dat": "acb3f6058d5c5be32bb6f6ca32a33589",
        "xac.dat": "cfea1bcae46637fc9d809728ad5087d7",
        "xad.dat": "04322617a9c210dd628d296ee54747d8",
        "xae.dat": "ee3f88b55a12d910226e25d7a6f4b5f3",
        "xaf.dat": "ea2c7de08ebadb7210ebd71b4bbd614e",
        "xag.dat": "a5f2d9e088d7093f0e809f98a892dd99",
        "xah.dat": "ac7ee8eab9cc5094dbf67565cacafc74",
        "xai.dat": "63dc598be76f165a7526b925249db8a4",
    },
}


@needs_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_original_is_fetched_as_the_same_set(
    name: str, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METRICFORGE_DATA", str(DATA))
    texts = original(name)
    for file, expected in PUBLISHED[name].items():
        kind = "md5" if len(expected) == 32 else "sha256"
        assert hashlib.new(kind, texts[file].encode()).hexdigest() == expected, file
    assert set(texts) == set(PUBLISHED[name])

    monkeypatch.delenv("METRICFORGE_DATA")
    facts = KNOWN[name].archive
    assert facts is not None
    path = "/" + facts.urls[0].rpartition("/")[2]
    archive.served[path] = zipped(**texts) if facts.members else texts[name].encode()
    serve(monkeypatch, archive.url, name)
    datasets.load(name)  # checks the content sum of the data folder's set
    assert archive.requests == [path]


@needs_data
def test_mnist_is_fetched_as_the_same_set(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        archive.served[f"/{part}"] = (Path(str(DATA)) / f"mnist_{part}").read_bytes()
    serve(monkeypatch, archive.url, "mnist.t")
    assert datasets.load("mnist.t").X.shape == (10000, 784)

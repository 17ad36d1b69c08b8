"""What attacks on an early version broke, by the public interface only: hangs, crashes, silent errors and leaks."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
import zipfile
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

import metricforge as mf
from metricforge.cli.program import main
from metricforge.errors import InputError, MemoryBudgetError, ModelFileError
from metricforge.rows import check_memory

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 4)), np.arange(30) % 3


@pytest.mark.parametrize("options", [{}, {"active": 0.5}])
@pytest.mark.parametrize(
    "hint", [mf.Chunklets(np.arange(30)), mf.Triplets([(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0)], n=30)]
)
def test_simplenpkl_ends_where_no_pair_is_left(hint, options):
    with contextlib.suppress(InputError):
        mf.learn(X, hint, method="simplenpkl", **options)


@pytest.mark.parametrize("index", [4, 2**31 - 1, -1])
def test_a_sparse_file_whose_index_is_out_of_range_is_refused(tmp_path, capsys, index):
    rows = sp.csr_matrix(X)
    parts = {"data": rows.data, "indices": rows.indices.copy(), "indptr": rows.indptr, "shape": rows.shape}
    parts["indices"][3] = index
    np.savez(tmp_path / "rows.npz", format=b"csr", **parts)
    (tmp_path / "y.csv").write_text("kind\n" + "".join(f"{label}\n" for label in Y))
    words = [str(tmp_path / name) for name in ("rows.npz", "y.csv", "o.metric")]
    assert main(["learn", words[0], "--label", words[1], "-o", words[2]]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_sparse_rows_beside_a_timestamp_have_the_distances_of_dense_rows():
    stamps = np.column_stack([1.7e9 + RNG.integers(0, 3, size=40), RNG.integers(0, 2, size=(40, 4))]).astype(float)
    for method, options in {"euclidean": {"kernel": "linear"}, "krca": {"kernel": "linear"}}.items():
        dense = mf.learn(stamps, np.arange(40) % 3, method=method, **options).distance(stamps)
        rows = sp.csr_matrix(stamps)
        lean = mf.learn(rows, np.arange(40) % 3, method=method, **options).distance(rows)
        np.testing.assert_allclose(lean, dense, atol=1e-6 * dense.max())


@pytest.mark.parametrize("budget", [60_000_000, 120_000_000])
def test_calls_stay_within_the_budget_or_say_what_they_need(monkeypatch, budget):
    metric = mf.learn(RNG.normal(size=(600, 20)), np.arange(600) % 3, method="krca", kernel="rbf", rank="exact")
    A = RNG.normal(size=(20_000, 20))
    monkeypatch.setenv("METRICFORGE_MEMORY", str(budget))
    tracemalloc.start()
    for call in (
        lambda: metric.paired_distance(A, A[::-1]),
        lambda: metric.transform(A),
        lambda: metric.kernel(A[:2000]),
    ):
        with contextlib.suppress(MemoryBudgetError):
            call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < budget


def signed(path, changes, compression):
    """Write a saved metric again, with a valid digest."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["metric.json"] = json.dumps(json.loads(members["metric.json"]) | changes).encode()
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.comment = bytes(32)
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=compression)
    content = path.read_bytes()[:-32]
    path.write_bytes(content + hashlib.sha256(content).digest())


@pytest.mark.parametrize(
    ("changes", "compression"),
    [({}, zipfile.ZIP_DEFLATED), ({"format": -5}, zipfile.ZIP_STORED), ({"format": True}, zipfile.ZIP_STORED)],
)
def test_only_what_is_written_is_loaded(tmp_path, changes, compression):
    path = tmp_path / "m.metric"
    mf.learn(X, Y, method="krca").save(path)
    signed(path, {}, zipfile.ZIP_STORED)
    mf.load(path)  # the forgery itself is sound
    signed(path, changes, compression)
    with pytest.raises(ModelFileError):
        mf.load(path)


OVERLAP = """
import threading, numpy as np, metricforge as mf
from threadpoolctl import threadpool_info

inside = {"first": threading.Event(), "second": threading.Event()}
ended, steps = threading.Event(), {}


class Steps:
    @mf.hookimpl
    def metricforge_step(self, event):
        name = threading.current_thread().name
        steps[name] = steps.get(name, 0) + 1
        if name in inside and steps[name] == 4:  # the solver is at work
            inside[name].set()  # the first fit ends while the second is running
            (inside["second"] if name == "first" else ended).wait(20)


def fit(name):
    mf.learn(X, y, method="idealized")
    if name == "first":
        ended.set()


X, y = np.random.default_rng(0).normal(size=(100, 4)), np.arange(100) % 3
mf.learn(X, y, method="idealized")
count = lambda: [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
before = count()
mf.register(Steps(), name="steps")
fits = [threading.Thread(target=fit, args=(name,), name=name) for name in inside]
fits[0].start()
inside["first"].wait(20)
fits[1].start()
[one.join() for one in fits]
print(all(event.is_set() for event in (*inside.values(), ended)), before == count() and max(before) > 1)
"""


def test_overlapping_fits_leave_the_threads_of_blas_as_they_were():
    many = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "4")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OVERLAP],
        env={**os.environ, **many},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "True"]


def test_a_table_of_50_000_columns_is_learned_from_in_seconds(tmp_path, capsys):
    names = [f"gene{i}" for i in range(50_000)]
    lines = [",".join(map(str, RNG.integers(0, 9, size=50_000))) + f",k{i % 2}" for i in range(4)]
    (tmp_path / "rows.csv").write_text("\n".join([",".join([*names, "class"]), *lines]) + "\n")
    began = time.process_time()
    words = ["learn", str(tmp_path / "rows.csv"), "--label", "class", "--method", "euclidean"]
    assert main([*words, "-o", str(tmp_path / "o.metric")]) == 0
    assert time.process_time() - began < 20


CALLS = {
    "rows that a kernel cannot tell apart": lambda: mf.learn(
        X, mf.Pairs([(0, 1)], [(0, 2)], n=30), method="simplenpkl", kernel=mf.kernels.RBF(1e-300)
    ),
    "equal rows": lambda: mf.learn(np.ones((30, 4)), Y, method="simplenpkl", kernel=mf.kernels.Linear()),
    "wide indices": lambda: mf.kernels.Laplacian(1.0)(_wide(X)),
    "wide indices in a fit": lambda: mf.learn(_wide(X), Y, method="krca", kernel=mf.kernels.Laplacian()).distance(
        _wide(X)
    ),
    "no entries": lambda: mf.learn(sp.csr_matrix((30, 4)), Y, method="krca", kernel=mf.kernels.Standardized()),
    "large numbers": lambda: mf.learn(1e100 * X, Y, method="idealized"),
    "few pairs": lambda: mf.learn(X, Y, method="kcr", n_pairs=1),
    "a list of hints": lambda: mf.learn(X, [mf.Labels(Y), mf.Pairs([(0, 1)], n=30)]),
    "an index beyond integers": lambda: mf.Pairs([[1e300, 0]], n=30),
    "a small integer as option": lambda: mf.learn(X, Y, method="lpdesign", n_directions=np.int8(3)),
    "a huge tolerance": lambda: mf.learn(X, Y, method="nca", tol=1e300),
    "text as number of neighbours": lambda: mf.learn(X, Y, method="euclidean").index(k="3"),
    "text as number of clusters": lambda: mf.tasks.clusters_by_silhouette(X, tried=(2, "3")),
    "complex numbers": lambda: mf.psd.factor(np.eye(3) * 1j),
    "the largest floats": lambda: mf.eigen.top(np.array([[0, 1.7e308], [-1.7e308, 0]]), 1),
    "cells that are no numbers": lambda: mf.MetricLearner("krca").fit(
        np.array([[{}, 1], [2, 3]], dtype=object), [0, 1]
    ),
    "no relevant rows": lambda: mf.tasks.hard_negatives(X, [0, 1], None),
    "no queries": lambda: mf.tasks.retrieval_scores(mf.learn(X, Y, method="euclidean"), X, [], []),
    "a kernel of whole numbers": lambda: mf.learn(X, mf.Chunklets(Y), method="krca", kernel=Counts()),
    "grades that repeat a triplet for ever": lambda: mf.Triplets.from_relevance(
        [0], [[1, 2]], 30, grades=[[1, 10**18]]
    ),
    "triplets without number": lambda: mf.Triplets.from_relevance([0], [[1]], 30, per_pair=10**12),
    "distances to rows that overflow": lambda: mf.learn(
        X * [1e-160, 1, 1, 1e150], mf.Pairs([(0, 1)], [(0, 2)], n=30), method="llr"
    ).neighbors(1e300 * X, k=2),
    "distances beyond 1e17": lambda: mf.classics.NCA(random_state=0).fit(1e12 * X, Y),
}


@dataclass(frozen=True)
class Counts(mf.Kernel):
    """A kernel that returns whole numbers."""

    def block(self, X, Y):
        return np.rint(9 * np.asarray(mf.kernels.RBF(0.1).block(X, Y))).astype(int)


def _wide(rows):
    rows = sp.csr_matrix(rows)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    return rows


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_a_call_is_answered_or_refused_without_raw_errors_and_warnings(call):
    with contextlib.suppress(InputError):
        CALLS[call]()


EXTREME = {
    "kcr on tiny rows": lambda: mf.learn(1e-160 * X, Y, method="kcr", kernel=mf.kernels.Linear()),
    "a huge rate on large rows": lambda: mf.learn(
        1e100 * X, Y, method="euclidean", kernel=mf.kernels.RBF(1e300)
    ).distance(1e100 * X),
    "simplenpkl on tiny rows": lambda: mf.learn(1e-160 * X, Y, method="simplenpkl", kernel=mf.kernels.Linear()),
    "idealized on tiny rows": lambda: mf.learn(1e-160 * X, Y, method="idealized"),
    "krca on tiny rows of length 1": lambda: mf.learn(
        1e-160 * X, Y, method="krca", kernel=mf.kernels.Linear().normalized()
    ).paired_distance(X, X),
}


@pytest.mark.parametrize("call", EXTREME)
@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_no_warning_of_numpy_leaves_the_library(call):
    """Where numbers overflow or vanish, the answer is an error of ours, a note, or right; never NumPy's warning."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", RuntimeWarning)
        with contextlib.suppress(InputError, IndexError, np.linalg.LinAlgError):  # of these, the test above
            EXTREME[call]()
    assert [str(one.message) for one in heard if one.category is RuntimeWarning] == []


PIPE = """
import os, sys
import metricforge as mf
from metricforge.cli.program import main
os.mkfifo("pipe.metric")
os.mkfifo("rows.csv")
try:
    mf.load("pipe.metric")
except mf.errors.ModelFileError:
    print("refused")
print(main(["learn", "rows.csv", "--label", "class"]))
"""


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PIPE], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["refused", "2"]


def test_pairs_of_equal_rows_count_as_they_are_given():
    """Dropped pairs without a difference changed N_S and with it the weight of the others."""
    rows = np.concatenate([X[:20], X[:1]])
    pairs = [(i, i + 1) for i in range(0, 18, 2)], [(i, i + 3) for i in range(0, 16, 2)]
    plain = mf.learn(rows, mf.Pairs(*pairs, n=21), method="idealized", c_similar=8.0)
    more = mf.learn(rows, mf.Pairs([*pairs[0], (0, 20)], pairs[1], n=21), method="idealized", c_similar=8.0 * 10 / 9)
    assert more.report.objective == pytest.approx(plain.report.objective, rel=1e-3)
    assert more.report.similar_pairs == 10


def test_a_number_of_directions_that_takes_for_ever_is_refused(monkeypatch):
    monkeypatch.setenv("METRICFORGE_MEMORY", "1GB")
    with pytest.raises(MemoryBudgetError, match="n_directions=1000000000 would take"):
        mf.learn(X, Y, method="lpdesign", n_directions=10**9)


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e30])
def test_the_residual_of_krca_does_not_depend_on_the_scale(scale):
    """The Gram matrix of tiny rows was added to the diagonal of its root, in which it vanished."""
    rows = RNG.normal(size=(14, 16))
    report = mf.learn(scale * rows, np.arange(14) % 2, method="krca", kernel=mf.kernels.Linear()).report
    assert report.representation == "exact"
    assert report.gap < 1e-12


def test_lpdesign_does_not_depend_on_the_order_of_rows():
    order = RNG.permutation(30)
    place = np.argsort(order)
    triplets = mf.Triplets.from_labels(Y, n_triplets=80, seed=0)
    one = mf.learn(X, triplets, method="lpdesign", bases="weak+directions")
    two = mf.learn(X[order], mf.Triplets(place[triplets.triples], n=30), method="lpdesign", bases="weak+directions")
    np.testing.assert_allclose(two.report.objective, one.report.objective, rtol=1e-9)


@pytest.mark.parametrize("wrong", ["text", "nan"])
def test_a_kernel_of_a_file_has_finite_numbers_only(tmp_path, wrong):
    """The digest of a forged file is valid, so the content must be checked."""
    path = tmp_path / "forged.metric"
    metric = mf.learn(X @ X.T, Y, method="krca", kernel=mf.kernels.Precomputed())
    root = metric.start.root
    object.__setattr__(metric.start, "root", root.astype(str) if wrong == "text" else np.full_like(root, np.nan))
    metric.save(path)
    with pytest.raises(ModelFileError, match="not an array of finite numbers"):
        mf.load(path)


ITERATIVE = sorted(e.name for e in mf.methods() if "solver__max_iter" in mf.MetricLearner(e.name).get_params())


@pytest.mark.parametrize("method", ITERATIVE)
@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_the_limit_of_iterations_is_reached_and_ends_a_fit(method):
    """Each loop of a solver has a bound; with max_iter=2 and a tolerance out of reach it is this one."""
    rng = np.random.default_rng(3)
    rows, y = rng.normal(size=(60, 4)), rng.integers(0, 3, size=60)
    hint = mf.Targets(rows[:, 0]) if method == "mlkr" else mf.Labels(y)
    options = {"loss": "hinge"} if method == "simplenpkl" else {}
    report = mf.learn(rows, hint, method=method, max_iter=2, tol=1e-12, **options).report
    assert report.n_iter <= 2
    assert report.status in ("iteration_limit", "stalled", "optimal", "truncated", "stationary")
    assert report.status == "iteration_limit" or report.n_iter <= 1 or report.gap < 1e-6 * max(1, abs(report.objective))


def _header(shape):
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("rows.csv", b"a,b\n1,2\n3,4\n5,6\n", ["--pairs", b"i,j,similar\n0,12345678901234567890123,1\n"]),
        ("rows.svm", b"1 2000000000:1\n0 1:1\n1 1:2\n0 2:1\n", ["--label", "label"]),
        ("rows.npy", _header((10**9, 1000)), ["--label", b"kind\na\nb\n"]),
    ],
)
def test_what_no_file_should_hold_is_one_sentence_and_exit_code_two(tmp_path, capsys, monkeypatch, name, content, hint):
    monkeypatch.setenv("METRICFORGE_MEMORY", "1GB")
    (tmp_path / name).write_bytes(content)
    words = ["learn", str(tmp_path / name), "-o", str(tmp_path / "o.metric"), *hint]
    if isinstance(hint[1], bytes):
        (tmp_path / "hint.csv").write_bytes(hint[1])
        words[-1] = str(tmp_path / "hint.csv")
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "fault" not in lines[0]


MATRIX = np.eye(3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mf.kernels.RBF(MATRIX),
        lambda: mf.kernels.Mixture([mf.kernels.Linear()], MATRIX),
        lambda: mf.learn(X, Y, method="krca", seed=MATRIX),
        lambda: mf.learn(X, mf.Chunklets(Y), method="krca", epsilon=MATRIX),
        lambda: mf.learn(X, Y, method="euclidean").neighbors(X, k=MATRIX),
        lambda: mf.learn(X, Y, method="idealized", nu=MATRIX),
        lambda: mf.learn(X, Y, method="lpdesign", widths=MATRIX),
    ],
)
def test_a_message_that_quotes_an_array_is_one_line(call):
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)


TWO_LINES = """
import logging
from metricforge.cli.program import main
main(["datasets"])
logging.getLogger("metricforge.plugins").warning("a plugin quotes an error\\nof two lines")
"""


def test_a_warning_of_the_shell_is_one_line():
    done = subprocess.run([sys.executable, "-c", TWO_LINES], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["metricforge: a plugin quotes an error of two lines"]


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
@pytest.mark.parametrize("loss", ["linear", "squared_hinge"])
@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_optimal_means_within_the_tolerance(loss, tol):
    for seed, options in enumerate(({"n_components": 12}, {"n_components": 12}, {}, {})):
        rng = np.random.default_rng(seed)
        rows, y = rng.normal(size=(80, 3)), rng.integers(0, 3, size=80)
        pairs = mf.Pairs.from_labels(y, n_pairs=400, seed=seed)
        report = mf.learn(rows, pairs, method="simplenpkl", loss=loss, tol=tol, **options).report
        if str(report["status"]) == "optimal":
            assert report["gap"] <= 1.01 * tol * abs(report["objective"])


@pytest.mark.parametrize(
    ("first", "n", "n_pairs", "options"),
    [(0, 24, 40, {"C": 0.002, "B": 31.0, "n_components": None}), (1, 27, 60, {"C": 0.007})],
)
@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_optimal_means_within_the_tolerance_for_small_weights(first, n, n_pairs, options):
    for seed in range(first, first + 40, 2):
        rng = np.random.default_rng(seed)
        rows, y = rng.normal(size=(n, 3)), rng.integers(0, 3, size=n)
        pairs = mf.Pairs.from_labels(y, n_pairs=n_pairs, seed=seed)
        report = mf.learn(rows, pairs, method="simplenpkl", loss="squared_hinge", tol=1e-3, **options).report
        assert report["status"] != "optimal" or report["gap"] <= 1.01e-3 * abs(report["objective"])


@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_a_limit_that_was_not_reached_is_not_the_reason_of_an_end():
    """Where no further step is possible, the status is "stalled"."""
    for seed in range(1, 21, 2):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(10, 50))
        rows, y = rng.normal(size=(n, 4)) * 10.0 ** rng.integers(-6, 7, size=4), rng.integers(0, 3, size=n)
        report = mf.learn(rows, y, method="simplenpkl", loss="squared_hinge", tol=1e-12, max_iter=300).report
        assert report.status != "iteration_limit" or report.n_iter == 300


LAST = """
import os, signal, sys
import numpy as np
from metricforge.cli.program import main

def save(file, *_, **__):
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    signal.pause()

np.save = save
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_a_run_leaves_no_part_of_a_file(tmp_path, name):
    np.save(tmp_path / "rows.npy", X)
    mf.learn(X, Y, method="euclidean").save(tmp_path / "m.metric")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the suite may run under nohup, which children inherit
    try:
        words = ["transform", "m.metric", "rows.npy", "-o", "e.npy"]
        done = subprocess.run(
            [sys.executable, "-c", LAST, name, *words], cwd=tmp_path, capture_output=True, check=False
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert done.returncode == 128 + getattr(signal, name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.metric", "rows.npy"]


def test_the_shell_quotes_the_next_command(tmp_path, capsys):
    path = tmp_path / "my rows; (1).csv"
    path.write_text("a,b,class\n" + "".join(f"{a:.3f},{b:.3f},k{i % 2}\n" for i, (a, b) in enumerate(X[:, :2])))
    assert (
        main(["learn", str(path), "--label", "class", "--method", "euclidean", "-o", str(tmp_path / "m.metric")]) == 0
    )
    command = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("next:"))
    assert str(path) in shlex.split(command)


def test_a_comma_between_thousands_is_not_advised_to_be_a_point(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("a\tb\tclass\n1\t2\tx\n1,234\t2\ty\n")
    main(["learn", str(tmp_path / "rows.csv"), "--label", "class", "-o", str(tmp_path / "m.metric")])
    assert "write 1234 if it separates thousands" in capsys.readouterr().err


def test_a_column_that_numbers_the_rows_of_a_sorted_file_is_pointed_out(tmp_path, capsys):
    lines = [f"{i},{a:.3f},{b:.3f},k{i // 15}\n" for i, (a, b) in enumerate(X[:, :2])]
    (tmp_path / "rows.csv").write_text("id,a,b,class\n" + "".join(lines))
    words = ["learn", str(tmp_path / "rows.csv"), "--label", "class", "--method", "euclidean"]
    assert main([*words, "-o", str(tmp_path / "m.metric")]) == 0
    assert "column 'id' numbers the rows" in "".join(capsys.readouterr())


@dataclass(frozen=True)
class Locked(mf.Kernel):
    """A kernel that cannot be pickled."""

    lock: object = None

    def block(self, X, Y):
        return np.asarray(X @ Y.T)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_closed_client_and_a_kernel_that_cannot_be_sent_are_refused():
    import dask
    from distributed import Client, LocalCluster

    local = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0")
    # a client that is closed twice leaves the scheduler in dask's configuration, where later tests would find it
    with dask.config.set(scheduler=None), local, Client(local) as client:
        with pytest.raises(InputError, match="Locked"):
            mf.learn(X, Y, method="krca", kernel=Locked(threading.Lock()), rank=5)
        client.close()
        with contextlib.suppress(InputError):
            mf.learn(X, Y, method="krca", rank=5)


def test_an_update_changes_no_bit_of_the_old_metric():
    """The factor of the old metric was unpacked by the update, and then solved in another order."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(9, 3))
        metric = mf.learn(
            rows, mf.Chunklets(np.arange(9) // 2), method="krca", kernel="rbf", epsilon=1e-9, rank="exact"
        )
        before = metric.distance(rows[:3])
        metric.update(rng.normal(size=(40, 3)), mf.Chunklets(np.arange(40) // 2))
        np.testing.assert_array_equal(metric.distance(rows[:3]), before)


def test_a_direction_along_which_rows_differ_by_rounding_is_no_base():
    line = np.outer(np.linspace(0, 1, 9), RNG.normal(size=21)) + RNG.normal(size=21)
    triplets = mf.Triplets.from_labels(np.arange(9) // 3, n_triplets=60, seed=0)
    metric = mf.learn(line, triplets, method="lpdesign", bases="weak+directions")
    D = metric.distance(line)
    np.testing.assert_allclose(metric.paired_distance(line, line[::-1]), D[np.arange(9), 8 - np.arange(9)], atol=1e-6)


def test_equal_rows_are_neighbours_at_distance_zero():
    """k(x, x) + k(y, y) − 2k(x, y) of a block rounds in another order than that of a pair."""
    metric = mf.learn(X, Y, method="euclidean", kernel=mf.kernels.RBF(1000.0, base=mf.kernels.Polynomial(7)))
    assert metric.neighbors(X.copy(), k=1)[1].max() == 0


def test_features_that_lose_their_digits_are_noted():
    said = mf.learn(X, Y, method="krca", kernel=mf.kernels.Laplacian(1e-12)).report.notes
    assert any("digits" in note for note in said)
    assert not any("digits" in note for note in mf.learn(X, Y, method="krca", kernel="rbf").report.notes)


@pytest.mark.parametrize("cut", [1, 31])
def test_a_file_cut_inside_its_digest_is_refused_also_with_a_new_digest(tmp_path, cut):
    path = tmp_path / "m.metric"
    mf.learn(X, Y, method="euclidean").save(path)
    content = path.read_bytes()[:-cut]
    path.write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(ModelFileError):
        mf.load(path)


JUNK = (np.array(3.0), np.array([1.0, 2.0]), np.array(["a", "b"]), 10**400, {}, b"x", [[1], [1, 2]])


@pytest.mark.parametrize("method", [entry.name for entry in mf.methods()])
@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_no_value_of_an_option_gives_a_raw_error(method):
    known = [name.removeprefix("solver__") for name in mf.MetricLearner(method).get_params() if "solver__" in name]
    bounded = {"max_iter": 3} if "max_iter" in known else {}
    for name in known:
        for value in JUNK:
            with contextlib.suppress(InputError):
                mf.learn(X[:12], Y[:12], method=method, **{**bounded, name: value})


@pytest.mark.parametrize(
    "call",
    [
        lambda: mf.tasks.classify(mf.learn(X, Y, method="euclidean"), Y, X, radius=10**400),
        lambda: mf.tasks.clusters_by_silhouette(X, tried=3),
        lambda: mf.neighbors.graph(np.zeros((5, 1), dtype=int), n=2**60),
        lambda: mf.neighbors.graph(np.zeros((5, 1), dtype=int), n=10**400),
        lambda: check_memory(10**400, "an array", "take less"),
        lambda: mf.psd.factor(np.eye(3), tol=10**400),
        lambda: mf.space.embedding(mf.kernels.RBF(0.5), X, 5, seed=-1),
        lambda: mf.Triplets.from_labels(Y, n_triplets=2**63),
        lambda: mf.Triplets.from_labels(Y, n_triplets=10**400),
        lambda: mf.Quadruplets.from_labels(Y, n_quadruplets=2**63 - 1),
        lambda: mf.Quadruplets.from_labels(Y, n_quadruplets=10**400),
    ],
)
def test_arguments_beyond_every_array_and_float_are_refused(call):
    with pytest.raises((InputError, MemoryBudgetError)):
        call()

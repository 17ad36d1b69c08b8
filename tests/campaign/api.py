"""Call the public API with difficult rows, hints, kernels, options and numbers."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

import metricforge as mf
from metricforge import kernels as k

from . import hints, rows, starts, stored, surface
from .battery import check_metric, check_reference, check_report, count, in_memory
from .rows import Rng, Rows, pick
from .trial import Ended, Trial, Verdict, finite

METHODS = sorted(entry.name for entry in mf.methods())


def prepare(folder: Any) -> None:
    """Import the packages that create rows and hints."""
    import dask.array  # noqa: F401
    import pandas  # noqa: F401


# ------------------------------------------------------------------------------------------------------------ the cases


def attack(trial: Trial, rng: Rng) -> None:
    """Run one case: half of them call ``learn``."""
    rows.DRAWN.clear()
    try:
        pick(rng, ENTRIES)(trial, rng)
    finally:
        trial.poisoned |= rows.OUT_OF_RANGE in rows.DRAWN and not trial.refusal


def learn(trial: Trial, rng: Rng) -> None:
    """Fit and use a metric with one difficult element, sometimes two: rows, kernel, hint or options."""
    trouble = set(rng.choice(["kernel", "rows", "hint", "options"], 1 + (rng.random() < 0.2), replace=False).tolist())
    extreme = rng.random() < 0.3  # it may be invalid; else it is unusual
    d = int(rng.integers(1, 5))
    kernels = (starts.draw if extreme else starts.valid) if "kernel" in trouble else starts._none
    start = kernels(rng, d)
    if "rows" in trouble:
        data = rows.draw(rng, start.takes) if extreme or start.takes != "vectors" else rows.mild(rng)
    else:
        data = _plain_rows(rng, start.takes)
    method = pick(rng, [*METHODS, *[m for m in METHODS if m != "euclidean"], "auto"])
    if "hint" in trouble:
        hint = (hints.draw if extreme else hints.valid)(rng, data.n, method)
    else:
        hint = hints.plain(rng, data.n, method)
    options = starts.options(rng, method, extreme=extreme) if "options" in trouble else {}
    rank = pick(rng, starts.RANKS if extreme else starts.RANKS[:20]) if rng.random() < 0.4 else "auto"
    seed = pick(rng, starts.SEEDS if extreme else [0, 1, 2**31]) if rng.random() < 0.2 else 0
    trial.describe(f"X: {data.description}")
    constraint = trial.call(f"hint: {hint.description}", hint.make)
    kernel = trial.call(f"kernel: {start.description}", start.make, foreign=(starts.Planted,))
    before = _snapshot(data.X)
    words = ", ".join(f"{name}={_short(value)}" for name, value in options.items())
    metric = trial.call(
        f"mf.learn(X, hint, method={method!r}, kernel, rank={rank!r}, seed={seed!r}, {words})",
        mf.learn,
        data.X,
        constraint,
        method=method,
        kernel=kernel,
        rank=rank,
        seed=seed,
        foreign=(starts.Planted,),
        **options,
    )
    _check_refused(trial, data, "learn")
    _check_unchanged(trial, before, data.X)
    check_report(trial, metric)
    paper = options.get("psd") == "paper" or options.get("cone", "nonneg") != "nonneg"
    exact = isinstance(rank, str)
    D = check_metric(trial, metric, data.X, rng, psd=start.psd and not paper, single=data.single, exact=exact)
    if method == "euclidean" and start.reference == "linear" and data.truth is not None:
        check_reference(
            trial, D, rows.distances(data.truth), single=data.single, what="distance is not the Euclidean one"
        )
    trial.passed = True
    _use_on_others(trial, metric, data, rng)


def _use_on_others(trial: Trial, metric: Any, data: Rows, rng: Rng) -> None:
    """Use a metric on other rows than the training rows."""
    if data.takes == "gram":
        return
    d = data.truth.shape[1] if data.truth is not None and rng.random() < 0.8 else None
    other = rows.vectors(rng, d=d) if data.takes == "vectors" else rows.strings(rng)
    trial.describe(f"A: {other.description}")
    n_rows = count(metric.rows) if metric.rows is not None else 3
    k_many = pick(rng, [1, n_rows, n_rows + 1, 0, -1, 2.5, True, None, "3"])
    uses: dict[str, Callable[[], Any]] = {
        "metric.distance(A, X)": lambda: metric.distance(other.X, data.X),
        "metric.transform(A)": lambda: metric.transform(other.X),
        "metric.kernel(A)": lambda: metric.kernel(other.X),
        "metric.paired_distance(A, X)": lambda: metric.paired_distance(other.X, data.X),
        f"metric.neighbors(A, k={k_many!r})": lambda: metric.neighbors(other.X, k=k_many),
        "metric.update(A, labels)": lambda: metric.update(other.X, np.arange(other.n) % 2),
        "metric arithmetic": lambda: _arithmetic(metric, rng),
    }
    what = pick(rng, uses)
    answer = trial.call(what, uses[what], foreign=(starts.Planted,))
    if "arithmetic" not in what and not hasattr(other.X, "compute"):
        _check_refused(trial, other, what.partition("(")[0])
    parts = answer if isinstance(answer, tuple) else (answer,)
    for part in parts:
        part = trial.call("compute what is lazy", in_memory, part, foreign=(starts.Planted,))
        if isinstance(part, np.ndarray):
            trial.check(finite(part), Verdict.NAN, f"{what.partition('(')[0]} on other rows is not finite")
        elif isinstance(part, mf.Metric):
            answer = in_memory(trial.call("distance of the result", part.distance, data.X))
            trial.check(finite(answer), Verdict.NAN, f"distance after {what} is not finite")


def _arithmetic(metric: Any, rng: Rng) -> Any:
    weight = pick(rng, [0.5, 2, 0, -1, float("nan"), 1e300, 1e-300, True, "x"])
    form = pick(rng, ["scaled", "sum", "kernel sum", "itself"])
    try:
        if form == "scaled":
            return weight * metric
        if form == "sum":
            return 0.7 * metric + 0.3 * metric
        if form == "kernel sum":
            return weight * metric.kernel + k.Linear()
        return sum([metric, metric])
    except TypeError as error:
        # Python's own error for unsupported operands
        if "unsupported operand" in str(error) or "can't multiply" in str(error):
            return None
        raise


def constraints(trial: Trial, rng: Rng) -> None:
    """Build, slice, convert, close and compare hints."""
    n = rows.draw_size(rng)[0]
    hint = hints.draw(rng, n)
    c = trial.call(f"hint: {hint.description}", hint.make)
    if not isinstance(c, mf.Constraint):
        c = trial.call("mf.Labels", mf.Labels, c)
    trial.passed = True
    for what in ("repr", "slice", "convert", "pickle"):
        if what == "repr":
            trial.call("repr, hash, ==", lambda: (repr(c), hash(c), c == c, c.size, len(c), c.shape))
        elif what == "slice":
            chosen = pick(
                rng,
                [
                    slice(None),
                    slice(None, None, 2),
                    [0],
                    np.arange(len(c)) % 2 == 0,
                    [],
                    [len(c)],
                    [-1],
                    0.5,
                    "a",
                    None,
                    (np.arange(len(c)), Ellipsis),
                    [0, 0, 0],
                    rng.integers(0, len(c), size=2 * len(c)),
                    [[0]],
                    True,
                ],
            )
            trial.call(f"c[{_short(chosen)}]", lambda at=chosen: c[at])
        elif what == "convert":
            kind = pick(rng, [mf.Labels, mf.Pairs, mf.Chunklets, mf.Triplets, int, None, mf.Constraint])
            seed = pick(rng, [0, 0, 0, -1, None, 1.5])
            trial.call(f"c.to({kind}, seed={seed!r})", lambda to=kind, by=seed: c.to(to, seed=by))
        else:
            back = trial.call("pickle", lambda: pickle.loads(pickle.dumps(c)))
            trial.check(back == c, Verdict.WRONG, "a pickled constraint differs")
    if isinstance(c, mf.Pairs):
        trial.call("closed()", c.closed)


def kernel(trial: Trial, rng: Rng) -> None:
    """Evaluate a kernel on difficult rows; compare its distances with exact ones if known."""
    start = starts.draw(rng, among=starts.ALL[9:])
    data = rows.draw(rng, start.takes)
    trial.describe(f"X: {data.description}")
    made = trial.call(f"kernel: {start.description}", start.make, foreign=(starts.Planted,))
    if not isinstance(made, mf.Kernel):
        return
    foreign = (starts.Planted,)
    checked = trial.call("kernel.check(X)", made.check, data.X, foreign=foreign)
    if not hasattr(checked, "compute") and start.takes == "vectors":
        _check_refused(trial, data, "kernel.check")
    resolved = trial.call("kernel.resolve(X)", made.resolve, checked, foreign=foreign)
    K = in_memory(trial.call("kernel(X)", resolved, checked, foreign=foreign))
    own = start.description.endswith("of our own")
    if not own:
        trial.check(finite(K), Verdict.NAN, "a block of the kernel is not finite", start.description)
    if hasattr(checked, "compute"):
        whole = in_memory(checked)
        if start.psd and not own and finite(K):
            truth = np.asarray(trial.call("kernel of rows in memory", resolved, whole))
            off, top = float(np.abs(K - truth).max(initial=0)), float(np.abs(truth).max(initial=0))
            trial.check(off <= 1e-6 * top, Verdict.WRONG, "the kernel of chunks is another", f"{off:.3g}, {top:.3g}")
        return
    D = in_memory(trial.call("kernel.distance(X, X)", resolved.distance, checked, checked, foreign=foreign))
    if not own and start.psd:
        trial.check(finite(D), Verdict.NAN, "distances of the kernel are not finite", start.description)
    reference = start.reference
    if not reference or data.truth is None or not finite(D) or len(data.truth) > 60:
        return
    with np.errstate(all="ignore"):
        if reference == "laplacian":
            u = np.longdouble(resolved.gamma) * rows.distances(data.truth, "cityblock")
            truth = np.sqrt(-2 * np.expm1(-u))
        else:
            d = rows.distances(data.truth)
            truth = d
            if reference != "linear":
                u = np.longdouble(resolved.gamma) * d * d
                truth = np.sqrt(-2 * np.expm1(-u)) if reference == "rbf" else np.sqrt(2 * u / (1 + u))
                truth = np.where(np.isfinite(u), truth, np.sqrt(2))
    # squares of the distances of rows underflow below 1e-162, whatever they are multiplied by
    slack = 1e-153 * float(np.sqrt(resolved.gamma)) if hasattr(resolved, "gamma") else 0.0
    check_reference(trial, D, truth, single=data.single, what=f"distances of {reference} are off", slack=slack)


def learner(trial: Trial, rng: Rng) -> None:
    """Use the scikit-learn estimator: parameters, fit, transform, clone, pickle."""
    from sklearn.base import clone

    extreme = int(rng.integers(8))  # which element may be invalid: rows, hint, options, parameters, or none
    data = rows.draw(rng) if extreme == 0 else rows.mild(rng)
    method = pick(rng, [*METHODS * 4, "auto", "nonsense"])
    hint = (hints.draw if extreme == 1 else hints.valid)(rng, data.n, method)
    trial.describe(f"X: {data.description}")
    constraint = trial.call(f"hint: {hint.description}", hint.make)
    parameters = {}
    if method in METHODS and rng.random() < 0.5:
        options = starts.options(rng, method, extreme=extreme == 2)
        parameters = {f"solver__{name}": value for name, value in options.items()}
    made = trial.call(f"MetricLearner({method!r})", mf.MetricLearner, method=method, random_state=0)
    if extreme == 3:
        parameters[pick(rng, ["random_state", "rank", "kernel", "solver", "nonsense"])] = pick(rng, [0, "x", -1, 2.5])
    if parameters:
        trial.call(f"set_params({_short(parameters)})", lambda: made.set_params(**parameters))
        trial.call("clone", clone, made)
    as_y = not isinstance(constraint, mf.Constraint)
    given = {"y": constraint} if as_y else {"constraints": constraint}
    trial.call("fit", made.fit, data.X, **given)
    _check_refused(trial, data, "MetricLearner.fit")
    E = in_memory(trial.call("transform", made.transform, data.X))
    trial.check(finite(E), Verdict.NAN, "MetricLearner.transform is not finite")
    trial.passed = True
    trial.call("get_feature_names_out, pickle", lambda: (made.get_feature_names_out(), pickle.dumps(made)))
    other = rows.vectors(rng, d=None if data.truth is None else data.truth.shape[1])
    trial.describe(f"A: {other.description}")
    E = in_memory(trial.call("transform of other rows", made.transform, other.X))
    trial.check(finite(E), Verdict.NAN, "MetricLearner.transform is not finite")


def rule(trial: Trial, rng: Rng) -> None:
    """Fit and ask the classifier."""
    data = rows.draw(rng) if rng.random() < 0.3 else rows.mild(rng)
    y = hints.LABELS[pick(rng, hints.LABELS)](rng, data.n) if rng.random() < 0.3 else np.arange(data.n) % 3
    trial.describe(f"X: {data.description}; y: {_short(y)}")
    radius = pick(rng, [*["learned", 1.0] * 5, 0, 1e-300, 1e300, -1, float("nan"), None, "x"])
    window = pick(rng, ["naive", "gaussian", "epanechnikov", "cauchy", "square"]) if rng.random() < 0.9 else None
    method = pick(rng, [None, None, "euclidean", "krca"])
    inner = mf.MetricLearner(method=method or "kcr", random_state=0)
    made = trial.call(
        f"KernelRule({method!r}, radius={radius!r}, window={window!r})",
        mf.tasks.KernelRule,
        inner,
        radius=radius,
        window=window,
    )
    trial.call("fit", made.fit, data.X, y)
    _check_refused(trial, data, "KernelRule.fit")
    trial.call("predict", made.predict, data.X)
    P = trial.call("predict_proba", made.predict_proba, data.X)
    trial.check(finite(P), Verdict.NAN, "predict_proba is not finite")
    trial.check(np.allclose(P.sum(axis=1), 1), Verdict.WRONG, "predict_proba does not sum to 1")
    trial.passed = True
    other = rows.vectors(rng, d=None if data.truth is None else data.truth.shape[1])
    trial.describe(f"A: {other.description}")
    P = trial.call("predict_proba of other rows", made.predict_proba, other.X)
    trial.check(finite(P), Verdict.NAN, "predict_proba is not finite")


def tasks(trial: Trial, rng: Rng) -> None:
    """Cluster, and compute scores."""
    data = rows.draw(rng)
    trial.describe(f"Z: {data.description}")
    hint = hints.draw(rng, data.n) if rng.random() < 0.6 else hints.plain(rng, data.n)
    what = pick(rng, ["kmeans", "kmeans", "triplets", "alignment", "retrieval", "rand"])
    constraint = trial.call(f"hint: {hint.description}", hint.make)
    if what == "kmeans":
        size = pick(rng, [1, 2, 3, data.n, data.n + 1, 0, -1, 2.5, None, "2"])
        given = constraint if rng.random() < 0.7 else None
        found = trial.call(
            f"constrained_kmeans(Z, {size!r}, hint)", mf.tasks.constrained_kmeans, data.X, size, given, n_init=2
        )
        trial.check(finite(found.inertia) and finite(found.centers), Verdict.NAN, "k-means is not finite")
        trial.check(((found.labels >= 0) & (found.labels < size)).all(), Verdict.WRONG, "k-means: a label out of range")
    elif what == "triplets":
        score = trial.call("triplet_accuracy", mf.tasks.triplet_accuracy, k.Linear(), data.X, constraint)
        trial.check(finite(score), Verdict.NAN, "triplet_accuracy is not finite")
    elif what == "alignment":
        form = pick(rng, ["Z", "K"])
        score = trial.call(f"alignment({form}=)", mf.tasks.alignment, constraint, **{form: data.X})
        trial.check(finite(score), Verdict.NAN, "alignment is not finite")
    elif what == "retrieval":
        queries = pick(rng, [None, None, [0], [], [data.n], [0.5], "x", np.ones(data.n, dtype=bool)])
        found = trial.call("retrieval_auc", mf.tasks.retrieval_auc, k.Linear(), data.X, constraint, queries=queries)
        trial.check(finite(list(vars(found).values())), Verdict.NAN, "retrieval_auc is not finite")
    else:
        score = trial.call("one_cluster_rand", mf.tasks.one_cluster_rand, constraint)
        trial.check(finite(score), Verdict.NAN, "one_cluster_rand is not finite")


def eigen(trial: Trial, rng: Rng) -> None:
    """Compute eigenpairs of difficult matrices."""
    n = int(rng.integers(1, 60))
    data = rows.vectors(rng, n=n, d=n)
    A = data.truth if data.truth is not None and rng.random() < 0.7 else data.X
    if isinstance(A, np.ndarray) and A.ndim == 2 and A.shape[0] == A.shape[1] and rng.random() < 0.8:
        with np.errstate(all="ignore"):
            A = A / 2 + A.T / 2 if A.dtype.kind == "f" else A
    if rng.random() < 0.2:
        A = sparse.block_diag([np.ones((4, 4))] * 12).tocsr()
    trial.describe(f"A: {data.description}")
    size = pick(rng, [1, 2, 5, n, n + 1, 0, -1, 1.5, None])
    solver = pick(rng, ["auto", "auto", "lanczos", "primme", "arpack", "dense", "none"])
    tol = pick(rng, [1e-8, 1e-8, 1e-2, 1e-300, 0, -1, float("nan"), 10.0])
    limit = pick(rng, [None, None, 1, 50, 0, -1, 1.5])
    found = trial.call(
        f"eigen.top(A, {size!r}, solver={solver!r}, tol={tol!r}, max_iter={limit!r})",
        mf.eigen.top,
        A,
        size,
        solver=solver,
        tol=tol,
        max_iter=limit,
    )
    w, V = found
    if not trial.check(finite(w) and finite(V), Verdict.NAN, "eigenpairs are not finite"):
        return
    dense = A.toarray() if sparse.issparse(A) else np.asarray(A, dtype=float)
    scale = float(np.abs(dense).max(initial=0))
    if scale == 0 or not np.isfinite(scale) or str(getattr(found, "status", "optimal")) != "optimal":
        return
    truth = scale * np.linalg.eigvalsh(dense / scale / 2 + dense.T / scale / 2)[::-1][: len(w)]
    allowed = max(1e-6, 2 * tol) * float(np.abs(truth).max() + scale)
    off = float(np.abs(w - truth).max(initial=0))
    trial.check(off <= allowed, Verdict.WRONG, f"eigenvalues of {solver} are off", f"by {off:.3g}, {truth.max():.3g}")


def neighbors(trial: Trial, rng: Rng) -> None:
    """Search neighbours among difficult rows, and build a graph."""
    data = rows.draw(rng)
    trial.describe(f"X: {data.description}")
    size = pick(rng, [1, 2, 3, data.n - 1, data.n, data.n + 1, 0, -1, 1.5, None, True])
    method = pick(rng, ["auto", "auto", "auto", "exact", "tree", "hamming", "none"])
    asked = rows.vectors(rng, d=data.truth.shape[1]) if rng.random() < 0.4 and data.truth is not None else None
    if asked is not None:
        trial.describe(f"queries: {asked.description}")
    found = trial.call(
        f"neighbors.search(X, {size!r}, method={method!r})",
        mf.neighbors.search,
        data.X,
        size,
        queries=None if asked is None else asked.X,
        method=method,
    )
    _check_refused(trial, data, "neighbors.search")
    indices, near = (in_memory(part) for part in found)
    trial.check(finite(near), Verdict.NAN, "neighbors.search: a distance is not finite")
    if asked is None and data.truth is not None and len(data.truth) > 1 and size < len(data.truth):
        D = rows.distances(data.truth)
        np.fill_diagonal(D, np.inf)
        truth = np.sort(D, axis=1)[:, : near.shape[1]]
        what = f"neighbors.search ({method}) finds others than the nearest"
        check_reference(trial, near, truth, single=data.single, what=what)
    trial.passed = True
    kind = pick(rng, ["mutual", "union", "other"])
    trial.call(f"neighbors.graph(indices, kind={kind!r})", mf.neighbors.graph, indices, kind=kind)
    junk = pick(rng, [[[5]], [[-1]], [], np.zeros((3, 0)), [[0.5]], "x", [[10**12]]])
    trial.call(f"neighbors.graph({junk!r})", mf.neighbors.graph, junk)


def matrices(trial: Trial, rng: Rng) -> None:
    """Project and factor difficult matrices; represent kernels."""
    n = int(rng.integers(1, 12))
    data = rows.vectors(rng, n=n, d=n) if rng.random() < 0.8 else rows.draw(rng)
    A = data.X
    square = data.truth is not None and data.truth.shape[0] == data.truth.shape[1]
    if square and rng.random() < 0.7:
        with np.errstate(all="ignore"):
            A = data.truth @ data.truth.T if rng.random() < 0.5 else data.truth / 2 + data.truth.T / 2
    trial.describe(f"A: {data.description}")
    what = pick(rng, ["project", "factor", "smallest_eigenvalue", "represent"])
    if what == "represent":
        start = starts.simple(rng, 3)
        rank = pick(rng, starts.RANKS)
        made = trial.call(f"kernel: {start.description}", start.make)
        checked = trial.call("check", made.check, data.X)
        resolved = trial.call("resolve", made.resolve, checked)
        space = trial.call(f"represent(rank={rank!r})", mf.space.represent, resolved, checked, rank)
        F = in_memory(trial.call("features", lambda: space.features))
        trial.check(finite(F), Verdict.NAN, "features are not finite", start.description)
        return
    answer = trial.call(f"psd.{what}(A)", getattr(mf.psd, what), A)
    trial.check(finite(np.asarray(answer)), Verdict.NAN, f"psd.{what} is not finite")


def update(trial: Trial, rng: Rng) -> None:
    """Update a metric with rows and groups."""
    n, d = int(rng.integers(2, 20)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d))
    made = pick(rng, [None, k.Linear(), k.RBF("median"), k.Polynomial(2)])
    epsilon = pick(rng, ["auto", 1e-9, 1e-3, 1.0, 1e9])
    rank = pick(rng, ["auto", "exact", 2])
    metric = trial.call(
        f"krca on {n} × {d}, {made!r}, epsilon={epsilon!r}, rank={rank!r}",
        mf.learn,
        X,
        mf.Chunklets(np.arange(n) // 2),
        method="krca",
        kernel=made,
        epsilon=epsilon,
        rank=rank,
    )
    for _ in range(2):
        data = rows.vectors(rng, d=d)
        hint = hints.draw(rng, data.n) if rng.random() < 0.6 else hints.plain(rng, data.n)
        trial.describe(f"X: {data.description}")
        constraint = trial.call(f"hint: {hint.description}", hint.make)
        hold = pick(rng, [{}, {"hold": "epsilon"}, {"hold": "ridge"}, {"hold": "x"}, {"other": 1}])
        before = metric.distance(X)
        newer = trial.call(f"metric.update(X, hint, {hold})", metric.update, data.X, constraint, **hold)
        _check_refused(trial, data, "update")
        after = metric.distance(X)
        off = float(np.abs(after - before).max())
        trial.check(np.array_equal(after, before), Verdict.WRONG, "update changed the old metric", f"by {off:.3g}")
        metric, trial.passed = newer, True
        check_report(trial, metric)
        D = trial.call("distance after the update", metric.distance, X)
        trial.check(finite(D), Verdict.NAN, "distance after update is not finite")


def notation(trial: Trial, rng: Rng) -> None:
    """Pass kernels as text, as the shell and settings files do."""
    text = pick(
        rng,
        [
            "rbf(gamma=0.5)",
            "rbf(gamma='median')",
            "rbf(" * 200 + ")" * 200,
            "rbf(gamma=1e999)",
            "rbf(gamma=-1)",
            "__import__('os')",
            "linear()()",
            "linear(3)",
            "mixture([linear], [1])",
            "(" * 5000,
            "\0",
            "rbf(base=rbf(base=linear))",
            "weak(rbf, feature=0)",
            "polynomial(degree=10**9)",
            "λ",
            "",
        ],
    )
    trial.describe(f"kernel={text[:80]!r}")
    X = rng.normal(size=(8, 2))
    trial.call("mf.learn(X, y, kernel=text)", mf.learn, X, np.arange(8) % 2, method="euclidean", kernel=text)


ENTRIES = [*[learn] * 48, *[kernel] * 2, constraints, *[learner] * 3, rule, tasks, eigen, neighbors, matrices]
ENTRIES += [update, update, notation, *surface.ENTRIES, *stored.ENTRIES]


# --------------------------------------------------------------------------------------------------------------- pieces


def _plain_rows(rng: Rng, takes: str) -> Rows:
    if takes == "strings":
        n = int(rng.integers(3, 25))
        words = ["".join(rng.choice(list("ACGT"), size=int(rng.integers(4, 15)))) for _ in range(n)]
        return Rows(words, n, f"{n} plain strings", takes="strings")
    n = int(rng.integers(3, 40))
    X = rng.normal(size=(n, int(rng.integers(1, 6)))) + (np.arange(n) % 3)[:, None]
    if takes == "gram":
        return Rows(X @ X.T, n, f"a plain Gram matrix of {n} rows", takes="gram")
    return Rows(X, n, f"{n} × {X.shape[1]}, plain", truth=X)


def _check_refused(trial: Trial, data: Rows, what: str) -> None:
    """End the case if invalid rows were accepted, because memory may be corrupt."""
    if data.broken:
        trial.find(Verdict.WRONG, f"{what} accepts rows with {data.broken}")
        trial.poisoned = True
        raise Ended


def _snapshot(X: Any) -> Any:
    if sparse.issparse(X):
        return [part.tobytes() for part in (X.tocsr().data,)] if X.format != "csr" else _csr_bytes(X)
    return (
        X.tobytes()
        if isinstance(X, np.ndarray) and X.dtype != object
        else copy.copy(X)
        if isinstance(X, list)
        else None
    )


def _csr_bytes(X: Any) -> list[bytes]:
    return [X.data.tobytes(), X.indices.tobytes(), X.indptr.tobytes()]


def _check_unchanged(trial: Trial, before: Any, X: Any) -> None:
    if before is None:
        return
    # SciPy may sort the indices of a sparse matrix, which does not change the matrix
    if sparse.issparse(X):
        return
    trial.check(_snapshot(X) == before, Verdict.STATE, "learn changed X")


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) < 120 else text[:117] + "..."


__all__ = ["Ended", "attack"]

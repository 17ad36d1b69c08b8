"""Kernel relevant component analysis against explicit features, the printed equations, and itself by other routes."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metricforge_plugins.krca import scatter as scatter_module
from metricforge_plugins.krca.chunklets import contrasts, groups_of
from metricforge_plugins.krca.factor import PROBES, Factor, directions
from metricforge_plugins.krca.kernel import ChunkletKernel, ScatterKernel
from metricforge_plugins.krca.solver import KernelRCA, multiple
from metricforge_plugins.krca.system import append, gram
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, csr_matrix

import metricforge as mf
from metricforge.errors import InputError, NotUpdatableError
from metricforge.testing import check_kernel, check_method, check_solver

RBF, Linear, Polynomial, Spectrum = mf.kernels.RBF, mf.kernels.Linear, mf.kernels.Polynomial, mf.kernels.Spectrum


# ------------------------------------------------------------------------------------------------- independent routes


def quadratic(X):
    """The features of (x'y + 1)²."""
    i, j = np.triu_indices(X.shape[1], 1)
    return np.hstack([np.ones((len(X), 1)), np.sqrt(2) * X, X**2, np.sqrt(2) * X[:, i] * X[:, j]])


def covariance(F, groups):
    """C of eq. (1), group by group; singletons do not count."""
    S, n = np.zeros((F.shape[1],) * 2), 0
    for g in np.unique(groups[groups >= 0]):
        Z = F[groups == g]
        if len(Z) > 1:
            S += (Z - Z.mean(axis=0)).T @ (Z - Z.mean(axis=0))
            n += len(Z)
    return S / n


def explicit(F, groups, A, B, epsilon):
    """φ(a)'(εI + C)⁻¹φ(b)."""
    return A @ np.linalg.solve(covariance(F, groups) + epsilon * np.eye(F.shape[1]), B.T)


def centering(groups):
    """H of eq. (5)."""
    same = groups[:, None] == groups
    return np.eye(len(groups)) - same / same.sum(axis=1)


def equation_7(kernel, X, groups, A, epsilon):
    """Eq. (7) as printed."""
    n, H, K, k = len(X), centering(groups), kernel.block(X, X), kernel.block(A, X)
    inner = H @ np.linalg.inv(np.eye(n) + K @ H / (n * epsilon)) / (n * epsilon**2)
    return kernel.block(A, A) / epsilon - k @ inner @ k.T


def relative(value, truth):
    return np.abs(value - truth).max() / np.abs(truth).max()


@pytest.fixture(scope="module")
def data():
    """Rows of unequal scales off the origin, groups of 2 to 8 in random order with rows outside, and unseen rows."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(210, 6)) * [1, 2, 0.5, 1, 3, 1] + rng.normal(size=6)
    groups = np.concatenate([np.repeat(np.arange(60), [2] * 30 + [3] * 20 + [8] * 10), np.full(10, -1)])
    return X, rng.permutation(groups), 2 * rng.normal(size=(40, 6))


# ------------------------------------------------------------------------------------------------------- the contrasts


@given(sizes=st.lists(st.integers(2, 9), min_size=1, max_size=6))
@settings(max_examples=30)
def test_contrasts_are_an_orthonormal_basis_of_what_h_projects_on(sizes):
    sizes = np.array(sizes)
    Q = contrasts(np.eye(sizes.sum()), sizes)
    assert Q.shape == (sizes.sum(), sizes.sum() - len(sizes))
    assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), atol=1e-14)
    assert_allclose(Q @ Q.T, centering(np.repeat(np.arange(len(sizes)), sizes)), atol=1e-14)


def test_gram_in_blocks_is_the_gram_at_once(data, monkeypatch):
    X, groups, _ = data
    found = groups_of(mf.Chunklets(groups))
    rows, kernel = X[found.order], RBF(0.1)
    Q = contrasts(np.eye(found.n), found.sizes)
    whole = Q.T @ kernel.block(rows, rows) @ Q
    assert_allclose(gram(kernel, rows, found.sizes), whole, atol=1e-14)
    monkeypatch.setattr("metricforge.rows.BLOCK_BYTES", 100_000)  # some 15 rows
    assert_allclose(gram(kernel, rows, found.sizes), whole, atol=1e-14)


# ---------------------------------------------------------------------------------------------------------- optimality


@pytest.mark.parametrize("epsilon", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(("kernel", "features"), [(Linear(), lambda X: X), (Polynomial(2, 1.0), quadratic)])
@pytest.mark.parametrize("rank", [1000, "auto"])  # as many landmarks as rows: values of the kernel, not its features
def test_kernel_is_explicit_rca_on_training_and_unseen_rows(data, kernel, features, epsilon, rank):
    X, groups, A = data
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel, rank=rank, epsilon=epsilon)
    assert metric.report.route == ("features" if kernel == Linear() and rank == "auto" else "exact")
    assert metric.report.gap < 1e-13
    for B in (A[::-1], X[:50]):
        truth = explicit(features(X), groups, features(A), features(B), epsilon)
        assert relative(metric.kernel(A, B), truth) < 1e-8
        da, db = (np.diag(explicit(features(X), groups, features(Z), features(Z), epsilon)) for Z in (A, B))
        # squared: a root makes 1e-8 of the rounding 1e-16 between a row and itself
        squares = da[:, None] + db - 2 * truth
        assert relative(metric.distance(A, B) ** 2, squares) < 1e-8
        assert relative(metric.paired_distance(A[:9], B[:9]) ** 2, np.diag(squares)[:9]) < 1e-8


@pytest.mark.parametrize("epsilon", [1.0, 1e-1, 1e-2])
@pytest.mark.parametrize("kernel", [RBF(0.05), Linear(), Polynomial(3, 0.5)])
def test_kernel_is_equation_7_where_that_is_accurate(data, kernel, epsilon):
    X, groups, A = data
    inside = groups >= 0
    # eq. (7) loses digits with the scale of the kernel beside ε
    scaled = X / 3 if kernel != RBF(0.05) else X
    A = A / 3 if kernel != RBF(0.05) else A
    metric = mf.learn(scaled, mf.Chunklets(groups), method="krca", kernel=kernel, rank="exact", epsilon=epsilon)
    assert relative(metric.kernel(A), equation_7(kernel, scaled[inside], groups[inside], A, epsilon)) < 1e-9


@pytest.mark.parametrize("rank", ["exact", "auto"])
def test_objective_is_the_least_of_the_information_problem(data, rank):
    X, groups, _ = data
    epsilon = 0.3
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=Linear(), rank=rank, epsilon=epsilon)
    C_hat = covariance(X, groups) + epsilon * np.eye(6)

    def value(M):
        return np.trace(M @ C_hat) - np.linalg.slogdet(M)[1]

    unlearned = value(np.eye(6) / epsilon)
    M = metric.kernel(np.eye(6))
    assert_allclose(value(M) - unlearned, metric.report.objective, rtol=1e-10)
    rng = np.random.default_rng(0)
    for size in (1e-1, 1e-3):
        R = np.eye(6) + size * rng.normal(size=(6, 6))
        assert value(R @ M @ R.T) - unlearned > metric.report.objective


def test_gap_sees_a_wrong_column(data):

    X, groups, _ = data
    found = groups_of(mf.Chunklets(groups))
    rows, sizes = X[found.order], found.sizes
    A = gram(RBF(0.1), rows, sizes)
    r = len(A) - 3
    right = Factor.of(A[:r, :r] + np.eye(r))
    assert append(right, A[r:, :r], A[r:, r:], 1.0)[2] < 1e-14
    right.solve = lambda B: 0.5 * Factor.solve(right, B)
    assert append(right, A[r:, :r], A[r:, r:], 1.0)[2] > 1e-3


def test_landmark_route_is_the_formula_on_its_features_and_tends_to_the_exact_one(data):
    X, groups, A = data
    c, kernel, epsilon = mf.Chunklets(groups), RBF(0.05), 0.05
    exact = mf.learn(X, c, method="krca", kernel=kernel, rank="exact", epsilon=epsilon)
    errors = []
    for m in (20, 60, 120):
        metric = mf.learn(X, c, method="krca", kernel=kernel, rank=m, epsilon=epsilon)
        assert isinstance(metric.kernel, ScatterKernel)
        P, F = (metric.kernel.map.block(Z) for Z in (A, X))
        truth = explicit(F, groups, P, P, epsilon) + (kernel.block(A, A) - P @ P.T) / epsilon
        assert relative(metric.kernel(A), truth) < 1e-10
        errors.append(relative(metric.kernel(A), exact.kernel(A)))
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 0.02


def test_few_rows_in_groups_take_the_exact_route_whatever_the_rank():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    groups = np.full(400, -1)
    groups[50:62] = np.repeat(np.arange(4), 3)
    inside = mf.learn(X[50:62], mf.Chunklets(groups[50:62]), method="krca", kernel=RBF(1.0), epsilon=0.1)
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=RBF(1.0), rank=30, epsilon=0.1)
    assert metric.report.route == "exact"
    assert_allclose(metric.kernel(X[:20]), inside.kernel(X[:20]), atol=1e-12)


# ------------------------------------------------------------------------------------------------------ further groups

ROUTES = [
    pytest.param(RBF(0.1), "exact", "exact", id="exact"),
    pytest.param(Linear(), "auto", "features", id="explicit"),
    pytest.param(RBF(0.1), 15, "features", id="landmarks"),
]


def stream(n_updates, seed=3):
    """A first batch of 40 rows, and updates of one to three groups of 2 to 4 rows each, with a few rows outside."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(40, 4)), np.repeat(np.arange(20), 2)
    batches = []
    for _ in range(n_updates):
        groups = np.repeat(np.arange(k := rng.integers(1, 4)), rng.integers(2, 5, size=k))
        groups = rng.permutation(np.append(groups, [-1] * rng.integers(0, 2)))
        batches.append((rng.normal(size=(len(groups), 4)), groups))
    return first, batches


def renumbered(parts):
    """The groups of all batches under ids of their own."""
    out, used = [], 0
    for groups in parts:
        out.append(np.where(groups < 0, -1, groups + used))
        used += 100
    return np.concatenate(out)


@pytest.mark.parametrize("hold", ["ridge", "epsilon"])
@pytest.mark.parametrize(("kernel", "rank", "route"), ROUTES)
def test_updates_are_the_batch_fit(kernel, rank, route, hold):
    n_updates = 300 if hold == "ridge" else 12
    (X, groups), batches = stream(n_updates)
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel, rank=rank, epsilon=0.02)
    landmarks = metric.kernel.map if route == "features" else None
    for rows, ids in batches:
        metric = metric.update(rows, mf.Chunklets(ids), hold=hold)
    X = np.concatenate([X, *(rows for rows, _ in batches)])
    groups = renumbered([groups, *(ids for _, ids in batches)])
    n = np.count_nonzero(groups >= 0)
    epsilon = 0.02 if hold == "epsilon" else 40 * 0.02 / n
    A = np.random.default_rng(9).normal(size=(25, 4))
    if landmarks is None:
        whole = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel, rank=rank, epsilon=epsilon)
        truth = whole.kernel(A, X)
        assert_allclose(metric.report.objective, whole.report.objective, rtol=1e-10)
    else:
        # the landmarks are those of the first fit
        P, F = landmarks.block(A), landmarks.block(X)
        truth = explicit(F, groups, P, F, epsilon) + (kernel.block(A, X) - P @ F.T) / epsilon
    assert metric.report.route == route
    assert relative(metric.kernel(A, X), truth) < 1e-10
    assert_allclose(metric.report.epsilon, epsilon, rtol=1e-12)
    assert metric.report.chunklet_rows == n
    assert metric.report.n == len(X)
    assert metric.report.updates == n_updates
    assert metric.report.chunklets == len(np.unique(groups[groups >= 0]))
    assert metric.report.gap < 1e-13
    assert_array_equal(metric.rows, X)


@pytest.mark.parametrize(("kernel", "rank", "route"), ROUTES)
def test_update_leaves_the_old_metric_and_transform_shows_the_new_one(kernel, rank, route):
    (X, groups), batches = stream(6)
    A = X[:10] + 0.1
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel, rank=rank)
    seen = []
    for rows, ids in batches:
        seen.append((metric, metric.kernel(A), metric.transform(A), metric.kernel, hash(metric.kernel)))
        metric = metric.update(rows, mf.Chunklets(ids))
        Z = metric.transform(X)
        apart = np.sqrt(np.square(Z[:, None] - Z).sum(axis=2))
        if route == "exact" or kernel == Linear():
            assert_allclose(apart, metric.distance(X), atol=1e-6 * apart.max())
        assert not np.allclose(metric.kernel(A), seen[-1][1])
    for old, K, Z, kernel_then, digest in seen:
        assert_array_equal(old.kernel(A), K)
        assert_array_equal(old.transform(A), Z)
        assert hash(kernel_then) == digest


def test_updates_from_one_parent_do_not_disturb_each_other():
    (X, groups), batches = stream(8)
    parent = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=RBF(0.1), rank="exact", epsilon=0.1)
    parent = parent.update(*_as_update(batches[0]))  # its factor now has room behind it
    alone = [
        mf.learn(X, mf.Chunklets(groups), method="krca", kernel=RBF(0.1), rank="exact", epsilon=0.1)
        .update(*_as_update(batches[0]))
        .update(*_as_update(batch))
        .kernel(X)
        for batch in batches
    ]
    with ThreadPoolExecutor(8) as pool:
        children = list(pool.map(lambda batch: parent.update(*_as_update(batch)), batches))
    in_place = [np.shares_memory(child.kernel.factor, parent.kernel.factor) for child in children]
    assert sum(in_place) == 1
    for child, K in zip(children, alone, strict=True):
        assert_allclose(child.kernel(X), K, rtol=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        parent.kernel.factor[0] = 1


def _as_update(batch):
    return batch[0], mf.Chunklets(batch[1])


def test_factor_grows_in_place_and_seldom_moves():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(80, 80))
    A = Z @ Z.T + np.eye(80)
    factor, moves = Factor.of(A[:2, :2].copy()), 0
    for r in range(2, 80):
        before = factor.packed
        factor = factor.append(A[r : r + 1, :r], A[r : r + 1, r : r + 1])
        moves += not np.shares_memory(before, factor.packed)
    assert factor.order == 80
    assert moves <= np.log2(80 * 81 / 2)
    b = rng.normal(size=(7, 80))
    for B in (b[:2], b):  # packed, and unpacked
        assert_allclose((factor.solve(B) ** 2).sum(axis=1), np.einsum("ij,ji->i", B, np.linalg.solve(A, B.T)))
    assert_allclose(factor.times(b[0]), A @ b[0])
    assert_allclose(factor.log_determinant_from(5), np.linalg.slogdet(A)[1] - np.linalg.slogdet(A[:5, :5])[1])


def test_random_combinations_estimate_the_residual_of_new_columns():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 60))
    A = Z @ Z.T + np.eye(60)
    factor = Factor.of(A[:50, :50].copy())
    assert factor.probed.shape == (50, PROBES)
    for r, q in ((50, 1), (51, 3), (54, 6)):
        factor = factor.append(A[r : r + q, :r], A[r : r + q, r : r + q])
    U = np.linalg.cholesky(A).T
    assert_allclose(factor.probed, U @ directions(60), atol=1e-9)  # as it grew
    v = rng.normal(size=6)
    truth = A[:, 54:] @ v
    assert factor.residual(54, v, truth, probes=True) < 1e-13
    wrong = truth + 1e-3 * rng.normal(size=60)
    exact, estimate = (factor.residual(54, v, wrong, probes=probes) for probes in (False, True))
    assert_allclose(exact, np.linalg.norm(wrong - truth) / np.linalg.norm(wrong))
    assert 0.2 < estimate / exact < 5
    assert directions(33).tolist() == directions(500)[:33].tolist()


@pytest.mark.parametrize(("kernel", "rank", "route"), ROUTES)
def test_update_after_save_and_load_and_after_pickling(tmp_path, kernel, rank, route):
    (X, groups), batches = stream(4)
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel, rank=rank)
    metric = metric.update(*_as_update(batches[0]))
    metric.save(tmp_path / "m.metric")
    loaded, copied = mf.load(tmp_path / "m.metric"), pickle.loads(pickle.dumps(metric))
    A = X[:7] + 0.2
    assert loaded.kernel == metric.kernel
    for hold in ("ridge", "epsilon"):
        straight = metric
        for batch in batches[1:]:
            straight, loaded, copied = (m.update(*_as_update(batch), hold=hold) for m in (straight, loaded, copied))
        for other in (loaded, copied):
            assert_allclose(other.kernel(A), straight.kernel(A), rtol=1e-12)
            assert_allclose(other.distance(A, X), straight.distance(A, X), rtol=1e-10, atol=1e-10)
            assert other.report.epsilon == straight.report.epsilon
        loaded, copied = mf.load(tmp_path / "m.metric"), pickle.loads(pickle.dumps(metric))


def test_update_of_a_loaded_metric_that_kept_no_rows(tmp_path):
    import dask.array as da

    (X, groups), batches = stream(2)
    for kernel, rank in ((RBF(0.1), "exact"), (Linear(), "auto"), (RBF(0.1), 15)):
        here = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel, rank=rank)
        lazy = mf.learn(da.from_array(X, chunks=(9, 4)), mf.Chunklets(groups), method="krca", kernel=kernel, rank=rank)
        for batch in batches:
            lazy.save(tmp_path / "lazy.metric")
            lazy = mf.load(tmp_path / "lazy.metric")
            assert lazy.rows is None
            here, lazy = here.update(*_as_update(batch)), lazy.update(*_as_update(batch))
        everything = np.concatenate([X, *(rows for rows, _ in batches)])
        assert relative(lazy.kernel(everything), here.kernel(everything)) < 1e-10
        apart = [np.square(Z[:, None] - Z).sum(axis=2) for Z in (m.transform(everything) for m in (lazy, here))]
        assert relative(*apart) < 1e-8


def test_file_holds_the_factor_and_not_the_room_behind_it(tmp_path):
    (X, groups), batches = stream(3)
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=RBF(0.1))
    for batch in batches:
        metric = metric.update(*_as_update(batch))
    metric.save(tmp_path / "m.metric")
    r = metric.report.chunklet_rows - metric.report.chunklets
    assert mf.load(tmp_path / "m.metric").kernel.factor.shape == (r * (r + 1) // 2,)


def test_an_id_used_before_names_a_new_group():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 3))
    ids = np.repeat([0, 1, 2], 4)
    metric = mf.learn(X, mf.Chunklets(ids), method="krca", kernel=RBF(0.5), epsilon=0.1).update(
        X[:4], mf.Chunklets(ids[:4])
    )
    apart = mf.learn(
        np.concatenate([X, X[:4]]),
        mf.Chunklets([*ids, *[9] * 4]),
        method="krca",
        kernel=RBF(0.5),
        epsilon=metric.report.epsilon,
    )
    assert_allclose(metric.kernel(X), apart.kernel(X), rtol=1e-10)


def test_update_takes_labels_and_pairs_and_counts_what_it_leaves_out():
    (X, groups), _ = stream(0)
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=RBF(0.5), epsilon=0.1)
    new = np.random.default_rng(1).normal(size=(6, 4))
    by_groups = metric.update(new, mf.Chunklets([0, 0, 1, 1, 2, -1]))
    assert by_groups.report.singletons == 1
    assert by_groups.report.outside == 1
    assert any("one row" in note for note in by_groups.report.notes)
    for hints in (np.array(["a", "a", "b", "b", "c", None], dtype=object), mf.Pairs([(0, 1), (2, 3)], n=6)):
        assert_allclose(metric.update(new, hints).kernel(new), by_groups.kernel(new), rtol=1e-12)


@pytest.mark.parametrize(
    ("X", "hints", "options", "message"),
    [
        (np.ones((2, 3)), mf.Chunklets([0, 0]), {}, "3 features"),
        (np.ones((2, 4)), mf.Chunklets([0, 0, 1]), {}, "about 3 rows, but X has 2"),
        (np.ones((2, 4)), mf.Chunklets([0, 1]), {}, "no group has two rows"),
        (np.array([[1, 2, 3, np.nan], [1, 2, 3, 4]]), mf.Chunklets([0, 0]), {}, "NaN"),
        (np.eye(4), mf.Chunklets([0, 0, 1, 1]), {"hold": "eps"}, "hold='eps' is unknown; did you mean 'epsilon'"),
        (np.eye(4), mf.Chunklets([0, 0, 1, 1]), {"hodl": "ridge"}, "did you mean 'hold'"),
    ],
)
@pytest.mark.parametrize(("kernel", "rank", "route"), ROUTES)
def test_a_refused_update_says_why(kernel, rank, route, X, hints, options, message):
    (rows, groups), _ = stream(0)
    metric = mf.learn(rows, mf.Chunklets(groups), method="krca", kernel=kernel, rank=rank)
    before = metric.kernel(rows)
    with pytest.raises(InputError, match=message):
        metric.update(X, hints, **options)
    assert_array_equal(metric.kernel(rows), before)


@pytest.mark.parametrize("rank", ["exact", 15])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_an_update_that_overflows_says_so(rank):
    (X, groups), _ = stream(0)
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=Polynomial(3), rank=rank)
    with pytest.raises(InputError, match="rescale X"):
        metric.update(1e120 * X[:4], mf.Chunklets([0, 0, 1, 1]))


# ------------------------------------------------------------------------------------------------------ kinds of rows


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("chunks", [(210, 6), (37, 6), (5, 3)])
@pytest.mark.parametrize(("kernel", "rank"), [(RBF(0.05), "exact"), (Linear(), "auto"), (RBF("median"), 30)])
def test_dask_gives_the_same_kernel(data, kernel, rank, chunks, shuffled, monkeypatch):
    import dask.array as da

    if shuffled:
        monkeypatch.setattr(scatter_module, "OPEN_BYTES", 0)
    X, groups, A = data
    c, lazy = mf.Chunklets(groups), da.from_array(X, chunks=chunks)
    here = mf.learn(X, c, method="krca", kernel=kernel, rank=rank, seed=2)
    there = mf.learn(lazy, c, method="krca", kernel=kernel, rank=rank, seed=2)
    assert there.report.route == here.report.route
    assert_allclose(there.report.epsilon, here.report.epsilon, rtol=1e-12)
    assert relative(there.kernel(A), here.kernel(A)) < 1e-8
    assert relative(there.transform(lazy).compute(), here.transform(X)) < 1e-6
    more = A[:20], mf.Chunklets(np.arange(20) % 7)
    for hold in ("ridge", "epsilon"):
        updated = here.update(*more, hold=hold)
        both = there.update(da.from_array(A[:20], chunks=(3, 6)), more[1], hold=hold)
        assert relative(both.kernel(A), updated.kernel(A)) < 1e-8


def test_worker_processes_give_the_same_kernel(data, monkeypatch):
    import dask.array as da
    from distributed import Client, LocalCluster

    X, groups, A = data
    c, lazy = mf.Chunklets(groups), da.from_array(X, chunks=(37, 6))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        for open_bytes in (scatter_module.OPEN_BYTES, 0):
            monkeypatch.setattr(scatter_module, "OPEN_BYTES", open_bytes)
            here, there = (mf.learn(Z, c, method="krca", kernel=RBF(0.05), rank=30, seed=2) for Z in (X, lazy))
            assert relative(there.kernel(A), here.kernel(A)) < 1e-8
        exact = mf.learn(X, c, method="krca", kernel=RBF(0.05))
        assert relative(exact.kernel(lazy, X).compute(), exact.kernel(X)) < 1e-10
        loaded = client.submit(lambda: [m for m in __import__("sys").modules if m.startswith("metricforge")]).result()
    assert "metricforge_plugins.krca.scatter" in loaded
    assert "metricforge.registry.components" not in loaded


def test_features_stream_in_small_blocks_to_the_same_scatter(data, monkeypatch):
    X, groups, A = data
    groups = np.where(groups < 0, -1, groups % 3)  # groups larger than a block
    whole = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=RBF(0.1), rank=20, epsilon=0.01)
    monkeypatch.setattr("metricforge.rows.BLOCK_BYTES", 32 * 20 * 7)
    monkeypatch.setattr("metricforge.rows.blocks.__defaults__", (32 * 20 * 7,))
    parts = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=RBF(0.1), rank=20, epsilon=0.01)
    assert_allclose(parts.kernel.scatter, whole.kernel.scatter, atol=1e-12)
    assert relative(parts.kernel(A), whole.kernel(A)) < 1e-10


def test_scatter_keeps_its_digits_far_from_the_origin():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(300, 3)), np.arange(300) % 100
    near = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=Linear(), epsilon=1e-3)
    far = mf.learn(X + 2.0**20, mf.Chunklets(groups), method="krca", kernel=Linear(), epsilon=1e-3)
    assert_allclose(far.kernel.scatter, near.kernel.scatter, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("container", [csr_array, csr_matrix])
@pytest.mark.parametrize(("kernel", "rank"), [(RBF(0.05), "exact"), (Linear(), "auto"), (RBF(0.05), 30)])
def test_csr_rows_give_the_same_kernel(data, kernel, rank, container):
    X, groups, A = data
    X = np.where(np.abs(X) < 0.8, 0, X)
    c = mf.Chunklets(groups)
    dense = mf.learn(X, c, method="krca", kernel=kernel, rank=rank, epsilon=0.1)
    sparse = mf.learn(container(X), c, method="krca", kernel=kernel, rank=rank, epsilon=0.1)
    assert relative(sparse.kernel(container(A)), dense.kernel(A)) < 1e-10
    more = mf.Chunklets(np.arange(40) // 2)
    assert relative(sparse.update(container(A), more).kernel(A), dense.update(A, more).kernel(A)) < 1e-10


def test_float32_rows_stay_float32_and_agree(data):
    X, groups, A = data
    for kernel, rank in ((RBF(0.05), "exact"), (Linear(), "auto"), (RBF(0.05), 30)):
        c = mf.Chunklets(groups)
        double = mf.learn(X.astype(np.float32).astype(float), c, method="krca", kernel=kernel, rank=rank, epsilon=0.1)
        single = mf.learn(X.astype(np.float32), c, method="krca", kernel=kernel, rank=rank, epsilon=0.1)
        K = single.kernel(A.astype(np.float32))
        assert K.dtype == np.float32
        assert relative(K, double.kernel(A.astype(np.float32).astype(float))) < 1e-6


def proteins(n=60, seed=0):
    """Strings of three families: a short motif of the family behind a long one that any family may have."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
    common, own = ([("".join(rng.choice(letters, k))) for _ in range(c)] for k, c in ((40, 4), (14, 3)))
    y = np.arange(n) % 3
    return [str(rng.choice(common)) + own[c] + "".join(rng.choice(letters, 10)) for c in y], y


@pytest.mark.parametrize("kernel", [Spectrum(3).normalized(), RBF("median", base=Spectrum(3).normalized())])
@pytest.mark.parametrize("rank", ["exact", 20])
def test_strings_learn_update_and_retrieve(kernel, rank, tmp_path):
    from sklearn.metrics import roc_auc_score

    X, y = proteins()
    train, test = np.arange(40), np.arange(40, 60)
    rows = [X[i] for i in train]
    metric = mf.learn(rows[:30], mf.Chunklets(y[:30]), method="krca", kernel=kernel, rank=rank, epsilon=0.01)
    metric = metric.update(rows[30:], mf.Chunklets(y[30:40]))
    metric.save(tmp_path / "strings.metric")
    assert_allclose(mf.load(tmp_path / "strings.metric").kernel(rows), metric.kernel(rows), rtol=1e-12)
    assert metric.transform(["ACDEFG", "GGGHHH"]).shape[0] == 2
    unseen = [X[i] for i in test]
    same = (y[test][:, None] == y[test])[np.triu_indices(20, 1)]

    def auc(D):
        return roc_auc_score(same, -D[np.triu_indices(20, 1)])

    base = kernel.resolve(kernel.check(rows))
    assert auc(metric.distance(unseen)) > auc(base.distance(*[kernel.check(unseen)] * 2)) + 0.05
    if rank == "exact":
        counts = mf.kernels.substring_counts(X, 3).toarray()
        counts /= np.linalg.norm(counts, axis=1)[:, None]
        if kernel == Spectrum(3).normalized():
            groups = np.concatenate([y[:30], y[30:40] + 10])
            truth = explicit(counts[:40], groups, counts[test], counts[test], metric.report.epsilon)
            assert relative(metric.kernel(unseen), truth) < 1e-8


@pytest.mark.parametrize(
    "groups",
    [
        [1, 1, 7, 7, -1, 7],
        ["b", "b", "a", "a", None, "a"],
        [1.0, 1.0, 0.5, 0.5, np.nan, 0.5],
        [-5, -5, 3, 3, -1, 3],
    ],
)
def test_any_ids_mean_the_same(groups):
    X = np.random.default_rng(0).normal(size=(6, 3))
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=RBF(0.5), epsilon=0.1)
    plain = mf.learn(X, mf.Chunklets([0, 0, 1, 1, -1, 1]), method="krca", kernel=RBF(0.5), epsilon=0.1)
    assert_allclose(metric.kernel(X), plain.kernel(X), rtol=1e-12)


def test_overlapping_sets_are_one_group():
    X = np.random.default_rng(0).normal(size=(6, 3))
    joined = mf.Chunklets.from_sets([[0, 1], [1, 2], [4, 5]], n=6)
    metric = mf.learn(X, joined, method="krca", kernel=RBF(0.5), epsilon=0.1)
    plain = mf.learn(X, mf.Chunklets([0, 0, 0, -1, 1, 1]), method="krca", kernel=RBF(0.5), epsilon=0.1)
    assert metric.kernel == plain.kernel


def test_precomputed_gram_is_the_kernel_it_holds(data):
    X, groups, _ = data
    K = RBF(0.05).block(X, X)
    metric = mf.learn(K, mf.Chunklets(groups), method="krca", kernel=mf.kernels.Precomputed(), epsilon=0.05)
    rows = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=RBF(0.05), epsilon=0.05)
    assert relative(metric.kernel(K[:20]), rows.kernel(X[:20])) < 1e-6


# -------------------------------------------------------------------------------------------------------- linear RCA


def test_epsilon_zero_with_a_linear_kernel_is_relevant_component_analysis(data):
    X, groups, A = data
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=Linear(), epsilon=0)
    C = covariance(X, groups)
    assert_allclose(metric.kernel(A), A @ np.linalg.inv(C) @ A.T, rtol=1e-9, atol=1e-9)
    assert_allclose(covariance(metric.transform(X), groups), np.eye(6), atol=1e-12)
    M = metric.kernel(np.eye(6))
    value, at_identity = np.trace(M @ C) - np.linalg.slogdet(M)[1], np.trace(C)
    assert_allclose(metric.report.objective, value - at_identity, rtol=1e-10)
    updated = metric.update(A, mf.Chunklets(np.arange(40) // 4))
    both = np.concatenate([groups, 100 + np.arange(40) // 4])
    assert_allclose(updated.kernel(A), A @ np.linalg.inv(covariance(np.concatenate([X, A]), both)) @ A.T, rtol=1e-9)


# --------------------------------------------------------------------------------------------------- degenerate input


def degenerate():
    X = np.random.default_rng(0).normal(size=(12, 3))
    pairs = np.repeat(np.arange(6), 2)
    return {
        "one group": (X, np.zeros(12, dtype=int)),
        "duplicate rows": (np.repeat(X[:6], 2, axis=0), pairs),
        "some duplicates": (np.concatenate([X[:6], X[:6]]), np.repeat(np.arange(4), 3)),
        "constant feature": (np.c_[X, np.ones(12)], pairs),
        "collinear features": (np.c_[X, X[:, 0]], pairs),
        "fewer rows than features": (np.random.default_rng(1).normal(size=(6, 8)), np.repeat(np.arange(3), 2)),
        "all singletons": (X, np.arange(12)),
        "mostly singletons": (X, np.array([0, 0, *range(1, 11)])),
        "two rows": (X[:2], np.zeros(2, dtype=int)),
        "huge scale": (1e8 * X, pairs),
        "tiny scale": (1e-8 * X, pairs),
        "vast scale": (1e100 * X, pairs),
        "minute scale": (1e-100 * X, pairs),
    }


@pytest.mark.parametrize("epsilon", ["auto", 0, 1e-300, 1e-12, 1e-3, 1e6])
@pytest.mark.parametrize(
    ("kernel", "rank"), [(RBF(0.5), "exact"), (Linear(), "auto"), (Linear(), "exact"), (RBF(0.5), 4)]
)
@pytest.mark.parametrize("case", degenerate())
def test_degenerate_input_is_a_finite_metric_or_a_clear_error(case, kernel, rank, epsilon):
    X, groups = degenerate()[case]
    said = ""
    try:
        metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel, rank=rank, epsilon=epsilon)
    except InputError as error:
        said = str(error)
    if said:
        assert "epsilon" in said or "no group has two rows" in said or "overflows" in said
        assert "give" in said or "rescale" in said
        assert epsilon in ("auto", 0, 1e-300, 1e-12) or case in ("all singletons", "huge scale", "vast scale")
        return
    assert case != "all singletons"
    K, D = metric.kernel(X), metric.distance(X)
    assert np.isfinite(K).all()
    assert np.isfinite(D).all()
    assert np.isfinite(metric.transform(X)).all()
    assert np.linalg.eigvalsh((K + K.T) / 2)[0] > -1e-6 * np.abs(K).max()


@pytest.mark.parametrize(
    ("case", "kernel", "epsilon", "message"),
    [
        ("all singletons", Linear(), "auto", "no group has two rows \\(12 sample"),
        ("duplicate rows", Linear(), "auto", "rows of each group are identical"),
        ("duplicate rows", RBF(0.5), "auto", "rows of each group are identical"),
        ("constant feature", Linear(), 0, "singular: rows of one group do not vary in 1 of 4"),
        ("fewer rows than features", Linear(), 0, "epsilon=0 needs explicit features, no more of them than rows"),
        ("one group", RBF(0.5), 0, "epsilon=0 needs explicit features"),
        ("one group", RBF(0.5), 1e-300, "lost to rounding"),
        ("fewer rows than features", Linear(), 1e-300, "lost to rounding"),
    ],
)
def test_singular_cases_name_the_repair(case, kernel, epsilon, message):
    X, groups = degenerate()[case]
    with pytest.raises(InputError, match=message):
        mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel, epsilon=epsilon)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_epsilon_gives_a_metric_that_can_be_saved(dtype, data, tmp_path):
    X, groups, A = data
    X, A, c = X.astype(dtype), A.astype(dtype), mf.Chunklets(groups)
    metric = mf.learn(X, c, method="krca", kernel="rbf", epsilon=1e150)
    metric.save(tmp_path / "large.metric")
    np.testing.assert_array_equal(mf.load(tmp_path / "large.metric").distance(A), metric.distance(A))
    with pytest.raises(InputError, match=r"epsilon must be .* at most 1e\+150"):
        mf.learn(X, c, method="krca", kernel="rbf", epsilon=1e200)


def test_digits_lost_to_a_tiny_epsilon_are_refused_or_mentioned(data):
    X, groups, A = data
    c = mf.Chunklets(groups)
    with pytest.raises(InputError, match="fewer than 6 digits; give a larger one"):
        mf.learn(X, c, method="krca", kernel=Linear(), rank=len(X), epsilon=1e-11)
    # the constant among the quadratic features does not vary: k̃ is of the order 1/ε and keeps its digits,
    # distances, in which it cancels, do not
    metric = mf.learn(X, c, method="krca", kernel=Polynomial(2), epsilon=1e-9)
    assert relative(metric.kernel(A), explicit(quadratic(X), groups, quadratic(A), quadratic(A), 1e-9)) < 1e-8
    assert any("digits" in note for note in metric.report.notes)
    explicit_route = mf.learn(X, c, method="krca", kernel=Linear(), epsilon=1e-11)
    assert relative(explicit_route.kernel(A), explicit(X, groups, A, A, 1e-11)) < 1e-12


def test_digits_lost_beside_landmarks_are_mentioned(rng):
    X = rng.normal(size=(8, 1))
    groups = mf.Chunklets([0, 0, 0, 1, 1, 1, 2, 3])
    notes = [
        " ".join(mf.learn(X, groups, method="krca", kernel=Linear(), rank=rank, epsilon=epsilon).report.notes)
        for rank, epsilon in ((2, 1e-12), (2, 1e-3), ("auto", 1e-12))
    ]
    assert ["digits" in note for note in notes] == [True, False, False]  # explicit features need no a (K − ΦΦ')


def test_identical_rows_in_groups_leave_the_metric_as_it_was():
    X, groups = degenerate()["duplicate rows"]
    for kernel in (RBF(0.5), Linear()):
        metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel, epsilon=0.5)
        assert_allclose(metric.kernel(X), kernel.block(X, X) / 0.5, atol=1e-12)


def test_singletons_change_nothing(data):
    X, groups, A = data
    alone = groups.copy()
    alone[groups < 0] = 1000 + np.arange(np.count_nonzero(groups < 0))
    for kernel in (RBF(0.05), Linear()):
        without = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel)
        with_them = mf.learn(X, mf.Chunklets(alone), method="krca", kernel=kernel)
        assert_array_equal(with_them.kernel(A), without.kernel(A))
        assert with_them.report.singletons == 10
        assert any("one row" in note for note in with_them.report.notes)


@pytest.mark.parametrize("epsilon", [-1, np.nan, np.inf, "large", None, True, [0.1], np.array([0.1, 0.2])])
def test_epsilon_is_checked(epsilon):
    with pytest.raises(InputError, match=r'epsilon must be "auto" or a number of at least 0'):
        KernelRCA(epsilon=epsilon)


@pytest.mark.parametrize(
    ("kernel", "rank"), [(RBF(0.05), "exact"), (Linear(), "auto"), (Linear(), "exact"), (RBF(0.05), 20)]
)
def test_auto_is_a_multiple_of_the_mean_eigenvalue(data, kernel, rank):
    X, groups, _ = data
    metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel, rank=rank)
    inside, found = groups >= 0, groups_of(mf.Chunklets(groups))
    F = metric.kernel.map.block(X) if isinstance(metric.kernel, ScatterKernel) else None
    if F is None:
        K, H = kernel.block(X[inside], X[inside]), centering(groups[inside])
        trace = np.trace(H @ K @ H) / found.n
        count = min(found.contrasts, 6 if kernel == Linear() else np.inf)
    else:
        trace, count = np.trace(covariance(F, groups)), F.shape[1]
    times = np.clip((6 / found.contrasts) ** 2, 0.02, 5) if kernel == Linear() else 5
    assert_allclose(metric.report.epsilon, times * trace / count, rtol=1e-10)
    assert_allclose(metric.report.mean_eigenvalue, trace / count, rtol=1e-10)
    assert metric.report.epsilon_rule == f"{times:.3g} × mean eigenvalue of C"


def test_the_multiple_grows_with_the_features_for_each_row():
    assert multiple(None, 10) == multiple(100, 10) == 5
    assert multiple(10, 1000) == 0.02
    assert multiple(10, 20) == 0.25


# ------------------------------------------------------------------------------------------------ the rest of the house


def test_conformance():
    check_method("krca")
    check_solver(KernelRCA(), Linear())
    X = np.random.default_rng(0).normal(size=(30, 4))
    for kernel, rank, kind in ((RBF(0.1), "exact", ChunkletKernel), (RBF(0.1), 8, ScatterKernel)):
        learned = mf.learn(X, mf.Chunklets(np.arange(30) // 3), method="krca", kernel=kernel, rank=rank).kernel
        assert isinstance(learned, kind)
        check_kernel(learned, X)


def test_learned_kernel_is_the_base_of_the_next_fit(data):
    X, groups, A = data
    c = mf.Chunklets(groups)
    first = mf.learn(X, c, method="krca", kernel=RBF(0.05))
    second = mf.learn(X, c, method="krca", kernel=first, epsilon=0.5)
    assert relative(second.kernel(A), equation_7(first.kernel, X[groups >= 0], groups[groups >= 0], A, 0.5)) < 1e-9


def test_auto_method_takes_chunklets(data):
    X, groups, _ = data
    assert mf.learn(X, mf.Chunklets(groups), selection="off").report.method == "krca-weighted"


def test_neighbors_are_those_of_the_distance(data):
    X, groups, A = data
    for kernel, rank in ((RBF(0.05), "exact"), (Linear(), "auto"), (RBF(0.05), 20)):
        metric = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=kernel, rank=rank)
        found, apart = metric.neighbors(A, k=5)
        D = metric.distance(A, X)
        assert_allclose(apart, np.sort(D, axis=1)[:, :5], rtol=1e-6)
        assert_allclose(np.take_along_axis(D, found, axis=1), apart, rtol=1e-6)


def test_blocks_of_many_rows_are_filled_in_parts(data, monkeypatch):
    X, groups, A = data
    kernel = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=RBF(0.05)).kernel
    K, D, p, d = kernel.block(X, A), kernel.squared_distance(X, X), kernel.paired(A, A[::-1]), kernel.diag(X)
    monkeypatch.setattr("metricforge.rows.blocks.__defaults__", (32 * kernel.n * 7,))
    for value, truth in (
        (kernel.block(X, A), K),
        (kernel.block(A, X), K.T),
        (kernel.squared_distance(X, X), D),
        (kernel.paired(A, A[::-1]), p),
        (kernel.diag(X), d),
    ):
        assert_allclose(value, truth, atol=1e-11 * np.abs(truth).max())


# ------------------------------------------------------------------------------------------------------- scikit-learn


def learner(**options):
    return mf.MetricLearner("krca", kernel=RBF(0.1), random_state=0, **options)


def test_partial_fit_is_fit_and_then_update():
    (X, groups), batches = stream(3)
    estimator = learner(solver=KernelRCA(epsilon=0.1))
    assert estimator.partial_fit(X, constraints=mf.Chunklets(groups)) is estimator
    metric = estimator.metric_
    for rows, ids in batches:
        estimator.partial_fit(rows, constraints=mf.Chunklets(ids))
        metric = metric.update(rows, mf.Chunklets(ids))
    assert estimator.metric_.report.updates == 3
    assert_array_equal(estimator.metric_.kernel(X), metric.kernel(X))
    assert estimator.transform(X).shape[1] == len(estimator.get_feature_names_out())
    by_label = learner().fit(X, groups).partial_fit(X[:6], ["a", "a", "b", "b", "b", "a"])
    by_group = learner().fit(X, groups).partial_fit(X[:6], constraints=mf.Chunklets([0, 0, 1, 1, 1, 0]))
    assert_array_equal(by_label.metric_.kernel(X), by_group.metric_.kernel(X))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((2, 3)), [0, 0], "X has 3 features, but MetricLearner is expecting 4"),
        (np.ones((2, 4)), [0, 1], "no group has two rows"),
        (np.ones((3, 4)), [0, 0], "inconsistent numbers of samples"),
        (np.ones((2, 4)), None, "y and constraints are None"),
    ],
)
def test_a_failed_partial_fit_keeps_what_was_learned(X, y, message):
    (rows, groups), _ = stream(0)
    estimator = learner().fit(rows, groups)
    before, state = estimator.metric_, dict(estimator.__dict__)
    with pytest.raises(ValueError, match=message):
        estimator.partial_fit(X, y)
    assert estimator.metric_ is before
    assert estimator.__dict__ == state


def test_partial_fit_is_only_there_for_methods_that_can_update():
    (X, groups), _ = stream(0)
    for estimator in (mf.MetricLearner("euclidean"), mf.MetricLearner("euclidean").fit(X, groups)):
        assert not hasattr(estimator, "partial_fit")
        with pytest.raises(AttributeError) as caught:
            estimator.partial_fit(X, groups)
        assert isinstance(caught.value.__cause__, NotUpdatableError)
    open_until_a_fit = mf.MetricLearner()  # auto takes krca for groups
    once = open_until_a_fit.partial_fit(X, constraints=mf.Chunklets(groups)).metric_
    twice = open_until_a_fit.partial_fit(X, constraints=mf.Chunklets(groups)).metric_
    assert twice.report.n == 2 * once.report.n
    with pytest.raises(NotUpdatableError, match="learn again"):
        mf.learn(X, groups, method="euclidean").update(X, groups)


def test_partial_fit_asks_for_constraints_by_itself():
    import sklearn
    from sklearn.utils.metadata_routing import get_routing_for_object

    with sklearn.config_context(enable_metadata_routing=True):
        requested = get_routing_for_object(learner()).partial_fit.requests
    assert requested == {"constraints": True}


# ----------------------------------------------------------------------------------------------------- from the paper


def test_xor_is_learned_from_groups_that_span_both_clusters_of_a_class():
    """Table I: the Rand index of 2-means; a linear kernel stays at chance, the Gaussian reaches 1 only after KRCA."""
    from sklearn.metrics import rand_score

    for seed in range(3):
        data = mf.datasets.load("xor", seed=seed)

        def rand(kernel, groups, method, data=data):
            metric = mf.learn(data.X, mf.Chunklets(groups), method=method, kernel=kernel)
            return rand_score(data.y, mf.tasks.constrained_kmeans(metric.transform(data.X), 2, seed=0).labels)

        assert rand(Linear(), data.y, "krca") < 0.55
        assert rand(RBF("median"), data.y, "euclidean") < 0.55
        assert rand(RBF("median"), data.groups, "krca") < 0.55  # one group per cluster says nothing about the class
        assert rand(RBF("median"), data.y, "krca") == 1


# ------------------------------------------------------------------------------------------------------ forged kernels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ridge": -1.0}, "ridge"),
        ({"ridge": None}, "ridge"),
        ({"sizes": np.array([1, 9])}, "sizes must be at least 2"),
        ({"sizes": np.array([4, 4])}, "sizes must be at least 2 and sum to the number of rows, 10"),
        ({"sizes": np.array([5.0, 5.0])}, "sizes must be an array of whole numbers"),
        ({"factor": np.ones(7)}, "factor must have 36 entries"),
        ({"factor": np.zeros(36)}, "factor must be finite, with a positive diagonal"),
        ({"factor": np.full(36, np.nan)}, "factor must be finite"),
        ({"rows": np.full((10, 2), 1e200)}, "rows has values up to 1e"),
        ({"rows": np.full((10, 2), np.nan)}, "rows"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_forged_kernel_is_refused_before_it_is_used(change, message):
    X = np.random.default_rng(0).normal(size=(10, 2))
    metric = mf.learn(X, mf.Chunklets(np.arange(10) // 5), method="krca", kernel=mf.kernels.RBF(0.5), rank="exact")
    with pytest.raises(InputError, match=message):
        replace(metric, kernel=replace(metric.kernel, **change)).update(X[:2], mf.Chunklets([0, 0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scatter": np.full((2, 2), np.inf)}, "scatter must be finite"),
        ({"scatter": np.eye(3)}, "of the shape of W"),
        ({"n": 0}, "n must be"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"a": None}, "a must be"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_forged_scatter_is_refused_before_it_is_used(change, message):
    X = np.random.default_rng(0).normal(size=(10, 2))
    metric = mf.learn(X, mf.Chunklets(np.arange(10) // 5), method="krca", kernel=mf.kernels.Linear())
    with pytest.raises(InputError, match=message):
        replace(metric, kernel=replace(metric.kernel, **change)).update(X[:2], mf.Chunklets([0, 0]))


def test_without_epsilon_landmarks_magnify_no_rounding():
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    kernel = mf.learn(X, y, method="krca", kernel=RBF(0.3), rank=8).kernel
    assert isinstance(kernel, ScatterKernel)
    assert kernel.condition > 0
    assert replace(kernel, epsilon=0.0, a=0.0).condition == 0

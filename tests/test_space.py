from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp

import metricforge as mf
from metricforge.errors import InputError, MemoryBudgetError
from metricforge.kernels import RBF, Linear, Mixture, Polynomial, Spectrum
from metricforge.space import (
    BUDGET,
    ChangedKernel,
    LearnedKernel,
    Size,
    Stacked,
    affordable,
    affordable_steps,
    choose_landmarks,
    landmark_map,
    pivoted_cholesky,
    represent,
    space_seconds,
    steps_seconds,
)


def points(n=120, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


# ------------------------------------------------------------------------------------------------------------- features


@pytest.mark.parametrize("kernel", [RBF(0.4), Linear(), Polynomial(2)], ids=str)
def test_exact_features_reproduce_the_gram_matrix(kernel):
    X = points()
    made = represent(kernel, X, "exact")
    K = kernel(X)
    np.testing.assert_allclose(made.features @ made.features.T, K, atol=1e-9 * np.abs(K).max())
    new = points(20, seed=1)
    cross = made.map(new) @ made.features.T
    np.testing.assert_allclose(cross, kernel(new, X), atol=1e-7 * np.abs(K).max())


def test_exact_features_have_the_numerical_rank():
    X = np.repeat(points(20), 5, axis=0)  # every row five times
    made = represent(RBF(0.4), X, "exact")
    assert made.map.columns == 20
    np.testing.assert_allclose(made.features @ made.features.T, RBF(0.4)(X), atol=1e-9)
    assert represent(Linear(), points(), "exact").map.columns == 3


def test_landmark_features_are_the_nystroem_approximation():
    X, kernel = points(300), RBF(0.4)
    made = represent(kernel, X, 25, seed=3)
    Z = X[choose_landmarks(kernel, X, 25, seed=3)]
    C = kernel(X, Z)
    nystroem = C @ np.linalg.pinv(kernel(Z), rcond=1e-13) @ C.T
    np.testing.assert_allclose(made.features @ made.features.T, nystroem, atol=1e-8)
    left = np.trace(kernel(X) - nystroem) / 300
    assert made.left_out() == pytest.approx(left, abs=1e-6)


def test_pivoted_cholesky_factors_and_stops_at_the_rank():
    L = points(30, 4)
    pivots, factor = pivoted_cholesky(L @ L.T)
    assert len(pivots) == 4
    np.testing.assert_allclose(factor @ factor.T, (L @ L.T)[np.ix_(pivots, pivots)], atol=1e-12)
    with pytest.raises(InputError, match="every k\\(x, x\\) is zero"):
        pivoted_cholesky(np.zeros((3, 3)))


@pytest.mark.parametrize("how", ["rpcholesky", "kmeans++", "uniform"])
def test_landmarks_are_distinct_sorted_and_seeded(how):
    X = points(500)
    chosen = [choose_landmarks(RBF(0.4), X, 40, how=how, seed=s) for s in (0, 0, 1)]
    assert len(np.unique(chosen[0])) == 40
    assert (np.diff(chosen[0]) > 0).all()
    assert np.array_equal(chosen[0], chosen[1])
    assert not np.array_equal(chosen[0], chosen[2])


def test_randomly_pivoted_cholesky_finds_small_clusters_that_sampling_misses(rng):
    # 20 clusters, one of them with 95 % of the rows: uniform draws rarely reach the others
    sizes = [1900] + [5] * 19
    X = np.concatenate([10 * rng.normal(size=2) + 0.01 * rng.normal(size=(s, 2)) for s in sizes])

    def left_out(how):
        maps = [landmark_map(RBF(1.0), X[choose_landmarks(RBF(1.0), X, 20, how=how, seed=s)]) for s in range(5)]
        return np.mean([1 - np.square(m.block(X)).sum(axis=1).mean() for m in maps])

    assert left_out("rpcholesky") < 0.2 * left_out("uniform")
    assert left_out("kmeans++") < 0.5 * left_out("uniform")


def test_landmarks_of_a_kernel_with_negative_values_on_the_diagonal():
    X = np.linspace(0, 2, 20)[:, None]
    kernel = Mixture([Linear(), RBF(1e-12)], [0.5, -1.0])  # k(x, x) = x²/2 − 1
    assert kernel.diag(X).min() < 0
    chosen = choose_landmarks(kernel, X, 3, seed=0)
    assert len(chosen) > 0
    assert (kernel.diag(X[chosen]) > 0).all()


def test_landmarks_stop_when_the_rows_have_no_more_rank():
    X = np.repeat(points(10), 50, axis=0)
    for how in ("rpcholesky", "kmeans++"):
        assert landmark_map(RBF(0.4), X[choose_landmarks(RBF(0.4), X, 40, how=how)]).columns == 10


def test_strings_have_features(rng):
    strings = np.array(["".join(rng.choice(list("ACDE"), size=15)) for _ in range(60)], dtype=object)
    kernel = Spectrum(2).normalized()
    made = represent(kernel, strings, "exact")
    np.testing.assert_allclose(made.features @ made.features.T, kernel(strings), atol=1e-9)


def test_single_precision_rows_stay_single_and_agree():
    X = points(200)
    double, single = represent(RBF(0.4), X, 50), represent(RBF(0.4), X.astype(np.float32), 50)
    assert single.features.dtype == np.float32
    np.testing.assert_allclose(single.features @ single.features.T, double.features @ double.features.T, atol=2e-5)


# -------------------------------------------------------------------------------------------------- rank and memory


@pytest.mark.parametrize(
    ("kernel", "n", "rank", "expected"),
    [
        (Linear(), 50, "auto", ("explicit", 3)),
        (RBF(0.4), 50, "auto", ("exact", 50)),
        (RBF(0.4), 4000, "auto", ("landmarks", 500)),
        (RBF(0.4), 50, 10, ("landmarks", 10)),
        (RBF(0.4), 50, 99, ("exact", 50)),
        (Linear(), 50, "exact", ("explicit", 3)),
        (RBF(0.4), 50, "exact", ("exact", 50)),
    ],
)
def test_rank(kernel, n, rank, expected):
    made = represent(kernel, points(n), rank)
    assert (made.representation, made.rank) == expected


def test_wide_explicit_features_give_way_to_rows():
    assert represent(Linear(), points(20, 40), "auto").representation == "exact"


def test_budget_is_respected(monkeypatch):
    monkeypatch.setenv("METRICFORGE_MEMORY", "1MB")
    X = points(1000)
    with pytest.raises(MemoryBudgetError, match=r"rank=\"auto\" on 1000 rows would take 32 MB.*a number of landmarks"):
        _ = represent(RBF(0.4), X, "auto").map  # the budget never changes what is learned
    with pytest.raises(
        MemoryBudgetError,
        match=r"rank=\"exact\" on 1000 rows would take 32 MB, and the memory budget is 1 MB.*a number of landmarks",
    ):
        represent(RBF(0.4), X, "exact")
    with pytest.raises(MemoryBudgetError, match=r"choosing 200 landmarks among 1000 rows would take 5\.21 MB"):
        _ = represent(RBF(0.4), X, 200).features
    for module in ("costs", "landmarks"):
        monkeypatch.setattr(f"metricforge.space.{module}.SAMPLE_ROWS", 200)
    with pytest.raises(MemoryBudgetError, match="4000 × 40 features"):
        _ = represent(RBF(0.4), points(4000), 40).features


def test_auto_takes_the_largest_rank_within_the_budget():
    """The forecast decides between all rows and landmarks, and how many landmarks."""

    def cost(size):
        return {"exact": 1e-9 * size.n**3, "landmarks": 0.02 * size.m, "explicit": 0.0}[size.representation]

    assert represent(RBF(0.4), points(1500), cost=cost).representation == "exact"
    made = represent(RBF(0.4), points(1700), cost=cost)
    assert (made.representation, made.rank, made.forecast) == ("landmarks", 200, 4.0)
    assert made.automatic
    assert not represent(RBF(0.4), points(1700), 200, cost=cost).automatic
    # however dear, features say little with fewer than 100 landmarks
    assert represent(RBF(0.4), points(1700), cost=lambda size: 10.0 * size.m**9).rank == 102
    # a cost that the rank does not change
    assert represent(RBF(0.4), points(1700), cost=lambda size: 10.0).representation == "exact"
    assert represent(RBF(0.4), points(90), cost=lambda size: 10.0 * size.m).representation == "exact"


def test_explicit_features_of_any_width_that_the_method_takes():
    X = np.random.default_rng(0).normal(size=(1300, 1200))
    assert represent(Linear(), X).representation == "exact"
    assert represent(Linear(), X, explicit_columns=2000).representation == "explicit"
    assert represent(Linear(), X, "exact").representation == "explicit"


def test_forecasts_grow_with_the_rank_and_ignore_the_machine(monkeypatch):
    sizes = [Size(5000, 16, m) for m in range(50, 500, 50)]
    forecasts = [space_seconds(size) for size in sizes]
    assert (np.diff(forecasts) > 0).all()
    monkeypatch.setenv("METRICFORGE_MEMORY", "1MB")
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert [space_seconds(size) for size in sizes] == forecasts
    assert represent(RBF(0.4), points(4000)).rank == 500


@pytest.mark.parametrize("budget", [0.5, 1.0, 2.5, 99.0])
def test_affordable_is_the_largest(budget):
    found = affordable(lambda m: m / 100, 20, 200, budget)
    assert found == min(max(20, int(100 * budget)), 200)


@pytest.mark.parametrize(("step", "steps"), [(1e-3, 300), (0.05, 70), (1.0, 15)])
def test_steps_are_as_many_as_the_budget_leaves(step, steps):
    rest = 0.5
    assert affordable_steps(step, rest, 15, 300) == steps
    forecast = steps_seconds(step, rest, 15, 300)
    assert forecast == pytest.approx(max(rest + steps * step, min(BUDGET, rest + 300 * step)), rel=1e-9)


@pytest.mark.parametrize("rank", [0, -3, 2.5, True, "all", None])
def test_wrong_ranks(rank):
    with pytest.raises(InputError, match=r"rank must be \"auto\", \"exact\" or a whole number of at least 1"):
        represent(RBF(0.4), points(), rank)


ADULT = """
import resource, sys
import numpy as np
import scipy.sparse as sp
import metricforge as mf
{rows}
assert X.shape[0] == 32561
made = mf.space.represent(mf.kernels.RBF("median").resolve(X), X, {rank!r})
assert made.representation == "landmarks", made.representation
assert made.features.shape == (32561, 500)
if sys.platform == "linux":  # ru_maxrss also counts the process that was forked, before it became this one
    with open("/proc/self/status") as lines:
        print(next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")))
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform != "darwin" else 2**20))
"""
TWIN = "X = sp.random_array((32561, 123), density=0.11, rng=np.random.default_rng(0), format='csr')"


@pytest.mark.parametrize("rank", [500, "auto"])
@pytest.mark.parametrize("rows", ["twin", "a9a"])
def test_adult_sized_features_stay_below_one_and_a_half_gigabytes(rank, rows, request):
    if rows == "a9a":
        request.getfixturevalue("data_folder")
    load = TWIN if rows == "twin" else "X = mf.datasets.load('a9a').X"
    code = textwrap.dedent(ADULT).format(rows=load, rank=rank)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1500  # an n × n float64 array alone would be 8,482 MB


def test_adult_sized_exact_is_refused_with_its_price(monkeypatch):
    monkeypatch.setenv("METRICFORGE_MEMORY", "12GB")
    X = sp.csr_array((32561, 123))
    with pytest.raises(MemoryBudgetError, match=r"would take 33\.9 GB, and the memory budget is 12\.0 GB"):
        represent(RBF(0.4), X, "exact")


# ------------------------------------------------------------------------------------------------------ learned kernels


def learned(X, a=1.0, rank="exact", seed=0):
    made = represent(RBF(0.4), X, rank)
    B = np.random.default_rng(seed).normal(size=(made.map.columns, 3))
    return LearnedKernel(made.map, B @ B.T, a)


@pytest.mark.parametrize("a", [0.0, 1.5])
def test_learned_kernel_is_its_definition(a):
    X = points(60)
    kernel = learned(X, a)
    new = points(15, seed=2)
    P, Q = kernel.map(X), kernel.map(new)
    expected = a * RBF(0.4)(X, new) + P @ kernel.W @ Q.T
    np.testing.assert_allclose(kernel(X, new), expected, atol=1e-10)
    mf.testing.check_kernel(kernel, X)


@pytest.mark.parametrize("a", [0.0, 1.5])
def test_learned_distance_keeps_what_landmarks_leave_out(a):
    X = points(200)
    kernel = learned(X, a, rank=10)
    new = points(15, seed=2)
    K, d, e = kernel(X, new), kernel.diag(X), kernel.diag(new)
    np.testing.assert_allclose(kernel.distance(X, new) ** 2, d[:, None] + e - 2 * K, atol=1e-8)
    E, F = kernel.embedding()(X), kernel.embedding()(new)
    inside = np.square(E[:, None] - F[None]).sum(-1)
    if a == 0:
        np.testing.assert_allclose(inside, kernel.distance(X, new) ** 2, atol=1e-8)
    else:
        assert (inside <= kernel.distance(X, new) ** 2 + 1e-8).all()


def test_a_negative_part_is_a_kernel_beside_the_base():
    X = points(40)
    made = represent(RBF(0.4), X, "exact")
    kernel = LearnedKernel(made.map, -0.9 * np.eye(made.map.columns), a=1.0)
    np.testing.assert_allclose(kernel(X), 0.1 * RBF(0.4)(X), atol=1e-9)
    np.testing.assert_allclose(kernel.distance(X, X), np.sqrt(0.1) * RBF(0.4).distance(X, X), atol=1e-6)


def test_learned_kernel_refuses_other_widths():
    kernel = learned(points(30))
    with pytest.raises(InputError, match="X has 4 features, but the metric was learned on 3"):
        kernel(points(5, 4))
    with pytest.raises(InputError, match="W must be"):
        LearnedKernel(kernel.map, np.eye(2))


@pytest.mark.parametrize("rank", ["exact", 10])
def test_a_factor_is_kept_as_it_was_learned(rank):
    X, new = points(60), points(15, seed=2)
    made = represent(RBF(0.4), X, rank)
    L = np.random.default_rng(1).normal(size=(3, made.map.columns))
    kernel = LearnedKernel.of_factor(made.map, L)
    same = LearnedKernel(made.map, L.T @ L)
    np.testing.assert_allclose(kernel(X, new), same(X, new), atol=1e-10)
    np.testing.assert_allclose(kernel.distance(X, new), same.distance(X, new), atol=1e-8)
    np.testing.assert_allclose(kernel.embedding()(new), made.map(new) @ L.T, atol=1e-10)  # not another root of L'L
    np.testing.assert_allclose(kernel.W, same.W)
    mf.testing.check_kernel(kernel, X)
    with pytest.raises(InputError, match="L must have"):
        LearnedKernel.of_factor(made.map, L[:, 1:])
    with pytest.raises(InputError, match="L must be finite"):
        LearnedKernel.of_factor(made.map, L * np.nan)


@pytest.mark.parametrize("kernel", [Linear(), RBF(0.4)])
@pytest.mark.parametrize("least", [-1.0, -0.5])  # I + W singular, and not
def test_a_change_in_few_directions_is_embedded_with_the_start_outside_them(kernel, least):
    X, new = points(60), points(15, seed=2)
    made = represent(kernel, X, "auto")
    m = made.map.columns
    V = np.linalg.qr(np.random.default_rng(1).normal(size=(m, 2)))[0]
    changed = ChangedKernel(made.map, V, np.diag([least, 3.0]))
    same = LearnedKernel(made.map, V @ np.diag([least, 3.0]) @ V.T, 1.0)
    np.testing.assert_allclose(changed(X, new), same(X, new), atol=1e-9)
    np.testing.assert_allclose(changed.distance(X, new), same.distance(X, new), atol=1e-6)
    E = changed.embedding()(X)
    np.testing.assert_allclose(E @ E.T, changed(X), atol=1e-9)
    assert changed.embedding().exact == made.map.exact
    mf.testing.check_kernel(changed, X)
    with pytest.raises(InputError, match="orthonormal"):
        ChangedKernel(made.map, 1.1 * V, np.eye(2))
    with pytest.raises(InputError, match="directions must have"):
        ChangedKernel(made.map, V[1:], np.eye(2))
    with pytest.raises(InputError, match="W must be"):
        ChangedKernel(made.map, V, np.eye(3))


# --------------------------------------------------------------------------------------------------------- hard cases


def test_choosing_landmarks_ends_when_only_rounding_is_left():
    K = RBF(0.001)(points(200))  # numerical rank far below the 150 asked for
    kernel = mf.kernels.Precomputed().resolve(K)
    assert 0 < len(choose_landmarks(kernel, K, 150)) <= 150
    assert 0 < len(choose_landmarks(RBF(1e-9), points(300), 200)) <= 200


@pytest.mark.parametrize("kernel", [RBF(1.0) + (-0.9) * RBF(0.5), Linear() + (-2.0) * RBF(0.5)], ids=str)
def test_a_kernel_that_is_not_psd_has_no_embedding_and_says_so(kernel):
    metric = mf.learn(points(), np.arange(120) % 2, method="euclidean", kernel=kernel)
    with pytest.raises(InputError, match=r"no Euclidean embedding; use distance\(\)"):
        metric.transform(points())
    assert metric.distance(points()).shape == (120, 120)


@pytest.mark.parametrize("rank", ["auto", 5])
def test_rows_that_are_similar_to_nothing_have_no_features(rank):
    metric = mf.learn(["a"] * 20, np.arange(20) % 2, method="euclidean", kernel=Spectrum(2), rank=rank)
    with pytest.raises(InputError, match="every k\\(x, x\\) is zero"):
        metric.transform(["a"])


def test_explicit_features_may_have_a_width_of_their_own():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Squares(mf.Kernel):
        def features(self, X):
            return np.column_stack([X, np.asarray(X) ** 2])

        def block(self, X, Y):
            return self.features(X) @ self.features(Y).T

    metric = mf.learn(points(), np.arange(120) % 2, method="euclidean", kernel=Squares())
    assert metric.report.rank == 6
    assert metric.transform(points()).shape == (120, 6)
    np.testing.assert_allclose(metric.transform(points()), np.column_stack([points(), points() ** 2]))


@pytest.mark.parametrize(
    ("X", "kernel"),
    [
        (np.eye(3) * 1e200, Linear()),
        (np.eye(3, dtype=np.float32) * 1e30, Linear()),
        (sp.csr_array(np.eye(3) * 1e200), RBF(1.0)),
        (points(10) * 1e60, Polynomial(10)),
    ],
)
def test_overflow_is_an_error_not_an_infinity(X, kernel):
    with pytest.raises(InputError, match=r"overflow.*rescale"):
        mf.learn(X, np.arange(X.shape[0]) % 2, method="euclidean", kernel=kernel)


def test_features_of_many_rows_need_little_more_than_their_result(rng):
    """The (rows × landmarks) blocks of the kernel are counted when rows are split into blocks."""
    import tracemalloc

    X = rng.normal(size=(40_000, 4))
    full = landmark_map(RBF(0.5), X[:500])
    wide = full.rotated(rng.normal(size=(full.columns, 5)))  # 5 columns from 500 landmarks
    stacked = Stacked((wide, wide))
    assert wide.widest == 500
    assert stacked.widest == 500
    for features in (wide, stacked):
        tracemalloc.start()
        try:
            result = features(X)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= result.nbytes + 16 * 2**20  # one array of 40,000 × 500 takes 160 MB
        np.testing.assert_allclose(result[::1000], features.block(X[::1000]), rtol=1e-9, atol=1e-9)


def test_tasks_compute_features_in_blocks_as_small_as_in_memory(rng, monkeypatch):
    import dask.array as da

    X = rng.normal(size=(3000, 4))
    wide = landmark_map(RBF(0.5), X[:200]).rotated(np.ones((200, 2)))
    sizes = []
    block = type(wide).block
    monkeypatch.setattr(type(wide), "block", lambda self, X, **out: sizes.append(len(X)) or block(self, X, **out))
    monkeypatch.setattr("metricforge.rows.mapping.WIDE_BYTES", 3 * 8 * 200 * 1000)
    lazy = wide(da.from_array(X, chunks=(1500, -1)))
    np.testing.assert_allclose(lazy.compute(scheduler="sync"), block(wide, X), rtol=1e-9, atol=1e-9)
    assert sorted(sizes) == [500, 500, 1000, 1000]


@pytest.mark.parametrize("weight", [1e-300, 1e300])
def test_kernels_at_the_end_of_the_range_are_refused(weight, rng):
    with pytest.raises(InputError, match=r"^kernel: the largest k\(x, x\) on these rows is 1e[+-]300"):
        _ = represent(weight * RBF(1.0), rng.normal(size=(6, 2)), 3).features

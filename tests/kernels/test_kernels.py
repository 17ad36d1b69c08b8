from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import pairwise

import metricforge as mf
from metricforge.errors import InputError
from metricforge.kernels import RBF, Cauchy, Laplacian, Linear, Mixture, Polynomial, Spectrum, Standardized, Weak
from metricforge.kernels.arithmetic import squared_euclidean
from metricforge.kernels.strings import substring_counts
from metricforge.kernels.vectors import Precomputed
from metricforge.testing import check_kernel

KERNELS = [
    Linear(),
    RBF("median"),
    RBF(0.3),
    RBF(0.01, base=Polynomial(2)),
    Laplacian("median"),
    Laplacian(0.2),
    Cauchy("median"),
    Polynomial(3, 0.0),
    Polynomial(2, 1.0).normalized(),
    Weak(RBF("median"), feature=2),
    RBF("median") + 2 * Linear(),
    RBF("median") * Cauchy(0.1),
    Mixture([RBF(1.0), Linear()], [0.5, 0.0]),
    Precomputed(),
    Spectrum(3),
    Spectrum(2).normalized(),
    RBF("median", base=Spectrum(3).normalized()),
]

PEERS = [
    (Linear(), pairwise.linear_kernel),
    (RBF(0.3), lambda A, B: pairwise.rbf_kernel(A, B, gamma=0.3)),
    (Laplacian(0.3), lambda A, B: pairwise.laplacian_kernel(A, B, gamma=0.3)),
    (Polynomial(3, 2.0), lambda A, B: pairwise.polynomial_kernel(A, B, degree=3, gamma=1, coef0=2.0)),
    (Cauchy(0.3), lambda A, B: 1 / (1 + 0.3 * pairwise.euclidean_distances(A, B, squared=True))),
    (Polynomial(1, 0.0).normalized(), pairwise.cosine_similarity),
]

FORMS = {
    "dense": lambda A: A,
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "coo": sp.coo_array,
    "list": lambda A: A.tolist(),
    "float32": lambda A: A.astype(np.float32),
    "csr float32": lambda A: sp.csr_matrix(A.astype(np.float32)),
    "fortran": np.asfortranarray,
}


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernels_conform(kernel):
    check_kernel(kernel)


@pytest.mark.parametrize("kernel", KERNELS[:13], ids=str)
def test_kernels_conform_on_sparse_rows(kernel, rng):
    X = sp.random_array((25, 6), density=0.4, rng=rng, format="csr")
    check_kernel(kernel, X)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kernel", "peer"), PEERS, ids=lambda v: str(v) if isinstance(v, mf.Kernel) else "")
def test_blocks_equal_scikit_learns_in_every_container(kernel, peer, form, rng):
    X, Y = rng.normal(size=(20, 5)), rng.normal(size=(7, 5))
    K = kernel(FORMS[form](X), FORMS[form](Y))
    single = "float32" in form
    assert K.dtype == (np.float32 if single else np.float64)
    np.testing.assert_allclose(K, peer(X, Y), rtol=2e-5 if single else 1e-10, atol=1e-6 if single else 1e-12)


def test_frames_are_rows(rng):
    import pandas as pd
    import polars as pl

    X = rng.normal(size=(6, 3))
    for frame in (pd.DataFrame(X), pl.DataFrame(X)):
        np.testing.assert_allclose(RBF(0.5)(frame), RBF(0.5)(X), rtol=1e-14)  # frames may be column-major
    strings = ["ABC", "BCD"]
    for series in (pd.Series(strings), pl.Series(strings), tuple(strings), np.array(strings)):
        np.testing.assert_array_equal(Spectrum(2)(series), Spectrum(2)(strings))


def test_near_rows_far_from_the_origin_keep_their_distance():
    X = 1e6 + np.array([[0.0], [1e-3]])
    assert squared_euclidean(X, X.copy())[0, 1] == pytest.approx(1e-6, rel=1e-6)
    small = RBF(1.0).squared_distance(X, X.copy())[0, 1]
    assert small == pytest.approx(2e-6, rel=1e-5)  # 2 - 2 exp(-1e-6) has lost ten digits


def test_median_is_the_median_of_all_pairs(rng):
    X = rng.normal(size=(50, 3))
    D = pairwise.euclidean_distances(X, squared=True)[np.triu_indices(50, 1)]
    assert RBF("median").resolve(X).gamma == pytest.approx(1 / np.median(D))
    D1 = pairwise.manhattan_distances(X)[np.triu_indices(50, 1)]
    assert Laplacian("median").resolve(X).gamma == pytest.approx(1 / np.median(D1))
    inner = RBF("median", base=Polynomial(2)).resolve(X)
    K = Polynomial(2)(X)
    D2 = (np.diag(K)[:, None] + np.diag(K) - 2 * K)[np.triu_indices(50, 1)]
    assert inner.gamma == pytest.approx(1 / np.median(D2))


def test_median_on_many_rows_is_a_seeded_sample(rng):
    X = rng.normal(size=(5000, 2))
    gammas = [RBF("median").resolve(X, seed=s).gamma for s in (0, 0, 1)]
    assert gammas[0] == gammas[1] != gammas[2]
    assert gammas[0] == pytest.approx(gammas[2], rel=0.1)


def test_median_with_many_duplicates_uses_the_distances_that_are_there():
    X = np.array([[0.0]] * 9 + [[2.0]])
    assert RBF("median").resolve(X).gamma == 0.25


@given(st.lists(st.text(alphabet="ABé漢", max_size=9), min_size=1, max_size=6), st.integers(1, 4))
def test_spectrum_against_counting_by_hand(strings, k):
    def count(s):
        return [s[i : i + k] for i in range(len(s) - k + 1)]

    expected = [[sum(count(a).count(w) for w in count(b)) for b in strings] for a in strings]
    np.testing.assert_array_equal(Spectrum(k)(strings), expected)
    np.testing.assert_array_equal(Spectrum(k)(strings, strings[:1]), np.array(expected)[:, :1])


def test_substring_numbers_never_collide_for_long_substrings():
    rng = np.random.default_rng(0)
    text = "".join(chr(c) for c in rng.integers(32, 5000, size=400))  # alphabet ** k overflows any integer
    assert substring_counts([text, text[::-1]], 30).shape[1] == 2 * (400 - 29)


@pytest.mark.parametrize("letters", ["ACGT", "".join(map(chr, range(32, 2000))), "A\U0010ffff"])
def test_substrings_are_numbered_in_their_order(letters):
    """By a table of all numbers where it is small, by sorting elsewhere: the numbers are the same."""
    rng = np.random.default_rng(0)
    strings = ["".join(rng.choice(list(letters), size=size)) for size in (0, 1, 5, 300)]
    parts = sorted({s[i : i + 3] for s in strings for i in range(len(s) - 2)})
    expected = [[sum(s[i : i + 3] == part for i in range(len(s) - 2)) for part in parts] for s in strings]
    np.testing.assert_array_equal(substring_counts(strings, 3).toarray(), expected)


def test_strings_shorter_than_k_are_similar_to_nothing():
    K = Spectrum(3).normalized()(["AB", "ABC"])
    np.testing.assert_array_equal(K, [[0, 0], [0, 1]])


def test_algebra(rng):
    X = rng.normal(size=(8, 3))
    a, b = RBF(0.5), Linear()
    np.testing.assert_allclose((2 * a + b * 3 + a)(X), 3 * a(X) + 3 * b(X))
    np.testing.assert_allclose((a * b)(X), a(X) * b(X))
    np.testing.assert_allclose(sum([a, b])(X), a(X) + b(X))
    d = np.sqrt(np.diag((a + b)(X)))
    np.testing.assert_allclose((a + b).normalized()(X), (a + b)(X) / np.outer(d, d))
    assert 2 * a + b == Mixture((a, b), (2.0, 1.0))
    assert hash(a + b) == hash(RBF(0.5) + Linear())
    with pytest.raises(TypeError):
        a + "b"


def test_precomputed_rows_compare_through_the_training_rows(rng):
    Z = rng.normal(size=(30, 4))
    K = RBF(0.5)(Z)
    kernel = Precomputed().resolve(K)
    np.testing.assert_allclose(kernel(K), K, atol=1e-10)
    new = RBF(0.5)(rng.normal(size=(5, 4)), Z)
    np.testing.assert_allclose(kernel(new, K), new, atol=1e-8)
    assert kernel == replace(kernel)
    assert kernel != Precomputed()


@dataclass(frozen=True)
class OnlyBlock(mf.Kernel):
    """What a user writes: nothing but block."""

    power: float = 1.0

    def block(self, X, Y):
        return np.exp(-(np.abs(np.asarray(X)[:, None] - np.asarray(Y)[None]).sum(-1) ** self.power))


def test_a_kernel_with_only_block_has_everything(rng):
    X = rng.normal(size=(40, 2))
    kernel = OnlyBlock()
    np.testing.assert_allclose(kernel.diag(X), 1)
    np.testing.assert_allclose(kernel.paired(X, X[::-1]), np.diag(kernel.block(X, X[::-1])))
    np.testing.assert_allclose(kernel.distance(X, X), np.sqrt(np.maximum(2 - 2 * kernel(X), 0)), atol=1e-7)
    np.testing.assert_allclose((kernel + Linear())(X), kernel(X) + X @ X.T)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RBF(-1.0), ["gamma", "above 0", "-1"]),
        (lambda: RBF("mean"), ["gamma", "median"]),
        (lambda: RBF(True), ["gamma"]),
        (lambda: Laplacian(0), ["gamma"]),
        (lambda: Cauchy(np.inf), ["gamma"]),
        (lambda: Polynomial(0), ["degree", "at least 1"]),
        (lambda: Polynomial(2, -1.0), ["coef0", "at least 0"]),
        (lambda: Spectrum(0), ["k must", "at least 1"]),
        (lambda: Weak(RBF(1.0), feature=-1), ["feature", "at least 0"]),
        (lambda: Weak(Spectrum(3), feature=0), ["kernel on vectors"]),
        (lambda: Weak(RBF(1.0), feature=5)(np.eye(3)), ["feature=5", "3 columns"]),
        (lambda: Mixture([], []), ["kernels", "non-empty"]),
        (lambda: Mixture([Linear()], [1, 2]), ["weights", "1 kernels, 2 weights"]),
        (lambda: Mixture([Linear()], [np.nan]), ["weights", "finite"]),
        (lambda: (Linear() + Spectrum(3))(np.eye(3)), ["same rows", "strings and vectors"]),
        (lambda: RBF("median")(np.eye(3)), ["gamma='median'", "resolve"]),
        (lambda: RBF("median").resolve(np.ones((4, 2))), ["gamma", "identical", "constant", "number"]),
        (lambda: RBF("median").resolve(np.ones((1, 2))), ["gamma", "two rows"]),
        (lambda: Linear()(np.ones((2, 3)), np.ones((2, 4))), ["3 features", "4"]),
        (lambda: Precomputed().resolve(np.ones((2, 3))), ["square", "(2, 3)"]),
        (lambda: Precomputed().resolve(np.array([[1.0, 0.5], [0.2, 1.0]])), ["not symmetric", "(X + X.T) / 2"]),
        (lambda: Precomputed().resolve(np.array([[1.0, 2.0], [2.0, 1.0]])), ["smallest eigenvalue", "psd.project"]),
        (lambda: Precomputed()(np.eye(2)), ["resolve(K)"]),
        (lambda: Precomputed().resolve(np.eye(3))(np.ones((2, 4))), ["3 training rows", "4 columns"]),
        (lambda: Spectrum(3)("ABC"), ["one string", "sequence"]),
        (lambda: Spectrum(3)(["ABC", 5]), ["strings", "row 1", "int"]),
        (lambda: Linear()(["ABC", "DEF"]), ["text", "Spectrum"]),
    ],
)
def test_bad_parameters_and_rows(make, words):
    with pytest.raises(InputError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_precomputed_keeps_its_digits_on_smooth_kernels(rng):
    X = rng.normal(size=(200, 3))
    K = RBF(0.05)(X)
    kernel = Precomputed().resolve(K)
    np.testing.assert_allclose(kernel(K), K, atol=1e-11)
    np.testing.assert_allclose(kernel.distance(K, K), RBF(0.05).distance(X, X), atol=1e-6)
    np.testing.assert_allclose(kernel.distance(K.astype(np.float32), K), RBF(0.05).distance(X, X), atol=0.05)


def test_a_kernel_without_the_decorator_still_computes(rng):
    class Plain(mf.Kernel):
        def block(self, X, Y):
            return X @ Y.T

    X = rng.normal(size=(10, 3))
    metric = mf.learn(X, np.arange(10) % 2, method="euclidean", kernel=Plain())
    np.testing.assert_allclose(metric.kernel(X), X @ X.T)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RBF(1.0, base="linear"), ["base must be a kernel", "'linear'"]),
        (lambda: Linear() * 2 * "x", []),
        (lambda: RBF(np.array([1.0, 2.0])), ['gamma must be "median" or a finite number above 0']),
        (lambda: Mixture([Linear()], ["a"]), ["weights must be numbers"]),
        (lambda: Spectrum(2)(None), ["X must be a sequence", "None"]),
        (lambda: Linear()(np.ma.masked_equal([[1.0, 2.0]], 2.0)), ["masked", "filled"]),
        (lambda: Linear()(np.array([["2020-01-01"]], dtype="datetime64[D]")), ["dates"]),
        (lambda: Linear()([[10**400, 1]]), ["X must hold numbers", "row 0"]),
    ],
)
def test_more_bad_parameters_and_rows(make, words):
    with pytest.raises((InputError, TypeError)) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


# ----------------------------------------------------------------------------------------------------- standardised


@pytest.mark.parametrize("inside", [Linear(), RBF("median"), Polynomial(2)], ids=str)
@pytest.mark.parametrize("kind", ["dense", "float32", "sparse", "dask", "dask of sparse"])
def test_standardized_is_the_kernel_of_a_standard_scaler(inside, kind):
    import dask.array as da
    from scipy.sparse import csr_array
    from sklearn.preprocessing import StandardScaler

    X = np.random.default_rng(0).normal(size=(60, 4)) * [1, 1000, 1e-3, 0] + [5, 1e4, 0, 7]
    X *= np.abs(X) > 1e-3
    sparse = "sparse" in kind
    given = X.astype(np.float32) if kind == "float32" else csr_array(X) if kind == "sparse" else X
    if "dask" in kind:
        given = da.from_array(X, chunks=(17, -1))
        given = given.map_blocks(csr_array) if sparse else given
    Z = StandardScaler(with_mean=not sparse).fit_transform(X)
    kernel = Standardized(inside).resolve(given)
    wanted = inside.resolve(Z)
    tol = 2e-3 if kind == "float32" else 1e-9
    rows, other = given[:20], X[30:40].astype(np.float32) if kind == "float32" else X[30:40]
    rows = rows.compute() if "dask" in kind else rows
    np.testing.assert_allclose(kernel(rows, other), wanted(Z[:20], Z[30:40]), rtol=tol, atol=tol)
    seen = Z[:20]
    np.testing.assert_allclose(kernel.distance(rows, rows), wanted.distance(seen, seen), rtol=tol, atol=tol)


@pytest.mark.parametrize("kind", ["dense", "float32", "sparse", "dask", "sparse dask"])
@pytest.mark.parametrize("inside", [Linear(), RBF("median")])
def test_standardized_by_range_divides_by_largest_less_smallest(kind, inside):
    import dask.array as da
    from scipy.sparse import csr_array

    X = np.random.default_rng(0).normal(size=(60, 4)) * [1, 1000, 1e-3, 0] + [5, 1e4, 0, 7]
    X *= np.abs(X) > 1e-3
    sparse = "sparse" in kind
    given = X.astype(np.float32) if kind == "float32" else csr_array(X) if kind == "sparse" else X
    if "dask" in kind:
        given = da.from_array(X, chunks=(17, -1))
        given = given.map_blocks(csr_array) if sparse else given
    spread = np.where(np.ptp(X, axis=0) > 0, np.ptp(X, axis=0), 1)
    Z = (X if sparse else X - X.min(axis=0)) / spread
    kernel = Standardized(inside, by="range").resolve(given)
    wanted = inside.resolve(Z)
    tol = 2e-3 if kind == "float32" else 1e-9
    np.testing.assert_allclose(kernel.spread, np.ptp(X, axis=0), rtol=1e-6)
    rows, other = given[:20], X[30:40].astype(np.float32) if kind == "float32" else X[30:40]
    rows = rows.compute() if "dask" in kind else rows
    np.testing.assert_allclose(kernel(rows, other), wanted(Z[:20], Z[30:40]), rtol=tol, atol=tol)
    assert kernel != Standardized(inside).resolve(given)


def test_the_range_leaves_bits_alone():
    bits = (np.random.default_rng(0).random((50, 6)) < [0.5, 0.02, 0.3, 0.9, 0.1, 0.5]).astype(float)
    kernel = Standardized(by="range").resolve(bits)
    np.testing.assert_array_equal(kernel.transform(bits), bits)


def test_standardized_refuses_a_range_that_overflows_and_an_unknown_rule():
    with pytest.raises(InputError, match="column 1 ranges from -1e\\+308 to 1e\\+308, and the difference overflows"):
        Standardized(by="range").resolve(np.array([[0, 1e308], [1, -1e308]]))
    with pytest.raises(InputError, match="by='iqr' is unknown"):
        Standardized(by="iqr")
    tiny = np.array([[0, 1e-320], [1, 0]])
    assert np.isfinite(Standardized(by="range").resolve(tiny).mahalanobis(2)).all()


def test_standardized_says_what_it_lacks():
    with pytest.raises(InputError, match=r"has no mean and spread yet; call kernel.resolve\(X\)"):
        Standardized(Linear())(np.eye(3))
    with pytest.raises(InputError, match="must be a kernel on vectors"):
        Standardized(Spectrum(3))
    with pytest.raises(InputError, match="X has 2 features, but the kernel was standardised on 3"):
        Standardized(Linear()).resolve(np.eye(3))(np.ones((2, 2)))


class Foreign:
    """An operand that brings operators of its own, as a Metric does."""

    def __radd__(self, other):
        return "added", other

    def __rmul__(self, other):
        return "multiplied", other


def test_the_other_operand_decides_where_it_is_no_kernel():
    kernel = RBF(1.0)
    assert kernel + Foreign() == ("added", kernel)
    assert kernel * Foreign() == ("multiplied", kernel)
    with pytest.raises(TypeError):
        kernel + "x"
    with pytest.raises(TypeError):
        kernel * None


def test_a_spectrum_longer_than_every_string_ends():
    assert not Spectrum(10**9)(["abc", "a" * 50]).any()


@pytest.mark.parametrize(
    "kernel",
    [
        Polynomial(3, 1e300),
        Polynomial(200, 1e3) * Polynomial(50, 1e3),
        1e300 * Polynomial(20, 1e3),
    ],
)
def test_overflow_is_an_error_and_no_warning(kernel, rng):
    X = rng.normal(size=(6, 2))
    with pytest.raises(InputError, match="overflows on these rows; rescale"):
        kernel(X)
    with pytest.raises(InputError, match="overflow"):
        mf.learn(X, [0, 0, 0, 1, 1, 1], method="euclidean", kernel=kernel).distance(X)
    with pytest.raises(InputError, match=r'^gamma="median": some distances overflow'):
        RBF("median", base=kernel).resolve(X)


def test_a_rate_without_bound_stays_finite(rng):
    X = rng.normal(size=(6, 2))
    for kernel in (Cauchy(1e300), RBF(1e308), Laplacian(1e308)):
        assert np.isfinite(kernel(1e10 * X)).all()
        np.testing.assert_allclose(kernel.squared_distance(1e10 * X, 1e10 * X.copy()), 2 - 2 * np.eye(6))
    with pytest.raises(InputError, match=r"^gamma=\"median\": the median of the distances is .*; rescale"):
        RBF("median").resolve(1e-160 * X)


def test_near_rows_are_measured_by_their_difference(rng):
    X = np.concatenate([rng.normal(size=(200, 3)), 1e6 * rng.normal(size=(1, 3))])
    Y = X + 1e-7
    apart = X[:, None] - Y[None]
    exact = np.einsum("ijk,ijk->ij", apart, apart)
    np.testing.assert_allclose(squared_euclidean(X, Y), exact, rtol=1e-6)
    assert not squared_euclidean(X, X.copy()).diagonal().any()


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
def test_a_kernel_of_whole_numbers_has_distances(dtype):
    @dataclass(frozen=True)
    class Shared(mf.Kernel):
        def block(self, X, Y):
            return ((X[:, None] * Y[None]).sum(axis=-1)).astype(dtype)

    X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(Shared().distance(X, X.copy()), np.sqrt([[0, 2, 0], [2, 0, 2], [0, 2, 0]]))
    np.testing.assert_allclose(Shared().paired_squared_distance(X, X[[1, 1, 2]]), [2, 0, 0])


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_a_slow_laplacian_keeps_its_digits(container, rng):
    X = rng.normal(size=(5, 3))
    exact = 1e-12 * np.abs(X[:, None] - X[None]).sum(axis=-1)
    kernel, X = Laplacian(1e-12), container(X)
    np.testing.assert_allclose(kernel.squared_distance(X, X), 2 * exact, rtol=1e-9)
    np.testing.assert_allclose(
        kernel.paired_squared_distance(X, X[[1, 2, 3, 4, 0]]), 2 * exact[range(5), [1, 2, 3, 4, 0]]
    )
    np.testing.assert_allclose(kernel.paired(X, X[[1, 2, 3, 4, 0]]), 1.0)


@pytest.mark.parametrize("times", [-0.7, 3.0, -1e-120, -1e200])
@pytest.mark.parametrize("others", [2, 40])
def test_squared_distances_times_a_number_are_the_multiples(rng, times, others):
    X = rng.normal(size=(60, 5)) * np.exp(rng.normal(size=(60, 1)))
    X[-3:] = X[:3] + 1e-9  # near pairs, which are measured by their difference
    Y = X[:others].copy()
    exact = times * np.square(X[:, None] - Y).sum(axis=2)
    for dtype in (np.float64, np.float32):
        A, B = X.astype(dtype), Y.astype(dtype)
        truth = exact if dtype == np.float64 else times * np.square(A[:, None].astype(float) - B).sum(axis=2)
        found = squared_euclidean(A, B, times=times)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(found, truth.astype(dtype), rtol=1e-9 if dtype == np.float64 else 1e-6)
    assert (np.sign(times) * found >= 0).all()


def test_a_factor_that_overflows_is_multiplied_after_the_distances():
    X = np.array([[1e105], [-1e105], [1e105 * (1 + 1e-12)], [2e105]])
    near = RBF(1e100).block(X, X.copy())
    assert near.tolist() == np.eye(4).tolist()


@pytest.mark.parametrize("others", [2, 30])
def test_blocks_against_fixed_rows_are_blocks(rng, others):
    from scipy.sparse import csr_array

    X, Y = rng.normal(size=(50, 4)), rng.normal(size=(others, 4))
    inner = RBF(0.5) + Linear()
    for kernel in (RBF(0.3), RBF(0.3, base=Linear()), Standardized(RBF(0.7)).resolve(X), Linear(), inner):
        for A, B in ((X, Y), (csr_array(X), Y), (X, csr_array(Y))):
            np.testing.assert_allclose(kernel.block_to(B)(A), kernel.block(A, B), rtol=1e-12, atol=1e-14)
        same, rows = kernel.applied(X)
        np.testing.assert_allclose(same.block(rows, rows), kernel.block(X, X), rtol=1e-12)


def test_substrings_longer_than_all_strings_are_none():
    for k in (5, 10**400):
        assert Spectrum(k)(["AB", "ABCD"]).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("kernel", KERNELS[:13], ids=str)
def test_rows_that_stand_several_times_are_one_row(kernel, container, rng):
    rows = rng.normal(size=(9, 4)) * (rng.random((9, 4)) < 0.7)
    again = rng.integers(0, 9, size=30)
    resolved = kernel.resolve(rows)
    K, D = resolved(container(rows[again])), resolved.distance(container(rows[again]), container(rows[again]))
    np.testing.assert_allclose(K, resolved(rows)[np.ix_(again, again)], rtol=1e-9, atol=1e-12)
    truth = resolved.distance(rows, rows)[np.ix_(again, again)]
    np.testing.assert_allclose(D, truth, rtol=1e-9, atol=1e-7 * float(np.sqrt(np.abs(K).max())))


@dataclass(frozen=True)
class Overflowing(mf.Kernel):
    """Is infinite, with one sign, between rows of numbers above 1."""

    sign: float

    def block(self, X, Y):
        return np.where((X[:, :1] > 1) & (Y[:, 0] > 1), self.sign * np.inf, 1.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_infinite_value_of_either_sign_is_refused(sign):
    X = np.array([[0.0], [1.5], [2.0]])
    with pytest.raises(InputError, match="overflows"):
        Overflowing(sign)(X)
    assert np.isfinite(Overflowing(sign)(X[:2, :] / 2)).all()

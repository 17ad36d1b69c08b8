"""Matching: probabilities that hold, thresholds that keep their word, candidates that miss no near pair."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.isotonic import IsotonicRegression

import metricforge as mf
from metricforge.errors import InputError
from metricforge.kernels import Linear
from metricforge.tasks import Calibration, calibrate, candidates


@pytest.fixture
def records(rng):
    """Two noisy copies of 150 things, and which rows are the same."""
    things = rng.normal(size=(150, 5))
    X = np.concatenate([things, things + 0.3 * rng.normal(size=things.shape)])
    return X, np.column_stack([np.arange(150), 150 + np.arange(150)])


@pytest.fixture
def known(records):
    X, same = records
    metric = mf.learn(X, mf.Pairs(similar=same[:50], n=300), method="krca", kernel="linear")
    found, _ = candidates(metric, X, 5)
    is_same = found[:, 1] - found[:, 0] == 150
    pairs = mf.Pairs(similar=found[is_same], dissimilar=found[~is_same], n=300)
    return metric, X, pairs


def test_coverage_tells_judged_candidates_from_pairs_at_random(known, rng):
    metric, X, pairs = known
    _, distances = candidates(metric, X, 5)
    assert calibrate(metric, X, pairs).coverage(distances) > 0.8
    other = rng.integers(300, size=(500, 2))
    other = other[(other[:, 0] - other[:, 1]) % 150 != 0]
    assert calibrate(metric, X, mf.Pairs(pairs.similar, other, n=300)).coverage(distances) < 0.1


def test_candidates_are_the_nearest_of_each_row(records):
    X, _ = records
    metric = mf.learn(X, np.arange(300) % 2, method="euclidean", kernel="linear")
    found, distances = candidates(metric, k=3)
    D = cdist(X, X)
    np.fill_diagonal(D, np.inf)
    wanted = {(min(i, j), max(i, j)) for i in range(300) for j in np.argsort(D[i])[:3].tolist()}
    assert {tuple(pair) for pair in found.tolist()} == wanted
    assert len(found) == len(wanted)
    np.testing.assert_allclose(distances, D[tuple(found.T)])
    assert (np.diff(distances) >= 0).all()


def test_the_probability_is_that_of_isotonic_regression(known):
    metric, X, pairs = known
    found = calibrate(metric, X, pairs)
    every = np.concatenate([pairs.similar, pairs.dissimilar])
    D = metric.paired_distance(X[every[:, 0]], X[every[:, 1]])
    same = np.arange(len(every)) < len(pairs.similar)
    peer = IsotonicRegression(increasing=False).fit(D, same)
    np.testing.assert_allclose(found.probability(D), peer.predict(D), atol=1e-12)
    for p in np.unique(found.probability(D)):
        chosen = found.probability(D) == p
        np.testing.assert_allclose(same[chosen].mean(), p, atol=1e-12)  # of those with probability p, a share p
    assert found.probability(0.0) >= found.probability(1e9)


def test_probabilities_hold_on_pairs_that_were_not_seen(known):
    metric, X, pairs = known
    first, second = pairs[np.arange(0, 300)], None
    half = np.arange(len(pairs.similar)) % 2 == 0
    other = np.arange(len(pairs.dissimilar)) % 2 == 0
    first = mf.Pairs(pairs.similar[half], pairs.dissimilar[other], n=300)
    second = mf.Pairs(pairs.similar[~half], pairs.dissimilar[~other], n=300)
    found = calibrate(metric, X, first)
    chances, truth = [], []
    for part, same in ((second.similar, 1.0), (second.dissimilar, 0.0)):
        chances.append(found.probability(metric.paired_distance(X[part[:, 0]], X[part[:, 1]])))
        truth.append(np.full(len(part), same))
    chances, truth = np.concatenate(chances), np.concatenate(truth)
    for low, high in ((0.0, 0.3), (0.3, 1.01)):
        chosen = (chances >= low) & (chances < high)
        assert abs(chances[chosen].mean() - truth[chosen].mean()) < 0.1


def test_a_threshold_keeps_its_precision(known):
    metric, X, pairs = known
    found = calibrate(metric, X, pairs)
    for precision in (0.5, 0.8, 0.95):
        limit = found.threshold(precision, confidence=None)
        inside = found.distances <= limit
        assert found.same[inside].mean() >= precision
        beyond = found.distances[found.distances > limit]
        for other in beyond[:20]:
            assert found.same[found.distances <= other].mean() < precision
        assert found.recall(limit) == found.same[inside].sum() / found.same.sum()


def test_a_threshold_with_confidence_holds_on_new_pairs():
    """Things of two to five rows, so that pairs are right or wrong together; 40 draws of judged and new pairs."""
    missed, without = 0, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(2, 6, size=400)
        offset = rng.normal(size=400)  # pairs of a thing share an offset of their distance
        thing = np.repeat(np.arange(400), sizes * (sizes - 1) // 2)
        right = rng.normal(size=len(thing)) + 1.5 * offset[thing]
        wrong = rng.normal(size=len(thing)) + 5
        first = np.arange(400) < 200
        rows = np.concatenate(
            [[np.arange(s * (s - 1) // 2) * 0, np.arange(1, s * (s - 1) // 2 + 1)] for s in sizes], 1
        ).T
        rows = rows + 20 * thing[:, None]
        others = 20 * 400 + np.arange(2 * len(thing)).reshape(-1, 2)  # rows of their own
        half = first[thing]
        distances = np.concatenate([right[half], wrong[half]])
        same = np.arange(len(distances)) < half.sum()
        order = np.argsort(distances)
        ends = np.concatenate([rows[half], others[half]])
        found = Calibration(np.ones(1), np.ones(1), distances[order], same[order], ends[order])
        for confidence in (0.95, None):
            limit = found.threshold(0.95, confidence)
            hits, errors = (right[~half] <= limit).sum(), (wrong[~half] <= limit).sum()
            if confidence:
                missed += hits / (hits + errors) < 0.95
            else:
                without += hits / (hits + errors) < 0.95
    assert missed <= 6  # 5 % of 40 draws, and the chance of the new pairs
    assert without >= 12


def test_bad_input(known):
    metric, X, pairs = known
    with pytest.raises(InputError, match="examples of both"):
        calibrate(metric, X, mf.Pairs(pairs.similar, n=300))
    with pytest.raises(InputError, match="pairs must be Pairs"):
        calibrate(metric, X, [(0, 1)])
    with pytest.raises(InputError, match="about 300 rows"):
        calibrate(metric, X[:5], pairs)
    rows = np.array([[0, 1], [2, 3]])
    found = Calibration(np.ones(1), np.ones(1), np.array([1.0, 2.0]), np.array([False, True]), rows)
    with pytest.raises(InputError, match=r"no threshold reaches 0\.9 on these pairs, the best is 0\.500"):
        found.threshold(0.9, None)
    with pytest.raises(
        InputError, match=r"confidence 0\.95; the best bound is 0\.025; judge more pairs \(at least 29,"
    ):
        found.threshold(0.9)
    with pytest.raises(InputError, match="no number of pairs shows a precision of 1"):
        found.threshold(1.0)
    with pytest.raises(InputError, match="confidence must be a number above 0 and below 1"):
        found.threshold(0.9, 1.0)
    with pytest.raises(InputError, match="precision must be a number above 0"):
        found.threshold(0.0)
    for wrong in ("x", None, [1.0]):
        with pytest.raises(InputError, match="precision must be a number"):
            found.threshold(wrong)
        with pytest.raises(InputError, match="threshold must be a finite number"):
            found.recall(wrong)
    for wrong in ("x", None, [float("nan")]):
        with pytest.raises(InputError, match="distances must be numbers"):
            found.probability(wrong)
    for wrong in ([], [float("inf")]):
        with pytest.raises(InputError, match="distances must be finite numbers"):
            found.coverage(wrong)
    with pytest.raises(InputError, match="one row"):
        candidates(metric, X[:1])
    with pytest.raises(InputError, match="X is missing"):
        candidates(mf.Metric(Linear(), metric.report))

"""Every row of the tables of docs/metric-learn.md, as a test of its own."""

from __future__ import annotations

import re
from pathlib import Path

import metricforge_classics as classics
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris

import metricforge as mf
from metricforge.errors import ConvergenceWarning, InputError

PAGE = Path(__file__).parents[2] / "docs" / "metric-learn.md"
X, Y = load_iris(return_X_y=True)
X, Y = X[::2], Y[::2]
RNG = np.random.default_rng(0)
PAIRS = RNG.permutation(75)[:60].reshape(30, 2)
SIGN = np.where(Y[PAIRS[:, 0]] == Y[PAIRS[:, 1]], 1, -1)
QUADS = np.column_stack(classics.Constraints(Y).positive_negative_pairs(20, same_length=True, random_state=0))


def mahalanobis(model, u, v):
    return np.sqrt((u - v) @ model.get_mahalanobis_matrix() @ (u - v))


def the_supervised():
    for make in (classics.LMNN, classics.NCA, classics.LFDA, classics.MLKR, classics.Covariance):
        model = make().fit(X, Y)
        assert model.transform(X).shape == X.shape
        assert np.isfinite(model.gap_)
        assert isinstance(model.metric_, mf.Metric)


def the_tuples():
    for preprocessor in (None, X):
        form = (lambda index: X[index]) if preprocessor is None else (lambda index: index)
        itml = classics.ITML(preprocessor=preprocessor).fit(form(PAIRS), SIGN)
        assert itml.score(form(PAIRS), SIGN) > 0.8
        lsml = classics.LSML(preprocessor=preprocessor).fit(form(QUADS))
        assert lsml.score(form(QUADS)) > 0.8


def the_drawn():
    for model in (classics.ITML_Supervised(random_state=0), classics.LSML_Supervised(random_state=0)):
        assert model.fit(X, Y).components_.shape == (4, 4)
    chunks = classics.Constraints(Y).chunks(20, 2, random_state=0)
    assert classics.RCA(n_components=2).fit(X, chunks).components_.shape == (2, 4)
    assert classics.RCA_Supervised(n_chunks=20, random_state=0).fit(X, Y).gap_ < 1e-8


def the_constraints():
    a, b, c, d = classics.Constraints(Y).positive_negative_pairs(10, random_state=0)
    assert (Y[a] == Y[b]).all()
    assert (Y[c] != Y[d]).all()
    i, j, k = classics.Constraints(Y).generate_knntriplets(X, 2, 3).T
    assert len(i) == 75 * 6
    assert (Y[i] == Y[j]).all()
    assert (Y[i] != Y[k]).all()


def the_missing_pairs():
    for make in (classics.MMC, classics.SDML, classics.MMC_Supervised, classics.SDML_Supervised):
        with pytest.raises(InputError, match="ITML"):
            make(max_iter=3)


def the_missing_triplets():
    with pytest.raises(InputError, match="lpdesign"):
        classics.SCML(n_basis=3)


def the_matrix():
    model = classics.LMNN().fit(X, Y)
    assert_allclose(model.transform(X), X @ model.components_.T)
    assert_allclose(model.get_mahalanobis_matrix(), model.components_.T @ model.components_)
    metric = model.get_metric()
    assert_allclose(metric(X[0], X[1]), mahalanobis(model, X[0], X[1]))
    assert_allclose(metric(X[0], X[1], squared=True), metric(X[0], X[1]) ** 2)
    assert_allclose(
        model.metric_.distance(X[:9], X[9:]),
        np.linalg.norm(model.transform(X[:9])[:, None] - model.transform(X[9:])[None], axis=-1),
        atol=1e-9,
    )


def the_pairs():
    model = classics.LFDA().fit(X, Y)
    assert_allclose(model.pair_distance(X[PAIRS])[0], mahalanobis(model, *X[PAIRS[0]]))
    assert_allclose(model.pair_score(X[PAIRS]), -model.pair_distance(X[PAIRS]))


def the_predictions():
    model = classics.ITML(preprocessor=X).fit(PAIRS, SIGN)
    assert set(model.predict(PAIRS)) <= {-1, 1}
    assert np.mean(model.predict(PAIRS) == SIGN) >= np.mean(SIGN == -1)
    assert_allclose(model.decision_function(PAIRS), model.pair_score(PAIRS))
    assert (model.set_threshold(1e9).predict(PAIRS) == 1).all()
    strict = model.calibrate_threshold(PAIRS, SIGN, strategy="max_tpr", min_rate=1.0)
    assert (strict.predict(PAIRS)[SIGN == -1] == -1).all()
    assert model.calibrate_threshold(PAIRS, SIGN, strategy="f_beta", beta=2.0).threshold_ > 0


def the_ignored():
    with pytest.warns(FutureWarning, match="LMNN ignores learn_rate, verbose"):
        classics.LMNN(learn_rate=1e-3, verbose=True).fit(X, Y)


def the_kernel():
    model = classics.LMNN(kernel="rbf", convergence_tol=0.01).fit(X, Y)
    assert not hasattr(model, "components_")
    assert model.pair_distance(X[PAIRS]).shape == (30,)
    assert_allclose(model.get_metric()(X[0], X[1]), model.metric_.distance(X[0], X[1]))
    with pytest.raises(InputError, match="no Mahalanobis matrix"):
        model.get_mahalanobis_matrix()


def the_local_scale():
    from metricforge_plugins.lfda.solver import scatters

    model = classics.LFDA(k=3).fit(X, Y)
    Sw, Sb = scatters(X, Y, 3)
    L = model.components_
    assert_allclose(
        L @ Sb @ L.T, (L @ Sw @ L.T) ** 2, atol=1e-6 * np.abs(L @ Sb @ L.T).max()
    )  # S_b v = λ S_w v, scaled


def the_weighted_gradient():
    many = np.tile(QUADS, (5, 1))  # the mean does not change
    few, more = (classics.LSML(preprocessor=X, tol=1e-9).fit(q).get_mahalanobis_matrix() for q in (QUADS, many))
    assert_allclose(few, more, atol=1e-3)


def the_squared_bounds():
    model = classics.ITML(preprocessor=X).fit(PAIRS, SIGN)
    rows = np.unique(X[PAIRS].reshape(-1, 4), axis=0)
    D = np.square(rows[:, None] - rows[None]).sum(-1)[np.triu_indices(len(rows), 1)]
    assert_allclose(model.bounds_, np.percentile(D, [5, 95]))


def the_silence():
    with pytest.warns(ConvergenceWarning, match="lmnn stopped after 1 steps"):
        short = classics.LMNN(max_iter=1).fit(X, Y)
    assert short.gap_ > 0.01 * short.metric_.report.objective
    with pytest.warns(ConvergenceWarning, match="itml stopped after 1 steps"):
        classics.ITML(preprocessor=X, max_iter=1, gamma=100.0).fit(PAIRS, SIGN)


def the_collinear():
    wide = np.column_stack([X, X[:, 0] + X[:, 1]])
    model = classics.LFDA().fit(wide, Y)
    assert np.abs(model.components_).max() < 1e4
    assert model.components_.shape == (5, 5)


def learned(hints, method, **options):
    return mf.learn(X, hints, method=method, kernel="linear", **options)


def call_lmnn():
    same = classics.LMNN(n_neighbors=3, convergence_tol=5e-3).fit(X, Y)
    assert_allclose(learned(Y, "lmnn", k=3, ridge="least").distance(X), same.metric_.distance(X), atol=1e-8)


def call_nca():
    for method in ("nca", "lfda"):
        assert learned(Y, method).report.method == method


def call_mlkr():
    one, other = learned(mf.Targets(X[:, 0]), "mlkr"), learned(X[:, 0], "mlkr")
    assert_allclose(one.distance(X), other.distance(X))


def call_itml():
    pairs = mf.Pairs(PAIRS[SIGN == 1], PAIRS[SIGN == -1], n=75)
    model = classics.ITML(tol=1e-8).fit(X[PAIRS], SIGN)
    metric = learned(pairs, "itml", bounds=tuple(model.bounds_), tol=1e-8)
    assert_allclose(metric.mahalanobis(), model.get_mahalanobis_matrix(), atol=1e-3)


def call_preprocessor():
    formed, indexed = classics.ITML().fit(X[PAIRS], SIGN), classics.ITML(preprocessor=X).fit(PAIRS, SIGN)
    assert_allclose(formed.components_, indexed.components_)


def call_lsml():
    model = classics.LSML(preprocessor=X, tol=1e-9).fit(QUADS)
    metric = learned(mf.Quadruplets(QUADS, n=75), "lsml", tol=1e-9)
    assert_allclose(metric.mahalanobis(), model.get_mahalanobis_matrix(), atol=1e-3)


def call_rca():
    chunks = classics.Constraints(Y).chunks(20, 2, random_state=0)
    metric = learned(mf.Chunklets(chunks), "krca", epsilon=0.0)
    assert_allclose(metric.mahalanobis(), classics.RCA().fit(X, chunks).get_mahalanobis_matrix(), rtol=1e-6, atol=1e-8)


def call_supervised():
    assert learned(Y, "itml").report.converted


def call_matrix():
    M = learned(Y, "lfda").mahalanobis()
    assert_allclose(M, classics.LFDA(k=7).fit(X, Y).get_mahalanobis_matrix(), rtol=1e-6, atol=1e-8)


def call_metric():
    metric = learned(Y, "lfda")
    assert_allclose(metric.distance(X[0], X[1]), metric.paired_distance(X[:1], X[1:2])[0])


def call_components():
    metric = learned(Y, "lmnn", n_components=2)
    assert_allclose(metric.transform(X), X @ metric.kernel.L.T)


def call_save(folder="."):
    metric = learned(Y, "lmnn")
    metric.save(f"{folder}/iris.metric")
    assert_allclose(mf.load(f"{folder}/iris.metric").distance(X), metric.distance(X))


# the first cell of each row, in the order of the page
ROWS = {
    "`LMNN`, `NCA`, `LFDA`, `MLKR`, `Covariance`": the_supervised,
    "`ITML`, `LSML` on tuples, with or without `preprocessor`": the_tuples,
    "`ITML_Supervised`, `LSML_Supervised`, `RCA`, `RCA_Supervised`": the_drawn,
    "`Constraints(y)`": the_constraints,
    "`MMC`, `SDML`": the_missing_pairs,
    "`SCML`": the_missing_triplets,
    "`transform`, `components_`, `get_mahalanobis_matrix()`, `get_metric()`": the_matrix,
    "`pair_distance`, `pair_score`": the_pairs,
    "`predict`, `decision_function`, `score`, `set_threshold`, `calibrate_threshold`": the_predictions,
    "`verbose`, `learn_rate`, `min_iter`": the_ignored,
    "": the_kernel,
    "`LFDA` scales every row by the distances of one row": the_local_scale,
    "the gradient of `LSML` lacks the weights": the_weighted_gradient,
    "default bounds of `ITML` are percentiles of distances, and bound squared distances": the_squared_bounds,
    "`LMNN` and `ITML` stop unconverged without a word": the_silence,
    "`LFDA` on collinear columns amplifies rounding": the_collinear,
    "`LMNN(n_neighbors=3).fit(X, y)`": call_lmnn,
    "`NCA().fit(X, y)`, `LFDA().fit(X, y)`": call_nca,
    "`MLKR().fit(X, y)`": call_mlkr,
    "`ITML().fit(pairs, y)` with pairs of shape (p, 2, d)": call_itml,
    "`preprocessor=X` and index pairs": call_preprocessor,
    "`LSML().fit(quadruplets)`": call_lsml,
    "`RCA().fit(X, chunks)`": call_rca,
    "`ITML_Supervised().fit(X, y)`": call_supervised,
    "`get_mahalanobis_matrix()`": call_matrix,
    "`get_metric()(u, v)`": call_metric,
    "`components_`": call_components,
    "`pickle`": call_save,
}


def test_every_row_of_the_page_has_a_test():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith(("| ", "|-"))]
    cells = [line.strip("|").split("|")[0].strip() for line in lines if not line.startswith("|-")]
    rows = [cell for cell in cells if not re.match(r"metric-learn", cell)]
    assert rows == list(ROWS)


@pytest.mark.filterwarnings("ignore:only .* pairs exist:UserWarning")
@pytest.mark.parametrize("row", ROWS)
def test_row(row, tmp_path):
    check = ROWS[row]
    check(tmp_path) if check is call_save else check()

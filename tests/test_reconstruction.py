"""loss="reconstruction": every token from the others of its set, without any labels."""

import functools
import pickle

import numpy as np
import pytest
from models import assert_same_fit
from numpy.testing import assert_allclose, assert_array_equal
from reference import LENGTHS, check_gradient, layer, make_objective
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionContextualizerCV,
    AttentionRegressor,
    RaggedArray,
    _objective,
)
from skattn.attention import ATTENTIONS, Attention
from skattn.datasets import make_matching_pairs
from skattn.losses import ReconstructionError
from skattn.pooling import POOLINGS, MeanPooling

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def small(**params):
    settings = {"n_heads": 2, "d_k": 2, "d_v": 2, "alpha": 0.1, "max_iter": 5, "random_state": 0}
    return AttentionContextualizer(**settings | {"loss": "reconstruction"} | params)


def errors_of(model, X):
    """Each token's error, token by token."""
    params = {name: getattr(model, name + "_") for name in ("W_Q", "W_K", "W_V", "b_V")}
    out = []
    for x in X:
        x = (x - model.token_mean_) / model.token_scale_
        Z = layer(params, x, n_heads=2, mask="exclude_self", score_statistics=False)[0]
        predicted = [model.coef_ @ z + model.intercept_ for z in Z]
        off = [np.sqrt(np.mean((p - t) ** 2)) for p, t in zip(predicted, x, strict=True)]
        out.append(np.array(off))
    return out


# What is learned


@pytest.mark.parametrize("standardize", [True, False])
def test_the_objective_is_a_loop_over_tokens_that_have_company(sets, standardize, rng):
    weight = rng.uniform(0.5, 2, size=12)
    model = small(standardize=standardize).fit(sets, sample_weight=weight)
    errors = errors_of(model, sets)
    total = sum(w * np.sum(e**2) / 2 for w, e in zip(weight, errors, strict=True) if len(e) > 1)
    total /= sum(w * len(e) for w, e in zip(weight, errors, strict=True) if len(e) > 1)
    penalty = 0.1 / 2 * (np.sum(model.W_V_**2) + np.sum(model.coef_**2))
    assert_allclose(model.loss_, total + penalty, rtol=1e-10)
    start = small(max_iter=0, standardize=standardize).fit(sets, sample_weight=weight)
    assert model.loss_ < start.loss_
    assert_array_equal(model.W_Q_, start.W_Q_)
    assert_array_equal(model.W_K_, start.W_K_)
    assert not np.array_equal(model.W_V_, start.W_V_)


def test_gradient(sets, rng):
    X = RaggedArray.from_list(sets)
    rows = np.flatnonzero(X.repeat(X.lengths > 1))
    attention = Attention(n_heads=2, d_k=2, d_v=2, mask="exclude_self", score_statistics=False)
    start = attention.init_params(3, rng)
    objective = make_objective(
        X, X.values[rows], rng.uniform(0.5, 2, size=len(rows)), 3, attention, MeanPooling(),
        ReconstructionError(), 0.1, held={name: start[name] for name in ("b_V", "W_Q", "W_K")},
        rows=rows,
    )  # fmt: skip
    assert list(objective.layout.shapes) == ["W_V", "coef", "intercept"]
    check_gradient(objective, 0.5 * rng.normal(size=objective.layout.size), rng)


def test_without_y_it_is_what_auto_means(sets):
    assert_same_fit(small().fit(sets), small(loss="auto").fit(sets))
    assert not hasattr(small(loss="auto", max_iter=0).fit(sets), "coef_")  # nothing is learned


@pytest.mark.parametrize("y", [np.arange(12) % 2, np.arange(12.0), ["a"] * 12, [None] * 12, "no"])
def test_y_is_not_looked_at(sets, y):
    model = small().fit(sets)
    assert_same_fit(model, small().fit(sets, y))
    assert not hasattr(small(loss="auto").fit(sets, np.arange(12) % 2).fit(sets), "classes_")


def test_sets_of_fewer_than_two_tokens_add_nothing(sets):
    some = [tokens for tokens in sets if len(tokens) > 1]
    assert_same_fit(small().fit(some), small().fit(sets))


def test_weights(sets, rng):
    counts = rng.integers(0, 3, size=12)
    again = [sets[i] for i in np.repeat(np.arange(12), counts)]
    one, two = small().fit(sets, sample_weight=counts), small().fit(again)
    assert_same_fit(one, two, rtol=1e-7, atol=1e-9)
    per_token = [np.full(n, w) for n, w in zip(LENGTHS, counts, strict=True)]
    assert_same_fit(one, small().fit(sets, sample_weight=per_token), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", ["reconstruction", "auto"])
def test_token_weights_are_0_or_1(sets, loss):
    ghosts = [np.insert(tokens, len(tokens) // 2, 1e9, axis=0) for tokens in sets]
    weights = [np.insert(np.ones(n), n // 2, 0) for n in LENGTHS]
    X = RaggedArray.from_list(ghosts, weights)
    model = small(loss=loss).fit(X)
    assert_same_fit(model, small(loss=loss).fit(sets))
    assert_array_equal(model.transform(X), model.transform(sets))
    twice = RaggedArray.from_list(sets, [np.full(n, 2.0) for n in LENGTHS])
    for call in (small(loss=loss).fit, model.transform):
        with pytest.raises(ValueError, match="no meaning with loss='reconstruction'.*Repeat"):
            call(twice)


# What comes out


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
def test_the_output_has_contexts_and_errors(sets, pooling, standardize, rng):
    model = small(pooling=pooling, standardize=standardize).fit(sets)
    tokens, errors = model.contextualize(sets), errors_of(model, sets)
    assert tokens.n_features == 8
    out = model.transform(sets)
    if pooling is None:
        assert_allclose(out.values[:, :8], tokens.values, rtol=1e-12)
        assert_allclose(out.values[:, 8], np.concatenate(errors), rtol=1e-12)
    else:
        expected = POOLINGS[pooling]().forward(model.pooling_params_, tokens)[0]
        assert_allclose(out[:, :-4], expected, rtol=1e-12, atol=1e-14)
        for row, e in zip(out, errors, strict=True):
            four = [e.mean(), e.std(), e.min(), e.max()] if len(e) else np.zeros(4)
            assert_allclose(row[-4:], four, rtol=1e-10, atol=1e-12)
    n_columns = out.n_features if pooling is None else out.shape[1]
    names = model.get_feature_names_out()
    assert len(set(names)) == n_columns
    assert names[0] == "attentioncontextualizer0"


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
def test_sets_of_one_token_and_of_none_have_finite_rows(sets, pooling):
    model = small(pooling=pooling).fit(sets)
    out = model.transform([np.ones((1, 3)), np.empty((0, 3)), np.full((1, 3), 1e6)])
    values = out.values if pooling is None else out
    assert np.isfinite(values).all()
    alone = np.sqrt(np.mean((model.intercept_ - (1 - model.token_mean_) / model.token_scale_) ** 2))
    assert_allclose(values[0, -1], alone, rtol=1e-12)
    if pooling is not None:
        assert_array_equal(out[1], np.zeros(out.shape[1]))
        model.set_params(empty="nan")
        assert_array_equal(np.isnan(model.transform(sets)).any(axis=1), np.array(LENGTHS) == 0)
    model.set_params(empty="error")
    with pytest.raises(ValueError, match=r"Sets \[1, 6\] have no tokens"):
        model.transform(sets)


@pytest.mark.parametrize("pooling", ["mean", None])
def test_a_pandas_index_and_names(sets, pooling):
    pd = pytest.importorskip("pandas")
    series = pd.Series(sets, index=np.arange(12)[::-1])
    model = small(pooling=pooling).set_output(transform="pandas").fit(series)
    out = model.transform(series)
    if pooling is None:
        assert out.shape == (12, None, 9)
    else:
        assert_array_equal(out.index, series.index)
        assert_array_equal(out.columns, model.get_feature_names_out())


# What must change nothing


@pytest.mark.parametrize("pooling", ["mean", "stats", None])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_order_neighbours_padding_and_chunks(sets, pooling, dtype, rng, monkeypatch):
    sets = [x.astype(dtype) for x in sets]
    exact = {"rtol": 1e-8, "atol": 1e-10} if dtype == np.float64 else {"rtol": 2e-4, "atol": 1e-5}
    model = small(pooling=pooling).fit(sets)
    out = list(model.transform(sets))
    assert out[0].dtype == dtype
    order = rng.permutation(12)
    assert_same_fit(model, small(pooling=pooling).fit([sets[i] for i in order]), **exact)
    orders = [rng.permutation(n) for n in LENGTHS]
    turned = [x[o] for x, o in zip(sets, orders, strict=True)]
    assert_same_fit(model, small(pooling=pooling).fit(turned), **exact)
    for got, row, o in zip(model.transform(turned), out, orders, strict=True):
        assert_allclose(got, row[o] if pooling is None else row, **exact)
    padded = np.concatenate(
        [RaggedArray.from_list(sets).to_padded(), np.full((12, 7, 3), np.nan, dtype)], axis=1
    )
    assert_same_fit(model, small(pooling=pooling).fit(padded))
    for got, row in zip(model.transform(padded), out, strict=True):
        assert_array_equal(got, row)
    for i, tokens in enumerate(sets):
        assert_allclose(model.transform([tokens])[0], out[i], **exact)
    for got, row in zip(model.transform([sets[i] for i in order]), order, strict=True):
        assert_allclose(got, out[row], **exact)
    chunked = functools.partial(Attention, chunk_bytes=200)
    monkeypatch.setitem(ATTENTIONS, "scaled_dot_product", chunked)
    again = small(pooling=pooling).fit(sets)
    assert_same_fit(model, again, **exact)
    for got, row in zip(again.transform(sets), out, strict=True):
        assert_allclose(got, row, **exact)


def test_processes_and_threads_change_no_bit(rng, monkeypatch):
    monkeypatch.setattr(_objective, "WORK_OF_A_PIECE", 2000.0)
    monkeypatch.setattr("skattn._network.MANY_TOKENS", 0)
    sets = [rng.normal(size=(n, 3)) for n in [*rng.integers(0, 9, size=40), 60]]
    one, two = (small(n_jobs=n_jobs).fit(sets) for n_jobs in (1, 2))
    assert one.loss_curve_ == two.loss_curve_
    assert_same_fit(one, two)
    assert_array_equal(one.transform(sets), two.transform(sets))


def test_units_and_origin_of_the_features_do_not_matter(sets):
    units, shift = np.array([1e3, 1e-4, 2.0]), np.array([5.0, -1.0, 100.0])
    other_sets = [tokens * units + shift for tokens in sets]
    one, two = small().fit(sets), small().fit(other_sets)
    assert_allclose(two.transform(other_sets), one.transform(sets), rtol=1e-6, atol=1e-8)


def test_parameters_set_after_fit_are_for_the_next(sets):
    model = small().fit(sets)
    out = model.transform(sets)
    model.set_params(loss="log_loss", mask="causal", pooling="max", standardize=False)
    assert_array_equal(model.transform(sets), out)
    model.set_params(mask=None, pooling="mean", standardize=True).fit(sets, np.arange(12) % 2)
    assert model.transform(sets).shape == (12, 8)
    again = pickle.loads(pickle.dumps(small().fit(sets)))
    assert_array_equal(again.transform(sets), out)


def test_a_warm_start_goes_on(sets):
    model = small().fit(sets)
    loss = model.loss_
    model.set_params(warm_start=True).fit(sets)
    assert_allclose(model.loss_curve_[0], loss, rtol=1e-12)


# What is refused


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"mask": "causal"}, "mask must be None or 'exclude_self', but is 'causal'"),
        ({"mask": "diagonal"}, "mask must be None or 'exclude_self'"),
        ({"class_weight": "balanced"}, "class_weight goes with loss='log_loss'"),
    ],
)
def test_parameters_that_do_not_go_with_it_are_refused(sets, params, match):
    for loss in ("reconstruction", "auto"):
        with pytest.raises(ValueError, match=match):
            small(loss=loss, **params).fit(sets)


def test_there_must_be_company_somewhere(rng):
    for X in ([rng.normal(size=(1, 3))] * 4, [np.empty((0, 3))] * 2, rng.normal(size=(5, 3))):
        with pytest.raises(ValueError, match="no set of two or more tokens.*from the others"):
            small().fit(X)


@pytest.mark.parametrize("kind", [AttentionClassifier, AttentionRegressor])
def test_predictors_predict_y(sets, kind):
    with pytest.raises(ValueError, match="needs a loss out of .*'reconstruction'"):
        kind(loss="reconstruction").fit(sets, np.arange(12) % 2)
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        kind().fit(sets)


def test_there_is_no_score_to_choose_alpha_by(sets):
    with pytest.raises(ValueError, match="predicts tokens.*choose its alpha by the score"):
        AttentionContextualizerCV(loss="reconstruction").fit(sets)


# In scikit-learn, and of use


def test_it_stands_in_pipelines_with_and_without_labels(sets):
    y = np.arange(12) % 2
    clusters = make_pipeline(small(loss="auto"), KMeans(2, n_init=2, random_state=0)).fit(sets)
    assert set(clusters.predict(sets)) <= {0, 1}
    model = make_pipeline(small(), LogisticRegression())
    assert cross_val_score(model, sets, y, cv=2, error_score="raise").shape == (2,)
    grid = {"attentioncontextualizer__alpha": [1e-2, 1.0]}
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(sets, y)
    assert search.predict(sets).shape == (12,)
    assert_array_equal(small().fit_transform(sets), small().fit(sets).transform(sets))
    with pytest.raises(NotFittedError):
        clone(model[0]).transform(sets)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_it_finds_near_duplicates_without_labels():
    """The defaults, converged: pooled statistics of the tokens say .58 at best."""
    X, y = make_matching_pairs(500, random_state=0)
    X_test, y_test = make_matching_pairs(1000, random_state=1)
    model = make_pipeline(
        AttentionContextualizer(loss="reconstruction", random_state=0),
        RandomForestClassifier(random_state=0),
    )
    assert model.fit(X, y).score(X_test, y_test) > 0.79

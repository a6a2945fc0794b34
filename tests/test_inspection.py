"""Weights, diagnostics and importances: against slow, obvious loops, and what they leave alone."""

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import COUNTING_MASKS, MASK_NAMES
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax
from scipy.stats import spearmanr
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionContextualizerCV,
    AttentionRegressor,
    RaggedArray,
    RaggedPair,
    TokenTransformer,
    inspection,
)
from skattn.datasets import load_digit_bags, make_lookup
from skattn.inspection import (
    attention_diagnostics,
    attention_frame,
    head_similarity,
    permutation_importance,
    row_entropies,
    token_importance,
)
from skattn.masks import mask_of
from skattn.pooling import POOLINGS

# A fit of a few steps is as good as a long one where its parameters are looked at.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SMALL = {"n_heads": 2, "d_k": 2, "d_v": 3, "max_iter": 8, "random_state": 0}
LABELS = np.array([0, 1, 0, 1, 1, 0, 1])  # of awkward_sets
CLASSES = np.array(["a", "b", "c", "b", "c", "a", "b"])
CHOOSING_MASKS = [name for name in MASK_NAMES if not mask_of(name).only_self]

ESTIMATORS = {
    "contextualizer": AttentionContextualizer(**SMALL),
    "tokens": AttentionContextualizer(**SMALL, pooling=None),
    "cross-validated": AttentionContextualizerCV(**SMALL, alphas=[1e-3, 1e-1], cv=2),
    "classifier": AttentionClassifier(**SMALL, pooling="max"),
    "regressor": AttentionRegressor(**SMALL, pooling="attention"),
}


@pytest.fixture(params=ESTIMATORS)
def fitted(request, awkward_sets):
    return ESTIMATORS[request.param].fit(awkward_sets, LABELS)


@pytest.fixture
def weighted(awkward_sets):
    """The awkward sets with token weights 0, 1, 2 and 3, and the same with tokens repeated."""
    generator = np.random.default_rng(2)
    weights = [generator.integers(0, 4, size=len(tokens)) for tokens in awkward_sets]
    repeated = [np.repeat(x, w, axis=0) for x, w in zip(awkward_sets, weights, strict=True)]
    return RaggedArray.from_list(awkward_sets, weights), repeated


def rows_of(model, sets):
    """Each row of attention with a choice: its head, query, allowed keys, weights and scores."""
    X = [(x - model.token_mean_) / model.token_scale_ for x in sets]
    H, d_k = model.n_heads, model.d_k
    scale = 1 / np.sqrt(d_k) if model.scale is None else model.scale
    for i, x in enumerate(X):
        for h in range(H):
            part = slice(h * d_k, (h + 1) * d_k)
            scores = (x @ model.W_Q_[:, part]) @ (x @ model.W_K_[:, part]).T * scale
            for q, row in enumerate(scores):
                keys = np.arange(len(x))
                allowed = mask_of(model.mask).allowed(np.array([[q]]), keys)
                keys = keys if allowed is None else keys[allowed[0]]
                if keys.size:
                    yield i, h, q, keys, softmax(row[keys]), row[keys]


# What asking leaves alone ---------------------------------------------------------------------

ASKED = {
    "frame": attention_frame,
    "diagnostics": attention_diagnostics,
    "entropies": row_entropies,
    "similarity": head_similarity,
    "importance": lambda est, X: token_importance(est, X, method="all"),
    "permutation": lambda est, X: permutation_importance(
        est, X, LABELS, scoring=lambda est, X, y: -np.abs(est.coef_).sum(), n_repeats=2
    ),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_asking_changes_neither_transform_nor_sets(fitted, awkward_sets, ask):
    before = [x.copy() for x in awkward_sets]
    state = {name: np.copy(value) for name, value in vars(fitted).items() if name.endswith("_")}
    expected = fitted.transform(awkward_sets)
    ask(fitted, awkward_sets)
    for got, want in zip(fitted.transform(awkward_sets), expected, strict=True):
        assert_array_equal(got, want)
    for x, want in zip(awkward_sets, before, strict=True):
        assert_array_equal(x, want)
    assert set(state) == {name for name in vars(fitted) if name.endswith("_")}
    for name in ("W_Q_", "W_K_", "W_V_", "coef_", "intercept_"):
        assert_array_equal(getattr(fitted, name), state[name])


@pytest.mark.parametrize("X", [[[]], [[], []], [[[1.0, 2.0, 3.0]]]], ids=str)
def test_empty_and_single_tokens_are_answered(fitted, X):
    n = sum(len(tokens) for tokens in X)
    frame = attention_frame(fitted, X)
    assert len(frame) == 2 * n
    assert_array_equal(frame["weight"], 1.0)
    diagnostics = attention_diagnostics(fitted, X)
    assert diagnostics["verdict"].tolist() == ["no choice"] * 2
    assert not diagnostics.isna().any(axis=None)
    assert_array_equal(row_entropies(fitted, X).values, np.zeros((n, 2)))
    assert_array_equal(head_similarity(fitted, X), np.full((2, 2), np.nan))
    found = token_importance(fitted, X, method="all")
    assert len(found.frame) == n
    assert found.decision.shape == (len(X),)
    if n:
        assert_array_equal(found.frame["weights"], 1.0)
        assert_allclose(found.frame["leave_one_out"], found.decision - fitted.intercept_)


@pytest.mark.parametrize("ask", list(ASKED.values())[:-1], ids=list(ASKED)[:-1])
@pytest.mark.parametrize("mask", MASK_NAMES)
def test_block_sizes_and_neighbours_change_nothing(awkward_sets, monkeypatch, mask, ask):
    model = AttentionContextualizer(**SMALL, mask=mask, pooling="attention")
    model.fit(awkward_sets, LABELS)
    whole = numbers(ask(model, awkward_sets))
    monkeypatch.setattr("skattn.attention.LONG_FACTOR", 1)
    attention, pooling = model._layers_  # two query rows of the longest set
    model._layers_ = replace(attention, chunk_bytes=400), pooling
    monkeypatch.setattr(inspection, "BATCH_VALUES", 20)
    assert_allclose(numbers(ask(model, awkward_sets)), whole, rtol=1e-10, atol=1e-12)
    if ask in (attention_frame, row_entropies, ASKED["importance"]):
        alone = [numbers(ask(model, [x])) for x in awkward_sets]
        assert_allclose(np.concatenate(alone), whole, rtol=1e-10, atol=1e-12)


def numbers(answer):
    """The numbers of an answer in one array; those with a row per token or pair keep it."""
    if isinstance(answer, pd.DataFrame):
        wanted = [c for c in answer.columns if c not in ("set", "verdict", "advice")]
        return answer[wanted].to_numpy(float)
    if isinstance(answer, dict):
        return answer.importances.values
    return getattr(answer, "values", answer)


# Finding the model ----------------------------------------------------------------------------


def test_a_pipeline_and_a_search_are_looked_into(awkward_sets):
    X = [x + 5 for x in awkward_sets]
    model = make_pipeline(
        TokenTransformer(StandardScaler()), "passthrough", AttentionClassifier(**SMALL)
    ).fit(X, LABELS)
    expected = attention_frame(model[-1], model[:-1].transform(X))
    pd.testing.assert_frame_equal(attention_frame(model, X), expected)
    assert_allclose(
        token_importance(model, X, method="gradient").decision, model.decision_function(X)
    )
    nested = make_pipeline(TokenTransformer(StandardScaler()), make_pipeline(model[-1])).fit(
        X, LABELS
    )
    pd.testing.assert_frame_equal(attention_frame(nested, X), expected)
    search = GridSearchCV(
        make_pipeline(AttentionContextualizer(**SMALL), LogisticRegression()),
        {"attentioncontextualizer__alpha": [0.1]},
        cv=2,
    ).fit(X, LABELS)
    inner = search.best_estimator_[0]
    pd.testing.assert_frame_equal(attention_diagnostics(search, X), attention_diagnostics(inner, X))


def test_other_estimators_are_refused(awkward_sets):
    with pytest.raises(TypeError, match="LogisticRegression is not.*AttentionContextualizer"):
        attention_frame(LogisticRegression(), awkward_sets)
    without = make_pipeline(TokenTransformer(StandardScaler()), LogisticRegression())
    with pytest.raises(TypeError, match="Pipeline is not.*as a step"):
        attention_frame(without, awkward_sets)
    with pytest.raises(NotFittedError):
        attention_frame(AttentionContextualizer(), awkward_sets)


# The frame ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_frame_holds_the_attention_weights(awkward_sets, mask, dtype):
    X = [x.astype(dtype) for x in awkward_sets]
    model = AttentionContextualizer(**SMALL, mask=mask).fit(X, LABELS)
    frame = attention_frame(model, X)
    assert list(frame.columns) == ["set", "head", "query", "key", "weight", "score"]
    atol = 1e-12 if dtype == np.float64 else 1e-5
    expected = [A.ravel() for A in model.attention_weights(X)]
    assert_allclose(frame["weight"], np.concatenate(expected), atol=atol)
    for (i, _, query), row in frame.groupby(["set", "head", "query"]):
        assert row["key"].tolist() == list(range(len(X[i])))
        if np.isneginf(row["score"]).all():  # a single token that must not see itself
            assert not mask_of(mask).allowed(np.array([[query]]), np.arange(len(X[i]))).any()
            assert_array_equal(row["weight"], 0)
        else:
            assert_allclose(row["weight"], softmax(row["score"]), atol=1e-12)
    seen = frame[np.isfinite(frame["score"])].set_index(["set", "head", "query", "key"])["score"]
    for i, h, q, keys, _, scores in rows_of(model, X):
        assert_allclose(seen.loc[i, h, q].loc[keys], scores, atol=10 * atol)


def test_sets_and_heads_are_chosen(fitted, awkward_sets):
    whole = attention_frame(fitted, awkward_sets)
    part = attention_frame(fitted, awkward_sets, sets=[4, -4, 2], heads=[1])
    expected = pd.concat(
        [whole[(whole["set"] == i) & (whole["head"] == 1)] for i in (4, 3, 2)], ignore_index=True
    )
    pd.testing.assert_frame_equal(part, expected, check_exact=False, rtol=1e-12)
    with pytest.raises(IndexError):
        attention_frame(fitted, awkward_sets, heads=[2])


def test_labels_stand_with_their_tokens(awkward_sets):
    names = [[f"{i}.{j}" for j in range(len(x))] for i, x in enumerate(awkward_sets)]
    weights = [np.arange(len(x)) % 3 for x in awkward_sets]  # the first token is left out
    X = RaggedArray.from_list(awkward_sets, weights)
    model = AttentionContextualizer(**SMALL).fit(awkward_sets, LABELS)
    frame = attention_frame(model, X, token_labels=names, sets=[3, 0])
    assert sorted(set(frame["query"])) == [1, 2]
    for side in ("query", "key"):
        made = frame["set"].astype(str) + "." + frame[side].astype(str)
        assert frame[f"{side}_label"].tolist() == made.tolist()
    found = token_importance(model, X, token_labels=names).frame
    assert (
        found["label"].tolist()
        == (found["set"].astype(str) + "." + found["token"].astype(str)).tolist()
    )
    assert len(found) == sum(np.count_nonzero(w) for w in weights)
    with pytest.raises(ValueError, match="for 2 sets, but there are 7"):
        attention_frame(model, X, token_labels=names[:2])
    with pytest.raises(ValueError, match="Set 4 has 23 tokens.*22 labels"):
        attention_frame(model, X, token_labels=[*names[:4], names[4][1:], *names[5:]])


def test_token_weights_are_copies_of_a_key(weighted):
    X, _ = weighted
    model = AttentionContextualizer(**SMALL).fit(X, LABELS)
    frame = attention_frame(model, X)
    expected = np.concatenate([A.ravel() for A in model.attention_weights(X)])
    assert_allclose(frame["weight"], expected, atol=1e-12)
    totals = frame.groupby(["set", "head", "query"])["score"].agg(softmax_total)
    assert_allclose(totals, 1)


def softmax_total(scores):
    return softmax(scores).sum()


def test_a_frame_that_is_too_large_is_refused(fitted, monkeypatch):
    X = [np.zeros((20_000, 3)), np.ones((2, 3))]
    with pytest.raises(ValueError, match="20000 tokens.*800000008 rows.*38.4 GB"):
        attention_frame(fitted, X)
    assert len(attention_frame(fitted, X, sets=[1])) == 8
    sets = [np.zeros((3, 3))]
    monkeypatch.setattr(inspection, "FRAME_LIMIT", 18 * 48)
    attention_frame(fitted, sets)
    monkeypatch.setattr(inspection, "FRAME_LIMIT", 18 * 48 - 1)
    with pytest.raises(ValueError, match="18 rows"):
        attention_frame(fitted, sets)


# Diagnostics ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", CHOOSING_MASKS)
def test_diagnostics_are_means_over_rows_with_a_choice(awkward_sets, mask):
    model = AttentionContextualizer(**SMALL, mask=mask, scale=3.0).fit(awkward_sets, LABELS)
    measured = {h: [] for h in range(2)}
    entropies = [np.zeros((len(x), 2)) for x in awkward_sets]
    for i, h, q, keys, p, scores in rows_of(model, awkward_sets):
        if len(keys) < 2:
            continue
        entropy = -np.sum(p * np.log(p))
        relative = entropies[i][q, h] = entropy / np.log(len(keys))
        measured[h].append(
            [
                np.std(scores),
                relative,
                np.exp(entropy),
                p.max() > 0.95,
                relative > 0.99,
                p[keys == q].sum(),
                np.linalg.norm(np.diag(p) - np.outer(p, p)),
            ]
        )
    got = attention_diagnostics(model, awkward_sets)
    assert got.index.name == "head"
    assert got["n_rows"].tolist() == [len(measured[0])] * 2
    expected = [np.mean(measured[h], axis=0) for h in range(2)]
    assert_allclose(got[list(inspection.MEASURES)], expected, rtol=1e-9)
    assert 0 < got["share_one_hot"].max() < 1  # so that these rows test something
    assert_allclose(row_entropies(model, awkward_sets).values, np.vstack(entropies), atol=1e-12)


@pytest.mark.parametrize("mask", COUNTING_MASKS)
def test_token_weights_equal_repeats(weighted, mask):
    X, repeated = weighted
    model = AttentionContextualizer(**SMALL, mask=mask, scale=2.0).fit(X, LABELS)
    one, other = attention_diagnostics(model, X), attention_diagnostics(model, repeated)
    pd.testing.assert_frame_equal(one, other, rtol=1e-10)
    assert_allclose(head_similarity(model, X), head_similarity(model, repeated), rtol=1e-10)
    kept = X.drop_zero_weights()
    assert_allclose(
        np.repeat(row_entropies(model, X).values, kept.weights.astype(int), axis=0),
        row_entropies(model, repeated).values,
        atol=1e-12,
    )


def test_verdicts_tell_sharp_flat_and_healthy_heads_apart(rng):
    W = np.hstack([scale * np.eye(4) for scale in (0.0, 3.0, 30.0)])
    X = [rng.normal(size=(n, 4)) for n in (6, 9, 12)]
    X = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in X]  # closest to itself is each token
    model = AttentionContextualizer(
        n_heads=3, d_k=4, init={"W_Q": W, "W_K": W}, standardize=False, max_iter=0
    ).fit(X)
    got = attention_diagnostics(model, X)
    assert got["verdict"].tolist() == ["uniform", "healthy", "saturated"]
    assert "smaller" in got["advice"][0]
    assert "larger alpha" in got["advice"][2]
    assert "their own token" in got["advice"][2]
    n = np.array([6, 9, 12])
    assert_allclose(got["jacobian_norm"][0], np.average(np.sqrt(n - 1) / n, weights=n))
    assert_allclose(got["effective_tokens"][0], np.average(n, weights=n))
    assert got["jacobian_norm"][2] < 0.05


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("mask", CHOOSING_MASKS)
@pytest.mark.parametrize("score_statistics", [True, False])
def test_a_uniform_model_is_called_linear_where_it_is(rng, pooling, mask, score_statistics):
    flat = {"W_Q": np.zeros((3, 4)), "W_K": np.zeros((3, 4))}
    model = AttentionRegressor(
        n_heads=2, d_k=2, pooling=pooling, mask=mask, score_statistics=score_statistics,
        init=flat, max_iter=0, random_state=0,
    )  # fmt: skip
    one, other = (RaggedArray.from_list([rng.normal(size=(n, 3)) for n in (2, 5)]) for _ in "ab")
    model.fit(one, [0.0, 1.0])
    for array in model.pooling_params_.values():  # a query that is not the mean
        array += rng.normal(size=array.shape)
    between = model.predict(one.with_values(0.5 * one.values + 0.5 * other.values))
    expected = 0.5 * model.predict(one) + 0.5 * model.predict(other)
    is_linear = np.allclose(between, expected, rtol=1e-9, atol=0)
    advice = attention_diagnostics(model, one)["advice"][0]
    assert ("linear model on pooled tokens" in advice) == is_linear
    assert ("score statistics" in advice) == (is_linear and score_statistics)
    assert f"the mean of {mask_of(mask).attends_to.format(whole='set')}" in advice
    assert "smaller" in advice


def test_a_uniform_model_is_told_by_what_its_head_reads(rng):
    sets = [rng.normal(size=(n, 3)) for n in (2, 5, 3)]
    flat = {"W_Q": np.zeros((3, 4)), "W_K": np.zeros((3, 4))}
    start = {"n_heads": 2, "d_k": 2, "init": flat, "max_iter": 0}

    def advice(model, X, y):
        return attention_diagnostics(model.set_params(**start).fit(X, y), X)["advice"][0]

    per_token = advice(AttentionRegressor(pooling=None), sets, [x[:, 0] for x in sets])
    assert "linear model on these means and on score statistics" in per_token
    own = advice(AttentionContextualizer(loss="reconstruction"), sets, None)
    assert "mean of the other tokens of its set: if all heads are uniform" in own
    assert "score statistics" not in own
    assert "linear model" not in advice(AttentionContextualizer(), sets, None)  # there is no head
    paired = advice(AttentionRegressor(), RaggedPair(sets, sets), [0.0, 1.0, 2.0])
    assert "mean of all tokens of its context" in paired
    assert "1 / n" not in paired


def test_too_strong_a_penalty_is_named():
    X, y = make_lookup(200, random_state=0)
    weak = AttentionClassifier(n_heads=1, alpha=1e-3, max_iter=60, random_state=0).fit(X, y)
    strong = AttentionClassifier(n_heads=1, alpha=1.0, random_state=0).fit(X, y)
    assert attention_diagnostics(weak, X)["verdict"][0] == "healthy"
    collapsed = attention_diagnostics(strong, X)
    assert collapsed["verdict"][0] == "uniform"
    assert "alpha" in collapsed["advice"][0]


def test_long_sets_take_no_memory_of_their_square(rng):
    X = [rng.normal(size=(4000, 2))]  # one matrix of weights would take 128 MB
    model = AttentionContextualizer(n_heads=1, d_k=2, d_v=2, max_iter=0, random_state=0).fit(X)
    model.coef_, model.intercept_ = np.ones((1, 4)), np.zeros(1)
    for ask in (
        attention_diagnostics,
        lambda est, X: token_importance(est, X, method=["weights", "gradient"]),
    ):
        tracemalloc.start()
        ask(model, X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40e6


# Heads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", CHOOSING_MASKS)
def test_head_similarity_is_one_less_the_mean_distance(awkward_sets, mask):
    model = AttentionContextualizer(**SMALL | {"n_heads": 3}, mask=mask).fit(awkward_sets, LABELS)
    rows = {}
    for i, _, q, keys, p, _ in rows_of(model, awkward_sets):
        if len(keys) > 1:
            rows.setdefault((i, q), []).append(p)
    got = head_similarity(model, awkward_sets)
    for g in range(3):
        for h in range(3):
            distances = [jensenshannon(heads[g], heads[h], base=2) for heads in rows.values()]
            assert_allclose(got[g, h], 1 - np.mean(distances), atol=1e-7)
    assert_array_equal(np.diag(got), 1)
    assert_array_equal(got, got.T)


# Importance -----------------------------------------------------------------------------------


def decisions(model, sets):
    """What a head of one output says of sets, by the model's own methods."""
    if hasattr(model, "decision_function"):
        return model.decision_function(sets)
    return model.predict(sets)


@pytest.mark.parametrize("pooling", [*POOLINGS])
@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("score_statistics", [True, False])
def test_gradient_is_the_derivative_along_the_token(awkward_sets, pooling, mask, score_statistics):
    model = AttentionClassifier(
        **SMALL, pooling=pooling, mask=mask, score_statistics=score_statistics, scale=0.8
    ).fit(awkward_sets, LABELS)
    got = token_importance(model, awkward_sets, method="gradient").frame
    step = 1e-5
    for i in (0, 2, 5):  # of four, one and two tokens
        for j in range(len(awkward_sets[i])):
            ends = []
            for t in (step, -step):
                x = awkward_sets[i].copy()
                x[j] += t * (x[j] - model.token_mean_)
                ends.append(decisions(model, [x])[0])
            numeric = (ends[0] - ends[1]) / (2 * step)
            found = got.loc[(got["set"] == i) & (got["token"] == j), "gradient"].item()
            assert_allclose(found, numeric, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("pooling", [*POOLINGS])
def test_gradient_and_weights_of_a_weighted_token_are_those_of_its_copies(weighted, pooling):
    X, repeated = weighted
    model = AttentionRegressor(**SMALL, pooling=pooling).fit(X, LABELS)
    has_shares = hasattr(POOLINGS[pooling], "token_shares")
    methods = ["weights", "gradient"] if has_shares else ["gradient"]
    one = token_importance(model, X, method=methods).importances
    other = token_importance(model, repeated, method=methods).importances
    copies = X.drop_zero_weights().weights.astype(int)
    first = np.concatenate([[0], np.cumsum(copies)[:-1]])
    assert_allclose(one.values, np.add.reduceat(other.values, first), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pooling", [*POOLINGS])
def test_leaving_one_out_reads_the_set_without_the_token(awkward_sets, pooling):
    model = AttentionClassifier(**SMALL, pooling=pooling).fit(awkward_sets, LABELS)
    found = token_importance(model, awkward_sets, method="leave_one_out")
    whole = decisions(model, awkward_sets)
    assert_allclose(found.decision, whole, atol=1e-12)
    for i, x in enumerate(awkward_sets):
        without = [np.delete(x, j, axis=0) for j in range(len(x))]
        if without:
            assert_allclose(
                found.importances[i][:, 0], whole[i] - decisions(model, without), atol=1e-10
            )


def test_leaving_out_a_weighted_token_leaves_out_its_copies(weighted):
    X, _ = weighted
    model = AttentionRegressor(**SMALL).fit(X, LABELS)
    kept = X.drop_zero_weights()
    got = token_importance(model, X, method="leave_one_out").importances.values[:, 0]
    for t in range(kept.n_tokens):
        i = np.searchsorted(kept.offsets, t, side="right") - 1
        weights = kept.weights.copy()
        weights[t] = 0
        without = RaggedArray(kept.values, kept.offsets, weights)
        expected = model.predict(kept)[i] - model.predict(without)[i]
        assert_allclose(got[t], expected, atol=1e-10)


def test_weights_are_the_attention_that_reaches_the_pooled_output(awkward_sets):
    X = awkward_sets
    mean = AttentionContextualizer(**SMALL).fit(X, LABELS)
    got = token_importance(mean, X).importances
    for values, A in zip(got, mean.attention_weights(X), strict=True):
        if len(values):
            assert_allclose(values[:, 0], A.mean(axis=(0, 1)), atol=1e-12)
            assert_allclose(values.sum(), 1)
    query = AttentionContextualizer(**SMALL, pooling="attention").fit(X, LABELS)
    assert np.abs(query.pooling_params_["q"]).max() > 0.01
    got = token_importance(query, X).importances
    outputs = query.contextualize(X)
    for values, A, Z in zip(got, query.attention_weights(X), outputs, strict=True):
        if not len(values):
            continue
        pi = softmax(Z @ query.pooling_params_["q"])
        assert_allclose(values[:, 0], (pi @ A).mean(axis=0), atol=1e-12)
    top = AttentionContextualizer(**SMALL, pooling="max").fit(X, LABELS)
    got = token_importance(top, X).importances
    for values, A, Z in zip(got, top.attention_weights(X), top.contextualize(X), strict=True):
        if len(values):
            winners = Z[:, :6].argmax(axis=0).reshape(2, 3)  # by head and value column
            by_head = [A[h][winners[h]].mean(axis=0) for h in range(2)]
            assert_allclose(values[:, 0], np.mean(by_head, axis=0), atol=1e-12)


def test_agreement_is_the_mean_rank_correlation(fitted, awkward_sets):
    found = token_importance(fitted, awkward_sets, method="all")
    assert (
        list(found.agreement.columns) == found.methods == ["weights", "gradient", "leave_one_out"]
    )
    together = [spearmanr(values).statistic for values in found.importances if len(values) > 2]
    pair = [i for i, x in enumerate(awkward_sets) if len(x) == 2]
    together += [np.sign(np.outer(*[np.diff(found.importances[i], axis=0)[0]] * 2)) for i in pair]
    assert_allclose(found.agreement, np.mean(together, axis=0), atol=1e-12)
    assert_array_equal(found.importances.offsets, RaggedArray.from_list(awkward_sets).offsets)
    assert_array_equal(found.frame[found.methods], found.importances.values)


def test_the_target_of_two_classes_turns_the_sign(awkward_sets):
    y = np.array(["no", "yes"])[LABELS]
    model = AttentionClassifier(**SMALL).fit(awkward_sets, y)
    yes, no, default = (
        token_importance(model, awkward_sets, method="all", target=target)
        for target in ("yes", "no", None)
    )
    assert_array_equal(default.importances.values, yes.importances.values)
    assert default.target.tolist() == ["yes"] * 7
    assert_array_equal(no.decision, -yes.decision)
    assert_array_equal(no.frame["gradient"], -yes.frame["gradient"])
    assert_array_equal(no.frame["leave_one_out"], -yes.frame["leave_one_out"])
    assert_array_equal(no.frame["weights"], yes.frame["weights"])
    with pytest.raises(ValueError, match=r"one of \['no', 'yes'\], but is 'maybe'"):
        token_importance(model, awkward_sets, method="gradient", target="maybe")


def test_the_target_of_more_classes_is_the_one_chosen(awkward_sets):
    model = AttentionClassifier(**SMALL).fit(awkward_sets, CLASSES)
    default = token_importance(model, awkward_sets, method="all")
    assert_array_equal(default.target, model.predict(awkward_sets))
    assert_allclose(default.decision, model.decision_function(awkward_sets).max(axis=1))
    for k, name in enumerate(model.classes_):
        one = token_importance(model, awkward_sets, method="all", target=name)
        assert_allclose(one.decision, model.decision_function(awkward_sets)[:, k])
        for i in np.flatnonzero(default.target == name):
            assert_allclose(one.importances[i], default.importances[i])


def test_the_target_of_several_outputs_must_be_said(awkward_sets, rng):
    model = AttentionRegressor(**SMALL).fit(awkward_sets, rng.normal(size=(7, 2)))
    with pytest.raises(ValueError, match="2 outputs: choose one by target, 0 to 1"):
        token_importance(model, awkward_sets, method="gradient")
    for k in range(2):
        found = token_importance(model, awkward_sets, method="leave_one_out", target=k)
        assert_allclose(found.decision, model.predict(awkward_sets)[:, k])


def test_without_a_head_only_weights_are_had(awkward_sets):
    model = AttentionContextualizer(**SMALL | {"max_iter": 0}).fit(awkward_sets)
    found = token_importance(model, awkward_sets)
    assert found.decision is None
    assert_allclose(found.importances.segment_sum()[[0, 2, 3, 4, 5]], 1)
    with pytest.raises(ValueError, match="no linear head"):
        token_importance(model, awkward_sets, method="all")
    with pytest.raises(ValueError, match="method must be among.*'shap'"):
        token_importance(model, awkward_sets, method="shap")


def test_a_head_that_reads_something_else_is_refused(awkward_sets):
    model = AttentionContextualizer(**SMALL).fit(awkward_sets, LABELS)
    model.coef_ = model.coef_[:, :6]  # of the ten columns of a set's output
    with pytest.raises(ValueError, match="reads 6 columns, but a set's output has 10"):
        token_importance(model, awkward_sets, method="gradient")
    assert len(token_importance(model, awkward_sets).frame) == 34


def test_leaving_out_too_much_is_refused(fitted):
    with pytest.raises(ValueError, match="20000 tokens.*multiplications.*gradient"):
        token_importance(fitted, [np.zeros((20_000, 3))], method="leave_one_out")


@pytest.mark.parametrize("seed", [0, 1])
def test_the_most_important_token_of_a_digit_bag_is_the_nine(seed):
    X, y, X_test, y_test, _, digits = load_digit_bags(
        n_train=300, return_token_labels=True, random_state=seed
    )
    model = AttentionClassifier(pooling="max", alpha=1e-2, tol=1e-2, random_state=seed).fit(X, y)
    assert model.score(X_test, y_test) > 0.88
    called = np.flatnonzero((y_test == 1) & (model.predict(X_test) == 1))
    assert len(called) > 150
    found = token_importance(
        model,
        [X_test[i] for i in called],
        method="all",
        token_labels=[digits[i] for i in called],
    )
    for method in ("gradient", "leave_one_out"):
        best = found.frame.groupby("set")[method].idxmax()
        assert np.mean(found.frame.loc[best, "label"] == 9) >= 0.9
    assert found.agreement.loc["gradient", "leave_one_out"] > 0.5


# Permutation importance -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def lookup():
    X, y = make_lookup(400, random_state=0)
    return AttentionClassifier(n_heads=1, max_iter=100, random_state=0).fit(X, y), X, y


def test_shuffling_what_the_label_hangs_on_costs_most(lookup):
    model, X, y = lookup
    whole = permutation_importance(model, X, y, random_state=0)
    assert whole.importances.shape == (8, 5)
    assert whole.baseline_score == model.score(X, y) > 0.9
    assert_allclose(whole.importances_mean, whole.importances.mean(axis=1))
    assert_allclose(whole.importances_std, whole.importances.std(axis=1))
    assert np.all(whole.importances_mean > 0.02)  # six key signs, the value and the flag
    within = permutation_importance(model, X, y, kind="within_sets", random_state=0)
    assert within.importances_mean[6] > 0.3  # which item holds which value
    sets = permutation_importance(model, X, y, kind="sets", random_state=0)
    assert sets.importances.shape == (1, 5)
    assert_allclose(sets.importances_mean, model.score(X, y) - 0.5, atol=0.06)


@pytest.mark.parametrize("kind", ["features", "within_sets"])
def test_a_feature_that_is_not_read_has_no_importance(awkward_sets, kind):
    model = AttentionRegressor(**SMALL).fit(awkward_sets, LABELS)
    for name in ("W_Q_", "W_K_", "W_V_"):
        getattr(model, name)[1] = 0
    found = permutation_importance(model, awkward_sets, LABELS, kind=kind, random_state=0)
    assert_array_equal(found.importances[1], 0)
    assert np.all(found.importances_std[[0, 2]] > 0)


@pytest.mark.parametrize("kind", ["features", "within_sets", "sets"])
def test_only_what_is_said_is_shuffled(awkward_sets, kind):
    seen = []

    def spy(est, X, y):
        seen.append(X.values.copy() if kind != "sets" else X)
        return float(len(seen))

    X = RaggedArray.from_list(awkward_sets)
    found = permutation_importance(
        ESTIMATORS["contextualizer"], X, LABELS, scoring=spy, n_repeats=2, kind=kind, random_state=3
    )
    assert_array_equal(found.importances.ravel(), -np.arange(1, len(seen)))
    if kind == "sets":
        for shuffled in seen[1:]:
            assert sorted(shuffled.lengths) == sorted(X.lengths)
            assert sorted(map(np.sum, shuffled)) == sorted(map(np.sum, X))
        return
    for number, values in enumerate(seen[1:]):
        j = number // 2
        rest = np.arange(3) != j
        assert_array_equal(values[:, rest], X.values[:, rest])
        assert not np.array_equal(values[:, j], X.values[:, j])
        shuffled = X.with_values(values)
        pairs = zip(shuffled, X, strict=True) if kind == "within_sets" else [(values, X.values)]
        for got, before in pairs:
            assert_array_equal(np.sort(got[:, j]), np.sort(before[:, j]))


def test_seeds_scoring_and_weights_are_passed_on(lookup):
    model, X, y = lookup
    kwargs = {"scoring": "neg_log_loss", "n_repeats": 2, "random_state": 5}
    one, two = (permutation_importance(model, X, y, **kwargs) for _ in range(2))
    assert_array_equal(one.importances, two.importances)
    assert one.baseline_score < 0
    weight = np.where(model.predict(X) == y, 1.0, 0.0)
    weighted = permutation_importance(model, X, y, n_repeats=1, sample_weight=weight)
    assert weighted.baseline_score == 1.0


def test_permutation_importance_refuses_what_it_cannot_do(lookup):
    model, X, y = lookup
    with pytest.raises(ValueError, match="kind must be one of.*'tokens'"):
        permutation_importance(model, X, y, kind="tokens")
    with pytest.raises(ValueError, match="n_repeats must be an integer of 1 or more"):
        permutation_importance(model, X, y, n_repeats=0)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        permutation_importance(model, X, y[:-1])
    with pytest.raises(TypeError, match="score"):
        permutation_importance(ESTIMATORS["contextualizer"], X, y)


# With a context -------------------------------------------------------------------------------


@pytest.fixture
def paired(awkward_sets):
    """A fitted model on sets and contexts of other width, weighted, some without tokens."""
    generator = np.random.default_rng(5)
    others = [generator.normal(size=(n, 2)) for n in (2, 3, 5, 0, 4, 1, 0)]
    weights = [generator.integers(0, 3, size=len(tokens)) for tokens in others]
    weights[5][:] = 1
    plain, weighted = RaggedPair(awkward_sets, others), RaggedArray.from_list(others, weights)
    model = AttentionContextualizer(**SMALL).fit(plain, LABELS)
    return model, plain, RaggedPair(awkward_sets, weighted), others, weights


def test_the_frame_of_pairs_has_the_weights_of_each_query_over_its_context(paired, awkward_sets):
    model, plain, *_ = paired
    frame = attention_frame(model, plain)
    weights = model.attention_weights(plain)
    assert_allclose(frame["weight"], np.concatenate([A.ravel() for A in weights]), atol=1e-12)
    expected = [
        (i, h, q, k)
        for i, A in enumerate(weights)
        for h, q, k in itertools.product(*map(range, A.shape))
    ]
    assert list(map(tuple, frame[["set", "head", "query", "key"]].to_numpy())) == expected
    i, H = 4, model.n_heads  # the scores by the formula
    Q = (awkward_sets[i] - model.token_mean_) / model.token_scale_ @ model.W_Q_
    K = (plain.context[i] - model.context_mean_) / model.context_scale_ @ model.W_K_
    S = [
        q @ k.T / np.sqrt(model.d_k) for q, k in zip(np.hsplit(Q, H), np.hsplit(K, H), strict=True)
    ]
    assert_allclose(frame.loc[frame["set"] == i, "score"], np.ravel(S), atol=1e-12)
    part = attention_frame(model, plain, sets=[4, 0], heads=[1])
    chosen = pd.concat([frame[(frame["set"] == i) & (frame["head"] == 1)] for i in (4, 0)])
    pd.testing.assert_frame_equal(part, chosen.reset_index(drop=True))


def test_each_side_of_a_pair_has_labels_of_its_own(paired):
    model, plain, weighted, others, _ = paired
    words = [[f"q{i}.{j}" for j in range(n)] for i, n in enumerate(plain.queries.lengths)]
    keys = [[f"k{i}.{j}" for j in range(len(tokens))] for i, tokens in enumerate(others)]
    for X in (plain, weighted):
        frame = attention_frame(model, X, token_labels=words, context_labels=keys)
        for name, letter in (("query", "q"), ("key", "k")):
            said = letter + frame["set"].astype(str) + "." + frame[name].astype(str)
            assert frame[f"{name}_label"].tolist() == said.tolist()
    assert "key_label" not in attention_frame(model, plain, token_labels=words)
    with pytest.raises(ValueError, match="Set 2 has 5 tokens, but context_labels has 1"):
        attention_frame(model, plain, context_labels=[*keys[:2], ["one"], *keys[3:]])
    alone = ESTIMATORS["contextualizer"].fit(plain.queries, LABELS)
    with pytest.raises(ValueError, match="context_labels are for the tokens of a context"):
        attention_frame(alone, plain.queries, context_labels=keys)


@pytest.mark.parametrize("answer", [attention_diagnostics, head_similarity, row_entropies])
def test_weights_of_a_context_equal_repeated_tokens(paired, answer, awkward_sets):
    model, _, weighted, others, weights = paired
    repeated = [np.repeat(t, w, axis=0) for t, w in zip(others, weights, strict=True)]
    repeated = [t if len(t) else np.empty((0, 2)) for t in repeated]
    got, expected = (answer(model, X) for X in (weighted, RaggedPair(awkward_sets, repeated)))
    if answer is attention_diagnostics:
        assert got["self_weight"].isna().all()
        pd.testing.assert_frame_equal(got, expected, atol=1e-10)
    elif answer is row_entropies:
        assert_allclose(got.values, expected.values, atol=1e-10)
        assert_array_equal(got.lengths, [len(tokens) for tokens in awkward_sets])
    else:
        assert_allclose(got, expected, atol=1e-10)


def test_a_context_of_the_set_itself_is_attention_within_the_set(awkward_sets):
    """The same projections: what is seen of a pair of equal sides is what is seen of the sets."""
    start = np.random.default_rng(0).normal(size=(2, 3, 4))
    init = {"W_Q": start[0], "W_K": start[1]}
    params = {"n_heads": 2, "d_k": 2, "max_iter": 0, "init": init, "random_state": 0}
    within = AttentionContextualizer(**params).fit(awkward_sets)
    pair = RaggedPair(awkward_sets, awkward_sets)
    across = AttentionContextualizer(**params).fit(pair)
    pd.testing.assert_frame_equal(
        attention_frame(across, pair), attention_frame(within, awkward_sets), atol=1e-12
    )
    assert_allclose(head_similarity(across, pair), head_similarity(within, awkward_sets))
    left, right = attention_diagnostics(across, pair), attention_diagnostics(within, awkward_sets)
    columns = ["n_rows", "score_spread", "entropy", "effective_tokens", "jacobian_norm"]
    pd.testing.assert_frame_equal(left[columns], right[columns])


def test_a_frame_of_two_columns_is_looked_into_as_it_was_fitted(paired):
    _, plain, *_ = paired
    frame = pd.DataFrame({"a": plain.queries.to_list(), "b": plain.context.to_list()})
    model = AttentionClassifier(**SMALL, context="b").fit(frame, LABELS)
    pd.testing.assert_frame_equal(attention_frame(model, frame), attention_frame(model, plain))


@pytest.mark.parametrize("method", ["weights", "gradient", "leave_one_out", "all"])
def test_token_importance_refuses_a_context_and_says_why(paired, method):
    model, plain, *_ = paired
    with pytest.raises(TypeError, match="X has contexts.*attention_frame"):
        token_importance(model, plain, method=method)
    with pytest.raises(TypeError, match="RaggedPair|context"):
        permutation_importance(AttentionClassifier(**SMALL).fit(plain, LABELS), plain, LABELS)

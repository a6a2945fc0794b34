"""What bounds the price of a fit: sampled tokens, an end when it no longer pays, a word before."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skattn import AttentionClassifier, AttentionContextualizer, RaggedArray, RaggedPair
from skattn._objective import LongFitWarning
from skattn._sets import Sets
from skattn.datasets import make_lookup
from skattn.masks import MASKS
from skattn.solvers import minimize

LABELS = np.array([0, 1, 0, 1])
SMALL = {"n_heads": 2, "d_k": 2, "d_v": 2, "max_iter": 3, "tol": None, "random_state": 0}


@pytest.fixture
def long_sets(rng):
    return [rng.normal(size=(n, 3)) for n in (40, 3, 0, 25)]


def test_a_sample_has_the_weight_of_its_set(long_sets, rng):
    ragged = RaggedArray.from_list(long_sets)
    sampled = Sets.of(ragged).sampled(10, rng)
    assert sampled.keys is sampled.queries
    assert sampled.queries.lengths.tolist() == [10, 3, 0, 10]
    ones = sampled.queries.weights[:, None]
    total = sampled.queries.with_values(ones).segment_sum()[:, 0]
    assert_allclose(total, ragged.lengths)
    for tokens, whole in zip(sampled.queries, ragged, strict=True):
        places = [int(np.flatnonzero((whole == token).all(axis=1))[0]) for token in tokens]
        assert places == sorted(set(places))  # in order, none twice


def test_a_sample_keeps_token_weights(long_sets, rng):
    weights = [np.arange(1.0, len(tokens) + 1) for tokens in long_sets]
    ragged = RaggedArray.from_list(long_sets, weights)
    sampled = Sets.of(ragged).sampled(10, rng).queries
    for i, factor in enumerate((4.0, 1.0, 1.0, 2.5)):
        for token, weight in zip(sampled[i], np.split(sampled.weights, sampled.offsets[1:-1])[i],
                                 strict=True):  # fmt: skip
            place = int(np.flatnonzero((ragged[i] == token).all(axis=1))[0])
            assert weight == factor * (place + 1)


def test_every_token_is_as_likely_as_another(rng):
    sets = Sets.of(RaggedArray.from_list([np.arange(20.0)[:, None]] * 2000))
    drawn = sets.sampled(5, rng).queries.values[:, 0].astype(int)
    counts = np.bincount(drawn, minlength=20)
    assert np.all(np.abs(counts - 500) < 5 * np.sqrt(500))


def test_short_sets_are_read_as_they_are(long_sets):
    whole = AttentionContextualizer(**SMALL, max_tokens=None).fit(long_sets, LABELS)
    model = AttentionContextualizer(**SMALL, max_tokens=40).fit(long_sets, LABELS)
    assert_array_equal(model.W_Q_, whole.W_Q_)
    assert_array_equal(model.coef_, whole.coef_)


def test_fit_samples_and_transform_reads_every_token(long_sets):
    model = AttentionContextualizer(**SMALL, max_tokens=10).fit(long_sets, LABELS)
    whole = AttentionContextualizer(**SMALL, max_tokens=None).fit(long_sets, LABELS)
    assert not np.array_equal(model.coef_, whole.coef_)
    assert_array_equal(model.token_mean_, whole.token_mean_)  # of all tokens
    again = AttentionContextualizer(**SMALL, max_tokens=10).fit(long_sets, LABELS)
    assert_array_equal(again.coef_, model.coef_)
    for name in ("W_Q_", "W_K_", "W_V_"):
        setattr(whole, name, getattr(model, name))
    assert_array_equal(model.transform(long_sets), whole.transform(long_sets))


def test_contexts_are_sampled_too(long_sets, rng):
    pair = RaggedPair([np.ones((1, 2))] * 4, long_sets)
    sampled = Sets.of(pair).sampled(10, rng)
    assert sampled.queries.lengths.tolist() == [1, 1, 1, 1]
    assert sampled.keys.lengths.tolist() == [10, 3, 0, 10]


@pytest.mark.parametrize("mask", [name for name, mask in MASKS.items()])
def test_nothing_is_sampled_where_copies_have_no_meaning(long_sets, mask):
    parts = AttentionContextualizer(**SMALL, mask=mask, max_tokens=10).fit(long_sets, LABELS)
    whole = AttentionContextualizer(**SMALL, mask=mask, max_tokens=None).fit(long_sets, LABELS)
    assert_array_equal(parts.coef_, whole.coef_)


def test_tokens_with_targets_are_not_sampled(long_sets, rng):
    y = [rng.normal(size=len(tokens)) for tokens in long_sets]
    models = [
        AttentionContextualizer(**SMALL, pooling=None, max_tokens=m).fit(long_sets, y)
        for m in (10, None)
    ]
    assert_array_equal(models[0].coef_, models[1].coef_)
    models = [AttentionContextualizer(**SMALL, max_tokens=m).fit(long_sets) for m in (10, None)]
    assert_array_equal(models[0].coef_, models[1].coef_)


def test_an_evaluation_of_long_sets_costs_no_more_than_of_sampled_ones(rng):
    sets = [rng.normal(size=(3000, 3)) for _ in range(3)]
    model = AttentionContextualizer(n_heads=1, max_iter=1, tol=None, random_state=0)
    chunks = []
    plain = Sets.equal_length_chunks

    def counted(self, sets_at_once):
        for chunk in plain(self, sets_at_once):
            chunks.append(chunk[2])
            yield chunk

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sets, "equal_length_chunks", counted)
        model.fit(sets, [0.0, 1.0, 2.0])
    assert {n for _, n in chunks} == {128}


# When a fit ends


def test_auto_ends_when_the_objective_hardly_falls():
    X, y = make_lookup(300, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = AttentionClassifier(n_heads=1, random_state=0).fit(X, y)
    curve = model.loss_curve_
    assert model.converged_
    assert 10 < model.n_iter_ < 200
    assert curve[-11] - curve[-1] < 0.01 * curve[-1]
    assert all(a - b >= 0.01 * b for a, b in zip(curve[:-11], curve[10:-1], strict=True))


def test_a_number_asks_for_the_gradient():
    X, y = make_lookup(100, random_state=0)
    model = AttentionClassifier(n_heads=1, max_iter=30, random_state=0)
    with pytest.warns(ConvergenceWarning, match="tol 1e-06"):
        model.set_params(tol=1e-6).fit(X, y)
    assert model.n_iter_ == 30


def test_minimize_ends_by_its_fall():
    def slow(x):
        return 1 + 1e-6 * np.sum(x**4), 4e-6 * x**3

    result = minimize(slow, np.full(2, 3.0), tol=0.0, min_fall=0.01)
    assert (result.reason, result.n_iter, result.converged) == ("slow", 10, True)


# A word before a long fit


def test_a_long_fit_says_so_before(long_sets, monkeypatch):
    monkeypatch.setattr("skattn._objective.LONG_FIT", 0.0)
    with pytest.warns(LongFitWarning, match="3 iterations of .*max_tokens"):
        AttentionContextualizer(**SMALL).fit(long_sets, LABELS)


def test_a_short_fit_says_nothing(long_sets):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AttentionContextualizer(**SMALL).fit(long_sets, LABELS)

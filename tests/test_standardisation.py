"""Standardisation of tokens."""

import numpy as np
import pytest
from models import (
    Y,
    assert_same_fit,
    small,
    unfinished,
)
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler

from skattn import (
    AttentionContextualizer,
    RaggedArray,
)


@unfinished
def test_tokens_are_standardised_over_all_training_tokens(sets):
    model = small(max_iter=0).fit(sets, Y["log_loss"])
    tokens = np.vstack(sets)
    assert_allclose(model.token_mean_, tokens.mean(axis=0), rtol=1e-12)
    assert_allclose(model.token_scale_, tokens.std(axis=0), rtol=1e-12)
    bare = small(max_iter=0, standardize=False).fit(sets, Y["log_loss"])
    assert_array_equal(bare.token_mean_, np.zeros(3))
    assert_array_equal(bare.token_scale_, np.ones(3))


@unfinished
def test_standardisation_does_not_depend_on_its_batches(sets, monkeypatch):
    whole = small(max_iter=2).fit(sets, Y["log_loss"])
    monkeypatch.setattr("skattn._network.SCALER_BATCH", 3)
    assert_same_fit(whole, small(max_iter=2).fit(sets, Y["log_loss"]), rtol=1e-9)


@pytest.mark.parametrize("order", [1, -1])
@unfinished
def test_a_batch_of_tokens_without_weight_does_no_harm(sets, monkeypatch, order):
    monkeypatch.setattr("skattn._network.SCALER_BATCH", 4)
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2][::order])
    model = small(max_iter=2, class_weight={0: 0.0}).fit(sets, y)
    tokens = np.vstack([tokens for tokens, label in zip(sets, y, strict=True) if label])
    assert_allclose(model.token_mean_, tokens.mean(axis=0), rtol=1e-10)
    assert_allclose(model.token_scale_, tokens.std(axis=0), rtol=1e-10)


@unfinished
def test_units_of_the_features_do_not_matter(sets):
    model = small(max_iter=5).fit(sets, Y["log_loss"])
    units, shift = np.array([1e3, 1e-4, 2.0]), np.array([5.0, -1.0, 100.0])
    other_sets = [tokens * units + shift for tokens in sets]
    other = small(max_iter=5).fit(other_sets, Y["log_loss"])
    assert_allclose(other.transform(other_sets), model.transform(sets), rtol=1e-6, atol=1e-8)


@unfinished
def test_a_constant_feature_does_no_harm(sets):
    X = [np.column_stack([tokens, np.full(len(tokens), 3.0)]) for tokens in sets]
    model = small(max_iter=3).fit(X, Y["log_loss"])
    assert np.all(np.isfinite(model.transform(X)))
    assert model.token_scale_[3] == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tokens_are_standardised_as_scikit_learn_would(rng, dtype):
    values = rng.normal(size=(5000, 60)) * np.logspace(-3, 3, 60) + 5
    values[:, 3] = 7.1  # constant
    X = RaggedArray.from_list(np.split(values.astype(dtype), 1000))
    weight = rng.integers(0, 3, size=1000).astype(float)
    model = AttentionContextualizer(max_iter=0).fit(X, sample_weight=weight)
    expected = StandardScaler().fit(X.values, sample_weight=np.repeat(weight, 5))
    assert_allclose(model.token_mean_, expected.mean_, rtol=1e-10)
    assert_allclose(model.token_scale_, expected.scale_, rtol=1e-10)
    assert model.token_scale_[3] == 1

"""Masks of the table, in the estimator."""

import numpy as np
import pytest
from models import (
    Y,
    assert_rows_equal,
    fitted,
    small,
)
from numpy.testing import assert_allclose, assert_array_equal
from reference import COUNTING_MASKS, MASK_NAMES

from skattn import (
    RaggedArray,
    scaled_dot_product_attention,
)
from skattn.masks import MASKS, mask_of


@pytest.mark.parametrize(
    ("mask", "allowed", "words"),
    [
        (None, np.ones((4, 4), bool), "all tokens of its {whole}"),
        ("causal", np.tri(4, dtype=bool), "the tokens up to it"),
        ("exclude_self", ~np.eye(4, dtype=bool), "the other tokens of its set"),
        ("diagonal", np.eye(4, dtype=bool), "itself"),
    ],
)
def test_masks_allow_what_their_names_say(mask, allowed, words):
    mask, i = mask_of(mask), np.arange(4)
    got = mask.allowed(i[:, None], i)
    assert_array_equal(np.ones((4, 4), bool) if got is None else got, allowed)
    assert mask.attends_to == words
    assert mask.sees_all == allowed.all()
    assert mask.only_self == np.array_equal(allowed, np.eye(4))


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_token_outputs_are_the_formula_head_by_head(sets, rng, mask, scale):
    model = fitted(sets, rng, mask=mask, scale=scale, pooling=None)
    tokens, weights = model.transform(sets), model.attention_weights(sets)
    for X, out, A in zip(sets, tokens, weights, strict=True):
        X = (X - model.token_mean_) / model.token_scale_
        n = len(X)
        i, j = np.indices((n, n))
        allowed = mask_of(mask).allowed(i, j)
        assert A.shape == (2, n, n)
        for h in range(2):
            columns = slice(2 * h, 2 * h + 2)
            Q, K = X @ model.W_Q_[:, columns], X @ model.W_K_[:, columns]
            V = X @ model.W_V_[:, columns] + model.b_V_[columns]
            Z, expected = scaled_dot_product_attention(
                Q, K, V, mask=allowed, scale=scale, return_weights=True
            )
            seen = np.ones(n, bool) if allowed is None else allowed.any(axis=1)
            assert_allclose(A[h], expected, rtol=1e-10, atol=1e-14)
            assert_allclose(out[:, columns], Z * seen[:, None], rtol=1e-10, atol=1e-12)
            S = Q @ K.T * (2**-0.5 if scale is None else scale)
            S = S if allowed is None else np.where(allowed, S, -np.inf)
            total = np.exp(S).sum(axis=1)
            lse = np.log(np.where(seen, total, 1))
            assert_allclose(out[:, 4 + h], lse, rtol=1e-9, atol=1e-10)
            assert_allclose(out[:, 6 + h], np.diag(expected), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("mask", [None, "exclude_self", "diagonal"])
def test_the_order_of_tokens_does_not_matter_unless_masked_causally(sets, pooling, mask, rng):
    model = fitted(sets, rng, pooling=pooling, mask=mask)
    orders = [rng.permutation(len(tokens)) for tokens in sets]
    got = model.transform([tokens[order] for tokens, order in zip(sets, orders, strict=True)])
    expected = list(model.transform(sets))
    if pooling is None:
        expected = [tokens[order] for tokens, order in zip(expected, orders, strict=True)]
    assert_rows_equal(got, expected)


@pytest.mark.parametrize("mask", [name for name in MASKS if name not in COUNTING_MASKS])
@pytest.mark.parametrize("weights", [2.0, 0.5])
def test_token_weights_that_a_mask_cannot_count_are_refused(sets, mask, weights, rng):
    X = RaggedArray.from_list(sets, [np.full(len(tokens), weights) for tokens in sets])
    with pytest.raises(ValueError, match=f"no meaning with mask='{mask}'.*Repeat the tokens"):
        small(mask=mask).fit(X, Y["log_loss"])
    with pytest.raises(ValueError, match="no meaning"):
        fitted(sets, rng, mask=mask).transform(X)

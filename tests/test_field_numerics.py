"""Field cases F01 to F07: numerics, masks and counts that went wrong elsewhere."""

import functools
import math
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import COUNTING_MASKS, MASK_NAMES, identity, targets_of
from sklearn.exceptions import DataConversionWarning

from skattn import (
    AttentionContextualizer,
    RaggedArray,
    attention,
    scaled_dot_product_attention,
)
from skattn.losses import LOSSES
from skattn.pooling import POOLINGS

# A fit of a few steps is as good as a long one wherever two of them are compared.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

DTYPES = [np.float64, np.float32]


def tolerance(dtype, size=1.0):
    """What the field cases call equal: 1e-10, and 1e-5 of the largest figure in float32."""
    return {"atol": 1e-10 if dtype == np.float64 else 1e-5 * size, "rtol": 0}


def digits(values):
    """A figure that the field cases print to six digits: half a unit of the last one."""
    return {"desired": np.asarray(values), "atol": 5.1e-7, "rtol": 0}


def loop_attention(Q, K, V, allowed):
    """Softmax attention token by token; a row that may attend to nothing is zero."""
    n, m = len(Q), len(K)
    weights, out = np.zeros((n, m)), np.zeros((n, V.shape[1]))
    for i in range(n):
        keys = [j for j in range(m) if allowed[i, j]]
        if not keys:
            continue
        scores = [sum(Q[i] * K[j]) / math.sqrt(Q.shape[1]) for j in keys]
        top = max(scores)
        total = sum(math.exp(s - top) for s in scores)
        for j, score in zip(keys, scores, strict=True):
            weights[i, j] = math.exp(score - top) / total
            out[i] += weights[i, j] * V[j]
    return out, weights


# F01 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_f01_a_fully_masked_row_is_zero_with_and_without_weights(seed_tokens, dtype):
    X = seed_tokens.astype(dtype)
    mask = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0]], dtype=bool)
    alone = scaled_dot_product_attention(X, X, X, mask=mask)
    out, weights = scaled_dot_product_attention(X, X, X, mask=mask, return_weights=True)
    assert out.dtype == weights.dtype == dtype
    assert_array_equal(alone, out)
    assert_allclose(
        weights, **digits([[0.526492, 0.473508, 0], [0.517670, 0.482330, 0], [0, 0, 0]])
    )
    assert_allclose(out, **digits([[0.905298, 0.547351], [0.903534, 0.548233], [0, 0]]))
    expected_out, expected_weights = loop_attention(*[seed_tokens] * 3, mask)
    assert_allclose(out, expected_out, **tolerance(dtype))
    assert_allclose(weights, expected_weights, **tolerance(dtype))
    assert_array_equal(weights[2], 0)
    assert_array_equal(out[2], 0)


def test_f01_a_fully_masked_token_moves_nothing(seed_tokens):
    mask = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0]], dtype=bool)
    other = seed_tokens.copy()
    other[2] = [1e6, -7.0]  # as query, key and value: every derivative in row 3 is exactly 0
    assert_array_equal(
        scaled_dot_product_attention(other, other, other, mask=mask),
        scaled_dot_product_attention(seed_tokens, seed_tokens, seed_tokens, mask=mask),
    )


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 3)], ids=["sets", "sets-heads"])
def test_f01_other_members_of_a_batch_stay_finite(seed_tokens, shape):
    Q = np.broadcast_to(seed_tokens, (*shape, 2))
    mask = np.ones((*shape, 3), dtype=bool)
    mask[0] = False
    out, weights = scaled_dot_product_attention(Q, Q, Q, mask=mask, return_weights=True)
    plain, plain_weights = scaled_dot_product_attention(*[seed_tokens] * 3, return_weights=True)
    assert_array_equal(out[0], 0)
    assert_array_equal(weights[0], 0)
    assert_allclose(out[1], np.broadcast_to(plain, out[1].shape), atol=1e-14)
    assert_allclose(weights[1], np.broadcast_to(plain_weights, weights[1].shape), atol=1e-14)


def test_f01_a_lone_token_that_may_not_see_itself_outputs_zero(seed_tokens):
    est = identity(2, mask="exclude_self").fit([seed_tokens, seed_tokens[:1]])
    full, alone = est.transform([seed_tokens, seed_tokens[:1]])
    expected, weights = loop_attention(*[seed_tokens] * 3, ~np.eye(3, dtype=bool))
    assert_allclose(full, expected, atol=1e-10)
    assert_array_equal(alone, np.zeros((1, 2)))
    asked = est.attention_weights([seed_tokens, seed_tokens[:1]])
    assert_allclose(asked[0][0], weights, atol=1e-10)
    assert_array_equal(asked[1], np.zeros((1, 1, 1)))


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
def test_f01_training_through_a_fully_masked_row_is_finite(seed_tokens, pooling):
    """One-token sets under exclude_self have a masked row in every one of them."""
    sets = [seed_tokens, seed_tokens[:1], seed_tokens[1:], seed_tokens[2:]]
    est = AttentionContextualizer(
        n_heads=2, d_k=2, d_v=2, mask="exclude_self", pooling=pooling, max_iter=5, random_state=0
    ).fit(sets, [0, 1, 0, 1])
    assert est.loss_ < est.loss_curve_[0]
    assert np.all(np.isfinite(est.loss_curve_))
    for part in (est.W_Q_, est.W_K_, est.W_V_, est.b_V_, est.coef_, est.intercept_):
        assert np.all(np.isfinite(part))


# F02 ------------------------------------------------------------------------------------------

PAIR_OUTPUT = [[0.905298, 0.547351], [0.903534, 0.548233]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hole", [np.nan, 0.0])
def test_f02_nan_padding_leaves_real_rows_alone(seed_tokens, dtype, hole):
    """The padded row may hold NaN (padding by content) or sit under a masked array's mask."""
    padded = np.array([[*seed_tokens[:2], [np.nan, np.nan]]], dtype=dtype)
    X = padded
    if hole == 0.0:
        X = np.ma.MaskedArray(np.where(np.isnan(padded), hole, padded), mask=np.isnan(padded))
    est = identity(2).fit([seed_tokens[:2].astype(dtype)])
    (out,) = est.transform(X)
    assert out.dtype == dtype
    assert_allclose(out, **digits(PAIR_OUTPUT))
    assert_array_equal(out, est.transform([seed_tokens[:2].astype(dtype)])[0])


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_f02_a_masked_slot_may_hold_anything(seed_tokens, poison, dtype):
    """0 * NaN is never formed, whether the weights are asked for or not."""
    X = seed_tokens.astype(dtype)
    with np.errstate(over="ignore"):
        X[2] = poison
    mask = np.outer([1, 1, 0], [1, 1, 0]).astype(bool)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = scaled_dot_product_attention(X, X, X, mask=mask)
        out, weights = scaled_dot_product_attention(X, X, X, mask=mask, return_weights=True)
    assert_array_equal(alone, out)
    assert_allclose(out[:2], **digits(PAIR_OUTPUT))
    assert_array_equal(out[2], 0)
    assert_array_equal(weights[2], 0)
    assert_array_equal(weights[:, 2], 0)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["K", "V"])
def test_f02_a_slot_is_hidden_from_those_that_may_not_see_it(seed_tokens, poison, part):
    """Under a causal mask the last token may poison its own row, and no other."""
    tokens = {"Q": seed_tokens, "K": seed_tokens, "V": seed_tokens}
    tokens[part] = seed_tokens.copy()
    tokens[part][2] = poison
    causal = np.tri(3, dtype=bool)
    with np.errstate(invalid="ignore"):  # the last row's own figures
        out = scaled_dot_product_attention(*tokens.values(), mask=causal)
        again, weights = scaled_dot_product_attention(
            *tokens.values(), mask=causal, return_weights=True
        )
    expected, expected_weights = loop_attention(*[seed_tokens] * 3, causal)
    assert_allclose(out[:2], expected[:2], atol=1e-10)
    assert_array_equal(again[:2], out[:2])
    assert_allclose(weights[:2], expected_weights[:2], atol=1e-10)


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
def test_f02_training_on_padded_sets_equals_training_on_lists(awkward_sets, pooling, mask):
    y = np.arange(len(awkward_sets)) % 2
    padded = np.full((len(awkward_sets), 25, 3), np.nan)
    for row, tokens in zip(padded, awkward_sets, strict=True):
        row[: len(tokens)] = tokens
    settings = {
        "n_heads": 2,
        "d_k": 2,
        "d_v": 2,
        "pooling": pooling,
        "mask": mask,
        "max_iter": 5,
        "random_state": 0,
    }
    on_list = AttentionContextualizer(**settings).fit(awkward_sets, y)
    on_array = AttentionContextualizer(**settings).fit(padded, y)
    assert on_list.loss_ == on_array.loss_
    assert_array_equal(on_list.W_Q_, on_array.W_Q_)
    assert_array_equal(on_list.coef_, on_array.coef_)


# F03 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_f03_a_set_does_not_depend_on_its_neighbours(n_heads, pooling, mask, dtype):
    random = np.random.RandomState(0)
    A, B = random.randn(5, 3).astype(dtype), random.randn(40, 3).astype(dtype)
    short = [random.randn(n, 3).astype(dtype) for n in (5, 1, 0, 7, 5)]
    est = AttentionContextualizer(
        n_heads=n_heads, d_k=3, d_v=2, pooling=pooling, mask=mask, max_iter=0, random_state=0
    ).fit([A, B, *short], [0, 1, 0, 1, 0, 1, 0])
    alone = est.transform([A])[0]
    padded = np.full((1, 40, 3), np.nan, dtype=dtype)
    padded[0, :5] = A
    others = [
        est.transform([A, B])[0],
        est.transform([B, A])[1],
        est.transform([A, A])[1],
        est.transform([*short, A, B])[5],
        est.transform([B, *short, A] * 50)[-1],
        est.transform(padded)[0],
    ]
    # float32 sums of a matrix product may be taken in another order beside other rows
    exact = {"atol": 1e-12, "rtol": 1e-12} if dtype == np.float64 else {"atol": 2e-6, "rtol": 1e-5}
    for other in others:
        assert_allclose(other, alone, **exact)


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("chunk_bytes", [1, 500, 5000])
def test_f03_chunks_and_row_blocks_change_nothing(
    monkeypatch, awkward_sets, chunk_bytes, pooling, mask
):
    """Neither in transform nor in training; with one byte, query rows are taken one at a time."""
    y = np.arange(len(awkward_sets)) % 3
    settings = {"n_heads": 2, "d_k": 2, "d_v": 2, "max_iter": 3, "random_state": 0}
    settings |= {"pooling": pooling, "mask": mask}
    whole = AttentionContextualizer(**settings).fit(awkward_sets, y)
    expected = whole.transform(awkward_sets)
    monkeypatch.setitem(
        attention.ATTENTIONS,
        "scaled_dot_product",
        functools.partial(attention.Attention, chunk_bytes=chunk_bytes),
    )
    in_chunks = AttentionContextualizer(**settings | {"max_iter": 0}).fit(awkward_sets, y)
    for name in ("W_Q_", "W_K_", "W_V_", "pooling_params_"):
        setattr(in_chunks, name, getattr(whole, name))
    for got, one in zip(in_chunks.transform(awkward_sets), expected, strict=True):
        assert_allclose(got, one, atol=1e-12)
    cut = AttentionContextualizer(**settings).fit(awkward_sets, y)
    assert_allclose(cut.loss_curve_, whole.loss_curve_, rtol=1e-8)


# F04 ------------------------------------------------------------------------------------------

LARGE = [[1000.0, 0], [0, 1000], [1000, 1000]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_f04_large_scores_do_not_overflow(dtype):
    X = np.array(LARGE, dtype=dtype)
    out, weights = scaled_dot_product_attention(X, X, X, return_weights=True)
    assert_allclose(weights, [[0.5, 0, 0.5], [0, 0.5, 0.5], [0, 0, 1]], **tolerance(dtype))
    assert_allclose(out, [[1000, 500], [500, 1000], [1000, 1000]], **tolerance(dtype, 1000))
    est = identity(2).fit([X])
    assert_allclose(est.transform([X])[0], out, **tolerance(dtype, 1000))
    assert_allclose(est.attention_weights([X])[0][0], weights, **tolerance(dtype))


@pytest.mark.parametrize("scale", [1e3, -1e3, 1e100])
def test_f04_scores_of_any_finite_size_are_softmaxed(scale):
    """Huge differences of scores saturate; equal huge scores share."""
    X = np.array([[1.0, 0], [1.0, 0], [0, 1]])
    out, weights = scaled_dot_product_attention(X, X, X, scale=scale, return_weights=True)
    near, far = ([0.5, 0.5, 0], [0, 0, 1]) if scale > 0 else ([0, 0, 1], [0.5, 0.5, 0])
    assert_allclose(weights, [near, near, far], atol=1e-10)
    assert_allclose(out, weights @ X, atol=1e-10)


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("dtype", DTYPES)
def test_f04_training_on_large_tokens_stays_finite(dtype, pooling, mask):
    sets = [np.array(LARGE, dtype=dtype), np.array(LARGE[:2], dtype=dtype) * 2]
    est = identity(2, pooling=pooling, mask=mask, score_statistics=True, max_iter=3)
    est.fit(sets, [0, 1])
    assert np.all(np.isfinite(est.loss_curve_))
    for part in (est.W_Q_, est.W_K_, est.W_V_, est.coef_, est.intercept_):
        assert np.all(np.isfinite(part))


# F05 ------------------------------------------------------------------------------------------


def test_f05_each_head_is_scaled_by_its_own_width():
    X = np.array([[2.0, 0, 0, 2], [0, 2, 2, 0]])
    expected = [[0.944193, 0.055807], [0.055807, 0.944193]]  # sqrt 2, and not sqrt 4
    est = identity(4, n_heads=2, d_k=2, d_v=2).fit([X])
    (weights,) = est.attention_weights([X])
    assert weights.shape == (2, 2, 2)
    for head in weights:
        assert_allclose(head, **digits(expected))
    heads = np.stack([X[:, :2], X[:, 2:]])
    _, weights = scaled_dot_product_attention(heads, heads, heads, return_weights=True)
    for head in weights:
        assert_allclose(head, **digits(expected))
    wide = identity(4, n_heads=1, d_k=4).fit([X])
    assert_allclose(
        wide.attention_weights([X])[0][0], **digits([[0.982014, 0.017986], [0.017986, 0.982014]])
    )


@pytest.mark.parametrize("n_heads", [1, 2, 5])
@pytest.mark.parametrize("d_k", [1, 3, 8])
def test_f05_the_scale_does_not_depend_on_the_number_of_heads(rng, n_heads, d_k):
    X = rng.normal(size=(6, 4))
    est = AttentionContextualizer(
        n_heads=n_heads, d_k=d_k, standardize=False, max_iter=0, random_state=0
    ).fit([X])
    (weights,) = est.attention_weights([X])
    for head in range(n_heads):
        columns = slice(head * d_k, (head + 1) * d_k)
        Q, K = X @ est.W_Q_[:, columns], X @ est.W_K_[:, columns]
        _, expected = loop_attention(Q, K, X, np.ones((6, 6), dtype=bool))
        assert_allclose(weights[head], expected, atol=1e-10)


# F06 ------------------------------------------------------------------------------------------

A, B = [1.0, 0.0], [0.0, 1.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_f06_repeated_tokens_are_counted_not_merged(dtype):
    S1 = [np.array([A, A, B], dtype=dtype)]
    S2 = RaggedArray(np.array([A, B], dtype=dtype), np.array([0, 2]), np.array([2.0, 1.0]))
    S3 = [np.array([A, B], dtype=dtype)]
    tokens, pooled = identity(2).fit(S1), identity(2, pooling="mean").fit(S1)
    near, far = [0.802224, 0.197776], [0.496510, 0.503490]
    assert_allclose(tokens.transform(S1)[0], **digits([near, near, far]))
    assert_allclose(tokens.transform(S2)[0], **digits([near, far]))
    assert_allclose(tokens.transform(S3)[0], **digits([[0.669762, 0.330238], [0.330238, 0.669762]]))
    assert_allclose(pooled.transform(S1), **digits([[0.700320, 0.299680]]))
    assert_allclose(pooled.transform(S2), **digits([[0.700320, 0.299680]]))
    assert_allclose(pooled.transform(S3), **digits([[0.5, 0.5]]))
    assert_allclose(pooled.transform(S2), pooled.transform(S1), **tolerance(dtype))


def test_f06_the_self_weight_of_a_counted_token_is_that_of_each_copy():
    S1 = [np.array([A, A, B])]
    S2 = RaggedArray(np.array([A, B]), np.array([0, 2]), np.array([2.0, 1.0]))
    est = identity(2, score_statistics=True).fit(S1)
    each, counted = est.transform(S1)[0], est.transform(S2)[0]
    assert_allclose(counted, each[[0, 2]], atol=1e-10)
    assert_allclose(counted[:, -1], **digits([0.401112, 0.503490]))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("mask", COUNTING_MASKS)
@pytest.mark.parametrize("score_statistics", [True, False])
def test_f06_integer_weights_equal_repetition(rng, awkward_sets, pooling, mask, score_statistics):
    """In training too; with a weight of 0 the token is nowhere."""
    counts = [rng.integers(0, 4, size=len(tokens)) for tokens in awkward_sets]
    repeated = [
        np.repeat(tokens, count, axis=0) for tokens, count in zip(awkward_sets, counts, strict=True)
    ]
    plain = RaggedArray.from_list(awkward_sets)
    weighted = RaggedArray(plain.values, plain.offsets, np.concatenate(counts).astype(np.float64))
    y = np.arange(len(repeated)) % 2
    settings = {"n_heads": 2, "d_k": 2, "d_v": 2, "random_state": 0}
    settings |= {"pooling": pooling, "mask": mask, "score_statistics": score_statistics}
    on_repeated = AttentionContextualizer(max_iter=5, **settings).fit(repeated, y)
    on_weighted = AttentionContextualizer(max_iter=5, **settings).fit(weighted, y)
    assert_allclose(on_weighted.token_mean_, on_repeated.token_mean_, atol=1e-12)
    assert_allclose(on_weighted.token_scale_, on_repeated.token_scale_, rtol=1e-12)
    assert_allclose(on_weighted.loss_curve_[0], on_repeated.loss_curve_[0], rtol=1e-12)
    assert_allclose(on_weighted.loss_curve_, on_repeated.loss_curve_, rtol=1e-8)
    expected = on_repeated.transform(repeated)
    assert_allclose(on_repeated.transform(weighted), expected, atol=1e-10)


@pytest.mark.parametrize("mask", [m for m in MASK_NAMES if m not in COUNTING_MASKS])
def test_f06_weights_that_a_mask_cannot_count_are_refused(mask):
    weighted = RaggedArray(np.array([A, B]), np.array([0, 2]), np.array([2.0, 1.0]))
    est = identity(2, mask=mask).fit([np.array([A, B])])
    with pytest.raises(ValueError, match="weight"):
        est.transform(weighted)
    with pytest.raises(ValueError, match="weight"):
        identity(2, mask=mask).fit(weighted)


# F07 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, "causal", "diagonal"])
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
def test_f07_one_sample_of_one_token_keeps_its_axes(seed_tokens, pooling, mask):
    est = identity(2, pooling=pooling, mask=mask).fit([seed_tokens])
    X = [[[3, -1]]]
    (tokens,) = est.contextualize(X)
    assert tokens.shape == (1, 2)
    assert_array_equal(tokens, [[3, -1]])
    (weights,) = est.attention_weights(X)
    assert_array_equal(weights, [[[1.0]]])
    out = est.transform(X)
    if pooling is None:
        assert_array_equal(out[0], [[3, -1]])
    else:
        assert out.shape == (1, len(est.get_feature_names_out()))
        assert np.all(np.isfinite(out))
    if pooling in ("mean", "sum", "max", "attention"):
        assert_array_equal(out, [[3, -1]])


@pytest.mark.parametrize("n_heads", [1, 3])
def test_f07_a_lone_token_is_its_own_value(rng, n_heads):
    sets = [rng.normal(size=(3, 2)), rng.normal(size=(1, 2))]
    est = AttentionContextualizer(
        n_heads=n_heads,
        d_v=1,
        standardize=False,
        score_statistics=False,
        max_iter=5,
        random_state=0,
    ).fit(sets, [0, 1])
    x = np.array([[3.0, -1.0]])
    assert est.transform([x]).shape == (1, n_heads)
    assert_allclose(est.transform([x]), x @ est.W_V_ + est.b_V_, rtol=1e-14, atol=1e-15)
    assert_allclose(est.attention_weights([x])[0], np.ones((n_heads, 1, 1)), atol=0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize("loss", LOSSES)
def test_f07_a_column_of_targets_trains_as_a_vector(awkward_sets, loss, rng):
    y = np.ravel(targets_of(LOSSES[loss](), len(awkward_sets), 1, rng))
    settings = {"n_heads": 1, "d_k": 2, "d_v": 2, "loss": loss, "max_iter": 5, "random_state": 0}
    vector = AttentionContextualizer(**settings).fit(awkward_sets, y)
    column = AttentionContextualizer(**settings).fit(awkward_sets, y[:, None])
    assert vector.loss_ == column.loss_
    assert_array_equal(np.ravel(vector.coef_), np.ravel(column.coef_))
    assert_array_equal(vector.transform(awkward_sets), column.transform(awkward_sets))


def test_f07_a_column_of_targets_may_warn_of_nothing_else(awkward_sets):
    y = (np.arange(len(awkward_sets)) % 2)[:, None]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        AttentionContextualizer(n_heads=1, alpha=0.1, random_state=0).fit(awkward_sets, y)
    assert {w.category for w in caught} <= {DataConversionWarning}

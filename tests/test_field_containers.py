"""Field cases F08 to F11, F13 and F15 to F17: sets, containers and tables."""

import numpy as np
import pandas as pd
import pytest
from columns import COLUMNS
from numpy.testing import assert_allclose, assert_array_equal
from reference import MASK_NAMES, identity
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import AttentionContextualizer, RaggedArray, as_ragged
from skattn.pooling import POOLINGS

# A fit of three steps is as good as a long one wherever two of them are compared.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def small(**params):
    """A small model after three steps of training."""
    settings = {"n_heads": 2, "d_k": 2, "d_v": 2, "max_iter": 3, "random_state": 0}
    return AttentionContextualizer(**{**settings, **params})


def cells(sets):
    """One object per set in a 1-D object array, equal lengths or not."""
    column = np.empty(len(sets), dtype=object)
    for i, tokens in enumerate(sets):
        column[i] = tokens
    return column


# F08 ------------------------------------------------------------------------------------------


@pytest.fixture
def with_empties(rng):
    """A of two tokens, an empty set, B of three, and an empty set at the very end."""
    return [rng.normal(size=(n, 3)) for n in (2, 0, 3, 0)]


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_f08_empty_sets_keep_their_place(with_empties, pooling, mask):
    A, _, B, _ = with_empties
    est = small(pooling=pooling, mask=mask).fit(with_empties, [0, 1, 1, 0])
    assert np.isfinite(est.loss_)
    assert np.all(np.isfinite(est.coef_))
    out = est.transform(with_empties)
    assert out.shape == (4, len(est.get_feature_names_out()))
    assert_array_equal(out[[1, 3]], 0)
    assert_allclose(out[[0, 2]], est.transform([A, B]), atol=1e-12)
    assert [len(tokens) for tokens in est.contextualize(with_empties)] == [2, 0, 3, 0]
    assert [w.shape for w in est.attention_weights(with_empties)] == [
        (2, n, n) for n in (2, 0, 3, 0)
    ]


def test_f08_token_outputs_of_empty_sets_have_no_rows(with_empties):
    A, _, B, _ = with_empties
    est = small(pooling=None).fit(with_empties, [0, 1, 1, 0])
    assert np.isfinite(est.loss_)
    out = est.transform(with_empties)
    assert isinstance(out, RaggedArray)
    assert out.lengths.tolist() == [2, 0, 3, 0]
    for got, expected in zip((out[0], out[2]), est.transform([A, B]), strict=True):
        assert_allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize("empty", [np.zeros((0, 3)), []], ids=["array", "list"])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_f08_an_empty_set_may_stand_anywhere(with_empties, empty, position):
    sets = [with_empties[0], with_empties[2]]
    est = small().fit(sets, [0, 1])
    X = [tokens.tolist() for tokens in sets] if isinstance(empty, list) else list(sets)
    X.insert(position, empty)
    out = est.transform(X)
    assert_array_equal(out[position], 0)
    assert_allclose(np.delete(out, position, axis=0), est.transform(sets), atol=1e-12)


@pytest.mark.parametrize(
    "empties",
    [
        [np.zeros((0, 3))] * 2,
        np.full((2, 4, 3), np.nan),
        np.zeros((2, 0, 3)),
        [[], []],
        pd.Series([[], []]),
        cells([[], []]),
    ],
    ids=["arrays", "padding", "3d", "lists", "series", "cells"],
)
def test_f08_nothing_but_empty_sets_transforms_to_the_constant(with_empties, empties):
    """What a service does with one document in which no word is known."""
    est = small().fit(with_empties, [0, 1, 1, 0])
    out = est.transform(empties)
    assert_array_equal(out, np.zeros((2, len(est.get_feature_names_out()))))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_f08_empty_rows_can_be_nan_in_transform_only(with_empties, pooling):
    y = [0, 1, 1, 0]
    zeros = small(pooling=pooling).fit(with_empties, y)
    nan = small(pooling=pooling, empty="nan").fit(with_empties, y)
    assert nan.loss_ == zeros.loss_
    out = nan.transform(with_empties)
    assert np.all(np.isnan(out[[1, 3]]))
    assert_array_equal(out[[0, 2]], zeros.transform(with_empties)[[0, 2]])


@pytest.mark.parametrize("pooling", ["mean", "attention", None])
def test_f08_empty_sets_can_be_refused_by_name(with_empties, pooling):
    est = small(pooling=pooling, empty="error")
    with pytest.raises(ValueError, match=r"\b1\b.*\b3\b"):
        est.fit(with_empties, [0, 1, 1, 0])
    est.fit(with_empties[::2], [0, 1])
    with pytest.raises(ValueError, match=r"\b1\b.*\b3\b"):
        est.transform(with_empties)


# F09 ------------------------------------------------------------------------------------------

ZERO_TOKEN = [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    "container",
    [
        lambda tokens: [tokens],
        lambda tokens: [np.array(tokens)],
        lambda tokens: np.array([tokens], dtype=np.float64),
        lambda tokens: np.ma.array([tokens], dtype=np.float64),
        lambda tokens: np.array([[*tokens, [np.nan, np.nan]]]),
        lambda tokens: RaggedArray.from_list([np.array(tokens, dtype=np.float64)]),
        lambda tokens: pd.Series([tokens]),
        lambda tokens: [pd.DataFrame(tokens)],
        lambda tokens: [np.array(tokens, dtype=np.int8)],
        lambda tokens: [np.array(tokens, dtype=bool)],
    ],
    ids=["nested", "arrays", "3d", "masked", "padded", "ragged", "series", "frames", "int", "bool"],
)
def test_f09_a_zero_token_is_a_token(container):
    X = container(ZERO_TOKEN)
    est = identity(2).fit(X)
    assert_allclose(
        est.attention_weights(X)[0][0],
        [[0.5, 0.5], [0.195570, 0.804430]],
        atol=5.1e-7,
    )
    assert_allclose(est.transform(X)[0], [[0.5, 0.5], [0.804430, 0.804430]], atol=5.1e-7)
    assert identity(2, pooling="mean").fit(X).transform(X)[0, 0] < 0.7  # (1, 1) if it were dropped


# F10 ------------------------------------------------------------------------------------------

NAN = float("nan")
GOOD = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
NAMED = r"(?i)(?=.*\bset 1\b)(?=.*\btoken 1\b)"  # both, in either order


@pytest.mark.parametrize("bad", [[3.0, NAN], [NAN, NAN], [np.inf, 1.0], [-np.inf, NAN]])
@pytest.mark.parametrize(
    "container",
    [
        list,
        tuple,
        cells,
        pd.Series,
        lambda sets: [np.array(tokens) for tokens in sets],
        lambda sets: [np.array(tokens, dtype=np.float32) for tokens in sets],
        lambda sets: [pd.DataFrame(tokens) for tokens in sets],
        lambda sets: RaggedArray.from_list([np.array(tokens) for tokens in sets]),
        lambda sets: pd.DataFrame({"s": pd.Series(sets)}),
    ],
    ids=["list", "tuple", "cells", "series", "arrays", "float32", "frames", "ragged", "column"],
)
def test_f10_a_nan_or_infinite_token_is_an_error_that_names_it(container, bad):
    est = identity(2).fit([GOOD])
    for call in (est.transform, est.attention_weights, est.contextualize, est.fit):
        with pytest.raises(ValueError, match=NAMED):
            call(container([GOOD, [[1.0, 2.0], bad]]))


@pytest.mark.parametrize("position", [0, 1, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_f10_whole_nan_rows_of_an_array_are_padding_wherever_they_stand(position, dtype):
    padded = np.array([np.insert(GOOD, position, NAN, axis=0)], dtype=dtype)
    listed = [np.array(GOOD, dtype=dtype)]
    ragged = as_ragged(padded)
    assert ragged.lengths.tolist() == [3]
    assert_array_equal(ragged.values, listed[0])
    for pooling in (None, "mean"):
        est = identity(2, pooling=pooling).fit(listed)
        assert_array_equal(est.transform(padded)[0], est.transform(listed)[0])


@pytest.mark.parametrize("bad", [[3.0, NAN], [np.inf, 1.0], [np.inf, NAN], [np.inf, np.inf]])
def test_f10_half_a_nan_row_of_an_array_is_an_error(bad):
    X = np.array([[*GOOD, [NAN, NAN]], [[1.0, 2.0], bad, [NAN, NAN], [NAN, NAN]]])
    est = identity(2).fit([GOOD])
    with pytest.raises(ValueError, match=NAMED):
        est.transform(X)
    with pytest.raises(ValueError, match=NAMED):
        est.fit(X)


# F11 ------------------------------------------------------------------------------------------

FORMS = {
    "list": list,
    "tuple": tuple,
    "cells": cells,
    "object array": lambda sets: np.array(sets, dtype=object),  # 1-D, or 3-D for equal lengths
    "object column": lambda sets: cells(sets)[:, None],
    "nested lists": lambda sets: [tokens.tolist() for tokens in sets],
    "nested tuples": lambda sets: tuple(tuple(map(tuple, tokens.tolist())) for tokens in sets),
    "frames": lambda sets: [pd.DataFrame(tokens, columns=list("abc")) for tokens in sets],
    "ragged": RaggedArray.from_list,
    "padded": lambda sets: RaggedArray.from_list(sets).to_padded(),
    "masked": lambda sets: np.ma.masked_invalid(RaggedArray.from_list(sets).to_padded()),
    "series": lambda sets: pd.Series(list(sets)),
    "series of lists": lambda sets: pd.Series([tokens.tolist() for tokens in sets]),
    "series of lists of arrays": lambda sets: pd.Series([list(tokens) for tokens in sets]),
    "column": lambda sets: pd.DataFrame({"s": pd.Series(list(sets))}),
    "fortran order": lambda sets: [np.asfortranarray(tokens) for tokens in sets],
    "strided": lambda sets: [np.repeat(tokens, 2, axis=0)[::2] for tokens in sets],
    "reversed": lambda sets: [tokens[::-1].copy()[::-1] for tokens in sets],
    **COLUMNS,
}


@pytest.fixture(params=[(2, 4, 3), (3, 3, 3), (1, 1, 1)], ids=["ragged", "equal", "one token"])
def sets(request, rng):
    return [rng.normal(size=(n, 3)) for n in request.param]


@pytest.mark.filterwarnings("ignore:.*identity:UserWarning")  # one token per set, on purpose
@pytest.mark.parametrize("form", FORMS)
def test_f11_every_form_of_the_same_sets_gives_the_same_numbers(sets, form):
    X, y = FORMS[form](sets), [0, 1, 0]
    reference, est = small().fit(sets, y), small().fit(X, y)
    assert est.loss_ == reference.loss_
    for name in ("W_Q_", "W_K_", "W_V_", "b_V_", "coef_", "intercept_"):
        assert_array_equal(getattr(est, name), getattr(reference, name))
    expected = reference.transform(sets)
    assert_array_equal(reference.transform(X), expected)
    assert_array_equal(small().fit_transform(X, y), small().fit_transform(sets, y))
    for got, weights in zip(
        reference.attention_weights(X), reference.attention_weights(sets), strict=True
    ):
        assert_array_equal(got, weights)
    for got, tokens in zip(reference.contextualize(X), reference.contextualize(sets), strict=True):
        assert_array_equal(got, tokens)


@pytest.mark.filterwarnings("ignore:.*identity:UserWarning")
@pytest.mark.parametrize("form", FORMS)
def test_f11_every_form_of_the_same_sets_scores_the_same(sets, form):
    X, y = FORMS[form](sets), [0, 1, 0]
    model = make_pipeline(small(), LogisticRegression())
    expected = model.fit(sets, y).decision_function(sets)
    assert_array_equal(model.decision_function(X), expected)
    assert model.score(X, y) == model.score(sets, y)
    assert_array_equal(clone(model).fit(X, y).decision_function(X), expected)


def test_f11_equal_lengths_mean_the_same_in_three_dimensions(rng):
    stacked = rng.normal(size=(3, 3, 3))
    est = identity(3).fit(stacked)
    for got, expected in zip(est.transform(stacked), est.transform(list(stacked)), strict=True):
        assert_array_equal(got, expected)


def test_f11_a_ragged_array_never_turns_three_dimensional_in_silence(rng):
    ragged = RaggedArray.from_list([rng.normal(size=(3, 3)) for _ in range(3)])
    with pytest.raises(TypeError, match="to_list.*to_padded|to_padded.*to_list"):
        np.asarray(ragged)


# F13 ------------------------------------------------------------------------------------------


@pytest.fixture(params=["lists", "arrays"])
def frame(request):
    column = [[[1, 2]], [[3, 4], [5, 6]], [[7, 8]]]
    if request.param == "arrays":
        column = [np.array(tokens) for tokens in column]
    return pd.DataFrame({"s": pd.Series(column), "v": [1, 2, 3]})


def test_f13_a_list_column_is_read_as_sets_by_name_and_as_a_frame(frame):
    y = [0, 1, 0]
    expected = small().fit(frame["s"].tolist(), y).transform(frame["s"].tolist())
    k = expected.shape[1]
    blocks = [
        ColumnTransformer([("sets", small(), columns)]).fit(frame, y).transform(frame)
        for columns in ("s", ["s"])
    ]
    for block in blocks:
        assert block.shape == (3, k)
        assert block.dtype == np.float64
        assert_array_equal(block, expected)


def test_f13_a_list_column_stands_beside_a_number(frame):
    columns = ColumnTransformer([("sets", small(), "s"), ("scaled", StandardScaler(), ["v"])])
    out = columns.fit_transform(frame, [0, 1, 0])
    assert out.dtype == np.float64
    assert_allclose(out[:, -1], [-np.sqrt(1.5), 0, np.sqrt(1.5)])


def test_f13_two_list_columns_at_once_are_refused_with_advice(frame):
    two = pd.DataFrame({"s": frame["s"], "t": frame["s"]})
    for call in (
        lambda: small().fit(two, [0, 1, 0]),
        lambda: ColumnTransformer([("sets", small(), ["s", "t"])]).fit(two, [0, 1, 0]),
        lambda: small().fit(frame, [0, 1, 0]),
    ):
        with pytest.raises(ValueError, match=r"(?i)column"):
            call()


@pytest.mark.parametrize("sets", [["[[1, 2]]", "[[3, 4], [5, 6]]"], [["1", "2"], ["3", "4"]]])
def test_f13_nothing_goes_through_text(sets):
    with pytest.raises((TypeError, ValueError)):
        small().fit(pd.Series(sets), [0, 1])


def test_f13_a_union_of_two_contextualizers_is_twice_as_wide(frame):
    sets, y = frame["s"].tolist(), [0, 1, 0]
    union = FeatureUnion([("first", small()), ("second", small(random_state=1))])
    out = union.fit(sets, y).transform(sets)
    k = len(small().fit(sets, y).get_feature_names_out())
    assert out.shape == (3, 2 * k)
    assert_array_equal(out[:, :k], small().fit(sets, y).transform(sets))
    assert_array_equal(out[:, k:], small(random_state=1).fit(sets, y).transform(sets))
    assert len(set(union.get_feature_names_out())) == 2 * k


def test_f13_token_outputs_are_never_stacked_in_silence(frame):
    """A union or a column transformer needs one row per set, and refuses anything else."""
    sets, y = frame["s"].tolist(), [0, 1, 0]
    with pytest.raises((TypeError, ValueError)):
        FeatureUnion([("a", small(pooling=None)), ("b", small(pooling=None))]).fit_transform(
            sets, y
        )
    with pytest.raises((TypeError, ValueError)):
        ColumnTransformer(
            [("a", small(pooling=None), "s"), ("b", StandardScaler(), ["v"])]
        ).fit_transform(frame, y)


# F15 ------------------------------------------------------------------------------------------


def test_f15_the_output_frame_keeps_the_index_and_the_rows():
    frame = pd.DataFrame(
        {"s": pd.Series([[[1.0, 2.0], [0.0, 1.0]], [[3.0, 4.0]]]), "v": [10.0, 20.0]}
    ).set_axis([1, 0])
    y = [0, 1]
    columns = ColumnTransformer(
        [("sets", small(), "s"), ("scaled", StandardScaler(), ["v"])]
    ).set_output(transform="pandas")
    for out in (columns.fit_transform(frame, y), columns.transform(frame)):
        assert out.index.tolist() == [1, 0]
        assert out.columns.tolist() == columns.get_feature_names_out().tolist()
        expected = small().fit(frame["s"].tolist(), y).transform(frame["s"].tolist())
        assert_array_equal(out.loc[1].to_numpy()[:-1], expected[0])
        assert_array_equal(out.loc[0].to_numpy()[:-1], expected[1])
        assert out.iloc[:, -1].tolist() == [-1.0, 1.0]


def test_f15_a_shuffled_series_keeps_its_index(awkward_sets):
    index = [5, 3, 6, 0, 1, 4, 2]
    y = np.arange(len(index)) % 2
    est = small().set_output(transform="pandas").fit(awkward_sets, y)
    plain = est.transform(awkward_sets)
    out = est.transform(pd.Series(awkward_sets, index=index))
    assert out.index.tolist() == index
    assert_array_equal(out.to_numpy(), plain.to_numpy())
    one_column = pd.DataFrame({"s": pd.Series(awkward_sets, index=index)})
    assert est.transform(one_column).index.tolist() == index


def test_f15_a_list_gets_a_range_index(awkward_sets):
    y = np.arange(len(awkward_sets)) % 2
    est = small().set_output(transform="pandas")
    for out in (est.fit_transform(awkward_sets, y), est.transform(awkward_sets)):
        assert isinstance(out, pd.DataFrame)
        assert isinstance(out.index, pd.RangeIndex)
        assert out.columns.tolist() == est.get_feature_names_out().tolist()
        assert len(out) == len(awkward_sets)


def test_f15_polars_output_has_the_names(awkward_sets):
    pl = pytest.importorskip("polars", reason="polars is not installed")
    y = np.arange(len(awkward_sets)) % 2
    est = small().fit(awkward_sets, y)
    plain = est.transform(awkward_sets)
    out = est.set_output(transform="polars").transform(awkward_sets)
    assert isinstance(out, pl.DataFrame)
    assert out.columns == est.get_feature_names_out().tolist()
    assert_array_equal(out.to_numpy(), plain)


@pytest.mark.parametrize("transform", ["pandas", "default"])
def test_f15_token_outputs_are_never_wrapped(awkward_sets, transform):
    y = np.arange(len(awkward_sets)) % 2
    est = small(pooling=None).set_output(transform=transform)
    assert isinstance(est.fit(awkward_sets, y).transform(awkward_sets), RaggedArray)
    assert isinstance(est.fit_transform(awkward_sets, y), RaggedArray)


# F16 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score_statistics", [True, False])
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
def test_f16_output_columns_have_unique_stable_names(awkward_sets, pooling, score_statistics):
    y = np.arange(len(awkward_sets)) % 2
    est = small(pooling=pooling, score_statistics=score_statistics)
    with pytest.raises(NotFittedError):
        est.get_feature_names_out()
    names = est.fit(awkward_sets, y).get_feature_names_out()
    out = est.transform(awkward_sets)
    k = out.n_features if pooling is None else out.shape[1]
    assert names.dtype == object
    assert len(names) == len(set(names)) == k
    assert all(isinstance(name, str) for name in names)
    assert all(name.startswith("attentioncontextualizer") for name in names)
    assert_array_equal(clone(est).fit(awkward_sets, y).get_feature_names_out(), names)
    assert_array_equal(est.fit(awkward_sets[:4], y[:4]).get_feature_names_out(), names)


def test_f16_names_pass_through_a_pipeline_and_a_column_transformer(frame):
    y = [0, 1, 0]
    names = small().fit(frame["s"], y).get_feature_names_out()
    pipeline = make_pipeline(small(), StandardScaler()).fit(frame["s"], y)
    assert_array_equal(pipeline.get_feature_names_out(), names)
    columns = ColumnTransformer([("sets", small(), "s")]).fit(frame, y)
    assert columns.get_feature_names_out().tolist() == [f"sets__{name}" for name in names]


# F17 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["list", "cells", "nested lists", "ragged", "series", "padded"])
def test_f17_sets_of_another_width_are_refused_in_the_usual_words(rng, form):
    est = small().fit([rng.normal(size=(n, 3)) for n in (2, 3)], [0, 1])
    assert est.n_features_in_ == 3
    X = FORMS[form]([rng.normal(size=(n, 5)) for n in (2, 4)])
    expected = "X has 5 features, but AttentionContextualizer is expecting 3 features as input"
    for call in (est.transform, est.attention_weights, est.contextualize):
        with pytest.raises(ValueError, match=expected):
            call(X)
    assert est.n_features_in_ == 3


@pytest.mark.parametrize("position", [0, 1, 3])
@pytest.mark.parametrize("form", ["list", "cells", "nested lists", "series", "frames"])
def test_f17_one_set_of_another_width_is_named(rng, form, position):
    if form == "frames":

        def build(sets):
            return [pd.DataFrame(tokens) for tokens in sets]
    else:
        build = FORMS[form]
    est = small().fit([rng.normal(size=(n, 3)) for n in (2, 3)], [0, 1])
    sets = [rng.normal(size=(n, 3)) for n in (2, 4, 1)]
    sets.insert(position, rng.normal(size=(2, 5)))
    with pytest.raises(ValueError, match=rf"(?i)set {max(position, 1)}\b|set {position}\b") as err:
        est.transform(build(sets))
    assert "5" in str(err.value)
    assert "3" in str(err.value)
    with pytest.raises(ValueError, match=r"(?i)set \d"):
        small().fit(build(sets), [0, 1, 0, 1])


def test_f17_vectors_of_another_width_are_refused_too(rng):
    est = small().fit([rng.normal(size=(n, 3)) for n in (2, 3)], [0, 1])
    with pytest.raises(ValueError, match="X has 5 features, but AttentionContextualizer is"):
        est.transform(rng.normal(size=(4, 5)))

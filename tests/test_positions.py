"""PositionalEncoder: where a token stands, added to its vector or appended to it."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from skattn import AttentionContextualizer, PositionalEncoder, RaggedArray
from skattn.preprocessing import ENCODINGS, SetPooler

MODES = ("add", "append")
modes = pytest.mark.parametrize("mode", MODES)


def encoding_in_a_loop(position, d, max_period=10000):
    """Vaswani et al. (2017), section 3.5, as it is printed."""
    row = []
    for column in range(d):
        i, is_cosine = divmod(column, 2)
        angle = position / max_period ** (2 * i / d)
        row.append(math.cos(angle) if is_cosine else math.sin(angle))
    return row


def encoded_in_a_loop(sets, mode, n_features=None, max_period=10000):
    """Each token with its encoding, the tokens of each set counted from 0."""
    out = []
    for tokens in sets:
        d = n_features or tokens.shape[1]
        code = np.array([encoding_in_a_loop(t, d, max_period) for t in range(len(tokens))])
        code = code.reshape(len(tokens), d)
        out.append(tokens + code if mode == "add" else np.hstack([tokens, code]))
    return out


def assert_same_sets(actual, desired, **tolerance):
    """A RaggedArray holds the sets of a list, or of another."""
    assert isinstance(actual, RaggedArray)
    assert len(actual) == len(desired)
    for i, (a, b) in enumerate(zip(actual, desired, strict=True)):
        assert_allclose(a, b, err_msg=f"set {i}", **tolerance)


@pytest.fixture
def timed_sets(rng):
    """Sets of 3, 0, 1 and 5 tokens: two features and, between them, a time of any value."""
    sets = [rng.normal(size=(n, 3)) for n in (3, 0, 1, 5)]
    for tokens in sets:
        tokens[:, 1] = rng.uniform(-50, 1000, size=len(tokens))
    return sets


# The formula ----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_period", [10000, 20.0])
@pytest.mark.parametrize("n_features", [None, 1, 2, 7, 16])
def test_appended_positions_are_the_papers_formula(n_features, max_period, awkward_sets):
    encoder = PositionalEncoder(mode="append", n_features=n_features, max_period=max_period)
    out = encoder.fit_transform(awkward_sets)
    expected = encoded_in_a_loop(awkward_sets, "append", n_features, max_period)
    assert_same_sets(out, expected, rtol=1e-12, atol=1e-13)
    assert encoder.n_features_out_ == out.n_features == 3 + (n_features or 3)


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_added_positions_are_the_papers_formula(width, rng):
    sets = [rng.normal(size=(n, width)) for n in (4, 0, 1, 30)]
    encoder = PositionalEncoder()
    out = encoder.fit_transform(sets)
    assert_same_sets(out, encoded_in_a_loop(sets, "add"), rtol=1e-12, atol=1e-13)
    assert encoder.n_features_out_ == width


def test_two_encodings_have_a_product_that_depends_on_their_distance():
    code = ENCODINGS["sinusoidal"](np.arange(50.0), 16, 10000)
    products = code @ code.T
    for distance in (0, 1, 13):
        assert_allclose(np.diag(products, distance), products[0, distance], rtol=1e-12)


# Laws -----------------------------------------------------------------------------------------


@modes
def test_batch_mates_and_padding_change_no_bit(mode, awkward_sets, rng):
    encoder = PositionalEncoder(mode=mode).fit(awkward_sets)
    out = encoder.transform(awkward_sets)
    for tokens, encoded in zip(awkward_sets, out, strict=True):
        assert_array_equal(encoder.transform([tokens])[0], encoded)
    padded = np.full((len(awkward_sets), 40, 3), np.nan)
    for row, tokens in zip(padded, awkward_sets, strict=True):
        row[np.sort(rng.choice(40, len(tokens), replace=False))] = tokens  # gaps in the middle
    assert_array_equal(encoder.transform(padded).values, out.values)
    order = rng.permutation(len(awkward_sets))
    mixed = encoder.transform([awkward_sets[i] for i in order])
    assert_array_equal(mixed.values, out[order].values)


@modes
def test_the_order_of_tokens_counts(mode, rng):
    tokens = rng.normal(size=(3, 4))
    encoder = PositionalEncoder(mode=mode).fit([tokens])
    forth, back = encoder.transform([tokens, tokens[::-1]])
    assert np.abs(forth - back[::-1])[[0, 2]].max(axis=1).min() > 0.01
    assert_allclose(forth[1], back[1], rtol=1e-15)  # the one in the middle stays there


@modes
def test_with_a_column_of_times_the_order_of_tokens_does_not_count(mode, timed_sets, rng):
    encoder = PositionalEncoder(mode=mode, position=1).fit(timed_sets)
    orders = [rng.permutation(len(tokens)) for tokens in timed_sets]
    shuffled = [tokens[order] for tokens, order in zip(timed_sets, orders, strict=True)]
    expected = [
        out[order] for out, order in zip(encoder.transform(timed_sets), orders, strict=True)
    ]
    assert_same_sets(encoder.transform(shuffled), expected, rtol=0)


@modes
def test_token_weights_are_kept(mode, awkward_sets, rng):
    weights = [rng.uniform(0.5, 2, size=len(tokens)) for tokens in awkward_sets]
    X = RaggedArray.from_list(awkward_sets, weights)
    out = PositionalEncoder(mode=mode).fit_transform(X)
    assert_array_equal(out.weights, X.weights)
    assert_same_sets(out, PositionalEncoder(mode=mode).fit_transform(awkward_sets), rtol=0)


@modes
def test_a_token_of_weight_zero_takes_no_place(mode, awkward_sets):
    spoilt = [np.insert(tokens, len(tokens) // 2, 9.0, axis=0) for tokens in awkward_sets]
    weights = [(tokens[:, 0] != 9).astype(float) for tokens in spoilt]
    out = PositionalEncoder(mode=mode).fit_transform(RaggedArray.from_list(spoilt, weights))
    assert_same_sets(out, PositionalEncoder(mode=mode).fit_transform(awkward_sets), rtol=0)
    assert out.weights is None


@modes
def test_whole_weights_are_repeats_where_a_column_has_the_times(mode, timed_sets, rng):
    weights = [rng.integers(0, 4, size=len(tokens)) for tokens in timed_sets]
    repeats = [np.repeat(t, w, axis=0) for t, w in zip(timed_sets, weights, strict=True)]
    pooled = make_pipeline(PositionalEncoder(mode=mode, position=1), SetPooler())
    pooled.fit(timed_sets)
    weighted = pooled.transform(RaggedArray.from_list(timed_sets, weights))
    assert_allclose(weighted, pooled.transform(repeats), atol=1e-11)


@modes
@pytest.mark.parametrize("position", [None, 1])
def test_input_is_left_as_it_is(mode, position, timed_sets):
    X = RaggedArray.from_list(timed_sets)
    before = X.values.copy()
    X.values.flags.writeable = False
    out = PositionalEncoder(mode=mode, position=position).fit_transform(X)
    assert_array_equal(X.values, before)
    assert not np.shares_memory(out.values, X.values)


@modes
@pytest.mark.parametrize("position", [None, 1])
def test_float32_stays_and_positions_are_exact_in_it(mode, position, timed_sets):
    single = [tokens.astype(np.float32) for tokens in timed_sets]
    encoder = PositionalEncoder(mode=mode, position=position)
    out = encoder.fit_transform(single)
    assert out.dtype == np.float32
    double = encoder.transform([tokens.astype(np.float64) for tokens in single])
    assert double.dtype == np.float64
    assert_allclose(out.values, double.values, rtol=2e-7, atol=2e-7)


@modes
def test_sets_without_tokens_stay_empty(mode):
    encoder = PositionalEncoder(mode=mode).fit([np.ones((2, 2)), []])
    out = encoder.transform([[], []])
    assert_array_equal(out.lengths, [0, 0])
    assert out.n_features == encoder.n_features_out_


# A column of times ----------------------------------------------------------------------------


@pytest.mark.parametrize("position", [1, -2])
@pytest.mark.parametrize("drop", [False, True])
def test_a_column_of_times_gives_the_positions(position, drop, timed_sets):
    encoder = PositionalEncoder(position=position, drop_position=drop)
    appended = clone(encoder).set_params(mode="append", n_features=5)
    added, wide = encoder.fit_transform(timed_sets), appended.fit_transform(timed_sets)
    assert encoder.position_ == 1
    for tokens, short, long in zip(timed_sets, added, wide, strict=True):
        content = np.delete(tokens, 1, axis=1)
        kept = content if drop else tokens
        for k, time in enumerate(tokens[:, 1]):
            row = content[k] + encoding_in_a_loop(time, 2)
            row = row if drop else np.insert(row, 1, time)
            assert_allclose(short[k], row, rtol=1e-11)
            assert_allclose(long[k], [*kept[k], *encoding_in_a_loop(time, 5)], atol=1e-11)


def test_times_that_count_from_zero_are_the_order_of_tokens(awkward_sets):
    timed = [np.insert(tokens, 0, np.arange(len(tokens)), axis=1) for tokens in awkward_sets]
    for mode in MODES:
        by_time = PositionalEncoder(mode=mode, position=0, drop_position=True)
        by_order = PositionalEncoder(mode=mode)
        assert_same_sets(
            by_time.fit_transform(timed), by_order.fit_transform(awkward_sets), rtol=1e-15
        )


def test_the_column_may_be_named_where_each_set_is_a_frame(timed_sets):
    frames = [pd.DataFrame(tokens, columns=["a", "t", "b"]) for tokens in timed_sets]
    plain = PositionalEncoder(position=1).fit_transform(timed_sets)
    column = pd.Series(frames, index=list("wxyz"))
    for X in (frames, column, column.to_frame("sets")):
        encoder = PositionalEncoder(position="t")
        assert_same_sets(encoder.fit_transform(X), plain, rtol=0)
        assert encoder.position_ == 1
        assert_same_sets(encoder.transform(timed_sets), plain, rtol=0)  # by number from then on
        with pytest.raises(ValueError, match="'t' is column 0 of X, but was column 1 in fit"):
            encoder.transform([frame[["t", "a", "b"]] for frame in frames])
    with pytest.raises(ValueError, match=r"Set 3 has the columns \['t', 'a', 'b'\]"):
        PositionalEncoder(position="t").fit([*frames[:3], frames[3][["t", "a", "b"]]])
    with pytest.raises(ValueError, match=r"'time', but the tokens' columns are \['a', 't', 'b'\]"):
        PositionalEncoder(position="time").fit(frames)
    with pytest.raises(ValueError, match="columns are without names"):
        PositionalEncoder(position="t").fit(timed_sets)


def test_the_column_may_be_named_in_a_table(rng):
    table = pd.DataFrame(rng.normal(size=(4, 3)), columns=["a", "t", "b"])
    encoder = PositionalEncoder(position="t", drop_position=True, mode="append", n_features=2)
    out = encoder.fit_transform(table)
    expected = [encoding_in_a_loop(t, 2) for t in table["t"]]
    assert_allclose(out.values, np.hstack([table[["a", "b"]], expected]), rtol=1e-12)
    names = encoder.get_feature_names_out().tolist()
    assert names == ["a", "b", "positionalencoder0", "positionalencoder1"]


def test_a_lone_column_of_times_can_be_encoded_in_columns_of_its_own():
    times = [np.array([[0.0], [2.5]])]
    encoder = PositionalEncoder(mode="append", n_features=4, position=0, drop_position=True)
    out = encoder.fit_transform(times)
    assert_allclose(out.values, [encoding_in_a_loop(t, 4) for t in (0, 2.5)])


# Names, parameters, scikit-learn --------------------------------------------------------------


def test_names_are_those_that_came_and_those_appended(awkward_sets):
    assert PositionalEncoder().fit(awkward_sets).get_feature_names_out().tolist() == [
        "x0",
        "x1",
        "x2",
    ]
    encoder = PositionalEncoder(mode="append", n_features=2, position=0).fit(awkward_sets)
    expected = ["a", "b", "c", "positionalencoder0", "positionalencoder1"]
    assert encoder.get_feature_names_out(["a", "b", "c"]).tolist() == expected
    assert encoder.get_feature_names_out(["sets"])[0] == "x0"  # the name of the column of sets
    with pytest.raises(NotFittedError):
        PositionalEncoder().get_feature_names_out()


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"kind": "learned"}, ValueError, r"one of \['sinusoidal'\], but is 'learned'"),
        ({"kind": ["sinusoidal"]}, ValueError, "kind must be one of"),
        ({"mode": "concat"}, ValueError, r"one of \['add', 'append'\], but is 'concat'"),
        ({"n_features": 0, "mode": "append"}, ValueError, "n_features must be 1 or more, but is 0"),
        ({"n_features": 2.0, "mode": "append"}, TypeError, "n_features must be an integer"),
        ({"n_features": True, "mode": "append"}, TypeError, "n_features must be an integer"),
        ({"n_features": 4}, ValueError, "is 4, but an added encoding .* tokens, 3"),
        ({"n_features": 3, "position": 0}, ValueError, "as the tokens, 2"),
        ({"max_period": 0}, ValueError, "above 0, but is 0"),
        ({"max_period": np.nan}, ValueError, "max_period must be finite"),
        ({"max_period": "10000"}, TypeError, "max_period must be a number"),
        ({"position": 3}, ValueError, "position is 3, but tokens have 3 features"),
        ({"position": -4}, ValueError, "position is -4, but tokens have 3 features"),
        ({"position": 1.0}, TypeError, "number or the name of a column, or None, but is 1.0"),
        ({"position": True}, TypeError, "but is True"),
        ({"drop_position": True}, ValueError, "drop_position=True needs a column"),
    ],
    ids=str,
)
def test_bad_parameters_are_refused_by_fit(params, error, message, awkward_sets):
    encoder = PositionalEncoder(**params)
    with pytest.raises(error, match=message):
        encoder.fit(awkward_sets)


@modes
def test_nothing_but_times_leaves_nothing_to_add_to(mode):
    with pytest.raises(ValueError, match=r"no features besides their position.*give n_features"):
        PositionalEncoder(mode=mode, position=0).fit([[[1.0], [2.0]]])


def test_another_number_of_features_is_refused(awkward_sets):
    encoder = PositionalEncoder().fit(awkward_sets)
    with pytest.raises(ValueError, match="X has 2 features, but PositionalEncoder is expecting 3"):
        encoder.transform([np.ones((2, 2))])
    with pytest.raises(NotFittedError):
        PositionalEncoder().transform(awkward_sets)


def test_the_sets_of_a_child_table_name_the_column_of_positions():
    child = pd.DataFrame({"who": ["b", "a", "b"], "price": [3.0, 4.0, 5.0], "day": [0, 7, 2]})
    sets = RaggedArray.from_frame(child, by="who", columns=["price", "day"])
    by_name = PositionalEncoder(position="day", mode="append").fit(sets)
    by_number = PositionalEncoder(position=1, mode="append").fit(sets)
    assert by_name.position_ == 1
    assert_array_equal(by_name.transform(sets).values, by_number.transform(sets).values)
    turned = RaggedArray.from_frame(child, by="who", columns=["day", "price"])
    with pytest.raises(ValueError, match="'day' is column 0 of X, but was column 1 in fit"):
        by_name.transform(turned)


@pytest.mark.parametrize("transform", ["default", "pandas"])
def test_set_output_leaves_ragged_arrays_alone(transform, awkward_sets):
    encoder = PositionalEncoder().set_output(transform=transform)
    assert isinstance(encoder.fit_transform(awkward_sets), RaggedArray)


def test_a_fitted_encoder_pickles(awkward_sets):
    encoder = PositionalEncoder(mode="append", position=1).fit(awkward_sets)
    copy = pickle.loads(pickle.dumps(encoder))
    assert_array_equal(copy.transform(awkward_sets).values, encoder.transform(awkward_sets).values)
    assert not hasattr(clone(encoder), "position_")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_grid_search_over_a_pipeline_with_positions(rng):
    y = np.arange(40) % 2
    sets = [np.eye(2)[[0, 1] if label else [1, 0]] for label in y]  # the same two, in either order
    model = make_pipeline(
        PositionalEncoder(),
        AttentionContextualizer(n_heads=2, d_k=2, d_v=2, random_state=0),
        LogisticRegression(),
    )
    grid = {"positionalencoder__mode": MODES, "positionalencoder__n_features": [None]}
    search = GridSearchCV(model, grid, cv=4, error_score="raise").fit(sets, y)
    assert_array_equal(search.cv_results_["mean_test_score"], 1)
    without = clone(model).set_params(positionalencoder="passthrough").fit(sets, y)
    assert_allclose(without.predict_proba(sets), 0.5, atol=1e-6)  # one set, whatever the label


RAGGED_OUTPUT = {
    name: "the output is a RaggedArray, which is no array"
    for name in (
        "check_estimators_pickle",
        "check_fit_idempotent",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_pipeline_consistency",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
    )
}


class OneTokenRows(PositionalEncoder):
    """A PositionalEncoder whose output is an array, as that of one-token sets may be."""

    def transform(self, X):
        return super().transform(X).values

    def _is_ragged_out(self):
        return False


@pytest.mark.parametrize(
    ("encoder", "expected_failures", "at_least"),
    [
        (PositionalEncoder(), RAGGED_OUTPUT, 37),
        (OneTokenRows(), {}, 46),
        (OneTokenRows(mode="append", n_features=4, position=0, drop_position=True), {}, 46),
    ],
    ids=["ragged", "add", "append"],
)
def test_scikit_learns_common_checks_really_run(encoder, expected_failures, at_least):
    """A dense array is one-token sets, so the checks for dense data run."""
    results = check_estimator(
        encoder, expected_failed_checks=expected_failures, on_skip=None, on_fail=None
    )
    assert not {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(expected_failures)
    assert sum(r["status"] == "passed" for r in results) >= at_least

"""SetJoiner: the rows of a child table, joined to their parents inside a pipeline."""

import pickle

import numpy as np
import pandas as pd
import pytest
from columns import optional
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import (
    AttentionContextualizer,
    PositionalEncoder,
    RaggedArray,
    SetPooler,
    TokenTransformer,
)
from skattn.joining import SetJoiner

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

COLUMNS = ["price", "hour"]


@pytest.fixture
def customers(rng):
    """Thirty customers in no order, with an index of their own and an age."""
    keys = np.array([f"c{i:02d}" for i in rng.permutation(30)], dtype=object)
    return pd.DataFrame(
        {"id": keys, "age": rng.normal(40, 9, 30), "left": np.arange(30) % 2},
        index=rng.permutation(30) + 100,
    )


@pytest.fixture
def bought(rng):
    """Two hundred rows of twenty of the customers, and of one who is no customer."""
    n = 200
    return pd.DataFrame(
        {
            "customer": [f"c{i:02d}" for i in rng.integers(0, 20, n - 1)] + ["x"],
            "price": rng.normal(size=n),
            "hour": rng.integers(0, 24, n).astype(float),
            "when": rng.permutation(n),
            "count": rng.integers(1, 3, n),
        }
    )


def joiner(bought, **params):
    return SetJoiner(bought, key="id", child_key="customer", columns=COLUMNS, **params)


def small(**params):
    settings = {"n_heads": 2, "d_k": 2, "d_v": 2, "max_iter": 3, "random_state": 0}
    return AttentionContextualizer(**{**settings, **params})


@pytest.mark.parametrize("order_by", [None, "when"])
def test_each_parent_gets_its_rows_in_the_parents_order(customers, bought, order_by):
    sets = joiner(bought, order_by=order_by).fit_transform(customers)
    assert isinstance(sets, RaggedArray)
    assert sets.index is customers.index
    for key, tokens in zip(customers["id"], sets, strict=True):
        rows = bought[bought["customer"] == key]
        rows = rows if order_by is None else rows.sort_values(order_by)
        assert_array_equal(tokens, rows[COLUMNS].to_numpy())
    assert (sets.lengths == 0).sum() == 10
    assert_array_equal(sets.values, bought[COLUMNS].to_numpy()[sets.rows])


def test_it_is_from_frame_with_the_parents_keys(customers, bought):
    known = bought[bought["customer"] != "x"]
    expected = RaggedArray.from_frame(
        known, by="customer", columns=COLUMNS, weight="count", index=customers["id"]
    )
    got = joiner(known, weight="count").fit_transform(customers)
    for part in ("values", "offsets", "weights", "rows", "columns"):
        assert_array_equal(getattr(got, part), getattr(expected, part))


@pytest.mark.parametrize(
    "form",
    [
        lambda X: X["id"],
        lambda X: X[["id"]],
        lambda X: X[["id"]].rename(columns={"id": "other"}),
        lambda X: X["id"].to_numpy(dtype=object),
        lambda X: X[["id"]].to_numpy(dtype=object),
        lambda X: X["id"].tolist(),
        lambda X: X.assign(id=X["id"].astype("category")),
        lambda X: optional("polars").DataFrame({"id": X["id"].tolist(), "age": X["age"].tolist()}),
        lambda X: optional("polars").Series(X["id"].tolist()),
    ],
    ids="series column renamed array array2d list categorical polars polars_series".split(),
)
def test_the_key_may_come_alone_or_in_any_frame(customers, bought, form):
    expected = joiner(bought).fit_transform(customers)
    got = joiner(bought).fit(form(customers)).transform(form(customers))
    assert_array_equal(got.values, expected.values)
    assert_array_equal(got.offsets, expected.offsets)


def test_the_child_table_may_be_of_polars(customers, bought):
    pl = optional("polars")
    child = pl.DataFrame({name: column.tolist() for name, column in bought.items()})
    assert_array_equal(
        joiner(child, order_by="when").fit_transform(customers).values,
        joiner(bought, order_by="when").fit_transform(customers).values,
    )


def test_a_parent_may_stand_twice_and_another_be_new(customers, bought):
    fitted = joiner(bought).fit(customers)
    sets = fitted.transform(["c03", "c05", "c03", "nobody"])
    assert_array_equal(sets[0], sets[2])
    assert sets.lengths[3] == 0
    assert_array_equal(sets[1], bought.loc[bought["customer"] == "c05", COLUMNS])
    assert fitted.transform([]).shape == (0, None, 2)


def test_a_fold_sees_its_own_rows_only(customers, bought):
    fold = customers.iloc[:10]
    sets = joiner(bought).fit(fold).transform(fold)
    assert_array_equal(sets.values, joiner(bought).fit_transform(customers)[:10].values)


def test_new_rows_reach_a_fitted_pipeline(customers, bought):
    model = make_pipeline(joiner(bought), small(), LogisticRegression())
    model.fit(customers, customers["left"])
    today = bought.iloc[50:]
    model[0].set_params(child=today).fit(customers)
    expected = model[1:].decision_function(joiner(today).fit_transform(customers))
    assert_array_equal(model.decision_function(customers), expected)


def test_a_clone_shares_the_table_and_is_not_fitted(customers, bought):
    fitted = joiner(bought, order_by="when").fit(customers)
    copy = clone(fitted)
    assert copy.child is bought
    assert not hasattr(copy, "keys_")
    assert copy.get_params() == fitted.get_params()
    assert clone(make_pipeline(fitted, small()))[0].child is bought
    assert set(fitted.get_params()) == {
        "child",
        "key",
        "columns",
        "child_key",
        "order_by",
        "weight",
    }


def test_it_survives_pickling_and_leaves_the_table_alone(customers, bought):
    before = bought.copy()
    fitted = joiner(bought, order_by="when", weight="count").fit(customers)
    again = pickle.loads(pickle.dumps(fitted)).transform(customers)
    assert_array_equal(again.values, fitted.transform(customers).values)
    pd.testing.assert_frame_equal(bought, before)


def test_it_is_the_first_step_of_a_searched_pipeline(customers, bought):
    y = customers["left"]
    model = make_pipeline(joiner(bought), small(), LogisticRegression())
    grid = {"setjoiner__order_by": [None, "when"], "attentioncontextualizer__alpha": [0.1, 1.0]}
    search = GridSearchCV(model, grid, cv=3, error_score="raise").fit(customers, y)
    sets = joiner(bought).fit_transform(customers)
    expected = cross_val_score(make_pipeline(small(alpha=0.1), LogisticRegression()), sets, y, cv=3)
    assert_allclose([search.cv_results_[f"split{k}_test_score"][0] for k in range(3)], expected)
    assert search.predict(customers).shape == (30,)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(
    "pool", [SetPooler(("mean", "count")), small()], ids=["pooler", "attention"]
)
def test_ordinary_columns_stand_beside(customers, bought, library, pool):
    X = customers
    if library == "polars":
        X = optional("polars").DataFrame({n: c.tolist() for n, c in customers.items()})
    columns = make_column_transformer(
        (make_pipeline(joiner(bought), pool), ["id"]), (StandardScaler(), ["age"])
    )
    columns.set_output(transform=library)
    y = customers["left"]
    out = columns.fit(X, y).transform(X)
    assert list(out.columns) == columns.get_feature_names_out().tolist()
    expected = clone(pool).fit_transform(joiner(bought).fit_transform(customers), y)
    assert_array_equal(out.to_numpy()[:, :-1], expected)
    assert_allclose(out.to_numpy()[:, -1], StandardScaler().fit_transform(customers[["age"]])[:, 0])
    if library == "pandas":  # a shuffled index, which a join by it would follow
        assert out.index.tolist() == customers.index.tolist()
    model = make_pipeline(columns, LogisticRegression())
    assert cross_val_score(model, X, y, cv=3, error_score="raise").shape == (3,)


def test_names_are_those_of_the_child_table(customers, bought):
    model = make_pipeline(joiner(bought), SetPooler(("mean", "count"))).fit(customers)
    assert model.get_feature_names_out().tolist() == ["mean_price", "mean_hour", "count"]
    one = SetJoiner(bought, key="id", child_key="customer", columns="price").fit(customers)
    assert one.get_feature_names_out().tolist() == ["price"]
    assert one.n_features_out_ == 1


def test_token_outputs_are_never_wrapped(customers, bought):
    for transform in ("default", "pandas"):
        step = joiner(bought).set_output(transform=transform)
        assert isinstance(step.fit_transform(customers), RaggedArray)


def test_the_index_of_sets_reaches_a_frame_of_results(customers, bought):
    sets = joiner(bought).fit_transform(customers)
    out = small().set_output(transform="pandas").fit_transform(sets, customers["left"])
    assert out.index.tolist() == customers.index.tolist()


# What is refused


def test_keys_of_another_kind_are_refused_at_fit(customers, bought):
    with pytest.raises(ValueError, match=r"no row for any of 30 keys.*c\d\d.*write a key the same"):
        joiner(bought).fit(customers.assign(id=range(30)))


def test_a_parent_without_a_key_is_refused(customers, bought):
    customers["id"] = [None, *customers["id"][1:]]
    with pytest.raises(ValueError, match="'id' has no key in row"):
        joiner(bought).fit(customers)


def test_a_missing_column_is_named(customers, bought):
    with pytest.raises(ValueError, match="0 columns 'id'.*'age', 'left'"):
        joiner(bought).fit(customers[["age", "left"]])
    with pytest.raises(ValueError, match="0 columns 'id'"):
        SetJoiner(bought, key="id", columns=COLUMNS).fit(customers)
    with pytest.raises(ValueError, match="has shape"):
        joiner(bought).fit(np.ones((3, 2)))


def test_a_child_table_must_be_a_frame(customers, bought):
    with pytest.raises(TypeError, match="pandas or polars DataFrame"):
        joiner(bought.to_numpy()).fit(customers)


def test_a_column_of_sets_stays_apart_from_the_joined_ones(customers, bought):
    """Two set-valued blocks in one ColumnTransformer: each is pooled by itself."""
    customers["s"] = list(np.ones((30, 2, 1)))
    columns = ColumnTransformer(
        [
            ("bought", make_pipeline(joiner(bought), SetPooler(("mean",))), "id"),
            ("own", SetPooler(("sum",)), "s"),
        ]
    )
    out = columns.fit_transform(customers)
    assert out.shape == (30, 3)
    assert_array_equal(out[:, 2], 2)


def test_names_go_through_steps_on_tokens():
    customers = pd.DataFrame({"id": ["a", "b"]})
    bought = pd.DataFrame({"id": ["b", "a", "b"], "price": [1.0, 2.0, 3.0], "day": [1.0, 2, 5]})
    steps = make_pipeline(
        SetJoiner(bought, key="id", columns=["price", "day"]),
        PositionalEncoder(mode="append", n_features=2, position=1, drop_position=True),
        TokenTransformer(StandardScaler()),
        SetPooler(("mean",)),
    ).set_output(transform="pandas")
    pooled = steps.fit_transform(customers)
    names = ["mean_price", "mean_positionalencoder0", "mean_positionalencoder1"]
    assert list(pooled.columns) == list(steps.get_feature_names_out()) == names


def test_contextual_tokens_keep_the_index_of_their_sets():
    customers = pd.DataFrame({"id": ["a", "b"]}, index=[7, 3])
    bought = pd.DataFrame({"id": ["b", "a", "b"], "price": [1.0, 2.0, 3.0]})
    sets = SetJoiner(bought, key="id", columns="price").fit_transform(customers)
    tokens = AttentionContextualizer(max_iter=0).fit(sets).contextualize(sets)
    assert list(tokens.index) == list(sets.index)

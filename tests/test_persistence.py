"""Estimators saved and read again: pickle, joblib, skops; by other processes and versions."""

import copy
import pickle
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skattn
from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionContextualizerCV,
    AttentionRegressor,
    RaggedArray,
    SetPooler,
    TokenTransformer,
)
from skattn._persistence import STAMP
from skattn.joining import SetJoiner
from skattn.losses import LOSSES
from skattn.pooling import POOLINGS

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SMALL = {"n_heads": 2, "d_k": 2, "d_v": 2, "max_iter": 3, "random_state": 0}
ESTIMATORS = {
    **{f"{name} pooling": AttentionContextualizer(pooling=name, **SMALL) for name in POOLINGS},
    "pooling instance": AttentionContextualizer(pooling=POOLINGS["attention"](), **SMALL),
    "no pooling": AttentionContextualizer(pooling=None, **SMALL),
    "arrays to start from": AttentionContextualizer(init={"b_V": np.ones(4)}, **SMALL),
    "generator": AttentionContextualizer(**{**SMALL, "random_state": np.random.default_rng(0)}),
    "classifier": AttentionClassifier(**SMALL),
    **{
        f"{name} regressor": AttentionRegressor(loss=name, **SMALL)
        for name in LOSSES
        if not LOSSES[name]().is_classifier
    },
    "cv": AttentionContextualizerCV(alphas=(0.1, 1.0), cv=2, scoring="accuracy", **SMALL),
    "pooler": SetPooler(),
    "token transformer": TokenTransformer(StandardScaler()),
    "pipeline": make_pipeline(AttentionContextualizer(**SMALL), LogisticRegression()),
}


@pytest.fixture
def X(awkward_sets):
    return awkward_sets


def fitted(name, X):
    estimator = clone(ESTIMATORS[name])
    y = np.arange(len(X)) % 2
    return estimator.fit(X, y + 1.0 if isinstance(estimator, AttentionRegressor) else y)


def output(estimator, X):
    """What the estimator makes of the sets, as one array."""
    method = "transform" if hasattr(estimator, "transform") else "decision_function"
    out = getattr(estimator, method)(X)
    return out.values if isinstance(out, RaggedArray) else out


@pytest.mark.parametrize("name", ESTIMATORS)
def test_pickled_estimators_give_the_same_numbers(name, X):
    estimator = fitted(name, X)
    again = pickle.loads(pickle.dumps(estimator))
    assert_array_equal(output(again, X), output(estimator, X))
    assert not hasattr(again, STAMP)
    assert_array_equal(output(copy.deepcopy(estimator), X), output(estimator, X))


ELSEWHERE = """
import sys
import joblib, numpy as np
estimator, X, expected = joblib.load(sys.argv[1])
out = estimator.transform(X)
np.testing.assert_array_equal(getattr(out, "values", out), expected)
print(type(estimator).__name__)
"""


@pytest.mark.parametrize("name", ["attention pooling", "no pooling", "cv", "token transformer"])
def test_joblib_carries_estimators_to_another_process(name, X, tmp_path):
    estimator = fitted(name, X)
    joblib.dump((estimator, X, output(estimator, X)), tmp_path / "model.joblib")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ELSEWHERE, str(tmp_path / "model.joblib")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == type(estimator).__name__


def test_joblib_reads_an_estimator_as_a_memory_map(X, tmp_path):
    estimator = fitted("mean pooling", X)
    joblib.dump(estimator, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
    assert not again.W_Q_.flags.writeable
    assert_array_equal(output(again, X), output(estimator, X))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_skops_asks_for_trust_in_our_own_types_only(name, X):
    io = pytest.importorskip("skops.io", reason="skops is not installed")
    estimator = fitted(name, X)
    saved = io.dumps(estimator)
    unknown = io.get_untrusted_types(data=saved)
    assert [kind for kind in unknown if not kind.startswith("skattn.")] == []
    again = io.loads(saved, trusted=unknown)
    assert_array_equal(output(again, X), output(estimator, X))
    assert not hasattr(again, STAMP)


def test_a_joiner_is_saved_with_its_table():
    customers = pd.DataFrame({"id": ["a", "b"]})
    bought = pd.DataFrame({"id": ["b", "a", "b"], "price": [1.0, 2.0, 3.0]})
    joiner = SetJoiner(bought, key="id", columns=["price"]).fit(customers)
    again = pickle.loads(pickle.dumps(joiner))
    assert_array_equal(again.transform(customers).values, joiner.transform(customers).values)


# Versions


@pytest.mark.parametrize("name", ["mean pooling", "classifier", "pooler", "token transformer"])
def test_another_version_warns_and_names_both(name, X, monkeypatch):
    estimator = fitted(name, X)
    saved = pickle.dumps(estimator)
    monkeypatch.setattr(skattn, "__version__", "99.1")
    expected = rf"{type(estimator).__name__} was saved by skattn 0\..* read by skattn 99\.1"
    with pytest.warns(InconsistentVersionWarning, match=expected):
        again = pickle.loads(saved)
    assert_array_equal(output(again, X), output(estimator, X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(pickle.dumps(again))  # saved anew


def test_a_file_without_a_stamp_warns(X):
    estimator = fitted("mean pooling", X)
    bare = object.__new__(AttentionContextualizer)
    with pytest.warns(InconsistentVersionWarning, match="skattn of an unknown version"):
        bare.__setstate__(vars(estimator))
    assert_array_equal(output(bare, X), output(estimator, X))


def test_skops_warns_of_another_version_too(X, monkeypatch):
    io = pytest.importorskip("skops.io", reason="skops is not installed")
    saved = io.dumps(fitted("mean pooling", X))
    monkeypatch.setattr(skattn, "__version__", "99.1")
    with pytest.warns(InconsistentVersionWarning, match=r"read by skattn 99\.1"):
        io.loads(saved, trusted=io.get_untrusted_types(data=saved))


def test_every_estimator_is_stamped(X):
    for name in ESTIMATORS.keys() - {"pipeline"}:
        assert fitted(name, X).__getstate__()[STAMP] == skattn.__version__
    assert STAMP not in BaseEstimator().__getstate__()

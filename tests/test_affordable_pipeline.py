"""What a stack of set_pipeline shares, bounds, gives up, tells and leaves behind."""

import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

from skattn import RaggedArray, SetPooler, TokenTransformer
from skattn.pipelines import SetStackClassifier, SetStackRegressor, member_shares, set_pipeline
from skattn.pipelines._sampler import TokenSampler


@pytest.fixture
def bags(rng):
    """150 ragged sets, labels by the mean of the first feature, and that mean."""
    X = RaggedArray.from_list([rng.normal(size=(n, 3)) for n in rng.integers(1, 7, size=150)])
    means = X.segment_sum()[:, 0] / X.lengths
    return X, np.where(means > 0, "high", "low"), means


def means(learner, *steps):
    return make_pipeline(*steps, SetPooler(("mean",)), learner)


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_columns_are_out_of_fold_predictions_of_the_members(bags, kind):
    X, labels, numbers = bags
    y = labels if kind == "classifier" else numbers
    stack_of = SetStackClassifier if kind == "classifier" else SetStackRegressor
    method = "predict_proba" if kind == "classifier" else "predict"
    learner = LogisticRegression() if kind == "classifier" else Ridge()
    last = learner.__class__()
    folds = KFold(3, shuffle=True, random_state=0)
    members = [("means", means(learner)), ("maxima", make_pipeline(SetPooler(("max",)), learner))]

    class Kept(type(last)):
        def fit(self, X, y):
            self.columns = X
            return super().fit(X, y)

    stack = stack_of(members, Kept(), cv=folds).fit(X, y)
    for column, (name, member) in zip(stack.final_estimator_.columns.T, members, strict=True):
        expected = cross_val_predict(member, X, y, cv=folds, method=method)
        assert_allclose(column, expected.reshape(len(X), -1)[:, -1], rtol=1e-12)
        alone = getattr(clone(member).fit(X, y), method)(X)
        assert_allclose(getattr(stack.named_estimators_[name], method)(X), alone, rtol=1e-12)


class Counting(StandardScaler):
    """Counts its fits and its transforms in this process."""

    calls = {"fit": 0, "transform": 0}

    def fit(self, X, y=None):
        assert y is None
        self.calls["fit"] += 1
        return super().fit(X)

    def transform(self, X):
        self.calls["transform"] += 1
        return super().transform(X)


def test_equal_first_steps_are_computed_once_for_all_members_and_folds(bags):
    X, y, _ = bags
    one, other = (means(LogisticRegression(C=C), TokenTransformer(Counting())) for C in (1, 10))
    stack = SetStackClassifier([("one", one), ("other", other)], cv=4)
    Counting.calls.update(fit=0, transform=0)
    stack.fit(X, y)
    assert Counting.calls == {"fit": 1, "transform": 1}
    stack.predict(X)
    assert Counting.calls == {"fit": 1, "transform": 2}
    read = pickle.loads(pickle.dumps(stack))
    assert_array_equal(read.predict_proba(X), stack.predict_proba(X))
    assert Counting.calls == {"fit": 1, "transform": 4}  # once more by each


class Threads(ClassifierMixin, BaseEstimator):
    """Notes how many threads numerical libraries may have while it is fitted."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.threads_ = {library["num_threads"] for library in threadpool_info()}
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_member_has_one_thread_and_the_process_its_own_afterwards(bags, n_jobs):
    X, y, _ = bags
    before = threadpool_info()
    stack = SetStackClassifier([("threads", Threads())], cv=2, n_jobs=n_jobs).fit(X, y)
    assert stack.named_estimators_["threads"].threads_ == {1}
    assert threadpool_info() == before


def test_members_that_guess_are_given_up_after_the_first_of_large_folds(bags):
    X, y, _ = bags
    X, y = X.take(np.tile(np.arange(150), 2)), np.tile(y, 2)
    guess = DummyClassifier(strategy="uniform", random_state=0)
    members = [("means", means(LogisticRegression(C=100))), ("guess", guess)]
    stack = SetStackClassifier(members, cv=2).fit(X, y)
    assert stack.named_estimators_["guess"] == "drop"
    assert list(member_shares(stack).index) == ["means"]
    assert stack.transform(X).shape == (300, 1)
    assert list(stack.get_feature_names_out()) == ["setstackclassifier_means"]
    small = SetStackClassifier(members, cv=5).fit(X, y)  # 60 samples in a fold
    assert small.named_estimators_["guess"] != "drop"


def test_a_line_for_each_fit_tells_the_time_left(bags, capsys):
    X, y, _ = bags
    model = set_pipeline("classifier", members=["statistics_kernel"], cv=2, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "[SetStackClassifier] fold 1 of 2, statistics_kernel",
        "[SetStackClassifier] fold 2 of 2, statistics_kernel",
        "[SetStackClassifier] all samples, statistics_kernel",
    ]
    assert lines[-1].endswith("about 0 s left")
    model.set_params(verbose=0).fit(X, y)
    assert capsys.readouterr().out == ""


def test_several_processes_change_nothing(bags):
    X, y, _ = bags
    names = ["statistics_kernel", "kernel_mean_1"]
    one, two = (set_pipeline("classifier", members=names, n_jobs=n).fit(X, y) for n in (1, 2))
    assert_allclose(one.predict_proba(X), two.predict_proba(X), rtol=1e-9, atol=1e-12)


def test_a_search_sets_parameters_of_members(bags):
    X, y, _ = bags
    stack = SetStackClassifier([("means", means(LogisticRegression()))], cv=2)
    grid = {"means__logisticregression__C": [1e-6, 1.0]}
    search = GridSearchCV(stack, grid, cv=2).fit(X, y)
    assert search.best_params_ == {"means__logisticregression__C": 1.0}
    assert search.best_estimator_.score(X, y) > 0.9


def test_a_fold_may_lack_a_class(rng):
    X = RaggedArray.from_list([rng.normal(size=(2, 1)) + k for k in np.repeat([0, 5, 10], 10)])
    y = np.repeat(["a", "b", "c"], 10)
    model = SetStackClassifier([("means", means(LogisticRegression()))], cv=KFold(3)).fit(X, y)
    assert model.score(X, y) == 1


def test_folds_that_do_not_cover_the_samples_once_are_refused(bags):
    X, y, _ = bags
    stack = SetStackClassifier([("means", means(LogisticRegression()))], cv=ShuffleSplit(3))
    with pytest.raises(ValueError, match="each sample into the test set of exactly one fold"):
        stack.fit(X, y)


INTERRUPTED = """
import os, signal, sys, time
import numpy as np
from sklearn.dummy import DummyClassifier
from skattn.pipelines import SetStackClassifier

class Slow(DummyClassifier):
    def fit(self, X, y):
        os.write(1, f"{os.getpid()}\\n".encode())  # whole lines, also of two processes
        time.sleep(60)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may ignore it
members = [(name, Slow()) for name in "abc"]
SetStackClassifier(members, cv=2, n_jobs=int(sys.argv[1])).fit(np.zeros((20, 2)), [0, 1] * 10)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends an interrupt")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_leaves_nothing_running(n_jobs):
    command = [sys.executable, "-c", INTERRUPTED, str(n_jobs)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            workers = [int(process.stdout.readline()) for _ in range(n_jobs)]
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in errors
    deadline = time.monotonic() + 20
    while any(map(_runs, workers)):
        assert time.monotonic() < deadline, "workers still run"
        time.sleep(0.1)


def _runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Sampled tokens


def test_sampled_sets_keep_their_weight_and_transform_reads_all(rng):
    X = RaggedArray.from_list([rng.normal(size=(n, 2)) for n in (0, 3, 8, 100)])
    sampler = TokenSampler(8, random_state=0)
    sampled = sampler.fit_transform(X)
    assert sampled.lengths.tolist() == [0, 3, 8, 8]
    assert sampled.values.dtype == np.float32
    sets = sampled.repeat(np.arange(4))
    assert_allclose(np.bincount(sets, sampled.weights), [0, 3, 8, 100][: sets.max() + 1])
    rows = {tuple(row) for row in X[3].astype(np.float32)}
    assert len({tuple(row) for row in sampled[3]} & rows) == 8  # of the set, and none twice
    assert_array_equal(sampler.transform(X).values, X.values.astype(np.float32))


def test_short_sets_are_not_sampled(rng):
    X = RaggedArray.from_list([rng.normal(size=(n, 2)) for n in (2, 5)])
    sampled = TokenSampler(5).fit_transform(X)
    assert sampled.weights is None
    assert_array_equal(sampled.values, X.values.astype(np.float32))


def test_the_mean_of_a_sample_estimates_that_of_the_set(rng):
    X = RaggedArray.from_list([rng.normal(size=(200, 1))])
    draws = [TokenSampler(20, seed).fit_transform(X) for seed in range(200)]
    mean = np.mean([SetPooler(("mean",)).fit_transform(draw) for draw in draws])
    assert mean == pytest.approx(X.values.mean(), abs=0.05)


def test_weights_of_tokens_multiply(rng):
    X = RaggedArray(rng.normal(size=(6, 1)), [0, 6], weights=[0.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    sampled = TokenSampler(2, random_state=0).fit_transform(X)
    assert_array_equal(sampled.weights, [5.0, 5.0])

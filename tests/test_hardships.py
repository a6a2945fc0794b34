"""What a hard day brings: killed workers, odd scales, scripts without a guard, odd keys."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import make_objective

from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionRegressor,
    RaggedArray,
    _objective,
    _parallel,
)
from skattn.attention import Attention
from skattn.losses import LogLoss
from skattn.pooling import MeanPooling

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SMALL = {"n_heads": 2, "d_k": 2, "d_v": 2, "max_iter": 6, "random_state": 0}


@pytest.fixture
def sets(rng):
    return [rng.normal(size=(n, 3)) for n in [*rng.integers(1, 9, size=40)]]


@pytest.fixture
def y():
    return np.arange(40) % 2


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.setattr(_objective, "WORK_OF_A_PIECE", 2000.0)


# Workers


class Killing(AttentionContextualizer):
    """Kills its worker process after the second iteration, and may then interrupt itself."""

    interrupt = False

    def _print_iteration(self, n_iter, loss, grad_norm, theta):
        if n_iter == 2:
            pool = _parallel._pools[os.getpid(), 1]
            os.kill(pool.submit(os.getpid).result(), signal.SIGKILL)
            time.sleep(0.3)
            if self.interrupt:
                raise KeyboardInterrupt


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this platform")
def test_a_fit_whose_worker_is_killed_goes_on_alone(parts, sets, y, capsys):
    expected = AttentionContextualizer(**SMALL).fit(sets, y)
    model = Killing(n_jobs=2, verbose=1, **SMALL).fit(sets, y)
    assert model.loss_curve_ == expected.loss_curve_
    assert_array_equal(model.W_Q_, expected.W_Q_)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this platform")
def test_an_interrupt_that_kills_the_worker_too_keeps_the_best_point(parts, sets, y):
    model = Killing(n_jobs=2, verbose=1, **SMALL)
    model.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        model.fit(sets, y)
    assert model.loss_ == min(model.loss_curve_) < model.loss_curve_[0]
    assert np.all(np.isfinite(model.transform(sets)))


def run_script(text, *flags):
    code = [sys.executable, *flags, "-c", textwrap.dedent(text)]
    return subprocess.run(code, capture_output=True, text=True, timeout=120, check=False)


def test_a_script_without_a_main_guard_and_with_a_pooling_of_its_own_may_use_processes():
    done = run_script(
        """
        from dataclasses import dataclass
        import numpy as np, warnings
        from skattn import AttentionContextualizer, _objective
        from skattn.pooling import SumPooling
        warnings.simplefilter("ignore")
        _objective.WORK_OF_A_PIECE = 2000.0

        @dataclass(frozen=True)
        class Twice(SumPooling):
            def token_weights(self, tokens):
                return 2 * super().token_weights(tokens)

        rng = np.random.default_rng(0)
        sets = [rng.normal(size=(n, 3)) for n in rng.integers(1, 9, size=40)]
        losses = {
            AttentionContextualizer(
                n_heads=1, max_iter=3, pooling=Twice(), n_jobs=n_jobs, random_state=0
            ).fit(sets, np.arange(40) % 2).loss_
            for n_jobs in (1, 2)
        }
        print("losses", len(losses))
        """
    )
    assert done.returncode == 0, done.stderr
    assert "losses 1" in done.stdout


def test_it_imports_without_docstrings():
    done = run_script("import skattn; print(skattn.AttentionClassifier().alpha)", "-OO")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("lengths", [[1500, 1500, 1500], [6000, 5], [400]])
def test_no_part_is_empty(lengths, rng):
    X = RaggedArray.from_list([rng.normal(size=(n, 8)) for n in lengths])
    n = len(lengths)
    objective = make_objective(
        X, np.arange(n) % 2, np.ones(n), 1, Attention(), MeanPooling(), LogLoss(), 0.1
    )
    assert all(part.stop > part.start for part in objective.pieces)
    assert objective.pieces[-1].stop == len(objective.chunks)


# Scales


@pytest.mark.parametrize("c", [1e-170, 1e-30, 1e100])
def test_targets_of_any_scale_are_fitted_alike(sets, c, rng):
    y = rng.normal(size=40)
    one = AttentionRegressor(**SMALL).fit(sets, y).predict(sets)
    assert_allclose(AttentionRegressor(**SMALL).fit(sets, c * y).predict(sets), c * one, rtol=1e-6)


# Labels


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_missing_label_is_named(sets, missing):
    y = np.array(["a", "b"] * 20, dtype=object)
    y[7] = missing
    with pytest.raises(ValueError, match="Input y contains NaN: .* position 7"):
        AttentionContextualizer(**SMALL).fit(sets, y)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_log_probabilities_are_finite_however_sure(sets, n_classes):
    model = AttentionClassifier(**SMALL).fit(sets, np.arange(40) % n_classes)
    model.coef_ = model.coef_ * 1e6
    log_proba = model.predict_log_proba(sets)
    assert np.all(np.isfinite(log_proba))
    assert np.any(log_proba < -800)  # whose exponential is 0
    assert_allclose(np.exp(log_proba), model.predict_proba(sets), atol=1e-12)


# Keys and parameters


@pytest.mark.parametrize("key", [None, True, [1.5], np.array([[0, 1]])])
def test_what_is_no_index_of_sets_is_refused(sets, key):
    with pytest.raises(IndexError):
        RaggedArray.from_list(sets)[key]


def test_take_wants_positions_not_a_mask(sets):
    with pytest.raises(IndexError, match=r"Use X\[mask\]"):
        RaggedArray.from_list(sets).take([True] * 40)


def test_n_jobs_zero_is_refused(sets, y):
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        AttentionContextualizer(n_jobs=0, **SMALL).fit(sets, y)


def test_a_frame_of_tokens_wants_a_name_for_each_feature(sets):
    with pytest.raises(ValueError, match="columns has 1 names, but tokens have 3 features"):
        RaggedArray.from_list(sets).to_frame(["a"])

"""AttentionContextualizerCV against GridSearchCV over the same penalties and folds.

Run as ``python -m benchmarks.bench_tuning [--draws N]``. On four generated tasks both choose one of
the estimator's default alphas on five folds and fit on all sets, in turn in one process. Told are
processor time, evaluations of the objective (one goes over all sets of a fit, value and gradient),
and the score of the head on test sets. Prints the table and writes it to
``benchmarks/results/tuning.md``.
"""

import argparse
import time
import warnings
from unittest import mock

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

from skattn import AttentionClassifier, AttentionContextualizerCV, AttentionRegressor
from skattn._objective import Objective

from .bench_accuracy import WithHead
from .bench_synthetic import COUNTS, DIGITS, LOOKUP, MATCHING
from .pages import RESULTS, machine, markdown, number, publish

ALPHAS = AttentionContextualizerCV().alphas


def path(task, seed):
    return WithHead(AttentionContextualizerCV(random_state=seed))


def grid(task, seed):
    kind = AttentionClassifier if task.is_classification else AttentionRegressor
    return GridSearchCV(kind(random_state=seed), {"alpha": ALPHAS}, cv=5)


def measured(make, task, seed):
    """Seconds, evaluations and test score of one search."""
    X, y, X_test, y_test = task.draw(seed, task.n_train, task.n_test)
    model = make(task, seed)
    plain = Objective.value_and_grad
    with mock.patch.object(Objective, "value_and_grad", autospec=True, side_effect=plain) as calls:
        start = time.process_time()
        model.fit(X, y)
        seconds = time.process_time() - start
    return seconds, calls.call_count, task.score(y_test, model.predict(X_test))


def main(argv=None):
    """Run all draws, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--draws", type=int, default=3, help="how many draws")
    n_draws = parser.parse_args(argv).draws
    lines = [["", "seconds", "", "ratio", "evaluations", "", "ratio", "test score", ""]]
    lines.append(["", *["grid", "path", ""] * 2, "grid", "path"])
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for task in (LOOKUP, MATCHING, COUNTS, DIGITS):
            runs = [[measured(m, task, seed) for m in (grid, path)] for seed in range(n_draws)]
            runs = np.array(runs)  # (n_draws, 2, 3)
            of_grid, of_path = np.median(runs[..., :2], axis=0)
            ratios = np.median(runs[:, 0, :2] / runs[:, 1, :2], axis=0)
            cells = [task.name]
            for i, digits in enumerate((".1f", ".0f")):
                cells += [f"{of_grid[i]:{digits}}", f"{of_path[i]:{digits}}", f"{ratios[i]:.1f}"]
            lines.append([*cells, *map(number, runs[..., 2].mean(axis=0))])
            print(" | ".join(lines[-1]), flush=True)
    page = f"""# Tuning the penalty

`AttentionContextualizerCV` (path) against `GridSearchCV` (grid) over the same
{len(ALPHAS)} penalties and 5 folds: medians over {n_draws} draws, of ratios too; means of scores
(R² for distinct counts). An evaluation goes over all sets of a fit, value and gradient.

{markdown(lines)}

{machine("one BLAS thread")}.
Made by `python -m benchmarks.bench_tuning`.
"""
    publish(page, RESULTS / "tuning.md", True)


if __name__ == "__main__":
    main()

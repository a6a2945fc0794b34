"""What attention learns on the six generated tasks, over several draws.

Run as ``python -m benchmarks.bench_synthetic [--fast] [--draws N]``. Every draw has fresh
training and test sets (500 and 1000; 150 or 300 and 500 bags of digits; 400 and 1000 sentences)
and a fresh start of the optimiser. Alpha and pooling are tuned on folds of the training sets
alone. Two scores on the test sets: that of the head the contextualizer was fitted with, and that
of a pipeline which puts standardisation and a linear model of scikit-learn behind it. Word senses
have a label per token, and the pipeline's model sees the ambiguous token's vector. Where nothing
but the sets is learned from, by reconstruction, a random forest stands behind. Prints one table
and writes it to ``benchmarks/results/synthetic.md``.
"""

import argparse
import time
import warnings
from dataclasses import dataclass, field

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skattn import AttentionClassifier, AttentionContextualizer, SetPooler, TokenTransformer
from skattn.datasets import (
    make_distinct_counts,
    make_lookup,
    make_matching_pairs,
    make_odd_one_out,
    make_word_senses,
)
from skattn.pipelines import ScaledNystroem

from .accuracy_data import digits, two_draws
from .accuracy_peers import folds
from .bench_accuracy import WithHead
from .pages import RESULTS, machine, markdown, publish

ALPHAS = [1e-4, 1e-3, 1e-2, 1e-1]
STATISTICS = ("mean", "std", "min", "max", "count")


def own_token(tokens, i):
    """The vector of one token alone."""
    return tokens[i]


def own_and_others(tokens, i):
    """The vector of one token, and the mean of the others of its set."""
    return np.hstack([tokens[i], np.delete(tokens, i, axis=0).mean(axis=0)])


@dataclass(frozen=True)
class Task:
    """A law to draw from: `draw(seed, n_train, n_test)` gives X, y, X_test, y_test."""

    name: str
    draw: callable
    n_train: int
    n_test: int
    score: callable = accuracy_score

    @property
    def is_classification(self):
        return self.score is accuracy_score

    def head(self):
        """The model behind the contextualizer in the pipeline."""
        return LogisticRegression(max_iter=5000) if self.is_classification else RidgeCV()

    def baseline(self, seed):
        """A tuned linear model."""
        if not self.is_classification:
            return RidgeCV(np.logspace(-3, 3, 13))
        search = {"C": np.logspace(-3, 2, 6)}
        return GridSearchCV(LogisticRegression(max_iter=5000), search, cv=folds(self, seed))


LOOKUP = Task("lookup", two_draws(make_lookup), 500, 1000)
MATCHING = Task("matching pairs", two_draws(make_matching_pairs), 500, 1000)
ODD_ONE = Task("odd one out", two_draws(make_odd_one_out), 500, 1000)
SENSES = Task("word senses", two_draws(make_word_senses), 400, 1000)
COUNTS = Task("distinct counts", two_draws(make_distinct_counts), 500, 1000, r2_score)
DIGITS = Task("digit bags", digits, 150, 500)
MORE_DIGITS = Task("300 digit bags", digits, 300, 500)


@dataclass(frozen=True)
class Row:
    """A model on a task: pooled statistics, or parameters and a grid of the contextualizer.

    Behind the latter stands the task's linear model, or what `head` makes. With `lift` it reads so
    many kernel features of each token instead of the token.
    """

    task: Task
    label: str
    params: dict = field(default_factory=dict)
    grid: dict = field(default_factory=dict)
    pool: tuple = None  # or a function of tokens and a position, where tokens have labels
    head: callable = None
    lift: int = 0

    def run(self, seed):
        """Scores of the own head and of the pipeline, seconds, and how the fit ended."""
        task = self.task
        X, y, X_test, y_test = task.draw(seed, task.n_train, task.n_test)
        if self.pool is not None:
            start = time.perf_counter()
            steps = SetPooler(self.pool), StandardScaler(), task.baseline(seed)
            model = make_pipeline(*steps).fit(X, y)
            seconds = time.perf_counter() - start
            return {"pipeline": model.score(X_test, y_test), "seconds": seconds}
        if self.lift:
            steps = StandardScaler(), ScaledNystroem(self.lift, random_state=seed)
            lift = TokenTransformer(make_pipeline(*steps)).fit(X)
            X, X_test = lift.transform(X), lift.transform(X_test)
        head = task.head() if self.head is None else self.head(seed)
        model = make_pipeline(
            AttentionContextualizer(random_state=seed, **self.params), StandardScaler(), head
        )
        prefix = "attentioncontextualizer__"
        grid = {prefix + name: values for name, values in self.grid.items()}
        search = GridSearchCV(model, grid, cv=folds(task, seed)) if grid else model
        start, result = time.perf_counter(), {}
        search.fit(X, y)
        seconds = time.perf_counter() - start
        if grid:
            model, found = search.best_estimator_, search.best_params_
            result = {"found": [found[name] for name in grid]}
        attention = model[0]
        result |= _result(attention, model.score(X_test, y_test), seconds)
        if attention.loss != "reconstruction":  # whose head says nothing of y
            result["own"] = task.score(y_test, WithHead(attention).predict(X_test))
        return result


def _result(attention, score, seconds):
    ended = {"n_iter": attention.n_iter_, "converged": attention.converged_}
    return {"pipeline": score, "seconds": seconds, **ended}


class TokenRow(Row):
    """A model on a task with labels of tokens."""

    def run(self, seed):
        """As `Row.run`; the linear model sees what the tokens have become that have a label."""
        task = self.task
        X, y, X_test, y_test = task.draw(seed, task.n_train, task.n_test)
        start = time.perf_counter()
        if self.pool is not None:
            model = make_pipeline(StandardScaler(), task.baseline(seed))
            train, test = (self._labelled(*data) for data in ((X, y), (X_test, y_test)))
            model.fit(*train)
            seconds = time.perf_counter() - start
            return {"pipeline": model.score(*test), "seconds": seconds}
        attention = AttentionClassifier(pooling=None, random_state=seed, **self.params).fit(X, y)
        seconds = time.perf_counter() - start
        model = make_pipeline(StandardScaler(), task.head())
        train, test = (
            self._labelled(attention.transform(sets), labels)
            for sets, labels in ((X, y), (X_test, y_test))
        )
        result = _result(attention, model.fit(*train).score(*test), seconds)
        return result | {"own": attention.score(X_test, y_test)}

    def _labelled(self, X, y):
        """A vector and the label of each token that has one."""
        pool = self.pool or own_token
        found = [
            (pool(tokens, i), labels[i])
            for tokens, labels in zip(X, y, strict=True)
            for i in np.flatnonzero(labels != None)  # noqa: E711, element by element
        ]
        vectors, labels = zip(*found, strict=True)
        return np.array(vectors), np.array(labels)


def forest(seed):
    """The model behind what is learned without labels."""
    return RandomForestClassifier(random_state=seed)


UNSUPERVISED = {"loss": "reconstruction"}
ALONE = {"mask": "diagonal", "score_statistics": False}
MAX, ATTEND = {"pooling": "max", "alpha": 3e-3}, {"pooling": "attention", "alpha": 1e-2}
LONGER = {"pooling": "attention", "tol": 1e-3, "max_iter": 500}
BOTH = {"pooling": ["mean", "max", "attention"], "alpha": [1e-3, 1e-2, 1e-1]}
ROWS = [
    Row(LOOKUP, "pooled statistics + LR", pool=STATISTICS),
    Row(LOOKUP, "one head", {"n_heads": 1}),
    Row(LOOKUP, "defaults"),
    Row(LOOKUP, 'one head, init="glorot"', {"n_heads": 1, "init": "glorot"}),
    Row(LOOKUP, 'init="glorot"', {"init": "glorot"}),
    Row(MATCHING, "pooled statistics + LR", pool=STATISTICS),
    Row(MATCHING, "defaults"),
    Row(MATCHING, "max_iter=1000", {"max_iter": 1000}),
    Row(MATCHING, "score_statistics=False", {"score_statistics": False}),
    Row(MATCHING, "alpha tuned", grid={"alpha": ALPHAS}),
    Row(MATCHING, "reconstruction + forest", UNSUPERVISED, head=forest),
    Row(MATCHING, "the same, alpha=0.01", UNSUPERVISED | {"alpha": 0.01}, head=forest),
    Row(ODD_ONE, "pooled statistics + LR", pool=STATISTICS),
    Row(ODD_ONE, "defaults"),
    Row(ODD_ONE, "score_statistics=False", {"score_statistics": False}),
    Row(ODD_ONE, 'pooling="stats"', {"pooling": "stats"}),
    Row(ODD_ONE, "reconstruction + forest", UNSUPERVISED, head=forest),
    TokenRow(SENSES, "own token + LR", pool=own_token),
    TokenRow(SENSES, "own and mean of others + LR", pool=own_and_others),
    TokenRow(SENSES, "one head", {"n_heads": 1}),
    TokenRow(SENSES, "defaults"),
    Row(COUNTS, "pooled statistics + ridge", pool=STATISTICS),
    Row(COUNTS, "defaults"),
    Row(COUNTS, 'pooling="sum"', {"pooling": "sum"}),
    Row(DIGITS, "mean pooling + LR", pool=("mean",)),
    Row(DIGITS, "pooled statistics + LR", pool=STATISTICS),
    Row(DIGITS, "defaults"),
    Row(DIGITS, 'pooling="max"', {"pooling": "max"}),
    Row(DIGITS, 'pooling="attention"', {"pooling": "attention"}),
    Row(DIGITS, "pooling and alpha tuned", grid=BOTH),
    Row(DIGITS, 'lifted, alone, pooling="max"', ALONE | MAX, lift=200),
    Row(DIGITS, 'lifted, alone, pooling="attention"', ALONE | ATTEND, lift=200),
    Row(MORE_DIGITS, "mean pooling + LR", pool=("mean",)),
    Row(MORE_DIGITS, "defaults"),
    Row(MORE_DIGITS, 'pooling="attention", alpha tuned', LONGER, {"alpha": [0.01, 0.03, 0.1]}),
]


def line(row, results):
    """Cells of one row of the table."""

    def cell(name):
        values = [result[name] for result in results if name in result]
        return f"{np.mean(values):.3f} ± {np.std(values):.3f}" if values else ""

    seconds = f"{np.mean([result['seconds'] for result in results]):.1f}"
    ended = ""
    if "n_iter" in results[0]:
        n_iter = round(np.mean([result["n_iter"] for result in results]))
        ended = f"{n_iter}; {sum(result['converged'] for result in results)} of {len(results)}"
    return [row.task.name, row.label, cell("own"), cell("pipeline"), seconds, ended]


HEADER = ["task", "model", "own head", "pipeline", "seconds", "iterations; converged"]


def report(lines, n_draws, found):
    """The page of results."""
    return f"""# The generated tasks

Accuracy on test sets (R² for distinct counts), mean ± standard deviation over {n_draws} draws.
500 training and 1000 test sets a draw; 150 (300) and 500 bags of digits, from disjoint images;
400 and 1000 sentences, with a label for one token of each. *Own head* is the linear head that the
contextualizer was fitted with; *pipeline* puts standardisation and a linear model behind it (a
random forest where no label was learned from). *Lifted, alone*: each token's 200 kernel features
(`ScaledNystroem`) with `mask="diagonal"`, no score statistics, alpha 3e-3 and 1e-2. Seconds are
those of a fit, search included. The last column is the mean number of iterations (`max_iter` is 200
unless the row says otherwise, 500 in the last one) and in how many draws the gradient came below
`tol`.

{markdown([HEADER, *lines])}

{chr(10).join(f"- {name}: chosen over the draws {choices}" for name, choices in found)}

{machine("one BLAS thread")}.
Made by `python -m benchmarks.bench_synthetic`.
"""


def main(argv=None):
    """Run every row, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--fast", action="store_true", help="two draws; nothing is written")
    parser.add_argument("--draws", type=int, default=5, help="how many draws")
    parser.add_argument("--task", help="only tasks whose name holds this; nothing is written")
    args = parser.parse_args(argv)
    n_draws = 2 if args.fast else args.draws
    lines, found = [], []
    for row in ROWS:
        if args.task and args.task not in row.task.name:
            continue
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)  # counted in the last column
            results = [row.run(seed) for seed in range(n_draws)]
        lines.append(line(row, results))
        print(" | ".join(lines[-1]), flush=True)
        if row.grid:
            choices = "; ".join(
                " ".join(f"{v:g}" if isinstance(v, float) else v for v in result["found"])
                for result in results
            )
            found.append((f"{row.task.name}, {row.label}", choices))
    whole = not (args.task or args.fast)
    publish(report(lines, n_draws, found), RESULTS / "synthetic.md", whole)


if __name__ == "__main__":
    main()

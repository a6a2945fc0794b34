"""The sets and splits on which accuracy is measured: four generated tasks and nineteen real sets.

The real sets are read from the folder that the variable SKATTN_DATA names, else from
``../shared/data`` beside the repository. A split is made by the set's own ``split`` where it has
one, else by folds; it depends on the set and its number alone, so that every method sees the same.
"""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

from skattn import RaggedArray, as_ragged
from skattn.datasets import (
    load_digit_bags,
    make_distinct_counts,
    make_lookup,
    make_matching_pairs,
)

__all__ = ["TASKS", "Split", "Task", "data_folder", "digits", "two_draws"]

N_TRAIN, N_TEST = 1500, 1000
EMBEDDED = 50  # width of a token of categories, as of a word


def data_folder():
    """Where the real sets are."""
    named = os.environ.get("SKATTN_DATA")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Split:
    """Training and test sets; for categories also how often each occurs, (n_sets, n_items)."""

    X: RaggedArray
    y: np.ndarray
    X_test: RaggedArray
    y_test: np.ndarray
    counts: np.ndarray = None
    counts_test: np.ndarray = None


@dataclass(frozen=True)
class Task:
    """Something to learn: how its splits come about, and what they are scored by.

    `metric` is "accuracy", "auc" or "r2". A real set has `folds` folds, `repeats` times over; 0
    folds stand for the set's own split. A generated one has `folds` draws.
    """

    name: str
    metric: str = "accuracy"
    folds: int = 0
    repeats: int = 1
    n_train: int = N_TRAIN
    n_test: int = N_TEST
    kind: str = "numbers"  # or "words" or "items", or "generated"

    @property
    def is_classification(self):
        return self.metric != "r2"

    @property
    def n_splits(self):
        return max(1, self.folds) * self.repeats

    def split(self, number, fast=False):
        """The sets of one split; with `fast`, 300 to train and 300 to test at most."""
        n_train, n_test = self.n_train, self.n_test
        if fast:
            n_train, n_test = min(n_train, 300), min(n_test, 300)
        if self.kind == "generated":
            X, y, X_test, y_test = DRAWS[self.name](number, n_train, n_test)
            return Split(as_ragged(X), np.asarray(y), as_ragged(X_test), np.asarray(y_test))
        sets, y = _load(self.name)
        train, test = self._indices(y, number)
        train = self._subsample(train, y, n_train, number)
        test = self._subsample(test, y, n_test, number)
        counts = None, None
        if self.kind == "items":
            sets, counts = _embed(sets, train, test)
        return Split(sets.take(train), y[train], sets.take(test), y[test], *counts)

    def _indices(self, y, number):
        """Training and test samples of a split before they are subsampled."""
        if self.folds == 0:
            own = np.load(data_folder() / f"{self.name}.npz")["split"]
            return np.flatnonzero(own == "train"), np.flatnonzero(own == "test")
        repeat, fold = divmod(number, self.folds)
        kind = StratifiedKFold if self.is_classification else KFold
        splitter = kind(self.folds, shuffle=True, random_state=repeat)
        return list(splitter.split(np.zeros(len(y)), y))[fold]

    def _subsample(self, indices, y, n, seed):
        if len(indices) <= n:
            return indices
        classes = y[indices] if self.is_classification else None
        return train_test_split(indices, train_size=n, stratify=classes, random_state=seed)[0]


@cache
def _load(name):
    """Sets and targets of a real set; tokens of words are vectors, their position is left out."""
    with np.load(data_folder() / f"{name}.npz") as data:
        tokens, offsets, y = data["tokens"], data["offsets"], data["y"]
    if {task.name: task for task in TASKS}[name].kind == "words":
        tokens = np.load(data_folder() / "glove50_vocab.npz")["vectors"][tokens[:, 0]]
    if y.dtype.kind == "f" or name == "cdnow_customers":
        y = np.asarray(y, dtype=np.float64)
    if name == "cdnow_customers":
        y = np.log1p(y)
    return RaggedArray(tokens.astype(np.float64), offsets), y


def _embed(sets, train, test):
    """Tokens of categories as vectors learned from the training sets, and counts of categories.

    The vector of a category is its row in a truncated singular value decomposition of the
    training sets' counts: what occurs together lies close together.
    """
    items = sets.values[:, 0].astype(int)
    counts = np.zeros((len(sets), items.max() + 1))
    np.add.at(counts, (sets.repeat(np.arange(len(sets))), items), 1.0)
    svd = TruncatedSVD(EMBEDDED, random_state=0).fit(counts[train])
    vectors = svd.components_.T * np.sqrt(counts.shape[1])  # of mean square 1
    return sets.with_values(vectors[items]), (counts[train], counts[test])


def two_draws(make):
    """Training and test sets by one generator of data."""

    def draw(seed, n_train, n_test):
        rng = np.random.default_rng(seed)
        return *make(n_train, random_state=rng), *make(n_test, random_state=rng)

    return draw


def digits(seed, n_train, n_test):
    """Bags of digits, from disjoint pools of images."""
    return load_digit_bags(n_train=n_train, n_test=n_test, random_state=seed)


DRAWS = {
    "lookup": two_draws(make_lookup),
    "matching_pairs": two_draws(make_matching_pairs),
    "distinct_counts": two_draws(make_distinct_counts),
    "digit_bags": digits,
}

TASKS = [
    Task("lookup", folds=3, n_train=500, kind="generated"),
    Task("matching_pairs", folds=3, n_train=500, kind="generated"),
    Task("distinct_counts", "r2", folds=3, n_train=500, kind="generated"),
    Task("digit_bags", folds=5, n_train=150, n_test=500, kind="generated"),
    Task("musk1", folds=10),
    Task("musk2", folds=10),
    Task("elephant", folds=10),
    Task("fox", folds=10),
    Task("mutagenesis188_atoms", folds=10),
    Task("birds_brown_creeper", folds=5),
    Task("japanese_vowels"),
    Task("mnist_points"),
    Task("modelnet10_chair_monitor", folds=3, n_train=500),
    Task("trec6", kind="words"),
    Task("wsd_bank", "auc", kind="words"),
    Task("wsd_bass", kind="words"),
    Task("wsd_crane", kind="words"),
    Task("sentence_polarity", folds=3, kind="words"),
    Task("flavor_compounds", folds=3, kind="items"),
    Task("ms_pesticides", "r2", folds=5, repeats=2),
    Task("hzz_events", "r2", folds=3),
    Task("cdnow_customers", "r2", folds=3),
    Task("nycflights_planes", "r2", folds=3),
]

"""What accuracy is measured against: pooled statistics, a kernel on sets, and two networks.

Every peer is tuned by the same rules for all tasks, on folds of the training sets alone. The
kernel and the networks standardise tokens by the training sets. Importing this module does not
import PyTorch; the networks do when they are fitted.
"""

import math

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, get_scorer, log_loss, roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold, ParameterGrid, StratifiedKFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler, normalize
from sklearn.svm import SVC, SVR

from skattn import SetPooler

__all__ = ["SetKernelMachine", "SetNetwork", "folds", "forest", "linear", "pooled", "svm", "trees"]

STATISTICS = ("mean", "std", "min", "max", 0.25, 0.5, 0.75, "sum", "count")
SCORING = {"accuracy": "accuracy", "auc": "roc_auc", "r2": "r2"}


def folds(task, seed):
    """The three folds on which a method is tuned."""
    kind = StratifiedKFold if task.is_classification else KFold
    return kind(3, shuffle=True, random_state=seed)


# Pooled statistics


def pooled(split, statistics):
    """One row per training and per test set: its pooled tokens, or its share of each category.

    With "count" among the statistics, the logarithm of the number of tokens stands beside it; of
    categories there are the numbers of each then, which are all the statistics there are.
    """
    with_count = "count" in statistics
    for X, counts in ((split.X, split.counts), (split.X_test, split.counts_test)):
        if counts is None:
            features = SetPooler(statistics).fit_transform(X)
        else:
            features = counts if with_count else counts / X.lengths[:, None]
        if with_count:
            features = np.column_stack([features, np.log1p(X.lengths)])
        yield features


def _scaler(task):
    return MaxAbsScaler() if task.kind == "items" else StandardScaler()


def _search(model, grid, task, seed):
    return GridSearchCV(model, grid, cv=folds(task, seed), scoring=SCORING[task.metric])


def linear(task, seed, n_features):
    """Logistic regression with C tuned, or ridge regression by leave-one-out."""
    if not task.is_classification:
        return make_pipeline(_scaler(task), RidgeCV(np.logspace(-3, 5, 17)))
    model = make_pipeline(_scaler(task), LogisticRegression(max_iter=1000))
    return _search(model, {"logisticregression__C": np.logspace(-3, 2, 6)}, task, seed)


def forest(task, seed, n_features):
    """A random forest of 200 trees, with the share of features to choose from tuned."""
    kind = RandomForestClassifier if task.is_classification else RandomForestRegressor
    return _search(kind(200, random_state=seed), {"max_features": ["sqrt", 0.3]}, task, seed)


def trees(task, seed, n_features):
    """Gradient boosting on histograms, with the trees' sizes tuned."""
    grid = {"max_leaf_nodes": [4, 16], "min_samples_leaf": [5, 20]}
    kind = (
        HistGradientBoostingClassifier if task.is_classification else HistGradientBoostingRegressor
    )
    model = kind(early_stopping=False, random_state=seed)
    if task.name == "hzz_events":
        model = MultiOutputRegressor(model)
        grid = {f"estimator__{name}": values for name, values in grid.items()}
    return _search(model, grid, task, seed)


def svm(task, seed, n_features):
    """A support vector machine with an RBF kernel, C and gamma tuned."""
    grid = {"C": [0.1, 1, 10, 100], "gamma": [0.2 / n_features, 1 / n_features]}
    if task.is_classification:
        prefix, model = "svc__", make_pipeline(_scaler(task), SVC())
    else:
        prefix = "transformedtargetregressor__regressor__"
        machine = SVR()
        if task.name == "hzz_events":
            machine, prefix = MultiOutputRegressor(machine), prefix + "estimator__"
        machine = TransformedTargetRegressor(machine, transformer=StandardScaler())
        model = make_pipeline(_scaler(task), machine)
    return _search(model, {prefix + name: values for name, values in grid.items()}, task, seed)


# A kernel on sets


class SetKernelMachine(BaseEstimator):
    """A machine on the normalised set kernel of RBF (Gaertner et al. 2002).

    k(X, Y) is the mean of exp(-gamma |x - y|^2) over all pairs of tokens, over the root of
    k(X, X) k(Y, Y). The tokens enter through Nystroem's approximation on `n_landmarks` of the
    training tokens, exact where there are no more. A support vector machine for classes, with C
    tuned; kernel ridge regression for numbers, with C = 1 / (2 alpha) tuned; gamma too.
    """

    def __init__(
        self, task, seed, n_landmarks=1000, gammas=(0.25, 1, 4, 16), Cs=(1, 10, 100, 1000)
    ):
        self.task = task
        self.seed = seed
        self.n_landmarks = n_landmarks
        self.gammas = gammas
        self.Cs = Cs

    def fit(self, X, y):
        self._scaler = StandardScaler().fit(X.values)
        tokens = np.unique(self._scaler.transform(X.values), axis=0)
        rng = np.random.default_rng(self.seed)
        if len(tokens) > self.n_landmarks:
            tokens = tokens[rng.choice(len(tokens), self.n_landmarks, replace=False)]
        self._landmarks = tokens
        inner = list(folds(self.task, self.seed).split(np.zeros(len(X)), y))
        best = -math.inf
        for gamma in self.gammas:
            features = self._features(X, gamma / X.n_features)
            gram = features @ features.T
            for C in self.Cs:
                scores = [self._score(gram, y, C, *fold) for fold in inner]
                if np.mean(scores) > best:
                    best = np.mean(scores)
                    self.best_params_ = {"gamma": gamma, "C": C}
        self._train = self._features(X, self.best_params_["gamma"] / X.n_features)
        self._model = self._machine(self.best_params_["C"]).fit(self._train @ self._train.T, y)
        return self

    def predict(self, X):
        return self._model.predict(self._gram(X))

    def decision_function(self, X):
        return self._model.decision_function(self._gram(X))

    def _gram(self, X):
        return self._features(X, self.best_params_["gamma"] / X.n_features) @ self._train.T

    def _machine(self, C):
        if self.task.is_classification:
            return SVC(C=C, kernel="precomputed")
        ridge = KernelRidge(alpha=1 / (2 * C), kernel="precomputed")
        return TransformedTargetRegressor(ridge, transformer=StandardScaler())

    def _score(self, gram, y, C, train, test):
        model = self._machine(C).fit(gram[np.ix_(train, train)], y[train])
        scorer = get_scorer(SCORING[self.task.metric])
        return scorer(model, gram[np.ix_(test, train)], y[test])

    def _features(self, X, gamma):
        """Unit vectors (n_sets, rank) whose products are the kernel."""
        L = self._landmarks
        values, vectors = np.linalg.eigh(rbf_kernel(L, L, gamma))
        keep = values > 1e-8 * values[-1]
        whiten = vectors[:, keep] / np.sqrt(values[keep])  # (n_landmarks, rank)
        means = np.empty((len(X), len(L)))
        for start in range(0, len(X), 100):
            part = X[start : start + 100]
            tokens = self._scaler.transform(part.values)
            similar = part.with_values(rbf_kernel(tokens, L, gamma))
            means[start : start + 100] = similar.segment_sum() / part.lengths[:, None]
        return normalize(means @ whiten)


# Networks in PyTorch


class SetNetwork(BaseEstimator):
    """A network on padded minibatches of sets, trained by Adam; one budget for every `kind`.

    `kind` is "abmil", gated attention pooling after a layer of 64 units (Ilse et al. 2018), or
    "set transformer" of width 64 and 4 heads (Lee et al. 2019), with 16 inducing points where the
    median set has over 64 tokens. Minibatches have 16 sets, 32 for more than 500. Learning rate,
    L2 penalty and the number of epochs are those of the best score on the three folds, on the
    first of them alone for more than 200 sets, looked at in every fifth epoch; then the network is
    trained on all sets.
    """

    def __init__(
        self, kind, task, seed, epochs=60, batch=16, rates=(1e-3, 3e-3), penalties=(1e-4, 5e-3)
    ):
        self.kind = kind
        self.task = task
        self.seed = seed
        self.epochs = epochs
        self.batch = batch
        self.rates = rates
        self.penalties = penalties

    def fit(self, X, y):
        import torch

        torch.set_num_threads(1)
        self._scaler = StandardScaler().fit(X.values)
        if self.task.is_classification:
            self.classes_, target = np.unique(y, return_inverse=True)
            target = torch.tensor(target)
        else:
            target = y.reshape(len(y), -1)
            self._center, self._spread = target.mean(axis=0), target.std(axis=0)
            target = torch.tensor((target - self._center) / self._spread, dtype=torch.float32)
        tokens, mask = self._padded(X)
        grid = list(ParameterGrid({"rate": self.rates, "penalty": self.penalties}))
        inner = list(folds(self.task, self.seed).split(np.zeros(len(y)), y))
        if len(y) > 200:
            inner = inner[:1]
        best = (-math.inf,)
        for params in grid if len(grid) > 1 else []:
            curves = [self._train(tokens, mask, target, params, *fold)[1] for fold in inner]
            for epoch, scores in zip(
                curves[0], np.mean([list(c.values()) for c in curves], axis=0), strict=True
            ):
                if (*scores,) > best[:2]:
                    best = (*scores, params | {"epochs": epoch})
        self.best_params_ = best[-1] if len(grid) > 1 else grid[0] | {"epochs": self.epochs}
        self._net, _ = self._train(tokens, mask, target, self.best_params_, np.arange(len(y)))
        return self

    def predict(self, X):
        raw = self._raw(*self._padded(X))
        if self.task.is_classification:
            return self.classes_[raw.argmax(axis=1)]
        out = raw * self._spread + self._center
        return out[:, 0] if out.shape[1] == 1 else out

    def decision_function(self, X):
        raw = self._raw(*self._padded(X))
        return raw[:, 1] - raw[:, 0]

    def _padded(self, X):
        """Standardised tokens (n_sets, longest, n_features), and which of them are there."""
        import torch

        X = X.with_values(self._scaler.transform(X.values))
        mask = np.arange(X.lengths.max()) < X.lengths[:, None]
        return torch.tensor(X.to_padded(0.0), dtype=torch.float32), torch.tensor(mask)

    def _train(self, tokens, mask, target, params, train, test=None):
        """The trained network; by epoch, score and minus the loss on `test` where it is given."""
        import torch
        from torch.nn import functional

        torch.manual_seed(self.seed)
        rng = np.random.default_rng(self.seed)
        n_outputs = len(self.classes_) if self.task.is_classification else target.shape[1]
        lengths, curve = mask.sum(1).numpy(), {}
        net = _network(self.kind, tokens.shape[2], n_outputs, np.median(lengths) > 64)
        loss = functional.cross_entropy if self.task.is_classification else functional.mse_loss
        adam = torch.optim.Adam(net.parameters(), lr=params["rate"], weight_decay=params["penalty"])
        size = self.batch if len(target) <= 500 else 2 * self.batch
        for epoch in range(1, params.get("epochs", self.epochs) + 1):
            net.train()
            for rows in _minibatches(train, lengths, size, rng):
                n = lengths[rows].max()
                adam.zero_grad()
                loss(net(tokens[rows, :n], mask[rows, :n]), target[rows]).backward()
                adam.step()
            if test is not None and epoch % 5 == 0:
                self._net = net
                curve[epoch] = self._validate(tokens[test], mask[test], target[test].numpy())
        return net, curve

    def _validate(self, tokens, mask, target):
        raw = self._raw(tokens, mask)
        if not self.task.is_classification:
            error = np.mean((raw - target) ** 2)
            return -error, -error
        loss = log_loss(target, softmax(raw, axis=1), labels=np.arange(raw.shape[1]))
        if self.task.metric == "auc":
            return roc_auc_score(target, raw[:, 1] - raw[:, 0]), -loss
        return accuracy_score(target, raw.argmax(axis=1)), -loss

    def _raw(self, tokens, mask):
        import torch

        self._net.eval()
        order = np.argsort(mask.sum(1).numpy(), kind="stable")
        with torch.inference_mode():
            parts = [
                self._net(tokens[rows, :n], mask[rows, :n]).numpy()
                for rows in np.split(order, range(64, len(order), 64))
                for n in [int(mask[rows].sum(1).max())]
            ]
        return np.concatenate(parts)[np.argsort(order)].astype(np.float64)


def _minibatches(rows, lengths, size, rng):
    """Minibatches in random order, of sets alike in length among eight minibatches' worth."""
    order = rng.permutation(rows)
    for start in range(0, len(order), 8 * size):
        pool = order[start : start + 8 * size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        parts = [pool[i : i + size] for i in range(0, len(pool), size)]
        for i in rng.permutation(len(parts)):
            yield parts[i]


def _network(kind, n_features, n_outputs, long, width=64, n_heads=4, n_inducing=16):
    """An untrained network; `long` sends self-attention through inducing points."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Abmil(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Sequential(nn.Linear(n_features, width), nn.ReLU())
            self.tanh, self.gate = nn.Linear(width, width), nn.Linear(width, width)
            self.score, self.head = nn.Linear(width, 1), nn.Linear(width, n_outputs)

        def forward(self, x, mask):
            h = self.embed(x)
            s = self.score(torch.tanh(self.tanh(h)) * torch.sigmoid(self.gate(h)))[:, :, 0]
            a = torch.softmax(s.masked_fill(~mask, -math.inf), dim=1)
            return self.head((a[:, None, :] @ h)[:, 0])

    class Block(nn.Module):
        """MAB(X, Y): X attends to Y, then a layer of its own, both added and normalised."""

        def __init__(self):
            super().__init__()
            self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
            self.v, self.o = nn.Linear(width, width), nn.Linear(width, width)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x, y, mask=None):
            Q, K, V = (
                layer(z).unflatten(-1, (n_heads, -1)).transpose(1, 2)
                for layer, z in ((self.q, x), (self.k, y), (self.v, y))
            )
            allowed = None if mask is None else mask[:, None, None, :]
            Z = functional.scaled_dot_product_attention(Q, K, V, attn_mask=allowed)
            h = self.norm1(self.q(x) + Z.transpose(1, 2).flatten(2))
            return self.norm2(h + functional.relu(self.o(h)))

    class SetTransformer(nn.Module):
        """Two blocks of self-attention, one that pools, one more, and a linear head."""

        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(n_features, width)
            self.inner, self.outer = nn.ModuleList(), nn.ModuleList()
            self.inducing = nn.ParameterList()
            for _ in range(2):
                self.inner.append(Block())
                self.outer.append(Block())
                self.inducing.append(nn.Parameter(torch.randn(1, n_inducing, width) / 8))
            self.pool, self.query = Block(), nn.Parameter(torch.randn(1, 1, width) / 8)
            self.last, self.head = Block(), nn.Linear(width, n_outputs)

        def forward(self, x, mask):
            h = self.embed(x)
            for inner, outer, points in zip(self.inner, self.outer, self.inducing, strict=True):
                if long:
                    summary = inner(points.expand(len(x), -1, -1), h, mask)
                    h = outer(h, summary)
                else:
                    h = outer(h, h, mask)
            p = self.pool(self.query.expand(len(x), -1, -1), h, mask)
            return self.head(self.last(p, p)[:, 0])

    return {"abmil": Abmil, "set transformer": SetTransformer}[kind]()

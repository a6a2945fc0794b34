"""Tasks: what a fit predicts, which sets and tokens count in it, and in which units.

A task is a frozen value that the fitted estimator keeps. It predicts class labels, numbers, the
tokens themselves, or nothing. `code` turns the user's targets into the form that the loss takes.
"""

import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from ._input import check_sample_weight
from ._sets import Sets
from ._targets import is_certainly_per_token, is_per_token, scored_tokens
from .losses import LOSSES, ReconstructionError
from .masks import ExcludeSelf, NoMask, mask_of
from .pooling import StatsPooling
from .ragged import RaggedArray

ERROR_STATISTICS = StatsPooling()  # of the errors of a set's tokens
RECONSTRUCTION = "reconstruction"


class Scored(NamedTuple):
    """The sets that count in a fit, and the targets that are scored.

    y are the targets or None, weight (n_targets,) their weights. With a target per token, rows
    (n_targets,) are the tokens that have one. `weight` then includes the factor `counts`: the token
    weights of these tokens, or None without token weights.
    """

    sets: Sets
    y: np.ndarray | None
    weight: np.ndarray
    rows: np.ndarray | None = None
    counts: np.ndarray | None = None

    @classmethod
    def of_sets(cls, sets, y, sample_weight):
        """The sets of positive weight, with a target each, or none."""
        weight = check_sample_weight(sample_weight, len(sets))
        if y is not None:
            check_consistent_length(sets, y)
        if np.all(weight > 0):
            return cls(sets, y, weight)
        used = np.flatnonzero(weight)
        return cls(sets.take(used), None if y is None else y[used], weight[used])

    @classmethod
    def of_tokens(cls, sets, y, sample_weight, given):
        """The sets with a scored token; `given` also has the tokens of weight 0."""
        y, rows, weight = scored_tokens(y, sample_weight, given.queries)
        tokens = sets.queries
        used = np.unique(tokens.repeat(np.arange(len(tokens)))[rows])
        is_left_out = np.ones(len(tokens), dtype=np.int64)
        is_left_out[used] = 0
        rows = rows - np.cumsum(tokens.repeat(is_left_out))[rows]
        sets = sets.take(used)
        if tokens.weights is None:
            return cls(sets, y, weight, rows)
        counts = sets.queries.weights[rows]
        return cls(sets, y, weight * counts, rows, counts)

    @property
    def set_weight(self):
        """Weight of each token of a set in the token mean and scale, (n_samples,).

        With a target per token, the mean weight of the set's scored tokens.
        """
        if self.rows is None:
            return self.weight
        tokens = self.sets.queries
        sums = np.zeros((tokens.n_tokens, 2))
        sums[self.rows, 0] = self.weight
        sums[self.rows, 1] = (self.weight > 0) * (1.0 if self.counts is None else self.counts)
        total, n = tokens.with_values(sums).segment_sum().T
        return np.divide(total, n, out=np.zeros(len(tokens)), where=n > 0)

    def sampled(self, mask, max_tokens, rng):
        """The sets for the objective: at most `max_tokens` tokens of each.

        All tokens if the mask does not allow copies of a token, or if tokens have targets.
        """
        if max_tokens is None or self.rows is not None:
            return self.sets
        if not mask.weights_are_copies or mask.only_self:
            return self.sets
        return self.sets.sampled(max_tokens, rng)

    def look_for_tokens(self):
        """Refuse sets without a token; warn if no token can attend to another."""
        for side, what in zip(self.sets.sides, ("sets", "contexts"), strict=False):
            if side.n_tokens == 0:
                raise ValueError(
                    f"Found no tokens in {len(side)} {what} (of positive weight); at least one is "
                    "required."
                )
        if self.sets.keys.lengths.max() == 1:
            warnings.warn(
                "No context has more than one token: there is nothing to choose from."
                if self.sets.has_context
                else "No training set has more than one token: attention is then the identity. If "
                "X is a single set, pass it as [X].",
                UserWarning,
                stacklevel=4,
            )


@dataclass(frozen=True, eq=False)
class Task:
    """No task: nothing is predicted, and the parameters keep their starting values."""

    loss: object = None
    per_token: bool = False

    learns_scores = True  # or the parameters of the scores stay where they start

    @classmethod
    def mask(cls, mask):
        """The mask of the attention, from the parameter `mask`."""
        return mask_of(mask)

    @classmethod
    def scored(cls, estimator, sets, y, sample_weight, given):
        """The sets and targets that count, one per set or one per token."""
        if has_token_targets(estimator.pooling, y, sample_weight):
            return Scored.of_tokens(sets, y, sample_weight, given)
        return Scored.of_sets(sets, estimator._plain(y), sample_weight)

    @classmethod
    def code(cls, estimator, scored, settings):
        """The task, the targets as its loss takes them, and its number of outputs."""
        if scored.y is None:
            return Task(), scored, 0
        loss = settings.loss
        if isinstance(loss, str):
            loss = LOSSES[estimator._loss_for(scored.y) if loss == "auto" else loss]()
        kind = LabelTask if loss.is_classifier else NumberTask
        return kind.of(loss, scored, settings.class_weight)

    def network(self, network):
        """The network that the fit uses."""
        return network

    def coded(self, y, scaler):
        """Targets in the form that the loss takes, given the scaler of tokens."""
        return y

    def fitted(self):
        """Public fitted attributes of the estimator, by name."""
        return {}

    def in_units(self, head):
        """Parameters of the head in units of y."""
        return head

    def from_units(self, head):
        """Parameters of the head in the units that the fit learns."""
        return head

    def n_extra(self, pooling):
        """Number of columns of the output beside contextual vectors."""
        return 0


@dataclass(frozen=True, eq=False)
class LabelTask(Task):
    """Class labels."""

    classes: np.ndarray | None = None

    @classmethod
    def of(cls, loss, scored, class_weight):
        """The task, its targets weighted by class, and its number of outputs."""
        y = scored.y
        if y.dtype.kind == "f":  # refuse NaN and infinity by name
            y = check_array(y, ensure_2d=False, input_name="y")
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        classes, encoded = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"loss='log_loss' needs at least two classes, but y holds one class, "
                f"{classes.tolist()[0]!r}."
            )
        weight = scored.weight
        if class_weight is not None:
            weight = weight * _class_weights(class_weight, y, encoded, scored.counts)
        task = cls(loss, scored.rows is not None, classes)
        n_outputs = len(classes) if len(classes) > 2 else 1
        return task, scored._replace(y=encoded, weight=weight), n_outputs

    def fitted(self):
        """The class labels."""
        return {"classes_": self.classes}


@dataclass(frozen=True, eq=False)
class NumberTask(Task):
    """Numbers, standardised by `mean` and `scale` (n_outputs,)."""

    mean: np.ndarray | None = None
    scale: np.ndarray | None = None
    n_axes: int = 2

    @classmethod
    def of(cls, loss, scored, class_weight):
        """The task, its targets, standardised if the loss needs it, and its number of outputs."""
        y, name = scored.y, _name(loss)
        if class_weight is not None:
            raise ValueError(f"class_weight goes with loss='log_loss', but the loss is {name!r}.")
        if y.dtype.kind in "US" or (y.dtype == object and any(isinstance(v, str) for v in y.flat)):
            raise ValueError(
                f"y holds text, for instance {str(y.flat[0])!r}, but loss={name!r} needs numbers. "
                "For labels choose loss='log_loss', or AttentionClassifier."
            )
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        n_axes = y.ndim
        if n_axes > 2:
            raise ValueError(f"y has shape {y.shape}, but must have 1 or 2 axes.")
        y = y.reshape(len(y), -1)
        loss.check(y)
        mean, scale = np.zeros(y.shape[1]), np.ones(y.shape[1])
        if loss.scales_target:
            mean = np.average(y, axis=0, weights=scored.weight)
            centred = y - mean
            top = np.abs(centred).max(axis=0)  # divided out, or squares might overflow
            top[top == 0] = 1.0
            variance = np.average((centred / top) ** 2, axis=0, weights=scored.weight)
            spread = top * np.sqrt(variance)
            scale = np.where(spread > 0, spread, 1.0)
        task = cls(loss, scored.rows is not None, mean, scale, n_axes)
        return task, scored._replace(y=(y - mean) / scale), y.shape[1]

    def in_units(self, head):
        """Parameters of the head in units of y."""
        return {
            "coef": head["coef"] * self.scale[:, None],
            "intercept": head["intercept"] * self.scale + self.mean,
        }

    def from_units(self, head):
        """Parameters of the head in the units that the fit learns."""
        return {
            "coef": head["coef"] / self.scale[:, None],
            "intercept": (head["intercept"] - self.mean) / self.scale,
        }

    def predict(self, raw):
        """Numbers in units of y, with as many axes as y had."""
        prediction = self.loss.inverse_link(raw)
        return prediction[:, 0] if self.n_axes == 1 else prediction


@dataclass(frozen=True, eq=False)
class ReconstructionTask(Task):
    """Predict each standardised token from the others of its set."""

    loss: object = ReconstructionError()
    per_token: bool = True

    learns_scores = False

    @classmethod
    def code(cls, estimator, scored, settings):
        """The task, the scored tokens as its targets, and their features."""
        tokens = scored.sets.queries
        return cls(), scored._replace(y=tokens.values[scored.rows]), tokens.n_features

    @classmethod
    def scored(cls, estimator, sets, y, sample_weight, given):
        """The tokens of sets of two or more."""
        return Scored.of_tokens(sets, None, sample_weight, given)

    @classmethod
    def mask(cls, mask):
        """No token attends to itself."""
        if mask_of(mask) not in (NoMask(), ExcludeSelf()):
            raise ValueError(
                "loss='reconstruction' predicts each token from all others of its set, so mask "
                f"must be None or 'exclude_self', but is {mask!r}."
            )
        return ExcludeSelf()

    def network(self, network):
        """The network without score statistics, which would reveal the token."""
        return replace(network, attention=replace(network.attention, score_statistics=False))

    def coded(self, y, scaler):
        """The tokens, standardised in float64."""
        return y.astype(np.float64) if scaler is None else (y - scaler.mean) / scaler.scale

    def n_extra(self, pooling):
        """Each token's error, or its statistics over the set."""
        return 1 if pooling is None else ERROR_STATISTICS.n_features_out(1)

    def errors(self, head, out, chunk):
        """Root mean squared error of each token of a chunk, (b, n, 1)."""
        Z = out[..., : head["coef"].shape[1]]  # without the score statistics
        raw = Z @ head["coef"].T + head["intercept"]  # (b, n, n_features), in float64
        return np.sqrt(np.mean((raw - chunk.block.X) ** 2, axis=-1, keepdims=True))

    def with_errors(self, head, out, chunk, pooling, params):
        """Contextual vectors `out` (b, n, k) of a chunk with their errors.

        One row per token without pooling, else one row per set, with statistics of the errors.
        """
        sets = RaggedArray.from_block(out, chunk.weights)
        errors = sets.with_values(self.errors(head, out, chunk).reshape(-1, 1))
        if pooling is None:
            return np.hstack([sets.values, errors.values])
        pooled, _ = pooling.forward(params, sets)
        return np.hstack([pooled, ERROR_STATISTICS.forward({}, errors)[0]])


def kind_of_task(estimator, y, settings):
    """ReconstructionTask if tokens are their own targets, else Task."""
    if settings.loss == "auto":
        reconstructs = estimator._learns_without_y and y is None and settings.max_iter > 0
    else:
        reconstructs = settings.loss == RECONSTRUCTION
    if reconstructs:
        if settings.class_weight is not None:
            raise ValueError(
                "class_weight goes with loss='log_loss', but the loss is 'reconstruction'."
            )
        return ReconstructionTask
    if y is None and settings.max_iter > 0:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y "
            "is None. y may be left out only with max_iter=0, where nothing is learned"
            + (", or with loss='reconstruction'." if estimator._learns_without_y else ".")
        )
    return Task


def has_token_targets(pooling, y, sample_weight):
    """Whether every token has a target; raises if the pooling does not allow that."""
    if pooling is None and is_per_token(y):
        return True
    if is_certainly_per_token(y):
        raise ValueError(
            f"y has a target per token, but with pooling={pooling!r} there is one vector "
            "per set, and the head needs one target for it. Choose pooling=None, or give y "
            "one target per set."
        )
    if is_per_token(sample_weight):
        raise ValueError(
            "sample_weight has a weight per token, but the targets are per set: give one "
            "weight per set."
        )
    return False


def _name(loss):
    """The name of a loss in LOSSES, else the name of its class."""
    return next((name for name, kind in LOSSES.items() if kind is type(loss)), type(loss).__name__)


def _class_weights(class_weight, y, encoded, counts):
    """The weight of each label's class, (n_targets,)."""
    if not (class_weight == "balanced" or isinstance(class_weight, dict)):
        raise ValueError(
            f"class_weight must be a dict, 'balanced' or None, but is {class_weight!r}."
        )
    if class_weight == "balanced" and counts is not None:
        of_class = np.bincount(encoded, counts)
        weights = (of_class.sum() / (len(of_class) * of_class))[encoded]
    else:
        weights = compute_sample_weight(class_weight, y)
    if not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.any():
        raise ValueError(
            f"class_weight must give each class a finite weight of 0 or more, and one of them "
            f"more than 0, but is {class_weight!r}."
        )
    return weights

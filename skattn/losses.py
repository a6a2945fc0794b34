"""Losses on the raw prediction of a set, with their gradient.

A loss is a frozen dataclass. ``loss_gradient(y_true, raw_prediction, sample_weight)`` returns the
loss and its gradient, both multiplied by the sample weight. ``start`` returns the raw prediction
to start from. A loss with ``is_classifier`` takes class indices. The other losses ``check`` their
targets, may have them standardised (``scales_target``), and turn a raw prediction into a
prediction by ``inverse_link``.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, xlogy

__all__ = [
    "LOSSES",
    "GammaLoss",
    "HuberLoss",
    "LogLoss",
    "PoissonLoss",
    "ReconstructionError",
    "SquaredError",
]


@dataclass(frozen=True)
class LogLoss:
    """Negative log-likelihood of the class, in nats; two classes share one raw prediction.

    For two classes the loss is log(1 + exp(raw)) - y raw, for more classes logsumexp(raw) - raw_y.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.losses import LogLoss
    >>> loss, gradient = LogLoss().loss_gradient(
    ...     np.array([1, 0]), np.array([[0.0], [0.0]]), np.ones(2)
    ... )
    >>> loss.round(4), gradient.ravel()
    (array([0.6931, 0.6931]), array([-0.5,  0.5]))
    """

    is_classifier = True
    scales_target = False

    def start(self, y_true, sample_weight):
        """Raw prediction to start from: even odds."""
        return 0.0

    def loss_gradient(self, y_true, raw_prediction, sample_weight):
        """Loss (n,) and its gradient (n, n_outputs) for class indices y_true (n,)."""
        if raw_prediction.shape[1] == 1:
            raw = raw_prediction[:, 0]
            loss = np.logaddexp(0, raw) - y_true * raw
            gradient = (expit(raw) - y_true)[:, None]
        else:
            rows = np.arange(len(y_true))
            shifted = raw_prediction - raw_prediction.max(axis=1, keepdims=True)
            e = np.exp(shifted)
            total = e.sum(axis=1, keepdims=True)
            loss = np.log(total[:, 0]) - shifted[rows, y_true]
            gradient = e / total  # softmax
            gradient[rows, y_true] -= 1
        return loss * sample_weight, gradient * sample_weight[:, None]


class _Elementwise:
    """A loss that is a sum over outputs of a function of each target and raw prediction."""

    is_classifier = False
    scales_target = False

    def check(self, y):
        """Refuse targets outside the domain of the loss; by default every number is inside."""

    def start(self, y_true, sample_weight):
        """Raw prediction to start from: 0, the mean of a standardised target."""
        return 0.0

    def inverse_link(self, raw_prediction):
        """Prediction from the raw prediction: the same number."""
        return raw_prediction

    def loss_gradient(self, y_true, raw_prediction, sample_weight):
        """Loss (n,) and its gradient (n, n_outputs) for targets y_true (n, n_outputs)."""
        loss, gradient = self._elements(y_true, raw_prediction)
        return loss.sum(axis=1) * sample_weight, gradient * sample_weight[:, None]


@dataclass(frozen=True)
class SquaredError(_Elementwise):
    """Half the squared error, (raw - y)^2 / 2, summed over outputs.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.losses import SquaredError
    >>> SquaredError().loss_gradient(np.array([[1.0]]), np.array([[3.0]]), np.ones(1))
    (array([2.]), array([[2.]]))
    """

    scales_target = True

    def _elements(self, y, raw):
        error = raw - y
        return error**2 / 2, error


@dataclass(frozen=True)
class ReconstructionError(_Elementwise):
    """Half the squared error, (raw - y)^2 / 2, averaged over the features of a token.

    ``LOSSES`` does not list it, because its targets are the tokens themselves.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.losses import ReconstructionError
    >>> ReconstructionError().loss_gradient(np.zeros((1, 2)), np.array([[3.0, 1.0]]), np.ones(1))
    (array([2.5]), array([[1.5, 0.5]]))
    """

    def _elements(self, y, raw):
        error = raw - y
        return error**2 / (2 * y.shape[1]), error / y.shape[1]


@dataclass(frozen=True)
class HuberLoss(_Elementwise):
    """Half the squared error up to `delta`, linear beyond, summed over outputs.

    Parameters
    ----------
    delta : float, default=1.35
        The error from which the loss is linear, in standard deviations of the target.

    References
    ----------
    .. [1] Huber, "Robust estimation of a location parameter", 1964.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.losses import HuberLoss
    >>> HuberLoss(delta=1.0).loss_gradient(np.array([[0.0]]), np.array([[3.0]]), np.ones(1))
    (array([2.5]), array([[1.]]))
    """

    delta: float = 1.35
    scales_target = True

    def _elements(self, y, raw):
        error = raw - y
        inner = np.clip(error, -self.delta, self.delta)
        return inner * (error - inner / 2), inner


class _LogLink(_Elementwise):
    """A loss on exp(raw) that starts from the log of the mean."""

    def inverse_link(self, raw_prediction):
        """Prediction from the raw prediction: its exponential."""
        return np.exp(raw_prediction)

    def start(self, y_true, sample_weight):
        """Raw prediction to start from: the log of the mean."""
        return np.log(np.average(y_true, axis=0, weights=sample_weight))


@dataclass(frozen=True)
class PoissonLoss(_LogLink):
    """Half the Poisson deviance with log link: y log(y / mu) - y + mu, mu = exp(raw).

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.losses import PoissonLoss
    >>> PoissonLoss().loss_gradient(np.array([[0.0]]), np.array([[0.0]]), np.ones(1))
    (array([1.]), array([[1.]]))
    """

    def check(self, y):
        """Refuse targets that have no Poisson deviance."""
        if np.any(y < 0) or not np.all(np.any(y > 0, axis=0)):
            raise ValueError(
                f"loss='poisson' needs targets of 0 or more, not all of them 0, but y runs from "
                f"{y.min()} to {y.max()}."
            )

    def _elements(self, y, raw):
        with np.errstate(over="ignore"):  # the solver refuses an infinite loss
            mu = np.exp(raw)
        return xlogy(y, y) - y * raw - y + mu, mu - y


@dataclass(frozen=True)
class GammaLoss(_LogLink):
    """Half the gamma deviance with log link: log(mu / y) + y / mu - 1, mu = exp(raw).

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.losses import GammaLoss
    >>> GammaLoss().loss_gradient(np.array([[1.0]]), np.array([[0.0]]), np.ones(1))
    (array([0.]), array([[0.]]))
    """

    def check(self, y):
        """Refuse targets that have no gamma deviance."""
        if np.any(y <= 0):
            raise ValueError(f"loss='gamma' needs targets above 0, but the least is {y.min()}.")

    def _elements(self, y, raw):
        with np.errstate(over="ignore"):  # the solver refuses an infinite loss
            ratio = y * np.exp(-raw)
        return raw - np.log(y) + ratio - 1, 1 - ratio


LOSSES = {
    "log_loss": LogLoss,
    "squared_error": SquaredError,
    "huber": HuberLoss,
    "poisson": PoissonLoss,
    "gamma": GammaLoss,
}

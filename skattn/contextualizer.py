"""AttentionContextualizer: attention that is learned from a downstream loss."""

import functools
import warnings
from contextlib import nullcontext
from copy import copy
from dataclasses import replace

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import (
    check_array,
    check_consistent_length,
    column_or_1d,
    gen_batches,
)
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ._callbacks import CallbackSupportMixin, Iterations, as_task
from ._input import EMPTY, check_sample_weight, read_sets_in_context, refuse_empty_sets
from ._objective import HELD, Objective, chunks, pool_forward
from ._output import RaggedOutputMixin
from ._parallel import spread_over_processes, spread_over_threads
from ._random import generator
from ._runtime import one_blas_thread
from ._targets import is_certainly_per_token, is_per_token, plain, scored_tokens
from .attention import INITS, MASKS, Attention
from .containers import is_table
from .losses import LOSSES, ReconstructionError
from .pairs import sides
from .pooling import POOLINGS, MeanPooling, StatsPooling
from .ragged import RaggedArray
from .solvers import SOLVERS, minimize

__all__ = ["AttentionContextualizer"]

WEIGHTS_LIMIT = 2**30  # bytes of attention weights that are handed out at once
FEW_TOKENS = 32  # up to so many, nothing is spent on preparing for more
MANY_TOKENS = 2**12  # from which on transform starts threads
RECONSTRUCTION = "reconstruction"
ERROR_STATISTICS = StatsPooling()  # of the errors of a set's tokens
SCALER_BATCH = 2**18  # values whose mean and variance are taken at once
UNITS = ("_y_mean", "_y_scale", "_y_ndim")  # of targets that are numbers
HEAD = ("coef_", "intercept_", "classes_", "loss_", "loss_curve_", "n_iter_", "converged_", *UNITS)


class AttentionContextualizer(
    CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, RaggedOutputMixin, BaseEstimator
):
    """Contextual token vectors by attention that is learned from a loss.

    Each sample is a set of token vectors. `fit` learns the projections of a layer of
    scaled dot-product attention, with the linear head that the loss needs, and `transform` gives
    what each set's tokens become in the context of their set, pooled to one vector per set or
    one per token. With a context, each set attends not to itself but to another set, which X
    brings (cross-attention).

    Parameters
    ----------
    n_heads : int, default=4
        Number of attention heads.
    d_k : int, default=8
        Width of each head's queries and keys.
    d_v : int, default=8
        Width of each head's values.
    pooling : {"mean", "sum", "max", "stats", "attention"}, instance or None, default="mean"
        How the tokens of a set become one vector. ``"stats"`` is mean, standard deviation,
        minimum and maximum, in the output all means first, then all deviations, and so on;
        ``"attention"`` a learned query that attends to the tokens. None gives one vector per
        token, as a RaggedArray, which `set_output` leaves as it is and whose ``to_frame()`` makes
        a frame; the head then reads the mean of the tokens in `fit`.
    mask : {"causal", "exclude_self", "diagonal"} or None, default=None
        Which tokens a token attends to: those up to itself, the others, or itself alone. None
        with a context.
    score_statistics : bool, default=True
        Whether each token also carries, per head, the log-sum-exp of its scaled scores and its
        self-weight, which there is none of with a context. Without them a mean-pooled linear
        head is odd in X and cannot learn a label that X -> -X leaves unchanged.
    standardize : bool, default=True
        Whether to centre and scale each token feature by its mean and standard deviation over
        all training tokens; with a context over those of each side.
    scale : float, default=None
        Factor of the scores; ``1 / sqrt(d_k)`` where None.
    loss : str, default="auto"
        ``"log_loss"``, ``"squared_error"``, ``"huber"``, ``"poisson"``, ``"gamma"`` or
        ``"reconstruction"``, which needs no y and uses none: every token is predicted from the
        others of its set (see Notes). ``"auto"`` goes by the dtype of y, never by its values:
        ``"squared_error"`` for floats, else ``"log_loss"``; ``"reconstruction"`` without y.
    alpha : float, default=1e-3
        Strength of the L2 penalty. It matters more than any other choice and no single value
        works everywhere: tasks where tokens interact want 1e-3 or less, a few hundred wide bags
        1e-1.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`.
    init : {"tied", "identity", "glorot"} or dict of arrays, default="tied"
        Where to start. ``"tied"``: W_Q = W_K, semi-orthogonal, the heads at scales 0.3, 1, 2 and
        4 in turn; both are drawn by themselves where a context has another number of features.
        ``"identity"``: column j of each projection is unit vector j modulo the number of
        features. A dict gives arrays for any of W_Q, W_K, W_V and b_V, the others are tied.
    solver : str, default="lbfgs"
        ``"lbfgs"``, or ``"bfgs"``, ``"cg"``, ``"newton-cg"``, ``"tnc"`` or ``"slsqp"`` of
        ``scipy.optimize.minimize``.
    max_iter : int, default=200
        Largest number of iterations; with 0 the parameters stay where they start, and
        ``loss="auto"`` without y has no head.
    tol : float or None, default=1e-4
        Converged when no entry of the gradient is larger. With None the fit has a budget of
        `max_iter` iterations, and a ConvergenceWarning tells only of an objective that is no
        longer finite.
    warm_start : bool, default=False
        Whether `fit` starts from the parameters of the last one.
    empty : {"zeros", "nan", "error"}, default="zeros"
        The row of a set without tokens, or whose context has none; ``"nan"`` holds in `transform`
        only, `fit` uses zeros.
    context : str, default=None
        The column of X that holds what each set attends to, where X is a frame of two columns of
        sets. A :class:`~skattn.RaggedPair` brings its context by itself. None, without such a
        pair: every set attends to itself.
    n_jobs : int, default=None
        Processes of `fit`, threads of `transform`: None is 1 unless joblib's configuration says
        otherwise, -1 is all cores. They pay where an evaluation of the objective takes more
        than some milliseconds, and change no result. Inside another parallel computation, as a
        grid search, it is 1.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the start.
    verbose : int, default=0
        Whether to print a line per iteration.

    Attributes
    ----------
    W_Q_, W_K_ : ndarray of shape (n_features, n_heads * d_k)
        Projections to queries and keys, of standardised tokens. Only their product, head by
        head, is identified. With a context W_K_ and W_V_ have n_context_features rows.
    W_V_ : ndarray of shape (n_features, n_heads * d_v)
        Projection to values.
    b_V_ : ndarray of shape (n_heads * d_v,)
        Bias of the values: 0, or what `init` gives. It is not learned, since every pooling but
        the sum hands it on to the intercept, and a second free bias has no best value.
    pooling_params_ : dict of ndarray
        What the pooling has learned: the query ``"q"`` of ``"attention"``, which gives the tokens
        of a set the weights ``softmax(contextualize([tokens])[0] @ q)``.
    coef_ : ndarray of shape (n_outputs, n_features_out)
        Weights of the linear head on the pooled output, in units of y. One output for two
        classes; of shape (n_features, n_heads * d_v) for ``"reconstruction"``.
    intercept_ : ndarray of shape (n_outputs,)
        Bias of the head, in units of y.
    classes_ : ndarray of shape (n_classes,)
        Class labels, with ``"log_loss"``.
    token_mean_, token_scale_ : ndarray of shape (n_features,)
        What tokens are standardised by; zeros and ones without `standardize`.
    context_mean_, context_scale_ : ndarray of shape (n_context_features,)
        The same for the tokens of the contexts, where there are such.
    loss_ : float
        The objective at the learned parameters: the weighted mean loss plus
        ``alpha / 2 (|W_Q|^2 + |W_K|^2 + |W_V|^2 + |coef|^2)``, in standardised units of y for
        ``"squared_error"`` and ``"huber"``; without W_Q and W_K for ``"reconstruction"``.
    loss_curve_ : list of float
        The objective at the start and after each iteration.
    n_iter_ : int
        Iterations done.
    converged_ : bool
        Whether the largest entry of the gradient is at most `tol`.
    n_features_in_ : int
        Number of features of a token.
    n_context_features_in_ : int
        Number of features of a context's token, where there are contexts.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where `fit` was given a frame of numbers.

    Raises
    ------
    TypeError, ValueError
        If a parameter or the data is not as described; the message says what is needed.

    Warns
    -----
    ConvergenceWarning
        If the gradient is not within `tol`, with the reason and what to do.

    See Also
    --------
    scaled_dot_product_attention : The formula on plain arrays.
    as_ragged : What X may be.

    Notes
    -----
    For the standardised tokens X of a set, and each head::

        Q = X W_Q,  K = X W_K,  V = X W_V + b_V
        Z = softmax(Q K^T * scale) V

    With a context C of m tokens, K = C W_K and V = C W_V + b_V.

    A token's output has the columns of Z of all heads, then the heads' log-sum-exps and, without
    a context, self-weights. Computed on the sets as they are, without padding: a set's output
    depends on no other set. Token weights w of a RaggedArray count a token w times. An evaluation
    of the objective is O(sum n_i m_i (d_k + d_v) n_heads) time, with m_i = n_i without contexts;
    memory does not grow with n_i m_i. Samples with the same n_i and m_i are computed together:
    where both vary widely there are few of these, and fitting takes longer than by the formula.

    With scikit-learn 1.9 or later, ``set_callbacks`` takes its callbacks, as ``ProgressBar()`` or,
    for a predictor, ``ScoringMonitor(scoring="accuracy")``. They are told of every iteration, with
    the model as it is there; one that answers True ends the fit, without a ConvergenceWarning.

    With ``loss="reconstruction"`` no token attends to itself, and the head maps each token's
    contextual vector to the token itself, standardised. The loss is half the squared error,
    averaged over features and tokens; sets of fewer than two tokens have no part in it. W_V and
    the head are learned, while W_Q and W_K stay where they start, outside the penalty. For the
    query is the very token that is to be predicted: when it was learned, it chose the others so
    that they spelled the token out, and a token unlike the others was no longer seen. On matching
    pairs (500 and 1000 sets) a random forest on the output had .55 accuracy then, and has .85. For
    the same reason the head does not read the score statistics, though the output has them.

    The output has the pooled contextual vectors, and beside them the mean, standard deviation,
    minimum and maximum over the set of its tokens' errors, each the root of the mean square over
    features. With ``pooling=None`` it has each token's contextual vector and its error. A token
    alone in its set is predicted by the intercept. Nothing is learned of a pooling: the query of
    ``"attention"`` stays at 0, which is the mean.

    References
    ----------
    .. [1] Vaswani et al., "Attention is all you need", 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import AttentionContextualizer
    >>> X = [[[1, 0.5], [0.8, 0.6], [-0.5, 1]]]  # one set: cat, dog, phone
    >>> formula = AttentionContextualizer(
    ...     n_heads=1, d_k=2, d_v=2, init="identity", standardize=False,
    ...     score_statistics=False, max_iter=0, pooling=None,
    ... ).fit(X)
    >>> formula.transform(X)[0][0].round(6)
    array([0.654218, 0.628224])
    """

    def __init__(
        self,
        *,
        n_heads=4,
        d_k=8,
        d_v=8,
        pooling="mean",
        mask=None,
        score_statistics=True,
        standardize=True,
        scale=None,
        loss="auto",
        alpha=1e-3,
        class_weight=None,
        init="tied",
        solver="lbfgs",
        max_iter=200,
        tol=1e-4,
        warm_start=False,
        empty="zeros",
        context=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_heads = n_heads
        self.d_k = d_k
        self.d_v = d_v
        self.pooling = pooling
        self.mask = mask
        self.score_statistics = score_statistics
        self.standardize = standardize
        self.scale = scale
        self.loss = loss
        self.alpha = alpha
        self.class_weight = class_weight
        self.init = init
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.empty = empty
        self.context = context
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    _learns_without_y = True

    def __sklearn_is_fitted__(self):
        return hasattr(self, "W_Q_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = not (
            self._learns_without_y and self.loss in ("auto", RECONSTRUCTION)
        )
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # Learning

    def fit(self, X, y=None, *, sample_weight=None):
        """Learn the projections and the head from targets, or without any from the sets alone.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads; a :class:`~skattn.RaggedPair`, or with
            `context` a frame of two columns, for sets that attend to others.
        y : array-like or container of arrays, default=None
            A target per set, of shape (n_samples,) or (n_samples, n_outputs). With
            ``pooling=None`` also a target per token: a list, object array or Series of arrays of
            shape (n_tokens,) or (n_tokens, n_outputs), or a RaggedArray. A token whose target is
            missing (NaN, None, pandas.NA or masked) is not scored, and serves the others as
            context. None with ``loss="reconstruction"``, which is ``"auto"`` without y, or with
            ``max_iter=0``.
        sample_weight : array-like of shape (n_samples,), or container of arrays, default=None
            Weights of the sets, 0 or more; a set of weight 0, or without a token that is scored,
            is left out altogether. Where y has a target per token, also a weight for each of
            them; a token of weight 0 is not scored. In `token_mean_` and `token_scale_` all
            tokens of a set then count as much as those of its own that are scored, on average.

        Returns
        -------
        self : AttentionContextualizer
            Fitted.
        """
        self._check_parameters()
        given = read_sets_in_context(self, X, reset=True)
        told = {  # to callbacks; a table keeps its names
            "X": X if sides(given)[1] is None and is_table(X) else given,
            "y": y,
            "metadata": None if sample_weight is None else {"sample_weight": sample_weight},
        }
        reconstructs = self._reconstructs(y)
        mask = "exclude_self" if reconstructs else self.mask
        ragged = self._ready(given, mask)
        if reconstructs:
            y = None
        elif y is None and self.max_iter > 0:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None. Only with max_iter=0, where nothing is learned, can it be left out"
                + (", or with loss='reconstruction'." if self._learns_without_y else ".")
            )
        per_token = reconstructs or self._has_token_targets(y, sample_weight)
        rows = counts = None
        if per_token:
            ragged, y, weight, rows, counts = _used_tokens(ragged, y, sample_weight, given)
        else:
            ragged, y, weight = _used_sets(ragged, self._plain(y), sample_weight)
        for side, what in zip(sides(ragged), ("sets", "contexts"), strict=True):
            if side is not None and side.n_tokens == 0:
                raise ValueError(
                    f"Found no tokens in {len(side)} {what} (of positive weight); at least one is "
                    "required."
                )
        tokens, context = sides(ragged)
        if (tokens if context is None else context).lengths.max() == 1:
            warnings.warn(
                "No training set has more than one token: attention is then the identity. If X "
                "is a single set, pass it as [X]."
                if context is None
                else "No context has more than one token: there is nothing to choose from.",
                UserWarning,
                stacklevel=2,
            )
        attention, pooling = self._parts(mask)
        rng = generator(self.random_state)
        self._per_token = per_token
        if y is None and not reconstructs:
            self._forget(*HEAD)
            self._standardise(ragged, weight)
            start = self._start(attention, pooling, ragged.n_features, rng)
            as_task(self, lambda task: self._store(attention, pooling, start), 0, told)
            return self
        if not reconstructs:
            loss, y, n_outputs, weight = self._targets(y, weight, counts)
        self._standardise(
            ragged, weight if rows is None else _mean_of_set(weight, counts, rows, tokens)
        )
        if reconstructs:
            loss, y, n_outputs = self._own_targets(ragged.values[rows])
        start = self._start(attention, pooling, ragged.n_features, rng)
        held = {name: start[name] for name in (*HELD, *(("W_Q", "W_K") if reconstructs else ()))}
        objective = Objective(
            ragged,
            y,
            weight,
            n_outputs,
            replace(attention, score_statistics=False) if reconstructs else attention,
            pooling or MeanPooling(),
            loss,
            self.alpha,
            self._standards(),
            held,
            rows,
        )
        theta0 = objective.layout.pack(start | self._start_of_head(objective, rng))
        tol = 0.0 if self.tol is None else self.tol

        def store(model, result):
            params = start | objective.layout.unpack(result.theta) | held
            model._store(attention, pooling, params, loss, result)
            return vars(model)

        def run(task):
            listener = self._print_iteration if self.verbose else None
            if task is not None:
                fitted = functools.partial(store, copy(self))
                listener = Iterations(task, self, fitted, tol, told, listener)
            with one_blas_thread(), spread_over_processes(objective, self.n_jobs) as value_and_grad:
                result = minimize(
                    value_and_grad,
                    theta0,
                    listener,
                    solver=self.solver,
                    tol=tol,
                    max_iter=self.max_iter,
                )
            if task is not None:
                listener.end()
            store(self, result)
            return result

        result = as_task(self, run, self.max_iter, told)
        if result.reason == "interrupted":
            raise KeyboardInterrupt
        is_as_asked = (
            self.max_iter == 0
            or result.reason == "callback"
            or (self.tol is None and result.reason != "non-finite")
        )
        if not (result.converged or is_as_asked):
            strict = "" if self.tol is None else f", tol {self.tol:.3g}"
            warnings.warn(
                f"{type(self).__name__} has not converged after {result.n_iter} iterations: "
                f"{result.message}; max |gradient| is {result.grad_norm:.3g}{strict}. "
                f"{result.advice}",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _check_parameters(self):
        """Refuse parameters that mean nothing, naming each."""
        for name, least in (("n_heads", 1), ("d_k", 1), ("d_v", 1), ("max_iter", 0)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
                raise TypeError(f"{name} must be an integer, but is {value!r}.")
            if value < least:
                raise ValueError(f"{name} must be {least} or more, but is {value}.")
        for name in ("score_statistics", "standardize", "warm_start"):
            value = getattr(self, name)
            if not isinstance(value, (bool, np.bool_)):
                raise TypeError(f"{name} must be True or False, but is {value!r}.")
        if not (self.n_jobs is None or isinstance(self.n_jobs, (int, np.integer))):
            raise TypeError(f"n_jobs must be None or an integer, but is {self.n_jobs!r}.")
        if self.n_jobs == 0:
            raise ValueError("n_jobs must not be 0: it is None, a number of jobs, or -1 for all.")
        for name in ("alpha", "tol", "scale"):
            value = getattr(self, name)
            if name != "alpha" and value is None:
                continue
            if not isinstance(value, (int, float, np.integer, np.floating)):
                raise TypeError(f"{name} must be a number, but is {value!r}.")
            if not np.isfinite(value) or (value < 0 and name != "scale"):
                raise ValueError(f"{name} must be finite and 0 or more, but is {value}.")
        for name, names in (
            ("mask", (None, *MASKS)),
            ("loss", ("auto", *LOSSES, RECONSTRUCTION)),
            ("solver", tuple(SOLVERS)),
            ("empty", EMPTY),
        ):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str)) or value not in names:
                raise ValueError(f"{name} must be one of {list(names)}, but is {value!r}.")
        pooling = self.pooling
        if isinstance(pooling, str) and pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {list(POOLINGS)}, but is {pooling!r}.")
        if pooling is not None and not isinstance(pooling, str) and not hasattr(pooling, "forward"):
            raise TypeError(
                f"pooling must be one of {list(POOLINGS)}, None or a pooling layer, but is "
                f"{pooling!r}."
            )
        if isinstance(self.init, str):
            if self.init not in INITS:
                raise ValueError(f"init must be one of {list(INITS)}, but is {self.init!r}.")
        elif not isinstance(self.init, dict):
            raise TypeError(
                f"init must be one of {list(INITS)} or a dict of arrays, but is of type "
                f"{type(self.init).__name__}."
            )

    def _reconstructs(self, y):
        """Whether the tokens are their own targets; refuses what does not go with that."""
        if self.loss == "auto":
            reconstructs = self._learns_without_y and y is None and self.max_iter > 0
        else:
            reconstructs = self.loss == RECONSTRUCTION
        if reconstructs and self.mask not in (None, "exclude_self"):
            raise ValueError(
                "loss='reconstruction' predicts each token from all others of its set, so mask "
                f"must be None or 'exclude_self', but is {self.mask!r}."
            )
        if reconstructs and self.class_weight is not None:
            raise ValueError(
                "class_weight goes with loss='log_loss', but the loss is 'reconstruction'."
            )
        return reconstructs

    def _own_targets(self, tokens):
        """Loss, targets and number of outputs where tokens (n, n_features) are to be predicted."""
        self._forget("classes_")
        n_outputs = tokens.shape[1]
        self._y_mean, self._y_scale, self._y_ndim = np.zeros(n_outputs), np.ones(n_outputs), 2
        targets = (tokens - self.token_mean_) / self.token_scale_
        return ReconstructionError(), targets, n_outputs

    def _forget(self, *names):
        """Take away what an earlier fit has set, and this one has none of."""
        for name in names:
            self.__dict__.pop(name, None)

    def _parts(self, mask):
        """The layers by name; the pooling None where tokens are wanted."""
        attention = Attention(
            int(self.n_heads),
            int(self.d_k),
            int(self.d_v),
            mask,
            self.score_statistics,
            self.scale,
            getattr(self, "n_context_features_in_", None),
        )
        pooling = POOLINGS[self.pooling]() if isinstance(self.pooling, str) else self.pooling
        return attention, pooling

    def _read(self, X):
        """Sets ready for the layers that were fitted."""
        return self._ready(read_sets_in_context(self, X, reset=False), self._layers[0].mask)

    def _ready(self, ragged, mask):
        """Sets without the tokens of weight 0, checked against the mask."""
        ragged = ragged.drop_zero_weights()
        tokens, context = sides(ragged)
        what, instead = f"mask={mask!r}", "choose mask=None"
        if mask != self.mask:
            what, instead = "loss='reconstruction'", "give y, and a loss that takes it"
        if context is not None and mask is not None:
            raise ValueError(
                f"{what} is about the tokens of one set, but X brings a context, to all of which "
                f"every token attends: {instead}."
            )
        if tokens.weights is not None and mask in ("causal", "exclude_self"):
            raise ValueError(
                f"Token weights other than 0 and 1 have no meaning with {what}: "
                "which copy of a token would see which? Repeat the tokens instead."
            )
        if self.empty == "error":
            refuse_empty_sets(ragged)
        return ragged

    def _has_token_targets(self, y, sample_weight):
        """Whether every token has a target of its own, refused where it can't."""
        if self.pooling is None and is_per_token(y):
            return True
        if is_certainly_per_token(y):
            raise ValueError(
                f"y has a target per token, but with pooling={self.pooling!r} there is one vector "
                "per set, and the head needs one target for it. Choose pooling=None, or give y "
                "one target per set."
            )
        if is_per_token(sample_weight):
            raise ValueError(
                "sample_weight has a weight per token, but the targets are per set: give one "
                "weight per set."
            )
        return False

    def _plain(self, y):
        """Targets of sets in a plain array, whatever they came in; None without."""
        return None if y is None else plain(np.asarray(y))

    def _loss_for(self, y):
        """Name of the loss that goes with the dtype of y, whatever its values."""
        return "squared_error" if y.dtype.kind == "f" else "log_loss"

    def _targets(self, y, weight, counts=None):
        """Loss, targets as it takes them, number of outputs, and weights with class weights.

        `counts` says how often each target stands there, once where None.
        """
        name = self._loss_for(y) if self.loss == "auto" else self.loss
        loss = LOSSES[name]()
        if loss.is_classifier:
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
            previous = getattr(self, "classes_", None)
            if self.warm_start and previous is not None and not np.array_equal(previous, classes):
                raise ValueError(
                    f"warm_start=True needs the classes of the last fit, {previous}, but y holds "
                    f"{classes}."
                )
            self._forget(*UNITS)
            self.classes_ = classes
            if self.class_weight is not None:
                weight = weight * self._class_weights(y, encoded, counts)
            return loss, encoded, len(classes) if len(classes) > 2 else 1, weight
        if self.class_weight is not None:
            raise ValueError(f"class_weight goes with loss='log_loss', but the loss is {name!r}.")
        self._forget("classes_")
        if y.dtype.kind in "US" or (y.dtype == object and any(isinstance(v, str) for v in y.flat)):
            raise ValueError(
                f"y holds text, as {str(y.flat[0])!r}, but loss={name!r} needs numbers. For labels "
                "choose loss='log_loss', or AttentionClassifier."
            )
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        self._y_ndim = y.ndim
        if y.ndim > 2:
            raise ValueError(f"y has shape {y.shape}, but must have 1 or 2 axes.")
        y = y.reshape(len(y), -1)
        loss.check(y)
        self._y_mean, self._y_scale = np.zeros(y.shape[1]), np.ones(y.shape[1])
        if loss.scales_target:
            self._y_mean = np.average(y, axis=0, weights=weight)
            centred = y - self._y_mean
            top = np.abs(centred).max(axis=0)  # taken out, or the squares might not be finite
            top[top == 0] = 1.0
            spread = top * np.sqrt(np.average((centred / top) ** 2, axis=0, weights=weight))
            self._y_scale = np.where(spread > 0, spread, 1.0)
        return loss, (y - self._y_mean) / self._y_scale, y.shape[1], weight

    def _class_weights(self, y, encoded, counts):
        """The weight of each label's class, (n_samples,)."""
        if not (self.class_weight == "balanced" or isinstance(self.class_weight, dict)):
            raise ValueError(
                f"class_weight must be a dict, 'balanced' or None, but is {self.class_weight!r}."
            )
        if self.class_weight == "balanced" and counts is not None:
            of_class = np.bincount(encoded, counts)
            weights = (of_class.sum() / (len(of_class) * of_class))[encoded]
        else:
            weights = compute_sample_weight(self.class_weight, y)
        if not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.any():
            raise ValueError(
                f"class_weight must give each class a finite weight of 0 or more, and one of them "
                f"more than 0, but is {self.class_weight!r}."
            )
        return weights

    def _standardise(self, X, weight):
        """Set mean and scale of each side, every token weighted as its set is (n_samples,)."""
        self._standardised = bool(self.standardize)
        self._forget("context_mean_", "context_scale_")
        tokens, context = sides(X)
        self.token_mean_, self.token_scale_ = self._standard(tokens, weight)
        if context is not None:
            self.context_mean_, self.context_scale_ = self._standard(context, weight)

    def _standard(self, X, weight):
        """Mean and scale (n_features,) of the tokens of X, weighted as their sets."""
        if not self.standardize:
            return np.zeros(X.n_features), np.ones(X.n_features)
        token_weight = X.repeat(weight)
        if X.weights is not None:
            token_weight = token_weight * X.weights
        return _mean_and_scale(X.values, token_weight)

    def _standards(self):
        """Mean and scale of each side, as `Objective` and `chunks` take them."""
        if not self._standardised:
            return None
        if not hasattr(self, "context_mean_"):
            return (self.token_mean_, self.token_scale_), None
        return (self.token_mean_, self.token_scale_), (self.context_mean_, self.context_scale_)

    def _start(self, attention, pooling, n_features, rng):
        """Parameters of the layers to start from."""
        shapes = attention.shapes(n_features)
        named = {} if isinstance(self.init, str) else self.init
        kind = self.init if isinstance(self.init, str) else "tied"
        start = attention.init_params(n_features, rng, kind)
        if self.warm_start and hasattr(self, "W_Q_"):
            named = {name: getattr(self, name + "_") for name in shapes}
        for name, array in named.items():
            if name not in shapes:
                raise ValueError(f"init has an array {name!r}, but must name {list(shapes)}.")
            array = np.asarray(array)
            if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
                raise ValueError(f"{name} to start from must hold finite real numbers.")
            if array.shape != shapes[name]:
                raise ValueError(
                    f"{name} to start from has shape {array.shape}, but must have {shapes[name]}: "
                    f"{n_features} features, {self.n_heads} heads, d_k={self.d_k}, d_v={self.d_v}."
                )
            start[name] = array
        if pooling is not None:
            start |= pooling.init_params(attention.n_features_out, rng)
        if self.warm_start and pooling is not None:
            for name, array in getattr(self, "pooling_params_", {}).items():
                if array.shape != start.get(name, array).shape:
                    raise ValueError(
                        f"{name} to start from has shape {array.shape}, but must have "
                        f"{start[name].shape}."
                    )
                start[name] = array
        return start

    def _start_of_head(self, objective, rng):
        """Parameters of the head to start from."""
        loss, shapes = objective.loss, objective.layout.shapes
        if self.warm_start and getattr(self, "coef_", np.empty(0)).shape == shapes["coef"]:
            if loss.is_classifier:
                return {"coef": self.coef_, "intercept": self.intercept_}
            return {
                "coef": self.coef_ / self._y_scale[:, None],
                "intercept": (self.intercept_ - self._y_mean) / self._y_scale,
            }
        return {
            "coef": 0.01 * rng.normal(size=shapes["coef"]),
            "intercept": np.broadcast_to(
                loss.start(objective.y, objective.sample_weight), shapes["intercept"]
            ),
        }

    def _print_iteration(self, n_iter, loss, grad_norm, theta):
        print(
            f"[{type(self).__name__}] iteration {n_iter:4d}   objective {loss:.6e}   "
            f"max |gradient| {grad_norm:.2e}"
        )

    def _store(self, attention, pooling, params, loss=None, result=None):
        """Set the fitted attributes, and keep the parts: set_params is for the next fit."""
        self._layers, self._loss = (attention, pooling), loss
        params = {name: np.array(array) for name, array in params.items()}
        for name in attention.shapes(len(params["W_Q"])):
            setattr(self, name + "_", params.pop(name))
        k = attention.n_features_out
        self._n_features_out = k if pooling is None else pooling.n_features_out(k)
        if isinstance(loss, ReconstructionError):
            self._n_features_out += 1 if pooling is None else ERROR_STATISTICS.n_features_out(1)
        if result is not None:
            self.coef_, self.intercept_ = params.pop("coef"), params.pop("intercept")
            if not hasattr(self, "classes_"):
                self.coef_ *= self._y_scale[:, None]
                self.intercept_ = self.intercept_ * self._y_scale + self._y_mean
            self.loss_, self.loss_curve_ = result.loss, result.loss_curve
            self.n_iter_, self.converged_ = result.n_iter, result.converged
        self.pooling_params_ = params

    # Applying

    def get_feature_names_out(self, input_features=None):
        """Names of the output columns: the lower-cased class name and a number.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Compared with `feature_names_in_` where there are such names, else not used.

        Returns
        -------
        ndarray of str of shape (n_features_out,)
            One name per column.
        """
        named = hasattr(self, "feature_names_in_")
        return super().get_feature_names_out(input_features if named else None)

    def transform(self, X):
        """Contextual vectors, pooled to one per set, or one per token with ``pooling=None``.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or with contexts as in `fit`. A single
            set is ``[tokens]`` or ``X[i : i + 1]``; a bare 2-D array is one token a sample.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out) or RaggedArray
            Float32 for float32 tokens, else float64. O(sum n_i^2) time.
        """
        if not hasattr(self, "W_Q_"):
            check_is_fitted(self)  # raises, at some cost
        X = self._read(X)
        reconstructs = isinstance(self._loss, ReconstructionError)
        if self._layers[1] is None:
            return self._tokens(X, with_errors=reconstructs)
        out = self._pool_with_errors(X) if reconstructs else self._pool(X)
        if self.empty == "nan":
            for side in sides(X):
                if side is not None:
                    out[side.lengths == 0] = np.nan
        return out

    def _pool(self, X):
        """Pooled vectors (n_samples, k) of sets that were read; zeros for an empty set."""
        attention, pooling = self._layers
        pooling = pooling or MeanPooling()  # what the head reads where transform gives tokens
        folded = self._folded(attention, X)
        k = pooling.n_features_out(attention.n_features_out)
        out = np.empty((len(X), k), X.dtype)

        def work(*share):
            for chunk in self._chunks(X, attention, pooling, share):
                pooled, _ = pool_forward(attention, pooling, folded, self.pooling_params_, chunk)
                out[chunk.sets] = pooled

        self._run(work, X)
        return out

    def contextualize(self, X):
        """Contextual vectors of every token, whatever the pooling.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or with contexts as in `fit`. A single
            set is ``[tokens]`` or ``X[i : i + 1]``; a bare 2-D array is one token a sample.

        Returns
        -------
        RaggedArray
            One row of ``n_heads * (d_v + 2)`` columns for each token, with a context
            ``n_heads * (d_v + 1)``, or ``n_heads * d_v`` without score statistics; tokens of
            weight 0 have none. ``.to_frame()`` gives a frame indexed by set and token, whose
            columns are not those of X.
        """
        check_is_fitted(self)
        return self._tokens(self._read(X))

    def _tokens(self, X, with_errors=False):
        """Contextual vectors of the tokens of sets that were read, each with its error if asked."""
        attention, _ = self._layers
        folded = self._folded(attention, X)
        k = attention.n_features_out
        out = np.empty((X.n_tokens, k + with_errors), X.dtype)

        def work(*share):
            for chunk in self._chunks(X, attention, None, share):
                tokens, _ = attention.forward(folded, chunk.block)
                out[chunk.rows, :k] = tokens.reshape(-1, k)
                if with_errors:
                    out[chunk.rows, k:] = self._errors(tokens, chunk).reshape(-1, 1)

        self._run(work, X)
        tokens, _ = sides(X)
        return tokens.with_values(out)

    def _pool_with_errors(self, X):
        """Pooled vectors of sets that were read, and statistics of their tokens' errors."""
        attention, pooling = self._layers
        folded = self._folded(attention, X)
        out = np.empty((len(X), self._n_features_out), X.dtype)

        def work(*share):
            for chunk in self._chunks(X, attention, None, share):
                tokens, _ = attention.forward(folded, chunk.block)
                sets = RaggedArray.from_block(tokens, chunk.weights)
                errors = sets.with_values(self._errors(tokens, chunk).reshape(-1, 1))
                pooled, _ = pooling.forward(self.pooling_params_, sets)
                statistics, _ = ERROR_STATISTICS.forward({}, errors)
                out[chunk.sets] = np.hstack([pooled, statistics])

        self._run(work, X)
        return out

    def _errors(self, tokens, chunk):
        """How far off each token of a chunk is predicted, (b, n, 1): root mean square."""
        Z = tokens[..., : self.coef_.shape[1]]  # without the score statistics
        raw = Z @ self.coef_.T + self.intercept_  # (b, n, n_features), in float64
        return np.sqrt(np.mean((raw - chunk.block.X) ** 2, axis=-1, keepdims=True))

    def attention_weights(self, X):
        """Attention weights of every set, per head; asking never changes `transform`.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or with contexts as in `fit`. A single
            set is ``[tokens]`` or ``X[i : i + 1]``; a bare 2-D array is one token a sample.

        Returns
        -------
        list of ndarray of shape (n_heads, n_i, n_i), or (n_heads, n_i, m_i) with contexts
            Row i of a set's weights says how much token i attends to each token; it sums to 1,
            or to 0 where the mask leaves it nothing.

        Raises
        ------
        ValueError
            If the weights of all sets together take more than 1 GiB.
        """
        check_is_fitted(self)
        X = self._read(X)
        tokens, context = sides(X)
        n, m = tokens.lengths, (tokens if context is None else context).lengths
        n_bytes = self.n_heads * X.dtype.itemsize * int(np.sum(n * m))
        if n_bytes > WEIGHTS_LIMIT:
            raise ValueError(
                f"The attention weights of these {len(X)} sets, the longest of "
                f"{max(n.max(), m.max())} tokens, would take {n_bytes / 1e9:.1f} GB, more than the "
                f"{WEIGHTS_LIMIT / 1e9:.1f} GB that are handed out at once. Ask for fewer sets at "
                "a time, or for the part of a long set that matters."
            )
        attention, _ = self._layers
        folded = self._folded(attention, X)
        weights = [None] * len(X)
        with one_blas_thread():
            for chunk in self._chunks(X, attention, None):
                A = attention.weights(folded, chunk.block)
                for i, A_i in zip(np.arange(len(X))[chunk.sets], A, strict=True):
                    weights[i] = A_i
        return weights

    def _run(self, work, X):
        """Run work(k, n_threads) in as many threads as n_jobs says, each with its share of X."""
        n_tokens = sum(side.n_tokens for side in sides(X) if side is not None)
        with one_blas_thread() if n_tokens > FEW_TOKENS else nullcontext():
            spread_over_threads(work, self.n_jobs, n_tokens > MANY_TOKENS)

    def _chunks(self, X, attention, pooling, share=(0, 1)):
        return chunks(X, attention, pooling, self._standards(), share=share)

    def _folded(self, attention, X):
        """The projections as the kernels take them, in the type of X."""
        params = {"W_Q": self.W_Q_, "W_K": self.W_K_, "W_V": self.W_V_, "b_V": self.b_V_}
        return attention.fold(params, X.dtype)

    def _is_ragged_out(self):
        return (self._layers[1] if hasattr(self, "_layers") else self.pooling) is None


def _mean_and_scale(values, weight):
    """Weighted mean and standard deviation (n_features,) of tokens; 1 for constant features.

    As scikit-learn's StandardScaler gives, in a quarter of its time: two passes over batches, in
    float64, each a product with the weights. Constant is a feature whose variance round-off
    explains.
    """
    n, total = len(values), weight.sum()
    batches = list(gen_batches(n, max(1, SCALER_BATCH // values.shape[1])))
    mean = sum(weight[batch] @ values[batch] for batch in batches) / total
    var = sum(weight[batch] @ (values[batch] - mean) ** 2 for batch in batches) / total
    eps = np.finfo(np.float64).eps
    constant = var <= n * eps * var + (n * mean * eps) ** 2
    return mean, np.where(constant, 1.0, np.sqrt(var))


def _used_sets(X, y, sample_weight):
    """Sets of positive weight, their targets or None, and their weights."""
    weight = check_sample_weight(sample_weight, len(X))
    if y is not None:
        check_consistent_length(X, y)
    if np.all(weight > 0):
        return X, y, weight
    used = np.flatnonzero(weight)
    return X.take(used), None if y is None else y[used], weight[used]


def _used_tokens(X, y, sample_weight, given):
    """Sets with a token that is scored; targets, weights, rows and counts of these tokens.

    The weights have the factor `counts`, the token weights, which is None where there are none.
    `given` are the sets X with the tokens of weight 0.
    """
    y, rows, weight = scored_tokens(y, sample_weight, sides(given)[0])
    tokens = sides(X)[0]
    used = np.unique(tokens.repeat(np.arange(len(tokens)))[rows])
    is_left_out = np.ones(len(tokens), dtype=np.int64)
    is_left_out[used] = 0
    rows = rows - np.cumsum(tokens.repeat(is_left_out))[rows]
    X = X.take(used)
    if tokens.weights is None:
        return X, y, weight, rows, None
    counts = sides(X)[0].weights[rows]
    return X, y, weight * counts, rows, counts


def _mean_of_set(weight, counts, rows, X):
    """Each set's mean weight (n_samples,) over its tokens of positive weight out of `rows`.

    `weight` has the factor `counts`, how often each of these tokens stands there; None is once.
    """
    sums = np.zeros((X.n_tokens, 2))
    sums[rows, 0] = weight
    sums[rows, 1] = (weight > 0) * (1.0 if counts is None else counts)
    total, n = X.with_values(sums).segment_sum().T
    return np.divide(total, n, out=np.zeros(len(X)), where=n > 0)

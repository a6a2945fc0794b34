"""AttentionContextualizer: attention that is learned from a downstream loss."""

import functools
from copy import copy

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
)
from sklearn.utils.validation import check_is_fitted

from ._callbacks import CallbackSupportMixin, Iterations, as_task
from ._input import read_sets_in_context, ready
from ._network import LinearHead, Network, TokenScaler
from ._objective import Objective, minimized, tolerance, warn_unless_converged
from ._output import RaggedOutputMixin
from ._parameters import checked
from ._persistence import become, unfitted
from ._random import generator
from ._start import start_of_head, start_of_layers
from ._targets import plain
from ._tasks import RECONSTRUCTION, kind_of_task
from .attention import ATTENTIONS
from .containers import is_table
from .pooling import POOLINGS, MeanPooling

__all__ = ["AttentionContextualizer"]


class AttentionContextualizer(
    CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, RaggedOutputMixin, BaseEstimator
):
    """Contextual token vectors by attention that is learned from a loss.

    Each sample is a set of token vectors. `fit` learns the projections of a layer of scaled
    dot-product attention, together with the linear head that the loss needs. `transform` gives
    contextual vectors, one per set (pooled) or one per token. With a context, each set attends to
    another set, its context, instead of to itself (cross-attention).

    Parameters
    ----------
    n_heads : int, default=4
        Number of attention heads.
    d_k : int, default=8
        Width of each head's queries and keys.
    d_v : int, default=8
        Width of each head's values.
    pooling : {"mean", "sum", "max", "stats", "attention"}, instance or None, default="mean"
        How the tokens of a set become one vector. ``"stats"`` is mean, standard deviation, minimum
        and maximum; the output has all means first, then all deviations, and so on. ``"attention"``
        is a learned query that attends to the tokens. None gives one vector per token, as a
        RaggedArray: `set_output` does not change it, ``to_frame()`` turns it into a frame. The head
        then reads the mean of the tokens in `fit`.
    mask : {"causal", "exclude_self", "diagonal"}, Mask or None, default=None
        Which tokens a token attends to: those up to itself, the others, or itself alone. None
        with a context.
    score_statistics : bool, default=True
        Whether each token also carries, per head, the log-sum-exp of its scaled scores and its
        self-weight; with a context there is no self-weight. Without them a mean-pooled linear head
        is odd in X and cannot learn a label that X -> -X leaves unchanged.
    standardize : bool, default=True
        Whether to centre and scale each token feature by its mean and standard deviation over all
        training tokens. With a context each side has its own.
    scale : float, default=None
        Factor of the scores; ``1 / sqrt(d_k)`` where None.
    attention : {"scaled_dot_product"}, default="scaled_dot_product"
        Name of an attention in ``skattn.attention.ATTENTIONS``.
    loss : str or loss instance, default="auto"
        ``"log_loss"``, ``"squared_error"``, ``"huber"``, ``"poisson"``, ``"gamma"`` or
        ``"reconstruction"``, which ignores y and predicts every token from the others of its set
        (see Notes). ``"auto"`` depends on the dtype of y, never on its values: it is
        ``"squared_error"`` for floats, ``"reconstruction"`` without y, else ``"log_loss"``.
    alpha : float, default=1e-3
        Strength of the L2 penalty. It matters more than any other choice, and no single value works
        everywhere. Try 1e-3 or less if tokens interact, 1e-1 for a few hundred wide bags.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`.
    init : {"tied", "identity", "glorot"} or dict of arrays, default="tied"
        Starting values. ``"tied"``: W_Q = W_K, semi-orthogonal, the heads at scales 0.3, 1, 2 and 4
        in turn; if a context has another number of features, the two are drawn separately.
        ``"identity"``: column j of each projection is unit vector j modulo the number of features.
        A dict gives arrays for any of W_Q, W_K, W_V and b_V; the others start as with ``"tied"``.
    solver : str, default="lbfgs"
        ``"lbfgs"``, or ``"bfgs"``, ``"cg"``, ``"newton-cg"``, ``"tnc"`` or ``"slsqp"`` of
        ``scipy.optimize.minimize``.
    max_iter : int, default=200
        Largest number of iterations. With 0 the parameters keep their starting values, and
        ``loss="auto"`` without y has no head.
    tol : float, "auto" or None, default="auto"
        When a fit has converged. ``"auto"``: the objective is at least 10 % below its start and
        fell by less than 5 % over 30 iterations, or no entry of the gradient is larger than 1e-4. A
        number: no entry of the gradient is larger than that. None: the fit has a budget of
        `max_iter` iterations, and a ConvergenceWarning means that the objective is no longer
        finite.
    max_tokens : int or None, default=128
        Largest number of tokens of a set, and of a context, that `fit` reads. Of a larger set of n
        tokens it reads a random sample of max_tokens, each with weight n / max_tokens; see Notes.
        `transform` reads every token. With None `fit` does too.
    warm_start : bool, default=False
        Whether `fit` starts from the parameters of the last one.
    empty : {"zeros", "nan", "error"}, default="zeros"
        The output row of a set without tokens, or with an empty context. ``"nan"`` applies to
        `transform` only; `fit` uses zeros.
    context : str, default=None
        The column of X that holds the contexts, if X is a frame of two columns of sets. A
        :class:`~skattn.RaggedPair` contains its contexts and needs no name. Otherwise None means
        that every set attends to itself.
    n_jobs : int, default=None
        Number of processes in `fit` and of threads in `transform`. None is 1 unless joblib is
        configured otherwise, -1 is all cores. Several are faster if an evaluation of the objective
        takes more than a few milliseconds; the results are the same. Inside another parallel
        computation, for instance a grid search, it is 1.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the starting values and of the samples of tokens.
    verbose : int, default=0
        Whether to print a line per iteration.

    Attributes
    ----------
    W_Q_, W_K_ : ndarray of shape (n_features, n_heads * d_k)
        Projections of standardised tokens to queries and keys. Only their product in each head is
        identified. With a context W_K_ and W_V_ have n_context_features rows.
    W_V_ : ndarray of shape (n_features, n_heads * d_v)
        Projection to values.
    b_V_ : ndarray of shape (n_heads * d_v,)
        Bias of the values: 0, or the array from `init`. It is not learned: with every pooling but
        the sum it acts as a second intercept, and two free biases have no single best value.
    pooling_params_ : dict of ndarray
        Learned parameters of the pooling. ``"attention"`` has a query ``"q"``; the tokens of a set
        get the weights ``softmax(contextualize([tokens])[0] @ q)``.
    coef_ : ndarray of shape (n_outputs, n_features_out)
        Weights of the linear head on the pooled output, in units of y. One row for two classes;
        shape (n_features, n_heads * d_v) for ``"reconstruction"``.
    intercept_ : ndarray of shape (n_outputs,)
        Bias of the head, in units of y.
    classes_ : ndarray of shape (n_classes,)
        Class labels, with ``"log_loss"``.
    token_mean_, token_scale_ : ndarray of shape (n_features,)
        Mean and scale that standardise the tokens; zeros and ones without `standardize`.
    context_mean_, context_scale_ : ndarray of shape (n_context_features,)
        The same for the tokens of the contexts; only with contexts.
    loss_ : float
        The objective at the learned parameters: the weighted mean loss plus
        ``alpha / 2 (|W_Q|^2 + |W_K|^2 + |W_V|^2 + |coef|^2)``, in standardised units of y for
        ``"squared_error"`` and ``"huber"``; without W_Q and W_K for ``"reconstruction"``.
    loss_curve_ : list of float
        The objective at the start and after each iteration.
    n_iter_ : int
        Iterations done.
    converged_ : bool
        Whether the fit met `tol`.
    n_features_in_ : int
        Number of features of a token.
    n_context_features_in_ : int
        Number of features of a context's token; only with contexts.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features; only if the X of `fit` had names.

    Raises
    ------
    TypeError, ValueError
        If a parameter or the data is not as described; the message states what is needed.

    Warns
    -----
    ConvergenceWarning
        If the fit did not meet `tol`; the message states the reason and a remedy.

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

    A token's output has the columns of Z of all heads, then the heads' log-sum-exps and, without a
    context, self-weights. Sets are not padded: a set's output depends on no other set. A token
    weight w of a RaggedArray counts the token w times. An evaluation of the objective takes O(sum
    n_i m_i (d_k + d_v) n_heads) time, with m_i = n_i without contexts; memory does not grow with
    n_i m_i. Samples with the same n_i and m_i are computed together. If both vary widely, few
    samples share them, and fitting takes longer than the formula suggests.

    With scikit-learn 1.9 or later, ``set_callbacks`` takes its callbacks, for instance
    ``ProgressBar()`` or, for a predictor, ``ScoringMonitor(scoring="accuracy")``. Every iteration
    calls them with the current model. A callback that returns True ends the fit, without a
    ConvergenceWarning.

    `max_tokens` bounds the cost of `fit`, which then grows with the number of tokens and not with
    the square of a set's length. The mean and scale of tokens are computed from all tokens. The
    weights of the sampled tokens make pooled means, sums, log-sum-exps and self-weights unbiased or
    nearly unbiased estimates of those of the whole set; minima and maxima are those of the sample.
    A task that depends on a few tokens, or pairs of tokens, of a large set can lose accuracy,
    because a sample may lack them. Nothing is sampled with a mask, a target per token or
    ``loss="reconstruction"``.

    With ``loss="reconstruction"`` no token attends to itself, and the head maps each token's
    contextual vector to the standardised token. The loss is half the squared error, averaged over
    features and tokens; sets of fewer than two tokens do not count. W_V and the head are learned.
    W_Q and W_K keep their starting values and are not penalised, because the query is computed from
    the token that is predicted: with learned W_Q and W_K the weights themselves encoded the token,
    and the errors no longer showed a token unlike the others. On matching pairs (500 and 1000 sets)
    a random forest on the output had .55 accuracy with learned W_Q and W_K, and has .85 now. For
    the same reason the head does not read the score statistics, although the output has them.

    The output has the pooled contextual vectors, then the mean, standard deviation, minimum and
    maximum of the set's token errors. A token's error is its root mean square over features. With
    ``pooling=None`` the output has each token's contextual vector and its error. The intercept
    predicts a token that is alone in its set. The pooling learns nothing: the query of
    ``"attention"`` stays at 0, which gives the mean.

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
        attention="scaled_dot_product",
        loss="auto",
        alpha=1e-3,
        class_weight=None,
        init="tied",
        solver="lbfgs",
        max_iter=200,
        tol="auto",
        max_tokens=128,
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
        self.attention = attention
        self.loss = loss
        self.alpha = alpha
        self.class_weight = class_weight
        self.init = init
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.max_tokens = max_tokens
        self.warm_start = warm_start
        self.empty = empty
        self.context = context
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    _learns_without_y = True

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_layers_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = not (
            self._learns_without_y and self.loss in ("auto", RECONSTRUCTION)
        )
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # Learning

    def fit(self, X, y=None, *, sample_weight=None):
        """Learn the projections and the head from targets, or from the sets alone.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads. For sets that attend to others, a
            :class:`~skattn.RaggedPair` or, with `context`, a frame of two columns.
        y : array-like or container of arrays, default=None
            A target per set, of shape (n_samples,) or (n_samples, n_outputs). With ``pooling=None``
            also a target per token: a list, object array or Series of arrays of shape (n_tokens,)
            or (n_tokens, n_outputs), or a RaggedArray. A token whose target is missing (NaN, None,
            pandas.NA or masked) is not scored; the other tokens still attend to it. None is allowed
            with ``loss="reconstruction"``, which is ``"auto"`` without y, and with ``max_iter=0``.
        sample_weight : array-like of shape (n_samples,), or container of arrays, default=None
            Weights of the sets, 0 or more. A set of weight 0, or without a scored token, is left
            out. If y has a target per token, the weights may be per token too; a token of weight 0
            is not scored. In `token_mean_` and `token_scale_` every token then gets the mean weight
            of its set's scored tokens.

        Returns
        -------
        self : AttentionContextualizer
            Fitted.
        """
        settings = self._checked()
        last = copy(self) if settings.warm_start and hasattr(self, "_layers_") else None
        return self._fit(X, y, sample_weight, settings, last)

    def _fit(self, X, y, sample_weight, settings, last=None):
        """Read the sets, make the task, make the network, minimise, keep.

        `settings` are checked parameters; `last` is the fitted estimator to continue from. This
        estimator does not change before the fit has ended.
        """
        model, rng = unfitted(self), generator(settings.random_state)
        given = read_sets_in_context(model, X, reset=True)
        told = {  # for callbacks; a table keeps its names
            "X": X if not given.has_context and is_table(X) else given.as_data(),
            "y": y,
            "metadata": None if sample_weight is None else {"sample_weight": sample_weight},
        }
        kind = kind_of_task(self, y, settings)
        sets = ready(given, kind.mask(settings.mask), settings)
        scored = kind.scored(self, sets, y, sample_weight, given)
        scored.look_for_tokens()
        task, scored, n_outputs = kind.code(self, scored, settings)
        network = model._new_network(task, n_outputs, scored, settings)
        start = start_of_layers(network, model.n_features_in_, settings.init, rng, last)
        if network.head is None:
            as_task(self, lambda _: become(self, model._stored(task, start)), 0, told)
            return self
        seen = task.network(network)
        names = seen.attention.held + (() if task.learns_scores else seen.attention.of_scores)
        held = {name: start[name] for name in names}
        y = task.coded(scored.y, network.scalers[0])
        sets = scored.sampled(seen.attention.mask, settings.max_tokens, rng)
        objective = Objective(
            sets, y, scored.weight, seen, task.loss, settings.alpha, held, scored.rows
        )
        theta0 = objective.layout.pack(start | start_of_head(objective, task, rng, last))

        def fitted(model, result):
            return model._stored(task, start | objective.layout.unpack(result.theta), result)

        def run(part):
            listener = self._print_iteration if settings.verbose else None
            if part is not None:
                of_copy = functools.partial(fitted, copy(model))
                listener = Iterations(part, self, of_copy, tolerance(settings), told, listener)
            result = minimized(objective, theta0, listener, settings)
            if part is not None:
                listener.end()
            if np.isfinite(result.loss):  # else interrupted before there was any
                become(self, fitted(model, result))
            return result

        result = as_task(self, run, settings.max_iter, told)
        if result.reason == "interrupted":
            raise KeyboardInterrupt
        warn_unless_converged(type(self).__name__, result, settings)
        return self

    # What is read, and what is predicted

    def _checked(self):
        """The checked parameters, with numbers as Python numbers."""
        return checked(self)

    def _plain(self, y):
        """Targets of sets as a plain array, or None if there are none."""
        return None if y is None else plain(y)

    def _loss_for(self, y):
        """Name of the loss for the dtype of y; its values do not matter."""
        return "squared_error" if y.dtype.kind == "f" else "log_loss"

    # The network

    def _new_network(self, task, n_outputs, scored, settings):
        """The network to be fitted; its layers and scalers become fitted attributes."""
        attention = ATTENTIONS[settings.attention](
            n_heads=settings.n_heads,
            d_k=settings.d_k,
            d_v=settings.d_v,
            mask=task.mask(settings.mask),
            score_statistics=settings.score_statistics,
            scale=settings.scale,
            n_context_features=getattr(self, "n_context_features_in_", None),
        )
        named = isinstance(settings.pooling, str)
        self._layers_ = attention, POOLINGS[settings.pooling]() if named else settings.pooling
        self._standardized_ = settings.standardize
        for name, side in zip(("token", "context"), scored.sets.sides, strict=False):
            scaler = TokenScaler(np.zeros(side.n_features), np.ones(side.n_features))
            if settings.standardize:
                scaler = TokenScaler.of(side, scored.set_weight)
            setattr(self, f"{name}_mean_", scaler.mean)
            setattr(self, f"{name}_scale_", scaler.scale)
        head = LinearHead(n_outputs) if n_outputs else None
        return self._network(self._layers_[1] or MeanPooling(), head)

    def _network(self, pooling, head=None):
        """The fitted layers and scalers as one value."""
        scalers = [None, None]
        if self._standardized_:
            scalers[0] = TokenScaler(self.token_mean_, self.token_scale_)
            if hasattr(self, "context_mean_"):
                scalers[1] = TokenScaler(self.context_mean_, self.context_scale_)
        return Network(self._layers_[0], pooling, head, tuple(scalers))

    def _params(self):
        """Fitted parameters of attention and pooling by name."""
        shapes = self._layers_[0].shapes(self.n_features_in_)
        return {name: getattr(self, name + "_") for name in shapes} | self.pooling_params_

    def _head(self):
        """Parameters of the fitted head, in units of y."""
        return {"coef": self.coef_, "intercept": self.intercept_}

    def _stored(self, task, params, result=None):
        """Set the fitted attributes from parameters and task; return this estimator's state."""
        params = {name: np.array(array) for name, array in params.items()}
        self._task_ = task
        for name in self._layers_[0].shapes(self.n_features_in_):
            setattr(self, name + "_", params.pop(name))
        for name, value in task.fitted().items():
            setattr(self, name, value)
        if result is not None:
            head = task.in_units({name: params.pop(name) for name in ("coef", "intercept")})
            self.coef_, self.intercept_ = head["coef"], head["intercept"]
            self.loss_, self.loss_curve_ = result.loss, result.loss_curve
            self.n_iter_, self.converged_ = result.n_iter, result.converged
        self.pooling_params_ = params
        return vars(self)

    @property
    def _n_features_out(self):
        attention, pooling = self._layers_
        k = attention.n_features_out
        k = k if pooling is None else pooling.n_features_out(k)
        return k + self._task_.n_extra(pooling)

    def _print_iteration(self, n_iter, loss, grad_norm, theta):
        print(
            f"[{type(self).__name__}] iteration {n_iter:4d}   objective {loss:.6e}   "
            f"max |gradient| {grad_norm:.2e}"
        )

    # Applying

    def get_feature_names_out(self, input_features=None):
        """Names of the output columns: the lower-cased class name and a number.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Compared with `feature_names_in_` if that exists, else not used.

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
            Anything that :func:`skattn.as_ragged` reads, or sets with contexts as in `fit`. A
            single set is ``[tokens]`` or ``X[i : i + 1]``; a bare 2-D array is one token per
            sample.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out) or RaggedArray
            Float32 for float32 tokens, else float64. O(sum n_i^2) time.
        """
        if not hasattr(self, "_layers_"):
            check_is_fitted(self)  # raises, at some cost
        sets, pooling = self._read(X), self._layers_[1]
        out = self._outputs(sets, pooling)
        if pooling is None:
            return sets.queries.with_values(out)
        if self.empty == "nan":
            for side in sets.sides:
                out[side.lengths == 0] = np.nan
        return out

    def _read(self, X):
        """Sets ready for the layers that were fitted."""
        return ready(read_sets_in_context(self, X, reset=False), self._layers_[0].mask, self)

    def _outputs(self, sets, pooling, with_extra=True):
        """Output rows of sets that `_read` gave: one per set, or per token without pooling.

        An empty set gives zeros. With `with_extra` the columns that the task adds are included.
        """
        network, task, params = self._network(pooling), self._task_, self._params()
        extra = task.n_extra(pooling) if with_extra else 0
        if pooling is None:
            per, k = "rows", network.attention.n_features_out
        else:
            per, k = "sets", network.n_pooled

        def of_chunk(folded, chunk):
            if extra or pooling is None:
                out, _ = network.tokens(folded, chunk)
                if extra:
                    return task.with_errors(self._head(), out, chunk, pooling, params)
                return out.reshape(-1, k)
            return network.pool(folded, chunk)[0]

        return network.walk(sets, params, per, k + extra, of_chunk, self.n_jobs)

    def _pooled(self, sets):
        """The vectors that the head reads: pooled, or means with ``pooling=None``."""
        return self._outputs(sets, self._layers_[1] or MeanPooling(), with_extra=False)

    def contextualize(self, X):
        """Contextual vector of every token, with any pooling.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or sets with contexts as in `fit`. A
            single set is ``[tokens]`` or ``X[i : i + 1]``; a bare 2-D array is one token per
            sample.

        Returns
        -------
        RaggedArray
            One row per token, of ``n_heads * (d_v + 2)`` columns; ``n_heads * (d_v + 1)`` with a
            context, ``n_heads * d_v`` without score statistics. Tokens of weight 0 have no row.
            ``.to_frame()`` gives a frame indexed by set and token; its columns are not those of X.
        """
        check_is_fitted(self)
        sets = self._read(X)
        return sets.queries.with_values(self._outputs(sets, None, with_extra=False))

    def attention_weights(self, X):
        """Attention weights of every set, per head; `transform` is not affected.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or sets with contexts as in `fit`. A
            single set is ``[tokens]`` or ``X[i : i + 1]``; a bare 2-D array is one token per
            sample.

        Returns
        -------
        list of ndarray of shape (n_heads, n_i, n_i), or (n_heads, n_i, m_i) with contexts
            Row i of a set's weights is how much token i attends to each token. It sums to 1, or to
            0 if the mask allows no token.

        Raises
        ------
        ValueError
            If the weights of all sets together take more than 1 GiB.
        """
        check_is_fitted(self)
        return self._network(None).weights(self._read(X), self._params())

    def _is_ragged_out(self):
        return (self._layers_[1] if hasattr(self, "_layers_") else self.pooling) is None

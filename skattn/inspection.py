"""Inspect a fitted model of attention: where it looks, and what its decisions depend on.

The functions return arrays and frames; none of them plots or changes the model. Every function
takes an attention estimator, or a fitted pipeline or search that holds one. Importances of tokens
are in units of that estimator's own linear head. All numbers come from the model's own network, in
float64::

    S = Q K^T * scale + log w,  A = softmax(S),  Z = A V

Scores are computed for a limited number of query rows at a time, so long sets need no memory of
size n^2. Arrays of scores have the axes (b, n_heads, r, m): set, head, query, key. The keys are the
set's own tokens, m = n, or the tokens of its context.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy.special import entr, xlogy
from scipy.stats import rankdata
from sklearn.metrics import check_scoring
from sklearn.utils import Bunch, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from ._input import as_sets
from ._network import Chunk
from ._random import generator
from ._sets import Sets
from .containers import as_ragged
from .pooling import MeanPooling

__all__ = [
    "attention_diagnostics",
    "attention_frame",
    "head_similarity",
    "permutation_importance",
    "row_entropies",
    "token_importance",
]

BATCH_VALUES = 2**21  # token values of sets with one token left out, made at once
FRAME_LIMIT = 2**30  # bytes of a frame of weights
WORK_LIMIT = 1e12  # multiplications that leaving out every token may take
ROW_BYTES = 6 * 8  # of a frame of weights: four positions, a weight and a score

ONE_HOT = 0.95  # a row with a weight above this is near one-hot
UNIFORM = 0.99  # a row with a relative entropy above this is near uniform
MOST = 0.9  # share of rows above which a head is saturated, or uniform
ROUND_OFF = 1e-9  # of the logarithm of the number of tokens to choose from
METHODS = ("weights", "gradient", "leave_one_out")
KINDS = ("features", "within_sets", "sets")


# Finding the model, and its sets in blocks


def attention_step(estimator, X):
    """The fitted attention estimator in an estimator, and X as that estimator receives it."""
    if hasattr(estimator, "attention_weights"):
        check_is_fitted(estimator)
        return estimator, X
    if hasattr(estimator, "best_estimator_"):
        return attention_step(estimator.best_estimator_, X)
    steps = [step for _, step in getattr(estimator, "steps", ())]
    for k, step in enumerate(steps):
        if _holds_attention(step):
            for before in steps[:k]:
                X = X if before in (None, "passthrough") else before.transform(X)
            return attention_step(step, X)
    raise TypeError(
        f"{type(estimator).__name__} is not, and does not hold as a step, a fitted "
        "estimator with attention weights, for instance AttentionContextualizer or "
        "AttentionClassifier. Pass that step itself, with X as the step receives it."
    )


def _holds_attention(estimator):
    """Whether an estimator, or one inside a pipeline or search, has attention weights."""
    if hasattr(estimator, "best_estimator_"):
        return _holds_attention(estimator.best_estimator_)
    return hasattr(estimator, "attention_weights") or any(
        _holds_attention(step) for _, step in getattr(estimator, "steps", ())
    )


class _Tokens(NamedTuple):
    """Position of each token in its set and its label, (n_tokens,); labels None if not given."""

    position: np.ndarray
    labels: np.ndarray | None


class _Read(NamedTuple):
    """The model, its sets without tokens of weight 0, in float64, and their tokens."""

    model: object
    sets: Sets
    queries: _Tokens
    keys: _Tokens


def _read(estimator, X, token_labels=None, context_labels=None):
    """The sets that the model reads from X, with the positions and labels that X has."""
    model, X = attention_step(estimator, X)
    whole = Sets.of(as_sets(X, model))
    queries = keys = _tokens(whole.queries, token_labels, "token_labels")
    if whole.has_context:
        keys = _tokens(whole.keys, context_labels, "context_labels")
    elif context_labels is not None:
        raise ValueError(
            "context_labels are for the tokens of a context, but X has no context: give "
            "token_labels alone."
        )
    sets = model._read(X).map(lambda side: side.astype(np.float64))
    return _Read(model, sets, queries, keys)


def _tokens(whole, labels, name):
    """Positions and labels of the tokens of weight above 0."""
    labels = None if labels is None else _flat_labels(labels, whole.lengths, name)
    position = np.arange(whole.n_tokens) - whole.repeat(whole.offsets[:-1])
    if whole.weights is not None:
        kept = whole.weights > 0
        position, labels = position[kept], None if labels is None else labels[kept]
    return _Tokens(position, labels)


def _flat_labels(token_labels, lengths, name):
    """One label per token, object array (n_tokens,), from a sequence of labels per set."""
    given = [len(labels) for labels in token_labels]
    if given != lengths.tolist():
        wrong = next((i for i, (a, b) in enumerate(zip(given, lengths, strict=False)) if a != b), 0)
        raise ValueError(
            f"{name} has labels for {len(given)} sets, but there are {len(lengths)}."
            if len(given) != len(lengths)
            else f"Set {wrong} has {lengths[wrong]} tokens, but {name} has {given[wrong]} "
            "labels for it: give a sequence of one label per token for each set."
        )
    flat = np.empty(int(lengths.sum()), dtype=object)
    flat[:] = [label for labels in token_labels for label in labels]
    return flat


class _Block(NamedTuple):
    """A chunk of the network that has tokens and keys, with positions as arrays.

    sets (b,) and rows (b, n) are positions of sets and of their tokens; weights (b, n) is how often
    each query counts, copies (b, m) how often each key counts in attention.
    """

    chunk: Chunk
    sets: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    copies: np.ndarray


def _blocks(network, sets):
    """Blocks of the sets that have tokens and keys."""
    for chunk in network.chunks(sets):
        (b, n, _), m = chunk.block.X.shape, chunk.block.C.shape[1]
        if n and m:
            weights, copies = (
                np.ones(shape) if array is None else array
                for array, shape in ((chunk.weights, (b, n)), (chunk.block.weights, (b, m)))
            )
            rows = np.r_[chunk.rows].reshape(b, n)
            yield _Block(chunk, np.r_[chunk.sets], rows, weights, copies)


def _attended(model, sets):
    """Scores and weights of all sets, some query rows of a block at a time.

    Yields a block, a slice of r of its query rows, their scores S (b, n_heads, r, m), -inf where
    masked, and their weights A: rows sum to 1, or to 0 for a query that may attend to nothing.
    """
    network = model._network(None)
    folded = network.fold(model._params(), sets.dtype)
    for block in _blocks(network, sets):
        for rows, S, A in network.attention.scores_and_weights(folded.attention, block.chunk.block):
            yield block, rows, S, A


# The weights themselves


def attention_frame(estimator, X, *, token_labels=None, context_labels=None, heads=None, sets=None):
    """Attention weights and scores as a tidy frame, a row for each pair of tokens and head.

    Parameters
    ----------
    estimator : estimator
        A fitted attention estimator, or a pipeline or search that holds one.
    X : container of n_samples sets
        Anything that the estimator reads. A single set is ``[tokens]`` or ``X[i : i + 1]``.
    token_labels : sequence of n_samples sequences, default=None
        A label for each token of each set.
    context_labels : sequence of n_samples sequences, default=None
        A label for each token of each context, if X has contexts: the labels of the keys.
    heads : array-like of int, default=None
        Heads to include; None is all.
    sets : array-like of int, default=None
        Positions of the sets to include; None is all.

    Returns
    -------
    pandas.DataFrame
        ``set``, ``head``, ``query`` and ``key`` are positions, counted from 0; if X has contexts, a
        key's position is in its context. ``query_label`` and ``key_label`` are there if labels are
        given. ``score`` is the scaled score plus the logarithm of the key's token weight, and -inf
        where the mask forbids the pair. ``weight`` is how much the query attends to the key: the
        softmax of ``score`` over the query's keys. Empty sets and tokens of weight 0 have no rows.

    Raises
    ------
    ValueError
        If the frame would take more than 1 GiB, or the labels do not fit the tokens.

    Examples
    --------
    >>> from skattn import AttentionContextualizer
    >>> from skattn.inspection import attention_frame
    >>> X = [[[1, 0.5], [0.8, 0.6], [-0.5, 1]]]
    >>> model = AttentionContextualizer(
    ...     n_heads=1, d_k=2, init="identity", standardize=False, max_iter=0
    ... ).fit(X)
    >>> frame = attention_frame(model, X, token_labels=[["cat", "dog", "phone"]])
    >>> frame.loc[frame["query"] == 0, ["key_label", "weight", "score"]].round(3)
      key_label  weight  score
    0       cat   0.432  0.884
    1       dog   0.389  0.778
    2     phone   0.179  0.000
    """
    import pandas as pd

    model, X, queries, keys = _read(estimator, X, token_labels, context_labels)
    H = model._layers_[0].n_heads
    heads = np.arange(H) if heads is None else np.atleast_1d(np.arange(H)[heads])
    sets = np.arange(len(X)) if sets is None else np.atleast_1d(np.arange(len(X))[sets])
    n_starts, m_starts = (  # of the chosen sets' tokens, among those of all
        side.offsets[:-1][sets] for side in (X.queries, X.keys)
    )
    X = X.take(sets)
    n, m = X.queries.lengths, X.keys.lengths
    sizes = len(heads) * n * m
    if ROW_BYTES * sizes.sum() > FRAME_LIMIT:
        raise ValueError(
            f"The frame of these {len(X)} sets, the longest of {n.max()} tokens, with "
            f"{len(heads)} heads would have {sizes.sum()} rows and take "
            f"{ROW_BYTES * sizes.sum() / 1e9:.1f} GB, more than the {FRAME_LIMIT / 1e9:.1f} GB "
            "that are made at once. Choose fewer sets or heads, or use attention_diagnostics, "
            "which does not keep the weights."
        )
    first = np.concatenate([[0], np.cumsum(sizes)])  # row of the frame at which each set begins
    weight, score = np.empty(first[-1]), np.empty(first[-1])
    for block, rows, S, A in _attended(model, X):
        shape = len(heads), block.rows.shape[1], A.shape[-1]
        for i, S_i, A_i in zip(block.sets, S, A, strict=True):
            of_set = slice(first[i], first[i + 1])
            weight[of_set].reshape(shape)[:, rows] = A_i[heads]
            score[of_set].reshape(shape)[:, rows] = S_i[heads]
    n, m = np.repeat(n, sizes), np.repeat(m, sizes)
    head, pair = np.divmod(np.arange(first[-1]) - np.repeat(first[:-1], sizes), n * m)
    query, key = np.divmod(pair, m)
    columns = {"set": np.repeat(sets, sizes), "head": heads[head]}
    for name, start, place, tokens in (
        ("query", n_starts, query, queries),
        ("key", m_starts, key, keys),
    ):
        token = np.repeat(start, sizes) + place
        columns[name] = tokens.position[token]
        if tokens.labels is not None:
            columns[f"{name}_label"] = tokens.labels[token]
    return pd.DataFrame(columns | {"weight": weight, "score": score})


# How healthy the heads are


def attention_diagnostics(estimator, X):
    """How sharp each head's attention is, and whether it has saturated or gone flat.

    A row holds the weights of one query. Only rows with a choice count: rows of queries that may
    attend to at least two tokens. If there are none, for instance in sets of one token, all rows
    count.

    Parameters
    ----------
    estimator : estimator
        A fitted attention estimator, or a pipeline or search that holds one.
    X : container of n_samples sets
        Anything that the estimator reads.

    Returns
    -------
    pandas.DataFrame of n_heads rows
        ``n_rows`` is the number of rows with a choice. Seven columns are means over rows:
        ``score_spread``, the standard deviation of a row's scaled scores; ``entropy``, relative to
        that of equal weights, from 0 to 1; ``effective_tokens``, the exponential of the entropy;
        ``share_one_hot``, the share of rows with a weight above 0.95; ``share_uniform``, the share
        of rows with a relative entropy above 0.99; ``self_weight``, NaN if X has contexts; and
        ``jacobian_norm``, the Frobenius norm of ``diag(p) - p p^T``, through which gradients reach
        the scores: at most 1/2, and 0 for a one-hot row. ``verdict`` is ``"saturated"`` if nine
        rows in ten are near one-hot, ``"uniform"`` if nine in ten have nearly equal weights,
        ``"no choice"`` if no row has a choice, else ``"healthy"``. ``advice`` explains the verdict
        and what to change.

    Notes
    -----
    A token of weight w counts w times, as query and as key. O(sum n_i m_i) time, and the memory of
    one chunk of scores.

    Examples
    --------
    >>> from skattn import AttentionContextualizer
    >>> from skattn.datasets import make_lookup
    >>> from skattn.inspection import attention_diagnostics
    >>> X, y = make_lookup(300, random_state=0)
    >>> model = AttentionContextualizer(n_heads=1, alpha=1.0, random_state=0).fit(X, y)
    >>> attention_diagnostics(model, X)["verdict"].tolist()  # alpha is far too strong
    ['uniform']
    """
    import pandas as pd

    model, X, _, _ = _read(estimator, X)
    sums, counts = 0.0, np.zeros(2)  # over all rows, and over those with a choice
    for _, query_weights, has_choice, measures in _measured(model, X):
        rows = np.stack([query_weights, query_weights * has_choice])  # (2, b, r)
        sums = sums + np.einsum("mbhr,kbr->kmh", np.stack(list(measures.values())), rows)
        counts += rows.sum(axis=(1, 2))
    which = 1 if counts[1] > 0 else 0
    H = model._layers_[0].n_heads
    mean = sums[which] / counts[which] if counts[which] > 0 else np.zeros((len(MEASURES), H))
    frame = pd.DataFrame(
        dict(zip(MEASURES, mean, strict=True)), index=pd.RangeIndex(H, name="head")
    )
    frame.insert(0, "n_rows", counts[1])
    uniform = _meaning_of_uniform(model, X.has_context)
    judged = [_verdict(row, uniform) for row in frame.itertuples()]
    frame["verdict"] = [verdict for verdict, _ in judged]
    frame["advice"] = [advice for _, advice in judged]
    return frame


def row_entropies(estimator, X, *, no_choice=0.0):
    """Entropy of what each token attends to, relative to that of equal weights, per head.

    Parameters
    ----------
    estimator : estimator
        A fitted attention estimator, or a pipeline or search that holds one.
    X : container of n_samples sets
        Anything that the estimator reads.
    no_choice : float, default=0.0
        Value for a token that may attend to only one token, or to none.

    Returns
    -------
    RaggedArray
        A row of n_heads numbers for each token, from 0 (one-hot) to 1 (equal weights). Tokens of
        weight 0 have no rows. O(sum n_i^2) time, and the memory of one chunk of scores.

    Examples
    --------
    >>> from skattn import AttentionContextualizer
    >>> from skattn.inspection import row_entropies
    >>> X = [[[1.0], [1.0]], [[2.0]]]
    >>> model = AttentionContextualizer(n_heads=1, max_iter=0).fit(X)
    >>> row_entropies(model, X).to_list()
    [array([[1.],
           [1.]]), array([[0.]])]
    """
    model, X, _, _ = _read(estimator, X)
    out = np.full((X.queries.n_tokens, model._layers_[0].n_heads), float(no_choice))
    for tokens, _, has_choice, measures in _measured(model, X):
        entropy = measures["entropy"].swapaxes(1, 2)  # (b, r, H)
        out[tokens] = np.where(has_choice[..., None], entropy, no_choice)
    return X.queries.with_values(out)


MEASURES = (
    "score_spread",
    "entropy",
    "effective_tokens",
    "share_one_hot",
    "share_uniform",
    "self_weight",
    "jacobian_norm",
)


def _measured(model, X):
    """MEASURES of the rows of attention, some rows at a time.

    Yields the positions of the query tokens in X (b, r), their token weights (b, r), whether they
    may attend to more than one token (b, r), and a dict of measures (b, n_heads, r).

    If a key stands for w copies, each copy has the weight p = a / w, and sums run over the copies:
    sum p^k = sum_j a_j p_j^(k - 1).
    """
    for block, rows, S, A in _attended(model, X):
        w = block.copies[:, None, None, :]
        share = np.isfinite(S) * w
        count = share.sum(axis=-1)  # (b, H, r) how many tokens the query may attend to
        share /= np.maximum(count, 1e-300)[..., None]
        scores = np.where(np.isfinite(S), S - np.log(w), 0)
        spread = scores - np.sum(share * scores, axis=-1, keepdims=True)
        p = A / w
        entropy = np.sum(entr(A) + xlogy(A, w), axis=-1)  # -sum a log p
        square, cube = np.sum(A * p, axis=-1), np.sum(A * p**2, axis=-1)
        log_count = np.log(np.maximum(count, 1))
        relative = np.divide(
            entropy, log_count, out=np.zeros_like(entropy), where=log_count > ROUND_OFF
        ).clip(0, 1)
        self_weight = np.full(entropy.shape, np.nan)
        if not X.has_context:
            self_weight = np.diagonal(p[..., rows], axis1=2, axis2=3)
        measures = (
            np.sqrt(np.sum(share * spread**2, axis=-1)),
            relative,
            np.exp(entropy),
            p.max(axis=-1) > ONE_HOT,
            relative > UNIFORM,
            self_weight,
            np.sqrt(np.maximum(square - 2 * cube + square**2, 0)),
        )
        has_choice = log_count[:, 0] > ROUND_OFF
        named = dict(zip(MEASURES, measures, strict=True))
        yield block.rows[:, rows], block.weights[:, rows], has_choice, named


def _meaning_of_uniform(model, has_context):
    """A sentence or two on what the model computes if every row gives equal weights."""
    (attention, pooling), mask = model._layers_, model._layers_[0].mask
    per_token = model._task_.per_token
    which = mask.attends_to.replace("{whole}", "context" if has_context else "set")
    meaning = f"Each token's output is then the mean of {which}"
    linear = per_token or pooling is None or hasattr(pooling, "token_weights")
    tokens_alike = mask.sees_all and getattr(pooling, "keeps_equal_tokens", False)
    if not hasattr(model, "coef_") or not (linear or tokens_alike):
        return f"{meaning}."
    meaning += ": if all heads are uniform, this is a linear model on "
    meaning += "these means" if per_token else "pooled tokens"
    n_values = attention.n_heads * attention.d_v
    if attention.score_statistics and model.coef_.shape[1] > n_values:  # the head reads them
        meaning += " and on score statistics, near log n plus the mean score of n tokens"
        sees_itself = mask.sees_all or np.all(mask.allowed(np.array([[0]]), np.array([0])))
        meaning += ", and 1 / n" if sees_itself and not has_context else ""
    return f"{meaning}."


def _verdict(row, uniform):
    """Verdict and advice on a head; `uniform` describes what a uniform head computes."""
    if not row.n_rows:
        return "no choice", (
            "No query may attend to more than one token, so attention passes tokens on as they are."
        )
    if row.share_one_hot > MOST:
        what = "their own token" if row.self_weight > MOST else "a single token"
        return "saturated", (
            f"Nearly all rows attend to {what} alone, so hardly any gradient reaches the scores. "
            "That is right if the task is to recognise or count equal tokens. If the model does "
            "badly, choose a larger alpha, a smaller scale, or init='glorot', which starts smaller."
        )
    if row.share_uniform > MOST:
        return "uniform", (
            "Nearly all rows give all tokens equal weight: scores spread by "
            f"{row.score_spread:.2g} only. {uniform} One uniform head among others does no harm. "
            "If all heads are uniform, alpha may be too strong and W_Q W_K^T near 0: choose a "
            "smaller alpha, for instance with AttentionContextualizerCV, or a larger scale."
        )
    return "healthy", "Nothing to change."


def head_similarity(estimator, X):
    """How similar the heads are: 1 minus the mean Jensen-Shannon distance between their rows.

    Parameters
    ----------
    estimator : estimator
        A fitted attention estimator, or a pipeline or search that holds one.
    X : container of n_samples sets
        Anything that the estimator reads.

    Returns
    -------
    ndarray of shape (n_heads, n_heads)
        Symmetric. 1 if two heads give every pair of tokens the same weight, 0 if no query attends
        to the same token with both heads. NaN if no query may attend to more than one token.

    Notes
    -----
    The distance is the square root of the divergence to base 2, between 0 and 1; a query counts
    by its token weight. Clark et al. compared the heads of BERT by that divergence. O(n_heads^2
    sum n_i^2) time, and the memory of one chunk of scores.

    References
    ----------
    .. [1] Clark et al., "What does BERT look at? An analysis of BERT's attention", 2019, section 6.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import AttentionContextualizer
    >>> from skattn.inspection import head_similarity
    >>> W = np.array([[1.0, 1.0, 0.0]])  # three heads; the last has scores of 0
    >>> model = AttentionContextualizer(
    ...     n_heads=3, d_k=1, d_v=1, init={"W_Q": W, "W_K": W}, max_iter=0
    ... ).fit([[[1.0], [2.0]]])
    >>> head_similarity(model, [[[1.0], [2.0]]]).round(2)
    array([[1.  , 1.  , 0.64],
           [1.  , 1.  , 0.64],
           [0.64, 0.64, 1.  ]])
    """
    model, X, _, _ = _read(estimator, X)
    H = model._layers_[0].n_heads
    distance, total = np.zeros((H, H)), 0.0
    for block, rows, S, A in _attended(model, X):
        count = np.sum(np.isfinite(S[:, 0]) * block.copies[:, None], axis=-1)  # (b, r)
        w = block.weights[:, rows] * (np.log(np.maximum(count, 1)) > ROUND_OFF)
        total += w.sum()
        entropy = entr(A).sum(axis=-1)  # (b, H, r); copies of a key make no difference
        for g, h in itertools.combinations(range(H), 2):
            middle = entr((A[:, g] + A[:, h]) / 2).sum(axis=-1)
            divergence = (middle - (entropy[:, g] + entropy[:, h]) / 2) / math.log(2)
            distance[g, h] += np.sum(w * np.sqrt(np.maximum(divergence, 0)))
    if total == 0:
        return np.full((H, H), np.nan)
    return 1 - (distance + distance.T) / total


# What the decision depends on


def token_importance(estimator, X, *, method="weights", target=None, token_labels=None):
    """How much each token of each set matters for the decision, by up to three methods.

    The decision on a set is the raw prediction of the estimator's linear head,
    ``pooled @ coef_.T + intercept_``: log-odds for two classes. Transformers learn this head too.
    With ``pooling=None`` the head reads the mean of a set's tokens.

    Parameters
    ----------
    estimator : estimator
        A fitted attention estimator, or a pipeline or search that holds one.
    X : container of n_samples sets
        Anything that the estimator reads. A single set is ``[tokens]`` or ``X[i : i + 1]``.
    method : {"weights", "gradient", "leave_one_out", "all"} or list, default="weights"
        ``"weights"``: the attention that a token receives from all tokens, each weighted as in the
        pooling, averaged over heads. It shows where the model looks, not why, and needs no head.
        ``"gradient"``: the gradient of the decision times the token minus the training mean (times
        the token without `standardize`). ``"leave_one_out"``: how much the decision falls if the
        token is removed from the set.
    target : label or int, default=None
        The class, one of ``classes_``, or the number of a regression's output whose decision is
        explained. None is the second of two classes, the predicted class of each set if there are
        more, and the only output of a regression.
    token_labels : sequence of n_samples sequences, default=None
        A label for each token of each set.

    Returns
    -------
    Bunch
        ``frame`` is a pandas frame with the columns ``set``, ``token`` (its position), ``label`` if
        labels are given, and one per method. ``importances`` has the same numbers as a RaggedArray
        with one column for each of ``methods``. ``agreement`` is a frame of Spearman correlations
        between methods within a set, averaged over the sets of two tokens or more in which neither
        method is constant. ``decision`` (n_samples,) holds the explained decisions and ``target``
        (n_samples,) their classes or outputs; both are None for ``"weights"`` alone. Tokens of
        weight 0 have no rows; a token of weight w stands for its w copies together.

    Raises
    ------
    ValueError
        If a method needs a head and the model was fitted without y; if `target` does not exist; or
        if leaving out every token would take more than 1e12 multiplications.

    Notes
    -----
    If the pooling is not a weighted mean, ``"weights"`` uses these weights of tokens: with
    ``"max"`` the share of a head's columns in which the token is largest, with ``"stats"`` the
    weights of the mean. A pooling of your own needs `token_shares` or `token_weights` for it.
    ``"weights"`` and ``"gradient"`` take O(sum n_i^2) time and the memory of one chunk;
    ``"leave_one_out"`` takes O(sum n_i^3) time.

    References
    ----------
    .. [1] Jain and Wallace, "Attention is not explanation", 2019: attention weights and these two
       others often disagree.

    Examples
    --------
    >>> from skattn import AttentionClassifier
    >>> from skattn.datasets import load_digit_bags
    >>> from skattn.inspection import token_importance
    >>> X, y, X_test, y_test, _, digits = load_digit_bags(
    ...     n_train=300, return_token_labels=True, random_state=0
    ... )
    >>> model = AttentionClassifier(pooling="max", alpha=1e-2, tol=1e-2, random_state=0).fit(X, y)
    >>> bag = int(model.decision_function(X_test).argmax())  # most certain to hold a nine
    >>> found = token_importance(
    ...     model, X_test[bag : bag + 1], method="leave_one_out", token_labels=digits[bag : bag + 1]
    ... ).frame
    >>> int(found.loc[found["leave_one_out"].idxmax(), "label"])
    9
    """
    import pandas as pd

    methods = _methods(method)
    model, sets, (position, labels), _ = _read(estimator, X, token_labels)
    if sets.has_context:
        raise TypeError(
            "X has contexts, and a decision depends on pairs of tokens from both sides: a single "
            "token has no importance of its own. Look at attention_frame, or leave out tokens "
            "yourself and compare decision_function."
        )
    X = sets.queries
    columns = {name: np.zeros(X.n_tokens) for name in methods}
    coef = decision = chosen = None
    if "leave_one_out" in methods:
        _refuse_too_much(model, X)
    if methods != ["weights"]:
        coef, intercept, chosen = _decision_on(model, sets, target)  # (n_samples, k), (n_samples,)
        decision = np.einsum("ik,ik->i", model._pooled(sets), coef) + intercept
    if "leave_one_out" in methods:
        columns["leave_one_out"] = X.repeat(decision) - _left_out(model, X, coef, intercept)
    if "gradient" in methods:
        network = model._network(model._layers_[1] or MeanPooling())
        folded = network.fold(model._params(), np.float64)
        for block in _blocks(network, sets):
            d_X = network.token_gradient(folded, block.chunk, coef[block.sets])
            columns["gradient"][block.rows] = np.sum(d_X * block.chunk.block.X, axis=-1)
    if "weights" in methods:
        columns["weights"] = _received(model, sets)
    frame = {"set": X.repeat(np.arange(len(X))), "token": position}
    if labels is not None:
        frame["label"] = labels
    importances = X.with_values(np.column_stack(list(columns.values())))
    return Bunch(
        frame=pd.DataFrame(frame | columns),
        importances=importances,
        methods=methods,
        agreement=pd.DataFrame(_agreement(importances), index=methods, columns=methods),
        decision=decision,
        target=chosen,
    )


def _methods(method):
    """Names of the requested methods of importance."""
    asked = list(METHODS) if method == "all" else [method] if isinstance(method, str) else method
    if not asked or not set(asked) <= set(METHODS):
        raise ValueError(f"method must be among {[*METHODS, 'all']}, but is {method!r}.")
    return [name for name in METHODS if name in asked]


def _decision_on(model, X, target):
    """Weights (n_samples, k) and bias (n_samples,) of the decision on each set, and its target."""
    if not hasattr(model, "coef_"):
        raise ValueError(
            f"This {type(model).__name__} was fitted without y and has no linear head to decide "
            "with: fit it with targets, or choose method='weights'."
        )
    coef, intercept = model.coef_, model.intercept_
    if coef.shape[1] != model._n_features_out:
        raise ValueError(
            f"The head of this {type(model).__name__} reads {coef.shape[1]} columns, but a set's "
            f"output has {model._n_features_out}: it does not predict a target of the set, for "
            "instance because it learned from tokens alone. Choose method='weights'."
        )
    names = getattr(model, "classes_", np.arange(len(coef)))
    if len(names) == 2 and len(coef) == 1:  # log-odds of the second class
        coef, intercept = np.vstack([-coef, coef]), np.hstack([-intercept, intercept])
    if target is not None:
        matches = [k for k, name in enumerate(names.tolist()) if name == target]
        if len(matches) != 1:
            raise ValueError(f"target must be None or one of {names.tolist()}, but is {target!r}.")
        which = np.full(len(X), matches[0])
    elif hasattr(model, "classes_") and len(names) > 2:
        which = np.argmax(model._pooled(X) @ coef.T + intercept, axis=1)
    elif hasattr(model, "classes_") or len(names) == 1:
        which = np.full(len(X), len(names) - 1)
    else:
        raise ValueError(
            f"The model has {len(names)} outputs: choose one by target, 0 to {len(names) - 1}."
        )
    return coef[which], intercept[which], names[which]


def _refuse_too_much(model, X):
    """Raise if leaving out every token of these sets would take too long."""
    attention = model._layers_[0]
    lengths = X.lengths.astype(np.float64)
    work = np.sum(lengths**3) * attention.n_heads * (attention.d_k + attention.d_v)
    if work > WORK_LIMIT:
        raise ValueError(
            f"Leaving out every token of these {len(X)} sets, the longest of {X.lengths.max()} "
            f"tokens, takes {work:.1e} multiplications, more than {WORK_LIMIT:.0e}. Give fewer "
            "or shorter sets, or choose method='gradient'."
        )


def _left_out(model, X, coef, intercept):
    """Decision on each token's set without that token, (n_tokens,)."""
    sets = X.repeat(np.arange(len(X)))  # of each token
    position = np.arange(X.n_tokens) - X.offsets[sets]
    size = np.cumsum(X.lengths[sets] * X.n_features) // BATCH_VALUES
    cuts = [0, *(np.flatnonzero(np.diff(size)) + 1), X.n_tokens]
    out = np.empty(X.n_tokens)
    for a, b in itertools.pairwise(cuts):
        copies = X.take(sets[a:b])
        keep = np.ones(copies.n_tokens, dtype=bool)
        keep[copies.offsets[:-1] + position[a:b]] = False
        pooled = model._pooled(Sets.of(copies._keep(keep)))
        out[a:b] = np.einsum("ik,ik->i", pooled, coef[sets[a:b]]) + intercept[sets[a:b]]
    return out


def _received(model, sets):
    """Attention that each token receives in the pooled output, (n_tokens,), mean over heads."""
    attention, pooling = model._layers_
    pooling = pooling or MeanPooling()
    if not hasattr(pooling, "token_shares") and not hasattr(pooling, "token_weights"):
        raise ValueError(
            f"method='weights' needs each token's share of the pooled output, but "
            f"{type(pooling).__name__} has no token_shares(params, tokens). Choose "
            "method='gradient' or 'leave_one_out'."
        )
    H, d_v = attention.n_heads, attention.d_v
    outputs = sets.queries.with_values(model._outputs(sets, None, with_extra=False))
    if hasattr(pooling, "token_shares"):
        shares = pooling.token_shares(model.pooling_params_, outputs)  # (n_tokens, 1 or k)
    else:
        shares = pooling.token_weights(outputs)[:, None]
    if shares.shape[1] > 1:
        shares = shares[:, : H * d_v].reshape(-1, H, d_v).mean(axis=-1)
    shares = np.broadcast_to(shares, (len(shares), H))
    received = np.zeros(len(shares))
    for block, rows, _, A in _attended(model, sets):
        of_rows = shares[block.rows[:, rows]]  # (b, r, H)
        received[block.rows] += np.einsum("brh,bhrn->bn", of_rows, A, optimize=True)
    return received / H


def _agreement(importances):
    """Mean over sets of the Spearman correlation between columns, (n_methods, n_methods)."""
    k = importances.n_features
    sums, counts = np.zeros((k, k)), np.zeros((k, k))
    for values in importances:
        if len(values) < 2:
            continue
        ranks = rankdata(values, axis=0)
        ranks -= ranks.mean(axis=0)
        norm = np.linalg.norm(ranks, axis=0)
        varies = np.outer(norm > 0, norm > 0)
        sums += np.divide(ranks.T @ ranks, np.outer(norm, norm), out=np.zeros((k, k)), where=varies)
        counts += varies
    return np.divide(sums, counts, out=np.full((k, k), np.nan), where=counts > 0)


def permutation_importance(
    estimator,
    X,
    y,
    *,
    scoring=None,
    n_repeats=5,
    random_state=None,
    kind="features",
    sample_weight=None,
):
    """How much the score falls when a token feature is shuffled: scikit-learn's, for sets.

    ``sklearn.inspection.permutation_importance`` turns X into a table and refuses ragged sets.

    Parameters
    ----------
    estimator : estimator
        Any fitted estimator that predicts from sets, for instance a pipeline.
    X : container of n_samples sets
        Anything that :func:`skattn.as_ragged` reads; the estimator gets a RaggedArray.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        The targets.
    scoring : str or callable, default=None
        The score; None is the estimator's own `score`.
    n_repeats : int, default=5
        How often each feature is shuffled.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the shuffles.
    kind : {"features", "within_sets", "sets"}, default="features"
        ``"features"`` shuffles one feature over all tokens of all sets, so that it carries no
        information. ``"within_sets"`` shuffles it among the tokens of each set: the set keeps its
        values, but not which token has which. That measures how the feature interacts with others.
        ``"sets"`` shuffles whole sets against y: one row, for everything that the model uses.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the sets in the score.

    Returns
    -------
    Bunch
        ``importances`` (n_features, n_repeats), ``importances_mean`` and ``importances_std``
        (n_features,), as scikit-learn's, with one row for ``"sets"``; and ``baseline_score``.

    Raises
    ------
    TypeError, ValueError
        If the estimator does not predict and `scoring` is None, or `kind` is not one of these.

    References
    ----------
    .. [1] Breiman, "Random forests", 2001.

    Examples
    --------
    >>> from skattn import AttentionClassifier
    >>> from skattn.datasets import make_lookup
    >>> from skattn.inspection import permutation_importance
    >>> X, y = make_lookup(500, random_state=0)
    >>> model = AttentionClassifier(n_heads=1, tol=1e-3, random_state=0).fit(X, y)
    >>> result = permutation_importance(model, X, y, kind="within_sets", random_state=0)
    >>> int(result.importances_mean.argmax())  # which item holds which value
    6
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {list(KINDS)}, but is {kind!r}.")
    if not isinstance(n_repeats, (int, np.integer)) or n_repeats < 1:
        raise ValueError(f"n_repeats must be an integer of 1 or more, but is {n_repeats!r}.")
    X = as_ragged(X, estimator=estimator)
    check_consistent_length(X, y, sample_weight)
    scorer = check_scoring(estimator, scoring=scoring)
    weighted = {} if sample_weight is None else {"sample_weight": sample_weight}
    rng = generator(random_state)

    def score(shuffled):
        return scorer(estimator, shuffled, y, **weighted)

    baseline = score(X)
    importances = np.empty((1 if kind == "sets" else X.n_features, n_repeats))
    values = X.values.copy()
    of_token = X.repeat(np.arange(len(X)))
    for j, repeat in np.ndindex(importances.shape):
        if kind == "sets":
            importances[j, repeat] = baseline - score(X.take(rng.permutation(len(X))))
            continue
        order = rng.permutation(X.n_tokens)
        if kind == "within_sets":
            order = order[np.argsort(of_token[order], kind="stable")]
        values[:, j] = X.values[order, j]
        importances[j, repeat] = baseline - score(X.with_values(values))
        values[:, j] = X.values[:, j]
    return Bunch(
        importances=importances,
        importances_mean=importances.mean(axis=1),
        importances_std=importances.std(axis=1),
        baseline_score=baseline,
    )

"""Pictures of what a model looks at, in scikit-learn's Display convention.

A class method makes a display from an estimator or from plain arrays and draws it. The display
keeps what it drew, and ``plot`` draws it again. Matplotlib is imported when something is drawn.
The colours do not depend on telling red from green, and text takes its colour from the style.
Heads are counted from 0.

`token_labels` gives one label per token: a sequence of labels for each set of X, as in
:mod:`skattn.inspection`, or the labels of the drawn set alone.
"""

import math

import numpy as np

from ._input import as_sets
from ._optional import import_optional
from ._sets import Sets
from .inspection import (
    attention_diagnostics,
    attention_step,
    row_entropies,
    token_importance,
)

__all__ = [
    "AttentionDisplay",
    "LossCurveDisplay",
    "SaturationDisplay",
    "TokenImportanceDisplay",
]

POSITIVE, NEGATIVE = "#8073ac", "#e08214"  # the purple and orange of the colour map PuOr
LINES = ("-", "--", "-.", ":")
LABEL_INCHES = 0.16  # distance of two labels that do not touch
CELL_INCHES = 0.36  # width of a cell that can hold a number
LONGEST_LABEL = 24  # characters; longer labels are cut
FLAT = 4  # colours reach at least this multiple of an equal weight, so that a flat head looks flat
METHOD_NAMES = {  # words for a colour bar or an axis
    "weights": "attention received",
    "gradient": "gradient x token",
    "leave_one_out": "fall when left out",
}


def _pyplot():
    return import_optional("matplotlib.pyplot", "plot")


def _one_set(estimator, X, index, token_labels):
    """The model, the set at `index` as a collection of one set, and a label for each of its tokens.

    Tokens of weight 0 are left out, as in the model.
    """
    model, X = attention_step(estimator, X)
    X = as_sets(X, model)
    one = _taken(X, index)
    token_labels = _of_set(token_labels, Sets.of(X).queries.lengths, index)
    labels = _labels_left(Sets.of(one).queries, token_labels, "token_labels", f"set {index}")
    return model, one.drop_zero_weights(), labels


def _taken(X, index):
    """The sample at an index as a collection of one."""
    if not -len(X) <= index < len(X):
        raise IndexError(f"Set {index} is out of range: there are {len(X)} sets.")
    return X.take([index % len(X)])


def _of_set(labels, lengths, index):
    """The labels of the set at an index, out of the labels of all sets or of this one alone."""
    if labels is None or len(labels) != len(lengths):
        return labels
    of_all = all(
        not isinstance(of_one, str) and np.ndim(of_one) == 1 and len(of_one) == n
        for of_one, n in zip(labels, lengths, strict=True)
    )
    return list(labels)[index] if of_all else labels


def _labels_left(one, given, name, what):
    """A label for each token of positive weight: the given ones, else the tokens' positions."""
    labels = np.arange(one.n_tokens)
    if given is not None:
        labels = np.empty(len(given), dtype=object)
        labels[:] = list(given)
        _check_labels(name, labels, one.n_tokens, what)
    return labels if one.weights is None else labels[one.weights > 0]


def _check_labels(name, labels, n, what):
    if len(labels) != n:
        raise ValueError(
            f"{name} has {len(labels)} labels, but {what} has {n} tokens: give one label per token."
        )


def _text(label):
    """A label as it is drawn: long text is cut, and a dollar sign stays a dollar sign."""
    text = str(label)
    if len(text) > LONGEST_LABEL:
        text = text[: LONGEST_LABEL - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return text.replace("$", r"\$")


def _readable_on(rgba):
    """Black or white, whichever has more contrast with a colour, by relative luminance."""
    rgb = np.asarray(rgba[:3])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return "black" if linear @ [0.2126, 0.7152, 0.0722] > 0.179 else "white"


def _inches(ax):
    """Width and height of axes."""
    box = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())
    return box.width, box.height


class AttentionDisplay:
    """Heatmaps of attention weights: a row for each query, a column for each key.

    Made by `from_estimator` or `from_weights`.

    Parameters
    ----------
    weights : ndarray of shape (n_heads, n_queries, n_keys)
        Attention weights, one matrix per picture.
    query_labels : array-like of shape (n_queries,), default=None
        Labels of the rows; None shows their numbers.
    key_labels : array-like of shape (n_keys,), default=None
        Labels of the columns; None shows their numbers.
    titles : list of str, default=None
        A title for each picture.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure.
    ax_ : matplotlib Axes
        The axes of the first picture.
    axes_ : ndarray of matplotlib Axes of shape (n_heads,)
        The axes of every picture.
    im_ : matplotlib AxesImage
        The first picture.
    images_ : ndarray of matplotlib AxesImage of shape (n_heads,)
        Every picture.
    text_ : ndarray of matplotlib Text of shape (n_heads, n_queries, n_keys), or None
        The numbers in the cells, or None if the cells are too small.
    colorbar_ : matplotlib Colorbar or None
        The one colour bar of all pictures.

    See Also
    --------
    skattn.inspection.attention_frame : The same numbers as a frame.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")  # no window
    >>> from skattn import AttentionContextualizer
    >>> from skattn.display import AttentionDisplay
    >>> X = [[[1, 0.5], [0.8, 0.6], [-0.5, 1]]]
    >>> model = AttentionContextualizer(n_heads=2, max_iter=0).fit(X)
    >>> display = AttentionDisplay.from_estimator(model, X, token_labels=["cat", "dog", "phone"])
    >>> len(display.axes_)
    2
    """

    def __init__(self, weights, *, query_labels=None, key_labels=None, titles=None):
        self.weights = weights
        self.query_labels = query_labels
        self.key_labels = key_labels
        self.titles = titles

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        index=0,
        *,
        head=None,
        token_labels=None,
        context_labels=None,
        ax=None,
        **kwargs,
    ):
        """Draw how the tokens of one set attend to each other, or to the tokens of its context.

        Parameters
        ----------
        estimator : estimator
            A fitted attention estimator, or a pipeline or search that holds one.
        X : container of n_samples sets
            Anything that the estimator reads.
        index : int, default=0
            Which set of X.
        head : int, list of int, "mean" or None, default=None
            Which heads to draw, counted from 0, one picture each. None draws all heads, and
            ``"mean"`` their mean.
        token_labels : sequence, default=None
            One label per token: a sequence of labels for each set of X, or the labels of the
            drawn set alone.
        context_labels : sequence, default=None
            The same for the tokens of the context, if X has one.
        ax : matplotlib Axes or array of Axes, default=None
            Where to draw; None makes a new figure. A single Axes is divided if there are several
            heads.
        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        AttentionDisplay
            The display, drawn.
        """
        model, X = attention_step(estimator, X)
        X = as_sets(X, model)
        one = _taken(X, index)
        sets, every, what = Sets.of(one), Sets.of(X), f"set {index}"
        token_labels = _of_set(token_labels, every.queries.lengths, index)
        labels = key_labels = _labels_left(sets.queries, token_labels, "token_labels", what)
        if sets.has_context:
            what = f"the context of set {index}"
            context_labels = _of_set(context_labels, every.keys.lengths, index)
            key_labels = _labels_left(sets.keys, context_labels, "context_labels", what)
        elif context_labels is not None:
            raise ValueError(
                "context_labels are for the tokens of a context, but X has no context."
            )
        if not (len(labels) and len(key_labels)):
            who = f"Set {index}" if not len(labels) else f"The context of set {index}"
            raise ValueError(f"{who} has no tokens, so there are no weights to draw.")
        (A,) = model.attention_weights(one)
        A, titles = _chosen(A, head)
        display = cls(A, query_labels=labels, key_labels=key_labels, titles=titles)
        return display.plot(ax=ax, **kwargs)

    @classmethod
    def from_weights(cls, A, query_labels=None, key_labels=None, *, head=None, ax=None, **kwargs):
        """Draw a matrix of weights, or one matrix for each of several heads.

        Parameters
        ----------
        A : array-like of shape (n_queries, n_keys) or (n_heads, n_queries, n_keys)
            Weights, for example from `scaled_dot_product_attention`.
        query_labels : sequence of shape (n_queries,), default=None
            Labels of the rows.
        key_labels : sequence of shape (n_keys,), default=None
            Labels of the columns; None uses the labels of the rows if the weights are square.
        head : int, list of int, "mean" or None, default=None
            Which heads to draw, counted from 0. None draws all heads, and ``"mean"`` their mean.
        ax : matplotlib Axes or array of Axes, default=None
            Where to draw; None makes a new figure.
        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        AttentionDisplay
            The display, drawn.
        """
        A = np.asarray(A)
        if A.ndim not in (2, 3) or A.dtype.kind not in "fiub" or 0 in A.shape:
            raise ValueError(
                f"Weights have shape {A.shape} and dtype {A.dtype}, but must be numbers of shape "
                "(n_queries, n_keys) or (n_heads, n_queries, n_keys), with at least one query and "
                "one key."
            )
        has_heads = A.ndim == 3
        A = A.reshape(-1, *A.shape[-2:])
        if key_labels is None and A.shape[1] == A.shape[2]:
            key_labels = query_labels
        for name, labels, n in (
            ("query_labels", query_labels, A.shape[1]),
            ("key_labels", key_labels, A.shape[2]),
        ):
            if labels is not None:
                _check_labels(name, labels, n, "this side of the weights")
        A, titles = _chosen(A, head)
        titles = titles if has_heads else None
        display = cls(A, query_labels=query_labels, key_labels=key_labels, titles=titles)
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax=None, *, cmap="cividis", values=None, colorbar=True, vmax=None):
        """Draw the heatmaps.

        Parameters
        ----------
        ax : matplotlib Axes or array of Axes, default=None
            One Axes per head, or a single Axes, which is divided among the heads; None makes a
            new figure.
        cmap : str or Colormap, default="cividis"
            Colours from 0 to `vmax`, the same for all heads.
        values : bool, default=None
            Whether to write the numbers into the cells; None writes them if they fit.
        colorbar : bool, default=True
            Whether to draw a colour bar, one for all heads.
        vmax : float, default=None
            The weight that gets the last colour. None takes the largest weight of all heads, but
            at least four times the equal weight 1 / n_keys (and at most 1), so that a head that
            attends to all tokens alike looks flat.

        Returns
        -------
        AttentionDisplay
            The display, drawn.
        """
        plt = _pyplot()
        H, n, m = self.weights.shape
        n_columns = math.ceil(math.sqrt(H))
        n_rows = math.ceil(H / n_columns)
        if ax is None:
            side = float(np.clip(0.42 * max(n, m), 3.2 if H == 1 else 2.6, 5.6))
            height = side * float(np.clip(n / m, 0.4, 1))
            width = side * float(np.clip(m / n, 0.4, 1))
            left, below = (
                0.3 if labels is None else 0.075 * max(len(_text(label)) for label in labels)
                for labels in (self.query_labels, self.key_labels)
            )
            figure, axes = plt.subplots(
                n_rows,
                n_columns,
                squeeze=False,
                layout="constrained",
                figsize=(n_columns * width + left + 1.4, n_rows * (height + 0.3) + below + 0.3),
            )
        else:
            axes = _axes_within(ax, H, n_rows, n_columns)
            figure = axes.flat[0].figure
        for spare in axes.flat[H:]:
            spare.set_axis_off()
        self.figure_, self.axes_ = figure, axes.ravel()[:H]
        top = float(vmax or max(self.weights.max(), min(1, FLAT / m)))
        self.images_ = np.array(
            [
                a.imshow(A, cmap=cmap, vmin=0, vmax=top, aspect="auto", interpolation="nearest")
                for a, A in zip(self.axes_, self.weights, strict=True)
            ],
            dtype=object,
        )
        self.ax_, self.im_ = self.axes_[0], self.images_[0]
        self.colorbar_ = None
        if colorbar:
            self.colorbar_ = figure.colorbar(self.im_, ax=list(axes.flat), label="attention weight")
        for k, a in enumerate(self.axes_):
            a.set(
                xlabel="key" if k + n_columns >= H else None,
                ylabel="query" if k % n_columns == 0 else None,
                title=self.titles[k] if self.titles else None,
            )
            a.tick_params(labelsize=8, length=2)
        for _ in range(2):  # labels take up room, and the room limits the labels
            figure.figure.draw_without_rendering()
            for k, a in enumerate(self.axes_):
                _label(a, a.yaxis, self.query_labels, n, k % n_columns == 0)
                _label(a, a.xaxis, self.key_labels, m, k + n_columns >= H)
        width, height = np.min([_inches(a) for a in self.axes_], axis=0)
        if values is None:
            values = width / m >= CELL_INCHES and height / n >= CELL_INCHES * 0.6
        self.text_ = self._write_values() if values else None
        return self

    def _write_values(self):
        """Write the numbers into the cells, in a colour that can be read there."""
        text = np.empty(self.weights.shape, dtype=object)
        for k, i, j in np.ndindex(text.shape):
            value, image = self.weights[k, i, j], self.images_[k]
            text[k, i, j] = self.axes_[k].text(
                j,
                i,
                f"{value:.2f}",
                ha="center",
                va="center",
                size=8,
                color=_readable_on(image.cmap(image.norm(value))),
            )
        return text


def _chosen(A, head):
    """The weights of the chosen heads, and their titles."""
    H = len(A)
    if isinstance(head, str):
        if head != "mean":
            raise ValueError(
                f"head must be a number, a list of numbers, 'mean' or None, but is {head!r}."
            )
        return A.mean(axis=0, keepdims=True), [f"mean of {H} heads"]
    heads = np.arange(H) if head is None else np.atleast_1d(np.arange(H)[head])
    return A[heads], [f"head {h}" for h in heads]


def _axes_within(ax, n, n_rows, n_columns):
    """Axes for n pictures: the given ones, or one given Axes divided."""
    axes = np.atleast_1d(np.asarray(ax, dtype=object))
    if axes.size == n:
        return axes.reshape(1, -1) if axes.ndim == 1 else axes
    if axes.size > 1:
        raise ValueError(f"There are {n} heads to draw, but ax holds {axes.size} Axes.")
    (ax,) = axes.ravel()
    ax.set_axis_off()
    grid = ax.get_subplotspec()
    if grid is None:
        raise ValueError(
            f"There are {n} heads to draw, but the given Axes are not part of a grid and cannot "
            "be divided: choose one head, or pass an array of Axes."
        )
    grid = grid.subgridspec(n_rows, n_columns)
    figure = ax.figure
    return np.array(
        [[figure.add_subplot(grid[i, j]) for j in range(n_columns)] for i in range(n_rows)],
        dtype=object,
    )


def _label(ax, axis, labels, n, shown):
    """Label an axis at regular steps, with as many labels as fit beside each other.

    Words below columns are turned if they would touch; numbers are thinned out instead.
    """
    texts = [_text(label) for label in (range(n) if labels is None else labels)]
    width, height = _inches(ax)
    room, needed = height, LABEL_INCHES
    if axis is ax.xaxis:
        room = width
        across = 0.12 + 0.075 * max(map(len, texts))  # inches of the longest at 8 points
        numbers = all(text.isdecimal() for text in texts)
        turned = not numbers and n * across > room
        axis.set_tick_params(rotation=90 if turned else 0)
        needed = LABEL_INCHES if turned else across
    step = max(1, math.ceil(n * needed / room)) if room > 0 else n
    if step > 2:  # at round steps
        power = 10 ** int(math.log10(step))
        step = next(power * k for k in (1, 2, 5, 10) if power * k >= step)
    at = np.arange(0, n, step)
    axis.set_ticks(at, [texts[i] for i in at] if shown else [""] * len(at))


class SaturationDisplay:
    """How sharply each head attends: the distribution of its rows' entropies.

    Made by `from_estimator`. An entropy is divided by the entropy of equal weights: at 0 a query
    attends to one token, at 1 to all tokens alike.

    Parameters
    ----------
    entropies : list of ndarray
        The relative entropies of each head's rows.
    verdicts : list of str, default=None
        A word about each head.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure.
    ax_ : matplotlib Axes
        The axes.
    counts_ : ndarray of shape (n_heads, bins)
        Share of each head's rows in each bin of entropy.
    bars_ : list of matplotlib PolyCollection
        The drawn distribution of each head.

    See Also
    --------
    skattn.inspection.attention_diagnostics : More measures, and what to change.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")  # no window
    >>> from skattn import AttentionContextualizer
    >>> from skattn.datasets import make_lookup
    >>> from skattn.display import SaturationDisplay
    >>> X, _ = make_lookup(50, random_state=0)
    >>> model = AttentionContextualizer(max_iter=0, random_state=0).fit(X)
    >>> SaturationDisplay.from_estimator(model, X).counts_.shape
    (4, 25)
    """

    def __init__(self, entropies, *, verdicts=None):
        self.entropies = entropies
        self.verdicts = verdicts

    @classmethod
    def from_estimator(cls, estimator, X, *, ax=None, **kwargs):
        """Draw the distribution of row entropies of each head.

        Parameters
        ----------
        estimator : estimator
            A fitted attention estimator, or a pipeline or search that holds one.
        X : container of n_samples sets
            Anything that the estimator reads.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        SaturationDisplay
            The display, drawn.
        """
        entropies = row_entropies(estimator, X, no_choice=np.nan).values
        entropies = entropies[~np.isnan(entropies).any(axis=1)]
        verdicts = attention_diagnostics(estimator, X)["verdict"].tolist()
        return cls(list(entropies.T), verdicts=verdicts).plot(ax=ax, **kwargs)

    def plot(self, ax=None, *, bins=25):
        """Draw the distributions one above the other, all of the same height.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        bins : int, default=25
            Number of bins between 0 and 1.

        Returns
        -------
        SaturationDisplay
            The display, drawn.
        """
        plt = _pyplot()
        H = len(self.entropies)
        if ax is None:
            _, ax = plt.subplots(layout="constrained", figsize=(6, 1.2 + 0.7 * H))
        self.ax_, self.figure_ = ax, ax.figure
        edges = np.linspace(0, 1, bins + 1)
        counts = np.array([np.histogram(e, edges)[0] for e in self.entropies], dtype=float)
        self.counts_ = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        highest = self.counts_.max(axis=1, keepdims=True)
        highest[highest == 0] = 1
        heights = 0.85 * self.counts_ / highest  # every head fills its lane
        self.bars_ = []
        for h, height in enumerate(heights):
            base = H - 1 - h  # head 0 on top
            ax.axhline(base, color="gray", lw=0.6)
            top = base + np.append(height, height[-1])
            self.bars_.append(ax.fill_between(edges, base, top, step="post", color=POSITIVE, lw=0))
        names = [f"head {h}" for h in range(H)]
        if self.verdicts:
            names = [f"{n}\n{verdict}" for n, verdict in zip(names, self.verdicts, strict=True)]
        ax.set_yticks(np.arange(H)[::-1] + 0.4, names)
        ax.set(xlim=(0, 1), ylim=(-0.1, H), xlabel="entropy of a row, relative to equal weights")
        ax.set_xticks(
            [0, 0.25, 0.5, 0.75, 1], ["0\none token", "0.25", "0.5", "0.75", "1\nall alike"]
        )
        ax.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            ax.spines[side].set_visible(False)
        return self


class LossCurveDisplay:
    """The objective over the iterations of one or several fits.

    Made by `from_estimator` or `from_estimators`.

    Parameters
    ----------
    loss_curves : list of sequence of float
        For each fit, the objective at the start and after each iteration.
    names : list of str, default=None
        The name of each fit.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure.
    ax_ : matplotlib Axes
        The axes.
    lines_ : list of matplotlib Line2D
        A line for each fit.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")  # no window
    >>> from skattn import AttentionClassifier
    >>> from skattn.datasets import make_lookup
    >>> from skattn.display import LossCurveDisplay
    >>> X, y = make_lookup(100, random_state=0)
    >>> fits = {
    ...     f"alpha {alpha}": AttentionClassifier(alpha=alpha, tol=1e-2, random_state=0).fit(X, y)
    ...     for alpha in (1e-2, 1e-1)
    ... }
    >>> [line.get_label() for line in LossCurveDisplay.from_estimators(fits).lines_]
    ['alpha 0.01', 'alpha 0.1']
    """

    def __init__(self, loss_curves, *, names=None):
        self.loss_curves = loss_curves
        self.names = names

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, **kwargs):
        """Draw the loss curve of one fit.

        Parameters
        ----------
        estimator : estimator
            An estimator with a `loss_curve_`, or a pipeline or search that holds one.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        LossCurveDisplay
            The display, drawn.
        """
        return cls([_loss_curve(estimator)]).plot(ax=ax, **kwargs)

    @classmethod
    def from_estimators(cls, estimators, *, names=None, ax=None, **kwargs):
        """Draw the loss curves of several fits together.

        Parameters
        ----------
        estimators : dict or list of estimators
            Estimators with a `loss_curve_`; the keys of a dict are their names.
        names : list of str, default=None
            Names for a list of estimators; None numbers them.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        LossCurveDisplay
            The display, drawn.
        """
        if isinstance(estimators, dict):
            names, estimators = list(estimators), list(estimators.values())
        names = [f"fit {k}" for k in range(len(estimators))] if names is None else list(names)
        if len(names) != len(estimators):
            raise ValueError(f"There are {len(estimators)} estimators, but {len(names)} names.")
        return cls([_loss_curve(e) for e in estimators], names=names).plot(ax=ax, **kwargs)

    def plot(self, ax=None, *, log=False):
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        log : bool, default=False
            Whether the axis of the objective is logarithmic.

        Returns
        -------
        LossCurveDisplay
            The display, drawn.
        """
        plt = _pyplot()
        if ax is None:
            _, ax = plt.subplots(layout="constrained", figsize=(6, 4))
        self.ax_, self.figure_ = ax, ax.figure
        colors = plt.get_cmap("viridis")(np.linspace(0.2, 0.85, max(2, len(self.loss_curves))))
        self.lines_ = []
        for k, curve in enumerate(self.loss_curves):
            label = self.names[k] if self.names else None
            (line,) = ax.plot(
                np.arange(len(curve)), curve, LINES[k % len(LINES)], color=colors[k], label=label
            )
            self.lines_.append(line)
        ax.set(xlabel="iteration", ylabel="objective", yscale="log" if log else "linear")
        if self.names:
            ax.legend()
        return self


def _loss_curve(estimator):
    """The loss curve of a fitted estimator, or of the first step in it that has one."""
    if hasattr(estimator, "loss_curve_"):
        return list(estimator.loss_curve_)
    if hasattr(estimator, "best_estimator_"):
        return _loss_curve(estimator.best_estimator_)
    for _, step in getattr(estimator, "steps", ()):
        if hasattr(step, "loss_curve_"):
            return _loss_curve(step)
    raise ValueError(
        f"{type(estimator).__name__} has no loss_curve_: it is not fitted, or was fitted without y."
    )


class TokenImportanceDisplay:
    """How much each token of a set matters: ranked bars, coloured text, or coloured points.

    Made by `from_estimator` or `from_importance`. Purple tokens count for the decision, orange
    tokens against it.

    Parameters
    ----------
    importance : ndarray of shape (n_tokens,)
        A number for each token.
    token_labels : array-like of shape (n_tokens,), default=None
        Labels of the tokens; None shows their positions.
    points : ndarray of shape (n_tokens, n_features), default=None
        The tokens, for ``kind="points"``.
    name : str, default="importance"
        The name of the numbers, for the axis or the colour bar.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure.
    ax_ : matplotlib Axes
        The axes.
    bars_ : matplotlib BarContainer
        The bars, most important first, with ``kind="bar"``.
    order_ : ndarray of int
        Positions of the tokens that have bars, top to bottom, with ``kind="bar"``.
    text_ : list of matplotlib Text
        The words in the order of the tokens, with ``kind="text"``.
    points_ : matplotlib PathCollection
        The points, with ``kind="points"``.
    colorbar_ : matplotlib Colorbar or None
        The colour bar, with ``kind="text"`` and ``kind="points"``.

    See Also
    --------
    skattn.inspection.token_importance : The numbers, and how far the methods agree.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")  # no window
    >>> from skattn.display import TokenImportanceDisplay
    >>> display = TokenImportanceDisplay.from_importance(
    ...     [0.1, 2.0, -0.3], token_labels=["a", "fine", "mess"]
    ... )
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['fine', 'mess', 'a']

    Importances of many sets, computed once, can be drawn set by set:

    >>> from skattn import AttentionClassifier
    >>> from skattn.datasets import make_lookup
    >>> from skattn.inspection import token_importance
    >>> X, y = make_lookup(50, random_state=0)
    >>> model = AttentionClassifier(n_heads=1, tol=1e-2, random_state=0).fit(X, y)
    >>> found = token_importance(model, X, method="all")
    >>> display = TokenImportanceDisplay.from_importance(found, index=7, method="gradient")
    >>> len(display.importance) == len(X[7])
    True
    """

    def __init__(self, importance, *, token_labels=None, points=None, name="importance"):
        self.importance = importance
        self.token_labels = token_labels
        self.points = points
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        index=0,
        *,
        method="gradient",
        target=None,
        token_labels=None,
        ax=None,
        **kwargs,
    ):
        """Draw how much each token of one set matters for the decision on it.

        Parameters
        ----------
        estimator : estimator
            A fitted attention estimator, or a pipeline or search that holds one.
        X : container of n_samples sets
            Anything that the estimator reads.
        index : int, default=0
            Which set of X.
        method : {"weights", "gradient", "leave_one_out"}, default="gradient"
            As in :func:`skattn.inspection.token_importance`.
        target : label or int, default=None
            The class or output whose decision is explained.
        token_labels : sequence, default=None
            One label per token: a sequence of labels for each set of X, or the labels of the
            drawn set alone.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **kwargs : dict
            Passed to `plot`, for example ``kind``.

        Returns
        -------
        TokenImportanceDisplay
            The display, drawn.
        """
        model, one, labels = _one_set(estimator, X, index, token_labels)
        if one.n_tokens == 0:
            raise ValueError(f"Set {index} has no tokens, so there is nothing to draw.")
        found = token_importance(model, one, method=method, target=target)
        importance, _, method = _of_one_set(found, 0, None)
        name = METHOD_NAMES[method]
        if found.target is not None and hasattr(model, "classes_"):
            name += f", for class {found.target[0]}"
        display = cls(importance, token_labels=labels, points=one.values, name=name)
        return display.plot(ax=ax, **kwargs)

    @classmethod
    def from_importance(
        cls,
        importance,
        token_labels=None,
        *,
        index=0,
        method=None,
        points=None,
        name=None,
        ax=None,
        **kwargs,
    ):
        """Draw importances that were computed before.

        Parameters
        ----------
        importance : array-like of shape (n_tokens,) or Bunch
            A number for each token of one set, or the result of
            :func:`skattn.inspection.token_importance` for many sets.
        token_labels : sequence, default=None
            One label per token: for a Bunch a sequence of labels for each of its sets, or the
            labels of the drawn set alone. None uses the labels in the Bunch, else the positions
            of the tokens.
        index : int, default=0
            Which set of the Bunch.
        method : {"weights", "gradient", "leave_one_out"}, default=None
            Which method of the Bunch, if it has several.
        points : array-like of shape (n_tokens, n_features), default=None
            The tokens, for ``kind="points"``.
        name : str, default=None
            The name of the numbers; None uses the method and target of the Bunch, or
            ``"importance"`` for plain numbers.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **kwargs : dict
            Passed to `plot`, for example ``kind``.

        Returns
        -------
        TokenImportanceDisplay
            The display, drawn.
        """
        labels, given_name = None, "importance"
        if hasattr(importance, "importances"):
            found = importance
            importance, labels, method = _of_one_set(found, index, method)
            token_labels = _of_set(token_labels, found.importances.lengths, index)
            given_name = METHOD_NAMES[method]
            if method != "weights":
                given_name += f", target {found.target[index]}"
        elif index != 0 or method is not None:
            raise ValueError(
                "index and method choose from a result of token_importance, but importance is of "
                f"type {type(importance).__name__}: pass the numbers of one set alone."
            )
        importance = np.asarray(importance, dtype=float)
        if importance.ndim != 1 or importance.size == 0:
            raise ValueError(
                f"importance has shape {importance.shape}, but must be 1-D: a number per token, "
                "for at least one token."
            )
        if token_labels is not None:
            _check_labels("token_labels", token_labels, len(importance), "the set")
            labels = token_labels
        name = given_name if name is None else name
        display = cls(importance, token_labels=labels, points=points, name=name)
        return display.plot(ax=ax, **kwargs)

    def plot(
        self,
        ax=None,
        *,
        kind="bar",
        max_tokens=20,
        cmap=None,
        colorbar=True,
        vmin=None,
        vmax=None,
    ):
        """Draw the tokens.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        kind : {"bar", "text", "points"}, default="bar"
            ``"bar"`` draws ranked bars, ``"text"`` the labels as coloured running text, and
            ``"points"`` the first two features of the tokens as coloured points.
        max_tokens : int, default=20
            The largest number of bars; the most important tokens get them.
        cmap : str or Colormap, default=None
            Colours of text and points, from `vmin` to `vmax`. None is ``"PuOr"`` with 0 in the
            middle if `vmin` and `vmax` differ in sign, else ``"cividis"``.
        colorbar : bool, default=True
            Whether to draw a colour bar beside text and points.
        vmin, vmax : float, default=None
            The numbers that get the first and the last colour, or the ends of the bars' axis.
            None follows the data: colours start at 0 if no number is negative, else they reach
            equally far to both sides of 0. Give both to compare pictures.

        Returns
        -------
        TokenImportanceDisplay
            The display, drawn.
        """
        sizes = {
            "bar": (5.5, 0.9 + 0.25 * min(len(self.importance), max_tokens)),
            "text": (
                7,
                (1.1 if colorbar else 0.4)
                + 0.28 * math.ceil(sum(len(t) + 2.5 for t in self._labels()) / 80),
            ),
            "points": (5.5, 4.6),
        }
        if kind not in sizes:
            raise ValueError(f"kind must be one of {list(sizes)}, but is {kind!r}.")
        low, high = self._range(vmin, vmax)
        plt = _pyplot()
        if ax is None:
            _, ax = plt.subplots(layout="constrained", figsize=sizes[kind])
        self.ax_, self.figure_ = ax, ax.figure
        self.colorbar_ = None
        if kind == "bar":
            self._plot_bars(max_tokens)
            ax.set_xlim(vmin, vmax)
            return self
        colors = _colors(plt, cmap, low, high)
        if kind == "text":
            self._plot_text(*colors, colorbar)
        else:
            self._plot_points(*colors, colorbar)
        return self

    def _labels(self):
        n = len(self.importance)
        return [_text(t) for t in (range(n) if self.token_labels is None else self.token_labels)]

    def _range(self, vmin, vmax):
        """The numbers of the first and the last colour; the data replace an end that is None."""
        top = float(np.abs(self.importance).max()) or 1.0
        if vmax is None:
            vmax = top if vmin is None or vmin >= 0 else -vmin
        if vmin is None:
            opposite = -vmax if vmax > 0 else -top
            vmin = 0.0 if np.all(self.importance >= 0) else opposite
        if not vmin < vmax:
            raise ValueError(f"vmin must be less than vmax, but they are {vmin} and {vmax}.")
        return vmin, vmax

    def _plot_bars(self, max_tokens):
        ax, labels = self.ax_, self._labels()
        order = np.argsort(-np.abs(self.importance), kind="stable")[:max_tokens]
        values = self.importance[order]
        self.order_ = order
        colors = np.where(values < 0, NEGATIVE, POSITIVE)
        self.bars_ = ax.barh(np.arange(len(order)), values, color=colors, height=0.75)
        ax.set_yticks(np.arange(len(order)), [labels[i] for i in order])
        ax.set_ylim(len(order) - 0.4, -0.6)  # the first on top
        ax.axvline(0, color="gray", lw=0.8)
        left_out = len(self.importance) - len(order)
        ax.set_xlabel(self.name)
        if left_out:
            ax.set_title(f"{len(order)} of {len(self.importance)} tokens", size="medium")
        for side in ("top", "right", "left"):
            ax.spines[side].set_visible(False)
        ax.tick_params(axis="y", length=0)

    def _plot_text(self, cmap, norm, colorbar):
        ax, labels = self.ax_, self._labels()
        ax.set_axis_off()
        if colorbar:
            self.colorbar_ = self._colorbar(cmap, norm, location="bottom", aspect=40)
        self.figure_.figure.draw_without_rendering()
        renderer = self.figure_.canvas.get_renderer()
        box = ax.get_window_extent()
        em = 10 * self.figure_.dpi / 72  # pixels of the font's size
        x, y, self.text_ = 0.0, box.height - em, []
        for label, value in zip(labels, self.importance, strict=True):
            color = cmap(norm(value))
            word = ax.text(
                0,
                0,
                label or " ",
                transform=None,
                size=10,
                va="center",
                color=_readable_on(color),
                bbox={"facecolor": color, "edgecolor": "none", "boxstyle": "round,pad=0.2"},
            )
            width = word.get_window_extent(renderer).width
            if x and x + width > box.width:
                x, y = 0.0, y - 2 * em
            word.set_transform(ax.transAxes)
            word.set_position((x / box.width, y / box.height))
            x += width + 0.7 * em
            self.text_.append(word)

    def _plot_points(self, cmap, norm, colorbar):
        points = None if self.points is None else np.asarray(self.points)
        if points is None or points.ndim != 2 or points.shape[1] < 2:
            raise ValueError(
                "kind='points' needs the tokens as points of two features or more, but has "
                f"{'none' if points is None else points.shape}."
            )
        order = np.argsort(np.abs(self.importance), kind="stable")  # the important ones on top
        self.points_ = self.ax_.scatter(
            *points[order, :2].T,
            c=self.importance[order],
            cmap=cmap,
            norm=norm,
            edgecolors="gray",
            linewidths=0.4,
            s=float(np.clip(4000 / len(points), 8, 60)),
        )
        self.ax_.set(xlabel="x0", ylabel="x1", aspect="equal")
        if colorbar:
            self.colorbar_ = self._colorbar(cmap, norm)

    def _colorbar(self, cmap, norm, **kwargs):
        from matplotlib.cm import ScalarMappable

        mappable = ScalarMappable(norm, cmap)
        return self.figure_.colorbar(mappable, ax=self.ax_, label=self.name, **kwargs)


def _colors(plt, cmap, low, high):
    """Colour map and norm from low to high, with 0 in the middle if it lies between them."""
    if low < 0 < high:
        from matplotlib.colors import TwoSlopeNorm

        return plt.get_cmap(cmap or "PuOr"), TwoSlopeNorm(0, low, high)
    return plt.get_cmap(cmap or "cividis"), plt.Normalize(low, high)


def _of_one_set(found, index, method):
    """Importances, labels and method of one set, from a result of `token_importance`."""
    if method is None:
        if len(found.methods) > 1:
            raise ValueError(
                f"Only one method can be drawn, but there are {found.methods}: choose one with "
                "method=."
            )
        (method,) = found.methods
    elif method not in found.methods:
        raise ValueError(f"method must be one of {found.methods}, but is {method!r}.")
    one = _taken(found.importances, index)
    if one.n_tokens == 0:
        raise ValueError(f"Set {index} has no tokens, so there is nothing to draw.")
    of_set = found.frame[found.frame["set"] == index % len(found.importances)]
    labels = of_set["label" if "label" in of_set else "token"].tolist()
    return one.values[:, found.methods.index(method)], labels, method

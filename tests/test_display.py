"""Displays: the picture shows the right numbers, labels and colours."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionRegressor,
    RaggedArray,
    RaggedPair,
    TokenTransformer,
    scaled_dot_product_attention,
)
from skattn._optional import import_optional
from skattn.display import (
    AttentionDisplay,
    LossCurveDisplay,
    SaturationDisplay,
    TokenImportanceDisplay,
    _readable_on,
)
from skattn.inspection import attention_diagnostics, row_entropies, token_importance

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed: skattn[plot]")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SMALL = {"n_heads": 4, "d_k": 2, "d_v": 2, "max_iter": 8, "random_state": 0}
LABELS = np.array([0, 1, 0, 1, 1, 0, 1])  # of awkward_sets


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.fixture
def model(awkward_sets):
    return AttentionClassifier(**SMALL).fit(awkward_sets, LABELS)


def labels_of(axis):
    """The labels that an axis shows, by position."""
    texts = [t.get_text() for t in axis.get_ticklabels()]
    return dict(zip(axis.get_ticklocs(), texts, strict=True))


# Attention ------------------------------------------------------------------------------------


def test_the_pictures_are_the_weights(model, awkward_sets):
    display = AttentionDisplay.from_estimator(
        model, awkward_sets, 3, token_labels=["a", "b", "c", "d"]
    )
    (A,) = model.attention_weights(awkward_sets[3:4])
    assert len(display.axes_) == len(display.images_) == 4
    for h, (ax, image) in enumerate(zip(display.axes_, display.images_, strict=True)):
        assert_array_equal(image.get_array(), A[h])
        assert ax.get_title() == f"head {h}"
        assert image.get_clim() == (0, 1)  # one scale for all, so one colour bar
        assert image.origin == "upper"
    assert labels_of(display.axes_[0].yaxis) == {0: "a", 1: "b", 2: "c", 3: "d"}
    assert labels_of(display.axes_[2].xaxis) == {0: "a", 1: "b", 2: "c", 3: "d"}
    assert set(labels_of(display.axes_[1].yaxis).values()) == {
        ""
    }  # the picture on the left has them
    assert display.figure_ is display.ax_.figure
    assert display.ax_ is display.axes_[0]
    assert display.im_ is display.images_[0]
    assert display.colorbar_.mappable is display.im_
    assert len(display.figure_.axes) == 5
    for (h, i, j), text in np.ndenumerate(display.text_):
        assert text.get_text() == f"{A[h, i, j]:.2f}"
        assert text.get_position() == (j, i)
        assert text.axes is display.axes_[h]


def test_the_pictures_of_a_pair_have_the_keys_of_its_context(awkward_sets):
    generator = np.random.default_rng(3)
    others = [generator.normal(size=(n, 2)) for n in (2, 1, 0, 3, 4, 1, 2)]
    weights = [np.ones(len(tokens)) for tokens in others]
    weights[3][1] = 0
    X = RaggedPair(awkward_sets, RaggedArray.from_list(others, weights))
    model = AttentionClassifier(**SMALL).fit(X, LABELS)
    display = AttentionDisplay.from_estimator(
        model, X, 3, token_labels=list("abcd"), context_labels=["x", "left out", "z"]
    )
    (A,) = model.attention_weights(X[3:4])
    assert A.shape == (4, 4, 2)
    assert_array_equal([image.get_array() for image in display.images_], A)
    assert labels_of(display.axes_[0].yaxis) == {0: "a", 1: "b", 2: "c", 3: "d"}
    assert labels_of(display.axes_[2].xaxis) == {0: "x", 1: "z"}
    numbered = AttentionDisplay.from_estimator(model, X, 3, head="mean")
    assert labels_of(numbered.axes_[0].xaxis) == {0: "0", 1: "2"}
    for index, who in ((1, "Set 1 has"), (2, "The context of set 2 has")):
        with pytest.raises(ValueError, match=f"{who} no tokens"):
            AttentionDisplay.from_estimator(model, X, index)
    with pytest.raises(ValueError, match="context_labels has 1 labels, but the context of set 3"):
        AttentionDisplay.from_estimator(model, X, 3, context_labels=["x"])
    with pytest.raises(TypeError, match="X has contexts"):
        TokenImportanceDisplay.from_estimator(model, X, 3)
    SaturationDisplay.from_estimator(model, X)


def test_labels_of_a_context_without_one_are_refused(model, awkward_sets):
    with pytest.raises(ValueError, match="X has no context"):
        AttentionDisplay.from_estimator(model, awkward_sets, 3, context_labels=list("abcd"))


def test_heads_are_chosen_or_averaged(model, awkward_sets):
    (A,) = model.attention_weights(awkward_sets[:1])
    one = AttentionDisplay.from_estimator(model, awkward_sets, head=2)
    assert_array_equal(one.im_.get_array(), A[2])
    assert one.ax_.get_title() == "head 2"
    two = AttentionDisplay.from_estimator(model, awkward_sets, head=[3, -4])
    assert [a.get_title() for a in two.axes_] == ["head 3", "head 0"]
    assert_array_equal(two.images_[1].get_array(), A[0])
    mean = AttentionDisplay.from_estimator(model, awkward_sets, head="mean")
    assert_allclose(mean.im_.get_array(), A.mean(axis=0))
    assert mean.ax_.get_title() == "mean of 4 heads"
    with pytest.raises(ValueError, match="head must be.*'max'"):
        AttentionDisplay.from_estimator(model, awkward_sets, head="max")


def test_the_index_counts_sets(model, awkward_sets):
    for index, n in ((-3, 23), (4, 23), (5, 2), (2, 1)):
        display = AttentionDisplay.from_estimator(model, awkward_sets, index, head=0)
        assert display.im_.get_array().shape == (n, n)
    with pytest.raises(IndexError, match="Set 7 is out of range: there are 7 sets"):
        AttentionDisplay.from_estimator(model, awkward_sets, 7)
    with pytest.raises(ValueError, match="Set 1 has no tokens"):
        AttentionDisplay.from_estimator(model, awkward_sets, 1)
    with pytest.raises(ValueError, match="3 labels, but set 0 has 4 tokens"):
        AttentionDisplay.from_estimator(model, awkward_sets, token_labels=["a", "b", "c"])


def test_tokens_of_weight_zero_are_not_drawn(model, awkward_sets):
    X = RaggedArray.from_list(awkward_sets, [np.arange(len(x)) for x in awkward_sets])
    display = AttentionDisplay.from_estimator(model, X, 3, head=0)
    assert labels_of(display.ax_.yaxis) == {0: "1", 1: "2", 2: "3"}
    assert_allclose(display.im_.get_array(), model.attention_weights(X)[3][0], rtol=1e-12)
    bars = TokenImportanceDisplay.from_estimator(model, X, 3, token_labels=list("wxyz"))
    assert sorted(labels_of(bars.ax_.yaxis).values()) == ["x", "y", "z"]


def test_a_pipeline_is_looked_into(awkward_sets):
    pipeline = make_pipeline(TokenTransformer(StandardScaler()), AttentionRegressor(**SMALL))
    pipeline.fit(awkward_sets, LABELS)
    display = AttentionDisplay.from_estimator(pipeline, awkward_sets, 3)
    (A,) = pipeline[-1].attention_weights(pipeline[:-1].transform(awkward_sets[3:4]))
    assert_allclose(np.stack([image.get_array() for image in display.images_]), A)


def test_rectangular_weights_have_labels_on_both_sides(rng):
    Q, K = rng.normal(size=(2, 3)), rng.normal(size=(5, 3))
    _, A = scaled_dot_product_attention(Q, K, K, return_weights=True)
    display = AttentionDisplay.from_weights(A, ["q", "r"], list("abcde"))
    assert_array_equal(display.im_.get_array(), A)
    assert labels_of(display.ax_.yaxis) == {0: "q", 1: "r"}
    assert labels_of(display.ax_.xaxis) == dict(enumerate("abcde"))
    assert display.ax_.get_title() == ""
    assert display.text_.shape == (1, 2, 5)
    with pytest.raises(ValueError, match="key_labels has 2 labels.*5 tokens"):
        AttentionDisplay.from_weights(A, ["q", "r"], ["a", "b"])
    square = AttentionDisplay.from_weights(np.eye(2), ["q", "r"])
    assert labels_of(square.ax_.xaxis) == {0: "q", 1: "r"}
    for bad in (np.ones(3), np.ones((2, 0)), [["a"]], np.ones((1, 1, 1, 1))):
        with pytest.raises(ValueError, match="Weights have shape"):
            AttentionDisplay.from_weights(bad)


@pytest.mark.parametrize("n", [1, 2, 8, 40, 200])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("words", [True, False])
def test_labels_do_not_touch_and_stand_at_their_tokens(rng, n, heads, words):
    A = rng.dirichlet(np.ones(n), size=(heads, n))
    labels = [f"word {i} of the text" for i in range(n)] if words else None
    display = AttentionDisplay.from_weights(A, labels)
    display.figure_.canvas.draw()
    for ax in display.axes_:
        for axis in (ax.xaxis, ax.yaxis):
            shown = labels_of(axis)
            assert len(shown) >= min(n, 3)
            for i, text in shown.items():
                assert text in ("", labels[int(i)] if words else str(int(i)))
            boxes = [t.get_window_extent() for t in axis.get_ticklabels() if t.get_text()]
            for one, other in itertools.pairwise(boxes):
                assert not one.overlaps(other)
    corner = display.axes_[-2 if heads == 4 else 0]  # at the left and at the bottom
    assert all(labels_of(corner.xaxis).values())
    assert all(labels_of(corner.yaxis).values())
    assert (display.text_ is None) == (n >= 40)
    if display.text_ is not None:  # the numbers are inside of their cells
        ax = display.ax_
        for (_, i, j), text in np.ndenumerate(display.text_[:1]):
            box = text.get_window_extent().transformed(ax.transData.inverted())
            assert j - 0.5 < box.x0 < box.x1 < j + 0.5
            assert i - 0.5 < min(box.y0, box.y1) < max(box.y0, box.y1) < i + 0.5


def test_values_and_colour_bar_can_be_chosen(rng):
    A = rng.dirichlet(np.ones(30), size=30)
    assert AttentionDisplay.from_weights(A, values=True).text_.shape == (1, 30, 30)
    bare = AttentionDisplay.from_weights(A[:2, :2], values=False, colorbar=False, vmax=1)
    assert bare.text_ is None
    assert bare.colorbar_ is None
    assert len(bare.figure_.axes) == 1
    assert bare.im_.get_clim() == (0, 1)
    assert AttentionDisplay.from_weights(np.zeros((2, 2))).im_.get_clim() == (0, 1)


@pytest.mark.parametrize("n", [1, 2, 4, 10, 200])
def test_a_flat_head_looks_flat(n):
    flat = np.full((n, n), 1 / n) + np.linspace(0, 1e-3 / n, n)  # equal weights, nearly
    (image,) = AttentionDisplay.from_weights(flat).images_
    assert image.get_clim() == (0, max(flat.max(), min(1, 4 / n)))
    shades = image.cmap(image.norm(flat))
    assert np.ptp(shades, axis=(0, 1)).max() <= 1 / 64
    if n >= 4:  # and dark: equal weights are not what the last colour means
        assert image.norm(flat).max() < 0.26
    sharp = np.eye(n)
    assert AttentionDisplay.from_weights(sharp).im_.get_clim() == (0, 1)
    assert AttentionDisplay.from_weights(flat, vmax=0.5).im_.get_clim() == (0, 0.5)


def test_labels_are_those_of_all_sets_or_of_the_drawn_set(model, awkward_sets):
    labels = [[f"{i}.{j}" for j in range(len(x))] for i, x in enumerate(awkward_sets)]
    for index in (0, 3, -3):
        drawn = [
            (
                labels_of(
                    AttentionDisplay.from_estimator(model, awkward_sets, index, **given).ax_.yaxis
                ),
                TokenImportanceDisplay.from_estimator(
                    model, awkward_sets, index, **given
                ).token_labels,
            )
            for given in ({"token_labels": labels}, {"token_labels": labels[index]})
        ]
        assert drawn[0][0] == drawn[1][0]
        assert list(drawn[0][1]) == list(drawn[1][1]) == labels[index]
    found = token_importance(model, awkward_sets, method="gradient")
    display = TokenImportanceDisplay.from_importance(found, labels, index=3)
    assert display.token_labels == labels[3]
    with pytest.raises(ValueError, match="7 labels, but set 3 has 4 tokens"):
        AttentionDisplay.from_estimator(model, awkward_sets, 3, token_labels=labels[::-1])


def test_given_axes_are_used(rng):
    A = rng.dirichlet(np.ones(3), size=(2, 3))
    figure, (left, right) = plt.subplots(1, 2)
    one = AttentionDisplay.from_weights(A[0], ax=left, colorbar=False)
    assert one.ax_ is left
    assert one.figure_ is figure
    divided = AttentionDisplay.from_weights(A, ax=right, colorbar=False)
    assert divided.figure_ is figure
    assert not right.axison
    outer = right.get_subplotspec().get_position(figure)
    for ax in divided.axes_:
        box = ax.get_position()
        assert outer.x0 - 1e-9 <= box.x0 < box.x1 <= outer.x1 + 1e-9
    _, pair = plt.subplots(2, 1)
    assert AttentionDisplay.from_weights(A, ax=pair).axes_.tolist() == pair.tolist()
    _, three = plt.subplots(3, 1)
    with pytest.raises(ValueError, match="2 heads to draw, but ax holds 3"):
        AttentionDisplay.from_weights(A, ax=three)
    with pytest.raises(ValueError, match="not part of a grid"):
        AttentionDisplay.from_weights(A, ax=plt.figure().add_axes((0, 0, 1, 1)))
    assert divided.plot() is divided  # again, on a figure of its own
    assert divided.figure_ is not figure


def test_axes_of_a_subfigure_are_used(rng, model, awkward_sets):
    left, right = plt.figure(layout="constrained").subfigures(1, 2)
    one = AttentionDisplay.from_weights(
        rng.dirichlet(np.ones(3), size=(2, 3)), ax=left.subplots(1, 2)
    )
    text = TokenImportanceDisplay.from_estimator(
        model, awkward_sets, ax=right.subplots(), kind="text"
    )
    assert one.figure_ is one.colorbar_.ax.figure is left
    assert text.figure_ is text.colorbar_.ax.figure is right


def test_long_labels_are_cut_and_dollars_are_plain():
    display = AttentionDisplay.from_weights(np.eye(2), ["x" * 60, "$5 to $6"])
    display.figure_.canvas.draw()  # as mathematics the second would be an error or italics
    first, second = labels_of(display.ax_.yaxis).values()
    assert len(first) == 24
    assert first.endswith("\N{HORIZONTAL ELLIPSIS}")
    assert second == r"\$5 to \$6"


@pytest.mark.parametrize("name", ["cividis", "viridis", "PuOr", "gray"])
def test_text_stands_out_from_its_colour(name):
    def luminance(rgb):
        rgb = np.asarray(rgb)
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    for t in np.linspace(0, 1, 50):
        back = plt.get_cmap(name)(t)
        low, high = sorted(
            [luminance(back[:3]), luminance(matplotlib.colors.to_rgb(_readable_on(back)))]
        )
        assert (high + 0.05) / (low + 0.05) >= 4.5  # WCAG's contrast of normal text


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_styles_are_respected(model, awkward_sets, style):
    with plt.style.context(style):
        ink = matplotlib.colors.to_rgb(plt.rcParams["text.color"])
        for display in (
            AttentionDisplay.from_estimator(model, awkward_sets),
            SaturationDisplay.from_estimator(model, awkward_sets),
            LossCurveDisplay.from_estimator(model),
            TokenImportanceDisplay.from_estimator(model, awkward_sets),
        ):
            ax = display.ax_
            labels = [ax.title, *ax.get_xticklabels(), *ax.get_yticklabels(), ax.xaxis.label]
            assert {matplotlib.colors.to_rgb(t.get_color()) for t in labels} == {ink}
            display.figure_.canvas.draw()


# Saturation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, "causal"])
def test_saturation_shows_the_entropies_of_rows_with_a_choice(awkward_sets, mask):
    model = AttentionContextualizer(**SMALL, mask=mask).fit(awkward_sets, LABELS)
    display = SaturationDisplay.from_estimator(model, awkward_sets, bins=10)
    first = 1 if mask == "causal" else 0  # the first token sees itself alone
    rows = np.vstack([e[first:] for e in row_entropies(model, awkward_sets) if len(e) > 1])
    for h in range(4):
        assert_allclose(display.entropies[h], rows[:, h])
        counts = np.histogram(rows[:, h], 10, (0, 1))[0]
        assert_allclose(display.counts_[h], counts / len(rows))
        corners = display.bars_[h].get_paths()[0].vertices
        height = corners[:, 1].max() - corners[:, 1].min()
        assert_allclose(height, 0.85, atol=1e-6)  # its fullest bin
    verdicts = attention_diagnostics(model, awkward_sets)["verdict"]
    shown = [t.get_text() for t in display.ax_.get_yticklabels()]
    assert shown == [f"head {h}\n{verdict}" for h, verdict in enumerate(verdicts)]
    assert np.all(np.diff(display.ax_.get_yticks()) < 0)  # head 0 on top


def test_saturation_of_nothing_to_choose_is_empty(model):
    display = SaturationDisplay.from_estimator(model, [[[1.0, 2.0, 3.0]], []])
    assert_array_equal(display.counts_, 0)


# Loss curves ----------------------------------------------------------------------------------


def test_loss_curves_stand_side_by_side(awkward_sets):
    fits = [
        AttentionClassifier(**SMALL, alpha=alpha).fit(awkward_sets, LABELS) for alpha in (0.01, 1)
    ]
    display = LossCurveDisplay.from_estimators({"weak": fits[0], "strong": fits[1]})
    for line, fit, name in zip(display.lines_, fits, ["weak", "strong"], strict=True):
        assert_array_equal(line.get_ydata(), fit.loss_curve_)
        assert_array_equal(line.get_xdata(), np.arange(fit.n_iter_ + 1))
        assert line.get_label() == name
    shown = [t.get_text() for t in display.ax_.get_legend().get_texts()]
    assert shown == ["weak", "strong"]
    styles = [(line.get_color(), line.get_linestyle()) for line in display.lines_]
    assert not np.array_equal(styles[0][0], styles[1][0])
    assert styles[0][1] != styles[1][1]
    named = LossCurveDisplay.from_estimators(fits, names=["a", "b"], log=True)
    assert named.ax_.get_yscale() == "log"
    assert [line.get_label() for line in named.lines_] == ["a", "b"]
    with pytest.raises(ValueError, match="2 estimators, but 1 names"):
        LossCurveDisplay.from_estimators(fits, names=["a"])


def test_a_loss_curve_is_found_in_a_pipeline(awkward_sets):
    pipeline = make_pipeline(TokenTransformer(StandardScaler()), AttentionRegressor(**SMALL))
    pipeline.fit(awkward_sets, LABELS)
    display = LossCurveDisplay.from_estimator(pipeline)
    assert_array_equal(display.lines_[0].get_ydata(), pipeline[-1].loss_curve_)
    assert display.ax_.get_legend() is None
    with pytest.raises(ValueError, match="AttentionRegressor has no loss_curve_: it is not fitted"):
        LossCurveDisplay.from_estimator(AttentionRegressor())


# Importance -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["weights", "gradient", "leave_one_out"])
def test_bars_are_ranked_by_importance(model, awkward_sets, method):
    display = TokenImportanceDisplay.from_estimator(
        model, awkward_sets, 3, method=method, token_labels=list("wxyz")
    )
    found = token_importance(model, awkward_sets[3:4], method=method).frame[method].to_numpy()
    order = np.argsort(-np.abs(found))
    assert_allclose([bar.get_width() for bar in display.bars_], found[order])
    assert_array_equal(display.order_, order)
    assert [t.get_text() for t in display.ax_.get_yticklabels()] == ["wxyz"[i] for i in order]
    low, high = display.ax_.get_ylim()
    assert low > high  # the first on top
    colors = {bar.get_facecolor() for bar in display.bars_}
    assert len(colors) == len(set(np.sign(found)))
    assert ("class 1" in display.ax_.get_xlabel()) == (method != "weights")


def test_few_bars_of_many_tokens_say_so(rng):
    values = rng.normal(size=50)
    display = TokenImportanceDisplay.from_importance(values, max_tokens=5)
    assert len(display.bars_) == 5
    assert_array_equal(display.order_, np.argsort(-np.abs(values))[:5])
    assert display.ax_.get_title() == "5 of 50 tokens"
    assert TokenImportanceDisplay.from_importance(values[:5]).ax_.get_title() == ""


@pytest.mark.parametrize("signed", [True, False])
def test_text_keeps_the_order_of_words_and_colours_them(rng, signed):
    values = rng.normal(size=40)
    values = values if signed else np.abs(values)
    words = [f"word{i}" for i in range(40)]
    display = TokenImportanceDisplay.from_importance(values, words, kind="text", name="gain")
    display.figure_.canvas.draw()
    assert [t.get_text() for t in display.text_] == words
    norm, cmap = display.colorbar_.norm, display.colorbar_.cmap
    assert (norm.vmin, norm.vmax) == (-np.abs(values).max() if signed else 0, np.abs(values).max())
    for text, value in zip(display.text_, values, strict=True):
        color = text.get_bbox_patch().get_facecolor()
        assert_allclose(color, cmap(norm(value)))
        assert text.get_color() == _readable_on(color)
    assert display.colorbar_.ax.get_xlabel() == "gain"
    box = display.ax_.get_window_extent()
    extents = [t.get_window_extent() for t in display.text_]
    assert all(box.x0 - 1 <= e.x0 and e.x1 <= box.x1 + 1 for e in extents)
    assert all(box.y0 <= e.y0 and e.y1 <= box.y1 for e in extents)
    lines = 0
    for one, other in itertools.pairwise(extents):
        if other.y1 < one.y0:  # the next line
            lines += 1
            assert_allclose(other.x0, extents[0].x0, atol=1)
        else:
            assert other.x0 > one.x1
    assert lines >= 2


def test_points_are_coloured_where_they_lie(awkward_sets):
    model = AttentionRegressor(**SMALL).fit(awkward_sets, LABELS)
    display = TokenImportanceDisplay.from_estimator(model, awkward_sets, 4, kind="points")
    found = token_importance(model, awkward_sets[4:5], method="gradient").frame["gradient"]
    drawn = np.column_stack([display.points_.get_offsets(), display.points_.get_array()])
    expected = np.column_stack([awkward_sets[4][:, :2], found])
    order = np.lexsort(drawn.T), np.lexsort(expected.T)
    assert_allclose(drawn[order[0]], expected[order[1]], rtol=1e-10)
    assert display.points_.norm.vmin == -display.points_.norm.vmax
    assert np.all(np.diff(np.abs(drawn[:, 2])) >= 0)  # what matters is not hidden
    with pytest.raises(ValueError, match="'points' needs the tokens.*none"):
        TokenImportanceDisplay.from_importance([1.0, 2.0], kind="points")
    with pytest.raises(ValueError, match="two features or more, but has .2, 1."):
        TokenImportanceDisplay.from_importance([1.0, 2.0], points=[[0.0], [1.0]], kind="points")


def test_what_cannot_be_drawn_is_refused(model, awkward_sets):
    with pytest.raises(ValueError, match="kind must be one of.*'pie'"):
        TokenImportanceDisplay.from_importance([1.0], kind="pie")
    with pytest.raises(ValueError, match="1-D"):
        TokenImportanceDisplay.from_importance([])
    with pytest.raises(ValueError, match="Set 1 has no tokens"):
        TokenImportanceDisplay.from_estimator(model, awkward_sets, 1)
    with pytest.raises(ValueError, match="Only one method can be drawn"):
        TokenImportanceDisplay.from_estimator(model, awkward_sets, method="all")
    assert not plt.get_fignums()  # refused before a figure is made


@pytest.mark.parametrize("words", [False, True])
def test_one_set_is_drawn_from_the_importances_of_many(model, awkward_sets, words):
    weights = [np.arange(len(x)) for x in awkward_sets]  # the first token of each is left out
    X = RaggedArray.from_list(awkward_sets, weights)
    labels = [[f"{i}.{j}" for j in range(len(x))] for i, x in enumerate(X)] if words else None
    found = token_importance(model, X, method="all", token_labels=labels)
    for index, method in itertools.product((0, 3, -3), found.methods):
        display = TokenImportanceDisplay.from_importance(found, index=index, method=method)
        own = labels[index] if words else None
        alone = TokenImportanceDisplay.from_estimator(
            model, X, index, method=method, token_labels=own
        )
        assert_allclose(display.importance, alone.importance, rtol=1e-12)
        assert display._labels() == alone._labels()
        name = alone.name.replace(", for class", ", target")
        assert display.name == name if method != "weights" else "attention received"
    renamed = TokenImportanceDisplay.from_importance(
        found, ["w", "x", "y"], index=3, method="weights", name="mine", kind="text"
    )
    assert [t.get_text() for t in renamed.text_] == ["w", "x", "y"]
    assert renamed.colorbar_.ax.get_xlabel() == "mine"
    one = token_importance(model, X, method="gradient")
    assert_array_equal(
        TokenImportanceDisplay.from_importance(one, index=3).importance, one.importances[3][:, 0]
    )


def test_what_does_not_choose_one_set_is_refused(model, awkward_sets):
    found = token_importance(model, awkward_sets, method=["weights", "gradient"])
    draw = TokenImportanceDisplay.from_importance
    with pytest.raises(ValueError, match="'gradient'.: choose one with method"):
        draw(found)
    with pytest.raises(ValueError, match="method must be one of .*, but is 'leave_one_out'"):
        draw(found, method="leave_one_out")
    with pytest.raises(IndexError, match="Set 7 is out of range: there are 7 sets"):
        draw(found, index=7, method="weights")
    with pytest.raises(ValueError, match="Set 1 has no tokens"):
        draw(found, index=1, method="weights")
    with pytest.raises(ValueError, match="2 labels, but the set has 4 tokens"):
        draw(found, ["a", "b"], index=3, method="weights")
    for choice in ({"index": 1}, {"method": "weights"}):
        with pytest.raises(ValueError, match="importance is of type list: pass the numbers of one"):
            draw([1.0, 2.0], **choice)
    assert not plt.get_fignums()


@pytest.mark.parametrize("kind", ["text", "points"])
@pytest.mark.parametrize(
    ("values", "ends", "expected", "name"),
    [
        ([1.0, 2.0], {}, (0, 2), "cividis"),
        ([1.0, 2.0], {"vmax": 4}, (0, 4), "cividis"),
        ([1.0, 2.0], {"vmin": 0.5}, (0.5, 2), "cividis"),
        ([1.0, 2.0], {"vmin": -3}, (-3, 3), "PuOr"),
        ([-1.0, 2.0], {}, (-2, 2), "PuOr"),
        ([-1.0, 2.0], {"vmax": 3}, (-3, 3), "PuOr"),
        ([-1.0, 2.0], {"vmin": -4}, (-4, 4), "PuOr"),
        ([-1.0, 2.0], {"vmin": -1, "vmax": 3}, (-1, 3), "PuOr"),
        ([-1.0, -2.0], {"vmax": 0}, (-2, 0), "cividis"),
    ],
)
def test_colours_of_importance_range_as_asked(kind, values, ends, expected, name):
    points = np.ones((len(values), 2))
    display = TokenImportanceDisplay.from_importance(values, points=points, kind=kind, **ends)
    norm, cmap = display.colorbar_.norm, display.colorbar_.cmap
    assert (norm.vmin, norm.vmax) == expected
    assert cmap.name == name
    if norm.vmin < 0 < norm.vmax:
        assert norm(0) == 0.5  # the colour of neither for nor against
    if kind == "text":
        drawn = [word.get_bbox_patch().get_facecolor() for word in display.text_]
        assert_allclose(drawn, [cmap(norm(value)) for value in values])
    else:
        assert display.points_.get_clim() == expected
        assert display.points_.get_cmap().name == name


def test_bars_end_where_asked():
    draw = TokenImportanceDisplay.from_importance
    assert draw([-1.0, 2.0], vmin=-5, vmax=7).ax_.get_xlim() == (-5, 7)
    left, _ = draw([-1.0, 2.0]).ax_.get_xlim()
    assert draw([-1.0, 2.0], vmax=7).ax_.get_xlim() == (left, 7)


@pytest.mark.parametrize("kind", ["bar", "text", "points"])
def test_importance_goes_without_a_colour_bar_and_its_ends_in_order(kind):
    points = np.ones((2, 2))
    bare = TokenImportanceDisplay.from_importance(
        [-1.0, 2.0], points=points, kind=kind, colorbar=False
    )
    assert bare.colorbar_ is None
    assert bare.figure_.axes == [bare.ax_]
    bare.figure_.canvas.draw()
    bare.plot(kind=kind)
    assert (bare.colorbar_ is None) == (kind == "bar")
    plt.close("all")
    for ends in ({"vmin": 1, "vmax": 1}, {"vmin": 3}, {"vmax": np.nan}):
        with pytest.raises(ValueError, match="vmin must be less than vmax, but they are"):
            bare.plot(kind=kind, **ends)
    assert not plt.get_fignums()


@pytest.mark.parametrize(
    ("kind", "values"), [("bar", [0.0]), ("text", [0.0, 0.0]), ("points", [0.0, 1.0])]
)
def test_constant_and_single_importance_is_drawn(kind, values):
    display = TokenImportanceDisplay.from_importance(
        values, points=np.ones((len(values), 2)), kind=kind
    )
    display.figure_.canvas.draw()


# The library ----------------------------------------------------------------------------------

UNTIL_DRAWN = """
import sys
import skattn.display
assert "matplotlib" not in sys.modules
sys.modules["matplotlib"] = None  # not installed
try:
    skattn.display.AttentionDisplay.from_weights([[1.0]])
except ImportError as error:
    print(error)
"""


def test_matplotlib_is_imported_when_something_is_drawn():
    done = subprocess.run([sys.executable, "-c", UNTIL_DRAWN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "matplotlib" in done.stdout
    assert "pip install 'skattn[plot]'" in done.stdout


def test_an_error_inside_an_optional_library_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("import surely_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_there"):
        import_optional("broken_library", "plot")
    with pytest.raises(ImportError, match="skattn.plot"):
        import_optional("surely_not_there", "plot")

"""
Across 500 tokens in one step
=============================

A sequence starts with some facts, continues with a lot of noise, and ends with a question about the
facts. A model that reads from left to right must carry the facts through every step in between.
Attention compares the question with every token directly and takes the value of the token that
matches, from 5 tokens away or from 500. This example measures both models by distance.
"""

# %%
# Six items, a gap, a question
# ----------------------------
# A sequence begins with six items, one of each kind, in random order. Each item has a random
# number. Fillers with random numbers and no kind fill the gap. The last token is a question: it
# names a kind, and the answer is the number of the item of that kind.

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from threadpoolctl import threadpool_limits

from skattn import AttentionRegressor

threadpool_limits(1)  # products are small here: threads would wait for each other

N_KINDS = 6
GAPS = [5, 10, 20, 50, 100, 200, 500]


def make_sequences(n_samples, gap, random_state):
    """Sequences (n_samples, 6 + gap + 1, 8), the items' numbers by kind, and the kind asked for.

    A token has six columns for its kind, one for its number, and one that marks the question.
    """
    rng = np.random.default_rng(random_state)
    rows = np.arange(n_samples)
    X = np.zeros((n_samples, N_KINDS + gap + 1, N_KINDS + 2))
    numbers = rng.normal(size=(n_samples, N_KINDS))  # by kind
    kinds = rng.permuted(np.tile(np.arange(N_KINDS), (n_samples, 1)), axis=1)  # by place
    X[rows[:, None], np.arange(N_KINDS), kinds] = 1
    X[:, :N_KINDS, N_KINDS] = np.take_along_axis(numbers, kinds, axis=1)
    X[:, N_KINDS:-1, N_KINDS] = rng.normal(size=(n_samples, gap))
    asked = rng.integers(N_KINDS, size=n_samples)
    X[rows, -1, asked] = X[:, -1, -1] = 1
    return X, numbers, asked


# %%
# Attention, trained on short gaps
# --------------------------------
# One head is trained once, on gaps of 5 to 30 tokens. There is a target per token
# (``pooling=None``): the question has a number, and all other tokens have NaN, so they are not
# scored but are context. The answer depends on content only: the kind of the question and the kind
# of the item.

X_train, y_train = [], []
for gap in (5, 8, 12, 16, 20, 25, 30):
    X, numbers, asked = make_sequences(60, gap, random_state=gap)
    X_train += list(X)
    for tokens, number in zip(X, numbers[np.arange(60), asked], strict=True):
        y_train.append(np.append(np.full(len(tokens) - 1, np.nan), number))


def attention(alpha):
    """A fit with one head."""
    model = AttentionRegressor(
        n_heads=1, pooling=None, score_statistics=False, alpha=alpha, tol=None, random_state=0
    )
    return model.fit(X_train, y_train)


models = {"attention": attention(1e-5), "attention, alpha=1e-3": attention(1e-3)}

# %%
# Reading from left to right
# --------------------------
# The rival is an echo-state network: 100 units read one token at a time with fixed random weights,
# and a ridge regression reads the final state. The leak is the share of the state that each step
# replaces: with 1 the network forgets at once, with a smaller leak it remembers longer.
#
# We give the network all the help we can. Its inputs have one column per kind for the number, so it
# need not find out which number belongs to which kind. It has one ridge regression per question, so
# it need not compare kinds. And its regressions are trained again for every gap, on that gap.


class EchoState:
    """States after the last token of sequences, by fixed random weights, one in ten not zero."""

    def __init__(self, leak, n_units=100, radius=0.99, random_state=0):
        rng = np.random.default_rng(random_state)
        W = rng.normal(size=(n_units, n_units)) * (rng.random((n_units, n_units)) < 0.1)
        self.W = csr_array(W * (radius / np.abs(np.linalg.eigvals(W)).max()))
        self.W_in = csr_array(0.1 * rng.normal(size=(n_units, 2 * N_KINDS + 1)))
        self.leak = leak

    def states(self, X):
        """The state (n_samples, n_units) at the end."""
        kind, number, is_question = X[..., :N_KINDS], X[..., [N_KINDS]], X[..., [-1]]
        is_filler = kind.sum(axis=-1, keepdims=True) == 0
        inputs = np.concatenate([kind * number, is_filler * number, kind * is_question], axis=-1)
        inputs = np.ascontiguousarray(inputs.transpose(1, 2, 0))  # (n_tokens, 13, n_samples)
        h = np.zeros((self.W.shape[0], len(X)))
        for u in inputs:
            h = (1 - self.leak) * h + self.leak * np.tanh(self.W @ h + self.W_in @ u)
        return h.T


leaks = [1.0, 0.3, 0.1, 0.03]
networks = {f"recurrent, leak {leak:g}": EchoState(leak) for leak in leaks}

# %%
# Two measures by distance
# ------------------------
# The first measure is the R² of the answers on new sequences. The second measures how much of the
# item is left at the end. For attention it is the weight of the question's row on the right item.
# For a recurrent network it is the change of the final state when the number of the item grows by
# one, divided by the change of the state right after the item.

answers = {name: [] for name in [*models, *networks]}
present = {name: [] for name in [*models, *networks]}
n_train, n_test = 300, 120
for gap in GAPS:
    X, numbers, asked = make_sequences(n_test, gap, random_state=1000 + gap)
    rows = np.arange(n_test)
    truth = numbers[rows, asked]
    at = X[:, :N_KINDS, :N_KINDS][rows, :, asked].argmax(axis=1)  # where the item stands

    for name, model in models.items():
        answers[name].append(r2_score(truth, [tokens[-1] for tokens in model.predict(X)]))
        A = model.attention_weights(X[:40])
        present[name].append(np.mean([A_i[0, -1, k] for A_i, k in zip(A, at[:40], strict=True)]))

    X_gap, numbers_gap, _ = make_sequences(n_train, gap, random_state=2000 + gap)
    moved = X[:40].copy()
    moved[rows[:40], at[:40], N_KINDS] += 1
    for name, network in networks.items():
        H = network.states(np.concatenate([X_gap, X, moved]))
        H_train, H_test, H_moved = np.split(H, [n_train, n_train + n_test])
        ridge = RidgeCV(alphas=np.logspace(-8, 2, 6), alpha_per_target=True)
        predicted = ridge.fit(H_train, numbers_gap).predict(H_test)[rows, asked]
        answers[name].append(r2_score(truth, predicted))
        just_read = network.leak * np.linalg.norm(network.W_in.toarray()[:, asked[:40]], axis=0)
        change = np.linalg.norm(H_moved - H_test[:40], axis=1)
        present[name].append(np.mean(change / just_read))

for title, table in (("R² of the answers", answers), ("Share of the item that is left", present)):
    print(f"{title:<30}" + "".join(f"{gap:>8}" for gap in GAPS))
    for name, values in table.items():
        print(f"{name:<30}" + "".join(f"{value:>8.3f}" for value in values))
    print()
# %%
# A recurrent state has a horizon, attention has none
# ---------------------------------------------------
# A recurrent state forgets at a pace that its leak fixes in advance. There are as many steps
# between the item and the answer as the gap is long, and each step loses a share. The slowest
# network still gets most of the answer across 500 tokens, from the tenth of the item that is left.
# Attention has one step between any two tokens, and distance does not occur in its formula. It was
# trained on gaps of up to 30 tokens.
#
# Attention has a price. A recurrent state is 100 numbers for any length, but attention keeps every
# token and compares all pairs: n^2 comparisons.

assert min(answers["attention"]) > 0.99
assert min(present["attention"]) > 0.9
for name in list(networks)[:3]:
    assert answers[name][0] > 0.7 and answers[name][-1] < 0.1
for name in networks:
    assert np.all(np.diff(present[name]) < 0)
reach = [sum(value > 0.5 for value in answers[name]) for name in networks]
assert np.all(np.diff(reach) > 0)  # the smaller the leak, the farther

# %%
# The dashed line is attention with the default penalty; the solid line has almost no penalty. A
# penalty keeps scores small, and the small weights of 500 fillers add up. So the number of other
# tokens matters, by its logarithm, although their distance does not.
#
# The figure does not show networks with learned gates, for example an LSTM, which can learn to keep
# an item for longer. It does not show questions about positions either: for these, tokens need
# positions as features (see ``plot_word_order.py``).

orange = "#D55E00"  # differs from viridis' blues and greens for any colour vision
colours = plt.get_cmap("viridis")(np.linspace(0, 0.75, len(networks)))
fig, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained", sharex=True)
for ax, table, title in (
    (axes[0], answers, "R² of the answers"),
    (axes[1], present, "Share of the item that is left at the end"),
):
    for (name, values), colour in zip(table.items(), [orange, orange, *colours], strict=True):
        is_attention = name.startswith("attention")
        ax.plot(
            GAPS,
            values,
            marker="o" if is_attention else "s",
            color=colour,
            linestyle="--" if "alpha" in name else "-",
            linewidth=3.5 if is_attention else 1.5,
            markersize=6 if is_attention else 5,
            label=name,
            zorder=2 if is_attention else 3,
        )
    ax.set_xscale("log")
    ax.set_xticks(GAPS, GAPS)
    ax.minorticks_off()
    ax.set(xlabel="tokens between the items and the question", ylim=(-0.08, 1.05))
    ax.set_title(title, fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].axvspan(5, 30, color="0.93", zorder=0)
axes[0].text(10.5, 0.5, "attention\ntrained here", color="0.35", fontsize=9)
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)

path = Path(__file__).parent / "_output" / "content_routing.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"Figure: {path.relative_to(Path(__file__).parent.parent)}")

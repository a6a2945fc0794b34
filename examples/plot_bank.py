"""
One word, two meanings
======================

A table of word vectors, for example GloVe, has one vector for each word. *Bank* has the same vector
in "the bank gave us a loan" and in "we sat on the bank and watched the boats". No model on top of
this vector can tell the two meanings apart. It needs a vector for *bank in this sentence*, and
attention computes one.

The task is to predict which bank is meant. Each training sentence has a label for this one word.
"""

# %%
# A small language
# ----------------
# There are eight words about rivers, eight about money, and sixteen that go with both. As in GloVe,
# the vectors of one topic lie around a common centre. The vector of *bank* lies between the two
# centres, because the word occurs with both topics.

import os
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, silhouette_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import AttentionClassifier, TokenEmbedder
from skattn.datasets import make_word_senses

rng = np.random.default_rng(0)
RIVER, MONEY = 0, 1
topics = [
    "river water boat shore reed fish mud ferry".split(),
    "money loan cash account teller credit vault interest".split(),
]
common = "we saw the old near went long morning a with sat good day to then she".split()

centres = rng.normal(size=(2, 12))
vectors = {word: 1.2 * rng.normal(size=12) for word in common}
for centre, members in zip(centres, topics, strict=True):
    vectors |= {word: centre + 0.5 * rng.normal(size=12) for word in members}
vectors["bank"] = centres.mean(axis=0) + 0.3 * rng.normal(size=12)


def make_sentences(n_sentences, random_state):
    """Lists of words, the meaning of *bank* in each, and its position."""
    rng = np.random.default_rng(random_state)
    sentences, places = [], []
    senses = rng.permutation(np.arange(n_sentences) % 2)
    for sense in senses:
        telling = rng.choice(topics[sense], size=rng.integers(1, 3), replace=False)
        rest = rng.choice(common, size=rng.integers(3, 7), replace=False)
        sentences.append(rng.permutation(["bank", *telling, *rest]).tolist())
        places.append(sentences[-1].index("bank"))
    return sentences, senses, places


def only_at(places, lengths, labels):
    """A target per token: the label at the given places, None elsewhere."""
    targets = [np.full(length, None, dtype=object) for length in lengths]
    for target, place, label in zip(targets, places, labels, strict=True):
        target[place] = label
    return targets


sentences, senses, places = make_sentences(300, random_state=1)
new_sentences, new_senses, new_places = make_sentences(300, random_state=2)
embedder = TokenEmbedder(vectors, unknown="error").fit(sentences)
X, X_new = embedder.transform(sentences), embedder.transform(new_sentences)
for i in (0, 1, 2):
    print(f"{('river', 'money')[new_senses[i]]:<8}{' '.join(new_sentences[i])}")

# %%
# Three vectors for bank
# ----------------------
# We compare three vectors: the one in the table, the output of the attention formula with identity
# projections (nothing is learned), and the output after a fit. There is a target per token
# (``pooling=None``): *bank* has a label and all other words have None. They are not scored, but
# they are context.

untrained, trained = (
    AttentionClassifier(n_heads=1, pooling=None, random_state=0, **parameters).fit(
        X, only_at(places, X.lengths, senses)
    )
    for parameters in (
        {"init": "identity", "d_k": 12, "d_v": 12, "score_statistics": False, "max_iter": 0},
        {"alpha": 1e-2},
    )
)


def of_bank(tokens, places):
    """The row of *bank* among the tokens of each set."""
    return np.array([rows[place] for rows, place in zip(tokens, places, strict=True)])


banks = {
    "its own": (of_bank(X, places), of_bank(X_new, new_places)),
    "in context, untrained": (
        of_bank(untrained.contextualize(X), places),
        of_bank(untrained.contextualize(X_new), new_places),
    ),
    "in context, trained": (
        of_bank(trained.contextualize(X), places),
        of_bank(trained.contextualize(X_new), new_places),
    ),
}
means = tuple(np.array([rows.mean(axis=0) for rows in tokens]) for tokens in (X, X_new))
accuracy, silhouette = {}, {}
print(f"\n{'vector of bank':<26}{'test accuracy':>14}{'silhouette':>12}")
for name, (rows, new_rows) in [*banks.items(), ("mean of the sentence", means)]:
    reader = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, senses)
    accuracy[name] = reader.score(new_rows, new_senses)
    silhouette[name] = silhouette_score(new_rows, new_senses)
    print(f"{name:<26}{accuracy[name]:>14.3f}{silhouette[name]:>12.3f}")

assert np.ptp(banks["its own"][1], axis=0).max() == 0  # one vector everywhere
assert accuracy["its own"] == 0.5 and silhouette["its own"] == 0
assert accuracy["in context, trained"] > 0.97 and accuracy["mean of the sentence"] > 0.9
assert silhouette["in context, trained"] > 0.5 > silhouette["in context, untrained"] > 0

# %%
# The weights show where the meaning came from.

telling = set(topics[RIVER] + topics[MONEY])
shares, even = [], []
for words, A, place in zip(
    new_sentences, trained.attention_weights(X_new), new_places, strict=True
):
    is_telling = np.array([word in telling for word in words])
    shares.append(A[0, place, is_telling].sum())
    even.append(is_telling.mean())
print(
    f"\nBank gives {np.mean(shares):.0%} of its attention to words of a topic, which are "
    f"{np.mean(even):.0%} of the words."
)
assert np.mean(shares) > 2 * np.mean(even)

# %%
# When the average of the neighbours fails
# ----------------------------------------
# So far an average of the sentence would have been enough. The average fails on
# :func:`skattn.datasets.make_word_senses`: four words have two meanings each, and a sentence has
# one of these words and cues for all four. The word must find the cues that belong to *it*.


def rows_where(tokens, targets):
    """Rows and labels of the tokens that have a target."""
    scored = [target != None for target in targets]  # noqa: E711, element by element
    rows = [t[k] for t, k in zip(tokens, scored, strict=True)]
    labels = [t[k] for t, k in zip(targets, scored, strict=True)]
    return np.concatenate(rows), np.concatenate(labels).astype(int)


S, S_targets = make_word_senses(400, random_state=0)
S_new, S_new_targets = make_word_senses(1000, random_state=1)
(own, labels), (new_own, new_labels) = rows_where(S, S_targets), rows_where(S_new, S_new_targets)
mean, new_mean = (np.array([t.mean(axis=0) for t in tokens]) for tokens in (S, S_new))
hard = {
    "its own": LogisticRegression().fit(own, labels).score(new_own, new_labels),
    "mean of the sentence": LogisticRegression().fit(mean, labels).score(new_mean, new_labels),
    "in context, trained": AttentionClassifier(
        n_heads=1, pooling=None, alpha=1e-2, max_iter=300, tol=1e-3, random_state=0
    )
    .fit(S, S_targets)
    .score(S_new, S_new_targets),
}
print(f"\n{'four ambiguous words':<26}{'test accuracy':>14}")
for name, score in hard.items():
    print(f"{name:<26}{score:>14.3f}")
assert hard["in context, trained"] > 0.97
assert hard["its own"] < 0.6 and hard["mean of the sentence"] < 0.7

# %%
# Real sentences
# --------------
# These are sentences from Wikipedia with GloVe vectors, if the folder in SKATTN_DATA has them. The
# bank of a river is rare there, 1 in 23, so we balance the classes in the fit and measure the AUC.
# The model reads ten words on either side.

folder = Path(os.environ.get("SKATTN_DATA", ""))
files = [folder / name for name in ("wsd_bank.npz", "glove50_vocab.npz")]
if all(file.is_file() for file in files):
    with np.load(files[0]) as data, np.load(files[1]) as glove:
        is_near = np.abs(data["tokens"][:, 1]) <= 10
        ids = np.split(data["tokens"][:, 0], data["offsets"][1:-1])
        near = np.split(is_near, data["offsets"][1:-1])
        is_river, is_train = data["y"] == 1, data["split"] == "train"
        table = glove["vectors"].astype(float)
        bank = table[glove["words"] == "bank"]  # the texts leave it out, so we put it in front
    sets = [np.vstack([bank, table[i[k]]]) for i, k in zip(ids, near, strict=True)]
    targets = only_at(np.zeros(len(sets), int), [len(tokens) for tokens in sets], is_river * 1)
    train, test = np.flatnonzero(is_train), np.flatnonzero(~is_train)
    model = AttentionClassifier(
        n_heads=1, pooling=None, alpha=0.1, class_weight="balanced", tol=1e-3, random_state=0
    ).fit([sets[i] for i in train], [targets[i] for i in train])
    log_odds = [rows[0] for rows in model.decision_function([sets[i] for i in test])]
    averages = np.array([tokens.mean(axis=0) for tokens in sets])
    averaged = make_pipeline(
        StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced", max_iter=1000)
    ).fit(averages[train], is_river[train])
    constant = DummyClassifier().fit(averages[train], is_river[train])
    real = {
        "its own": constant.predict_proba(averages[test])[:, 1],
        "mean of the neighbours": averaged.decision_function(averages[test]),
        "in context, trained": np.array(log_odds),
    }
    real = {name: roc_auc_score(is_river[test], score) for name, score in real.items()}
    print(f"\n{f'Wikipedia, {len(test)} sentences':<26}{'test AUC':>14}")
    for name, auc in real.items():
        print(f"{name:<26}{auc:>14.3f}")
    assert real["its own"] == 0.5
    assert real["in context, trained"] > 0.93
else:
    print("\nReal sentences: skipped, there is no wsd_bank and glove50_vocab in SKATTN_DATA.")

# %%
# The picture
# -----------
# The left panel shows the vocabulary on its two main directions, with one point for *bank*. The
# other panels show *bank* in 300 new sentences, coloured by its meaning. The formula alone moves
# *bank* towards its neighbours, as any average does. The fit learns which neighbours matter.
#
# The figure does not show that this task needs attention. An average of the neighbours is as good
# on the real sentences and nearly as good in the small language, because a topic depends only on
# which words occur. The average fails with the four ambiguous words. The silhouettes are computed
# from the full vectors, not from the two directions in the figure.

blue, orange = "#0072B2", "#D55E00"  # these differ for any colour vision
fig, axes = plt.subplots(1, 3, figsize=(12.5, 4.5), layout="constrained")
plane = PCA(n_components=2).fit(np.array([vectors[word] for members in topics for word in members]))
ax = axes[0]
looks = [(topics[0], blue, "o"), (topics[1], orange, "s"), (common, "0.7", ".")]
for members, colour, marker in looks:
    points = plane.transform(np.array([vectors[word] for word in members]))
    ax.scatter(*points.T, s=28, color=colour, marker=marker)
    for word, point in zip(members, points, strict=True):
        if members is not common:
            x, side = (-5, "right") if word in ("loan", "credit", "shore") else (4, "left")
            at = (x, -9 if word == "vault" else 3)
            ax.annotate(
                word, point, at, textcoords="offset points", ha=side, fontsize=9, color=colour
            )
point = plane.transform([vectors["bank"]])[0]
ax.scatter(*point, s=170, color="black", marker="*", zorder=3)
ax.annotate("bank", point, (7, 6), textcoords="offset points", fontsize=12, fontweight="bold")
ax.margins(0.14)
ax.set_title("A vector for each word\ngrey: words that go with either", fontsize=11)

for ax, name in zip(axes[1:], list(banks)[1:], strict=True):
    rows = banks[name][1]
    points = PCA(n_components=2).fit_transform(rows)
    for sense, colour, marker in ((RIVER, blue, "o"), (MONEY, orange, "s")):
        ax.scatter(
            *points[new_senses == sense].T,
            s=20,
            color=colour,
            marker=marker,
            alpha=0.65,
            linewidths=0,
            label="river" if sense == RIVER else "money",
        )
    ax.set_title(
        f"Bank {name}\naccuracy {accuracy[name]:.2f}, silhouette {silhouette[name]:.2f}",
        fontsize=11,
    )
axes[1].legend(frameon=False, loc="best")
for ax in axes:
    ax.set(xticks=[], yticks=[])

path = Path(__file__).parent / "_output" / "bank.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"\nFigure: {path.relative_to(Path(__file__).parent.parent)}")

"""
Dog bites man, man bites dog
============================

Attention sees a set of words, and *dog bites man* is the same set as *man bites dog*. Who bites
whom? This example shows that no training can tell the two apart if the tokens carry no positions,
and that a `PositionalEncoder` in the pipeline solves the problem.
"""

# %%
# Sentences from a small grammar
# ------------------------------
# Each sentence has an animal and a person, and one of them does something to the other. Some other
# words shift their positions. The label is 1 if the animal acts on the person.

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import AttentionContextualizer, PositionalEncoder, SetPooler, TokenEmbedder

rng = np.random.default_rng(0)
words = {
    "animal": "dog cat horse goose snake wasp donkey parrot".split(),
    "person": "man woman boy girl farmer sailor teacher baker".split(),
    "verb": "bites chases scares follows kicks hears".split(),
    "adjective": "old small angry tired happy".split(),
    "adverb": "yesterday suddenly often there".split(),
}


def noun_phrase(noun):
    """The noun alone, or with an article and an adjective."""
    return f"the {rng.choice(words['adjective'])} {noun}" if rng.random() < 0.5 else noun


def sentence_and_mirror(animal, person):
    """A sentence in which the animal acts, and the same sentence with the two exchanged."""
    sentence = f"{noun_phrase('{0}')} {rng.choice(words['verb'])} {noun_phrase('{1}')}"
    if rng.random() < 0.5:
        sentence = f"{rng.choice(words['adverb'])} {sentence}"
    return sentence.format(animal, person), sentence.format(person, animal)


# %%
# A training sentence is one sentence of a pair, at random. Test sentences come in pairs of the same
# words, one with each label. No test pair of animal and person occurs in training, so a model must
# learn about kinds of words and about their order.

met = [(animal, person) for animal in words["animal"] for person in words["person"]]
met = [met[i] for i in rng.permutation(np.arange(1, len(met)))]  # all but dog and man

y_train = rng.integers(0, 2, size=400)
train = [sentence_and_mirror(*met[i % 40])[1 - y] for i, y in enumerate(y_train)]

test_pairs = [sentence_and_mirror(*met[40 + i % 23]) for i in range(199)]
test_pairs.append(("dog bites man", "man bites dog"))
test = [sentence for pair in test_pairs for sentence in pair]
y_test = np.tile([1, 0], len(test_pairs))

for i in (0, 1, 199):
    print(f"1  {test_pairs[i][0]:<45} 0  {test_pairs[i][1]}")

# %%
# Four models
# -----------
# We make up word vectors in which words of one kind lie close together, as in vectors trained on
# text. `TokenEmbedder` also reads the vectors of GloVe or gensim. Two models get the words alone,
# and two get eight more columns with the position of each word. In both cases one model pools plain
# statistics of every column and one learns attention.

vectors = {"the": rng.normal(size=8)}
for members in words.values():
    centre = rng.normal(size=8)
    vectors |= {word: centre + 0.3 * rng.normal(size=8) for word in members}

embedder = TokenEmbedder(vectors, unknown="error")
positions = PositionalEncoder(mode="append", n_features=8, max_period=10)
statistics = make_pipeline(SetPooler(), StandardScaler())
attention = AttentionContextualizer(alpha=3e-3, tol=1e-3, max_iter=1000, random_state=0)

models = {
    "statistics of words": make_pipeline(embedder, statistics, LogisticRegression()),
    "statistics of words and positions": make_pipeline(
        embedder, positions, statistics, LogisticRegression()
    ),
    "attention to words": make_pipeline(embedder, attention, LogisticRegression()),
    "attention to words and positions": make_pipeline(
        embedder, positions, attention, LogisticRegression()
    ),
}

# %%
# Three of them cannot know
# -------------------------
# Without positions a sentence and its mirror image are the same set. Any model of sets gives the
# same answer for both, so it is right for exactly one of them, and its accuracy is one half.
# Statistics of positions do not help: they show which words and which positions occur, but not
# which word is at which position. Attention uses a word together with its position.

accuracy, log_odds = {}, {}
print(f"\n{'accuracy':36}{'train':>6}{'test':>7}   largest difference of log-odds in a pair")
for name, model in models.items():
    model = clone(model).fit(train, y_train)  # the steps are shared, the fits are not
    accuracy[name] = model.score(test, y_test)
    log_odds[name] = model.decision_function(test).reshape(-1, 2)  # sentence, mirror image
    difference = np.abs(np.diff(log_odds[name], axis=1)).max()
    print(f"{name:36}{model.score(train, y_train):6.3f}{accuracy[name]:7.3f}   {difference:.1e}")
    if name == "attention to words and positions":
        assert accuracy[name] >= 0.95
    else:
        assert accuracy[name] == 0.5
        assert difference < 1e-9  # round-off

for sentence, (_, p) in zip(test[-2:], model.predict_proba(test[-2:]), strict=True):
    print(f"{sentence}: the animal acts with probability {p:.3f}")
assert model.predict(["dog bites man", "man bites dog"]).tolist() == [1, 0]

# %%
# There is another way to use order: with ``mask="causal"`` a token attends only to itself and the
# tokens before it. The output then depends on the order even if words carry no positions.

causal = clone(models["attention to words"]).set_params(attentioncontextualizer__mask="causal")
accuracy["causal"] = causal.fit(train, y_train).score(test, y_test)
print(f"\nattention to words, with a causal mask: test accuracy {accuracy['causal']:.3f}")
assert accuracy["causal"] >= 0.95

# %%
# The picture
# -----------
# Each point is a pair of test sentences. The horizontal axis is the log-odds that the animal acts
# for the sentence in which it does, and the vertical axis is the same for the mirror image. Without
# positions all points lie on the diagonal. Some are far out, because the model has learned facts
# about single words that held in training by chance: it is certain, and wrong half of the time.
#
# The figure does not show how much order matters in real texts. Here nothing else matters, by
# construction. Topics and opinions mostly depend on which words occur, and then positions only add
# useless columns.

blue, orange = "#0072B2", "#D55E00"  # these differ for any colour vision
fig, axes = plt.subplots(1, 2, figsize=(9, 4.9), layout="constrained")
for ax, name, colour, offset in zip(
    axes, list(models)[2:], (orange, blue), ((-20, 0), (-50, 44)), strict=True
):
    points = log_odds[name]
    limit = 1.15 * np.abs(points).max()
    ax.fill_between([0, limit], -limit, 0, color="0.93", zorder=0)
    ax.axhline(0, color="0.6", linewidth=0.8)
    ax.axvline(0, color="0.6", linewidth=0.8)
    ax.scatter(*points.T, s=22, color=colour, alpha=0.5, linewidths=0)
    ax.scatter(*points[-1], s=60, facecolors="none", edgecolors="black", zorder=3)
    ax.annotate(
        "dog bites man,\nman bites dog",
        points[-1],
        offset,
        textcoords="offset points",
        ha="right",
        va="center",
        arrowprops={"arrowstyle": "-", "color": "0.2"},
    )
    ax.text(0.97 * limit, -0.97 * limit, "both right", ha="right", va="bottom", color="0.35")
    ax.text(-0.97 * limit, 0.97 * limit, "both wrong", ha="left", va="top", color="0.35")
    ax.text(0.97 * limit, 0.97 * limit, "one right", ha="right", va="top", color="0.35")
    ax.text(-0.97 * limit, -0.97 * limit, "one right", ha="left", va="bottom", color="0.35")
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit), box_aspect=1)
    ax.set_title(f"{name.capitalize()}: accuracy {accuracy[name]:.2f}", fontsize=11)
    ax.set_xlabel("log-odds that the animal acts, in the sentence")
axes[0].set_ylabel("log-odds, in its mirror image")

path = Path(__file__).parent / "_output" / "word_order.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"\nFigure: {path.relative_to(Path(__file__).parent.parent)}")

"""
Dog bites man, man bites dog
============================

Attention sees a set of words, and *dog bites man* is the same set as *man bites dog*. Who bites
whom? This example shows that no training whatever can tell the two apart while the tokens do not
say where they stand, and that a `PositionalEncoder` in the pipeline settles it.
"""

# %%
# Sentences from a small grammar
# ------------------------------
# An animal and a person, one of whom does something to the other, and some decoration that moves
# them about. The label is 1 if the animal acts and the person suffers.

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
    """A sentence in which the animal acts, and the same with the two in each other's place."""
    sentence = f"{noun_phrase('{0}')} {rng.choice(words['verb'])} {noun_phrase('{1}')}"
    if rng.random() < 0.5:
        sentence = f"{rng.choice(words['adverb'])} {sentence}"
    return sentence.format(animal, person), sentence.format(person, animal)


# %%
# A training sentence is one of such a pair, by chance. Test sentences come in pairs: the same
# words twice, with both labels. No animal meets a person that it met in training, so what is
# learned must be about kinds of words and about their order.

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
# The word vectors are made here: words of one kind lie close together, as they do among vectors
# trained on text, of which `TokenEmbedder` takes those of GloVe or gensim just as well. Two models
# get the words alone, and two get eight more columns with the place of each. Of each two, one
# pools plain statistics of every column and one learns attention.

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
# Without positions a sentence and its mirror image are one set. Any model of sets gives both the
# same answer, so it is right about exactly one of the two: half of the test sentences, whatever it
# has learned. Statistics of positions are no help, as they say which words and which places there
# are, but not which word stands in which place. Attention takes a word and its place together.

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
# There is another way to see order: with ``mask="causal"`` a token attends to those before it
# only, so that who comes after whom is no secret even to words without positions.

causal = clone(models["attention to words"]).set_params(attentioncontextualizer__mask="causal")
accuracy["causal"] = causal.fit(train, y_train).score(test, y_test)
print(f"\nattention to words, with a causal mask: test accuracy {accuracy['causal']:.3f}")
assert accuracy["causal"] >= 0.95

# %%
# The picture
# -----------
# A point is a pair of test sentences; right is the model's belief that the animal acts in the
# sentence in which it does, up the same in the mirror image. Without positions all points lie on
# the diagonal. Some are far out, for the model has learned things about single words that held in
# training by chance: it is sure of itself, and right every other time.
#
# What the figure does not show: how much order matters to texts. Here it is all that matters, and
# by construction. Topics and opinions are mostly a matter of which words there are, and positions
# are then so many columns more to learn nothing from.

blue, orange = "#0072B2", "#D55E00"  # told apart with any colour vision
fig, axes = plt.subplots(1, 2, figsize=(9, 4.9), layout="constrained")
for ax, name, colour in zip(axes, list(models)[2:], (orange, blue), strict=True):
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
        (-50, 26),
        textcoords="offset points",
        ha="right",
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

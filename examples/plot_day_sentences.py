"""
A day with sentences: is the answer a number?
=============================================

A question is a set of words, and the label says whether its answer is a number, such as a count, a
date or a price (the TREC questions of Li and Roth, 2002). Words come as vectors that were trained
elsewhere (GloVe), and each knows its place, so order can count where it should.

Averages of word vectors are the usual start. What do they miss, and which words give it away?
"""

# %%

import os
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import AttentionClassifier, PositionalEncoder, SetPooler, TokenEmbedder
from skattn.display import TokenImportanceDisplay
from skattn.inspection import attention_diagnostics, token_importance
from skattn.pipelines import member_shares, set_pipeline

# %%
# The data
# --------
# From ``trec6.npz`` and ``glove50_vocab.npz``, where they are there: 300 questions to learn from,
# and the 500 that are kept for tests. Else questions are made up: what kind of answer they want is
# said by how they begin, and the same words occur further on without saying anything.


def load_questions():
    """Lists of words, True where a number is asked for, a mask of training, and word vectors."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SKATTN_DATA") or default)
    rng = np.random.default_rng(0)
    if (folder / "trec6.npz").exists() and (folder / "glove50_vocab.npz").exists():
        print("TREC questions and GloVe vectors, from the data folder.")
        data, glove = np.load(folder / "trec6.npz"), np.load(folder / "glove50_vocab.npz")
        words = glove["words"][data["tokens"][:, 0]]
        sentences = [s.tolist() for s in np.split(words, data["offsets"][1:-1])]
        number = data["class_names"][data["y"]] == "NUM"
        table = (glove["words"].tolist(), glove["vectors"])
        return sentences, number, data["split"] == "train", table
    print("No trec6.npz in SKATTN_DATA: made-up questions stand in for those of TREC.")
    openings = {True: ["how many", "when did", "how far", "what year"]}
    openings[False] = ["who was", "what is", "where did", "how can"]
    extra = " ".join(openings[True] + openings[False]).split()
    content = [f"word{i}" for i in range(200)]
    sentences, number = [], rng.random(1500) < 0.3
    for asked in number.tolist():
        rest = rng.choice(content, size=rng.integers(3, 9)).tolist()
        if rng.random() < 0.5:
            rest.insert(int(rng.integers(1, len(rest))), str(rng.choice(extra)))
        sentences.append(str(rng.choice(openings[asked])).split() + rest)
    known = sorted({*extra, *content})
    return sentences, number, np.arange(1500) < 1000, (known, rng.normal(size=(len(known), 50)))


sentences, number, is_train, table = load_questions()
rng = np.random.default_rng(0)
train = rng.permutation(np.flatnonzero(is_train))[:300]
test = np.flatnonzero(~is_train)
X, X_test = ([sentences[i] for i in part] for part in (train, test))

# %%
# The plain baselines, a strong stack, and attention alone
# --------------------------------------------------------
# Positions are appended as eight columns of waves. A question has about ten words, so waves longer
# than that would be all but constant: ``max_period=10``. Few words decide, so attention is pooled
# by a query of its own, ``pooling="attention"``, and not by the mean.

embed = TokenEmbedder(table)
place = PositionalEncoder(mode="append", n_features=8, max_period=10)
plain = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
stack = set_pipeline("classifier", cv=2)
attention = AttentionClassifier(pooling="attention", max_iter=100, tol=None, random_state=0)
models = {
    "means, linear": make_pipeline(embed, SetPooler(("mean",)), plain),
    "statistics, linear": make_pipeline(embed, SetPooler(), plain),
    'set_pipeline("classifier")': make_pipeline(embed, place, stack),
    "attention": make_pipeline(embed, place, attention),
}
scores = {"always no": 1 - number[test].mean()}
print(f"\n{len(test)} test questions")
print(f"{'model':<28}{'accuracy':>9}{'fit':>9}\n{'always no':<28}{scores['always no']:>9.3f}")
for name, model in models.items():
    start = time.perf_counter()
    model.fit(X, number[train])
    seconds = time.perf_counter() - start
    scores[name] = model.score(X_test, number[test])
    print(f"{name:<28}{scores[name]:>9.3f}{seconds:>7.1f} s", flush=True)
print("One standard error of an accuracy of .88 is 0.015.")

share = member_shares(stack).to_dict()
print("\nShares:", ", ".join(f"{name} {value:.2f}" for name, value in share.items()))
assert min(scores["attention"], scores['set_pipeline("classifier")']) > scores["means, linear"]

# %%
# What attention looked at
# ------------------------
# For every test question about a number: which word, when left out, makes the decision fall most?
# And does it stand among the first three? Weights and gradients are quicker answers to a similar
# question, and not always the same.

diagnostics = attention_diagnostics(models["attention"], X_test)
print("\n", diagnostics[["entropy", "effective_tokens", "self_weight", "verdict"]].round(2), sep="")
asks = [s for s, is_number in zip(X_test, number[test], strict=True) if is_number]
found = token_importance(models["attention"], asks, method="all", token_labels=asks)
print("\nRank correlation of three kinds of importance within a question:")
print(found.agreement.round(2))
most = found.frame.loc[found.frame.groupby("set")["leave_one_out"].idxmax()]
early = np.mean(most["token"] < 3)
chance = np.mean([min(1, 3 / len(words)) for words in asks])
common = most["label"].value_counts().head(5)
print(f"\nMissed most is one of the first three words in {early:.0%}; by chance in {chance:.0%}.")
print("Most often:", ", ".join(f"{word} ({n})" for word, n in common.items()))
assert early > chance + 0.15

# %%
# What the figure does not show: the mistakes. Drawn are the five questions, of six words or more,
# that the model holds most surely for questions about numbers.


blue, orange = "#0072B2", "#D55E00"  # told apart with any colour vision
fig = plt.figure(figsize=(11, 6.2), layout="constrained")
grid = fig.add_gridspec(6, 2, height_ratios=[7, 1, 1, 1, 1, 1])
left, middle = fig.add_subplot(grid[0, 0]), fig.add_subplot(grid[0, 1])
for ax, values, title in (
    (left, scores, "Test accuracy"),
    (middle, share, "Shares of the stack's members"),
):
    bars = ax.barh(list(values), list(values.values()), color="0.7" if ax is left else blue)
    ax.bar_label(bars, [f"{value:.2f}" for value in values.values()], padding=3)
    ax.invert_yaxis()
    ax.locator_params(axis="x", nbins=5)
    ax.set_title(title, fontsize=10)
    ax.set_xlim(right=1.15 * max(values.values()))
    ax.spines[["top", "right"]].set_visible(False)
left.patches[-1].set_color(orange)
long = [i for i in np.argsort(-found.decision) if len(asks[i]) >= 6]
for row, i in enumerate(long[:5], start=1):
    importance = found.frame.loc[found.frame["set"] == i, "leave_one_out"].to_numpy()
    display = TokenImportanceDisplay.from_importance(
        importance / np.abs(importance).max(),
        token_labels=asks[i],
        ax=fig.add_subplot(grid[row, :]),
        kind="text",
    )
    display.colorbar_.remove()
    if row == 1:
        said = "Words that speak for a number (purple) or against (orange), by leaving them out"
        display.ax_.set_title(said, fontsize=10, loc="left")


path = Path(__file__).parent / "_output" / "day_sentences.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"Figure: {path.relative_to(Path(__file__).parent.parent)}")

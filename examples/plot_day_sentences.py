"""
A day with sentences: is the answer a number?
=============================================

A question is a set of words. The label is True if the answer is a number, for example a count, a
date or a price (the TREC questions of Li and Roth, 2002). The word vectors were trained elsewhere
(GloVe), and each word carries its position, so the model can use the order of words.

Averages of word vectors are the usual start. What do they miss, and which words decide?
"""

# %%

import os
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cm import ScalarMappable
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
# If the data folder has ``trec6.npz`` and ``glove50_vocab.npz``, we train on 300 of their questions
# and test on the 500 test questions. Otherwise we make up questions with random word vectors. The
# first words decide which kind of answer a made-up question asks for. The same words can occur
# again at the end, where they mean nothing: "when did the king visit the castle in a song called
# why did".


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
    openings = {True: ["when did", "how often did", "what year did", "how far did"]}
    openings[False] = ["where did", "how did", "why did", "with whom did"]
    extra = " ".join(openings[True] + openings[False]).split()
    nouns = "queen king doctor painter farmer horse train village castle river film letter".split()
    verbs = "leave find visit paint see follow".split()
    places = "near behind after before with without".split()
    content = [*nouns, *verbs, *places, "the", "in", "a", "song", "called"]
    sentences, number = [], rng.random(1500) < 0.3
    for asked in number.tolist():
        one, other, third = rng.choice(nouns, size=3, replace=False)
        words = f"{rng.choice(openings[asked])} the {one} {rng.choice(verbs)} the {other}"
        words += f" {rng.choice(places)} the {third}" if rng.random() < 0.5 else ""
        title = rng.choice(openings[True] + openings[False])
        words += f" in a song called {title}" if rng.random() < 0.5 else ""
        sentences.append(words.split())
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
# Positions are appended as eight columns of waves. A question has about ten words and longer waves
# would hardly change within it, hence ``max_period=10``. Few words decide, so the model pools by a
# learned query, ``pooling="attention"``, and not by the mean.

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
# For every test question about a number: which word lowers the decision most when it is left out,
# and is it among the first three words? Weights and gradients answer a similar question faster, but
# their answers can differ.

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
print(
    f"\nThe most important word is among the first three in {early:.0%} of the questions; a random "
    f"word in {chance:.0%}."
)
print("Most often:", ", ".join(f"{word} ({n})" for word, n in common.items()))
assert early > chance + 0.15

# %%
# The figure shows the five questions, of ten words or more, for which the model is most certain
# that the answer is a number. It does not show the mistakes.

grey, dark = "0.72", "0.35"  # purple and orange mean the sign of a word only
fig = plt.figure(figsize=(13, 4.6), layout="constrained")
of_models, of_words = fig.subfigures(1, 2, width_ratios=[1, 1.3])
upper, lower = of_models.subplots(2, 1)
rows = of_words.subplots(6, 1, height_ratios=[1, 1, 1, 1, 1, 0.3])
for ax, values, title in (
    (upper, scores, "Test accuracy"),
    (lower, share, "Shares of the stack's members"),
):
    bars = ax.barh(list(values), list(values.values()), color=grey)
    ax.bar_label(bars, [f"{value:.2f}" for value in values.values()], padding=3)
    ax.invert_yaxis()
    ax.locator_params(axis="x", nbins=5)
    ax.set_title(title, fontsize=10)
    ax.set_xlim(right=1.15 * max(values.values()))
    ax.spines[["top", "right"]].set_visible(False)
upper.patches[-1].set_color(dark)
long = [i for i in np.argsort(-found.decision) if len(asks[i]) >= 10][:5]
column = found.methods.index("leave_one_out")
limit = max(np.abs(found.importances[i][:, column]).max() for i in long)
for row, i in enumerate(long):
    TokenImportanceDisplay.from_importance(
        found,
        index=i,
        method="leave_one_out",
        ax=rows[row],
        kind="text",
        colorbar=False,
        vmin=-limit,
        vmax=limit,
    )
of_words.suptitle("Words that make the answer a number (purple) or not (orange)", fontsize=10)
scale = of_words.colorbar(
    ScalarMappable(plt.Normalize(-limit, limit), "PuOr"),
    cax=rows[5],
    orientation="horizontal",
)
scale.set_label("fall of the log-odds of a number when the word is left out", fontsize=9)

path = Path(__file__).parent / "_output" / "day_sentences.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"Figure: {path.relative_to(Path(__file__).parent.parent)}")

"""
A day with baskets: was there milk in it?
=========================================

A basket is the set of groceries on one receipt, of 168 kinds; the label says whether the customer
bought whole milk too, which was taken out of the basket (Hahsler, Hornik and Reutterer, 2006). A
basket has a handful of items, and what people buy is only weakly tied to milk.

Items are names, not numbers. So before any model there is the question of what vector an item
has, and to a linear model the answer matters much.
"""

# %%

import os
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import spearmanr
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import AttentionClassifier, SetPooler, TokenEmbedder
from skattn.inspection import attention_diagnostics, token_importance
from skattn.pipelines import member_shares, set_pipeline

# %%
# The data
# --------
# From ``groceries.npz``, where it is there: baskets of two items or more, 1000 to learn from and
# 3000 to test on. Else baskets are drawn, each about one or two of a dozen themes, and the themes
# go with milk more or less.


def load_baskets():
    """Lists of item numbers, the labels, and the names of items."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SKATTN_DATA") or default)
    if (folder / "groceries.npz").exists():
        print("Groceries, from the data folder.")
        data = np.load(folder / "groceries.npz")
        baskets = np.split(data["tokens"][:, 0], data["offsets"][1:-1])
        return [b.tolist() for b in baskets], data["y"], data["item_names"].tolist()
    print("No groceries.npz in SKATTN_DATA: generated baskets stand in for receipts.")
    rng = np.random.default_rng(0)
    theme, pull = rng.integers(12, size=168), rng.normal(scale=1.2, size=12)
    baskets, y = [], []
    for _ in range(9000):
        about = rng.choice(12, size=rng.integers(1, 3))
        of_theme = rng.random(168) * np.where(np.isin(theme, about), 1, 0.15)
        basket = np.argsort(-of_theme * rng.random(168))[: 1 + rng.geometric(0.25)]
        baskets.append(basket.tolist())
        y.append(rng.random() < 1 / (1 + np.exp(1.2 - pull[theme[basket]].mean())))
    return baskets, np.array(y, dtype=int), [f"item {i} of theme {t}" for i, t in enumerate(theme)]


baskets, y, names = load_baskets()
rng = np.random.default_rng(0)
order = rng.permutation([i for i, basket in enumerate(baskets) if len(basket) > 1])
train, test = order[:1000], order[1000:4000]
X, X_test = ([baskets[i] for i in part] for part in (train, test))

# %%
# Vectors of items
# ----------------
# ``TokenEmbedder("onehot")`` gives each item a feature of its own. Or items are known by the
# company they keep: all baskets but those of the test, whose labels nobody needs for this, tell
# how much more often than by chance two items meet. The leading singular vectors of the logarithm
# of that make a vector of 16 numbers for each item; one that was met in no basket gets zeros.

held = np.zeros((len(baskets), len(names)))
for i in np.setdiff1d(np.arange(len(baskets)), test):
    held[i, baskets[i]] = 1
together = held.T @ held
np.fill_diagonal(together, 0)
alone = together.sum(axis=0)
expected = np.maximum(np.outer(alone, alone) / together.sum(), 1e-9)
surprise = np.log(np.maximum(together / expected, 1))
U, s, _ = np.linalg.svd(surprise)
vectors = U[:, :16] * np.sqrt(s[:16])

# %%
# The plain baselines, a strong stack, and attention alone
# --------------------------------------------------------

onehot, company = TokenEmbedder("onehot"), TokenEmbedder(vectors)
plain = make_pipeline(SetPooler(("mean",)), StandardScaler(), LogisticRegression(C=0.1))
trees = HistGradientBoostingClassifier(max_iter=50, learning_rate=0.05, random_state=0)
stack = set_pipeline("classifier", cv=3)
attention = AttentionClassifier(alpha=0.01, max_iter=100, tol=None, random_state=0)
models = {
    "one-hot, linear": make_pipeline(onehot, plain),
    "one-hot, boosted trees": make_pipeline(onehot, SetPooler(("sum", "count")), trees),
    "company, linear": make_pipeline(company, SetPooler(), *plain[1:]),
    'company, set_pipeline("classifier")': make_pipeline(company, stack),
    "company, attention": make_pipeline(company, attention),
}
print(f"\n{'test AUC, 3000 baskets':<38}{'AUC':>6}{'fit':>9}")
scores = {}
for name, model in models.items():
    start = time.perf_counter()
    model.fit(X, y[train])
    seconds = time.perf_counter() - start
    scores[name] = roc_auc_score(y[test], model.predict_proba(X_test)[:, 1])
    print(f"{name:<38}{scores[name]:>6.3f}{seconds:>7.1f} s", flush=True)
print("One standard error of an AUC is about 0.011.")

# %%
# The signal is weak, and to a linear model one thing helps: to know items by the company they keep.
# One-hot, a thousand baskets are few for 168 items. Trees do well on counts, too, and what comes
# after the vectors makes little difference. The shares say which member had most to tell.

share = member_shares(stack).to_dict()
print("\nShares:", ", ".join(f"{name} {value:.2f}" for name, value in share.items()))
assert scores["company, linear"] > scores["one-hot, linear"] + 0.02
assert scores["company, attention"] > max(scores.values()) - 0.03
assert scores['company, set_pipeline("classifier")'] > max(scores.values()) - 0.04

# %%
# What attention looked at
# ------------------------
# Nothing in particular: the diagnostics find every head uniform. The penalty has switched
# attention off, so that the model is a linear one on means, fitted with care. That is an answer,
# too: that two items stand in one basket says little about milk that each did not say alone.

diagnostics = attention_diagnostics(models["company, attention"], X_test)
print("\n", diagnostics[["entropy", "effective_tokens", "verdict"]].round(2), sep="")
assert set(diagnostics["verdict"]) == {"uniform"}

# %%
# What each item said, then: the gradient of the decision times the item, mean over the test baskets
# that hold it. It should go with how often milk comes with that item, which the model was not told
# for these baskets.

labels = [[names[i] for i in basket] for basket in X_test]
found = token_importance(
    models["company, attention"], X_test, method="gradient", token_labels=labels
)
frame = found.frame.assign(milk=y[test][found.frame["set"]])
items = frame.groupby("label").agg({"gradient": "mean", "milk": "mean", "token": "size"})
items = items[items["token"] >= 60]
rho = spearmanr(items["gradient"], items["milk"]).statistic
print(f"\n{len(items)} items in 60 baskets or more: rank correlation with milk {rho:.2f}")
assert rho > 0.3

# %%
# What the figure does not show: causes. Nobody buys milk because of the baking powder.


blue, orange = "#0072B2", "#D55E00"  # told apart with any colour vision
fig, (left, middle, right) = plt.subplots(
    1, 3, figsize=(13, 4), width_ratios=[1, 1, 1.5], layout="constrained"
)
for ax, values, title in (
    (left, scores, "Test AUC"),
    (middle, share, "Shares of the stack's members"),
):
    bars = ax.barh(list(values), list(values.values()), color="0.7" if ax is left else blue)
    ax.bar_label(bars, [f"{value:.2f}" for value in values.values()], padding=3)
    ax.invert_yaxis()
    ax.set_title(title, fontsize=10)
    ax.set_xlim(right=1.15 * max(values.values()))
    ax.spines[["top", "right"]].set_visible(False)
left.patches[-1].set_color(orange)
left.set_xlim(left=0.5)
right.scatter(items["gradient"], items["milk"], s=items["token"] / 8, color="0.6")
ranked = items.sort_values("gradient")
for name, item in [*ranked.head(2).iterrows(), *ranked.tail(4).iterrows()]:
    side = "left" if item["gradient"] < 0 else "right"
    right.annotate(name, (item["gradient"], item["milk"]), fontsize=8, ha=side, va="bottom")
right.axhline(y[test].mean(), color="black", linestyle="--", linewidth=1)
right.set(xlabel="importance for milk, by gradient", ylabel="share of its test baskets with milk")
right.set_title("Frequent items; dashed: all baskets", fontsize=10)

path = Path(__file__).parent / "_output" / "day_baskets.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"Figure: {path.relative_to(Path(__file__).parent.parent)}")

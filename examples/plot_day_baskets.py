"""
A day with baskets: was there milk in it?
=========================================

A basket is the set of groceries on one receipt, of 168 kinds. Whole milk was taken out of the
baskets, and the label is 1 if the customer bought it (Hahsler, Hornik and Reutterer, 2006). A
basket has a handful of items, and they are only weakly related to milk.

Items are names, not numbers. So we must first choose a vector for each item, and this choice
matters much for a linear model.
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
# If the data folder has ``groceries.npz``, we use its baskets of two items or more: 1000 for
# training and 3000 for the test. Otherwise we draw random baskets. Each has one or two of a dozen
# themes, and the themes are related to milk to different degrees.


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
# ``TokenEmbedder("onehot")`` gives each item a feature of its own. The other vectors describe the
# company of an item. From all baskets outside the test, without their labels, we count how much
# more often than by chance two items occur together. The leading singular vectors of the logarithm
# of this ratio give 16 numbers for each item. An item that occurs in no basket gets zeros.

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
# The signal is weak. For a linear model, vectors from the company of items help: with one-hot
# vectors, a thousand baskets are few for 168 items. Trees on counts are good too, and the model
# after the vectors makes little difference. The shares show which members the stack relies on.

share = member_shares(stack).to_dict()
print("\nShares:", ", ".join(f"{name} {value:.2f}" for name, value in share.items()))
assert scores["company, linear"] > scores["one-hot, linear"] + 0.02
assert scores["company, attention"] > max(scores.values()) - 0.03
assert scores['company, set_pipeline("classifier")'] > max(scores.values()) - 0.04

# %%
# What attention looked at
# ------------------------
# Attention looked at nothing in particular: the diagnostics find every head uniform. The penalty
# has switched attention off, so the model is linear on means. This is an answer too: a pair of
# items predicts little about milk beyond its two items.

diagnostics = attention_diagnostics(models["company, attention"], X_test)
print("\n", diagnostics[["entropy", "effective_tokens", "verdict"]].round(2), sep="")
assert set(diagnostics["verdict"]) == {"uniform"}

# %%
# How important is each item? We take the gradient of the decision times the item, and average it
# over the test baskets with this item. It should be correlated with the share of these baskets that
# have milk. The model has not seen their labels.

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
# The figure does not show causes. Nobody buys milk because of the baking powder.

blue, orange = "#0072B2", "#D55E00"  # these differ for any colour vision
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
heights = {"left": [], "right": []}  # of the names drawn so far, so that they do not overlap
for name, item in [*ranked.head(2).iterrows(), *ranked[::-1].head(4).iterrows()]:
    side = "left" if item["gradient"] < 0 else "right"
    if all(abs(item["milk"] - height) > 0.03 for height in heights[side]):
        right.annotate(name, (item["gradient"], item["milk"]), fontsize=8, ha=side, va="bottom")
        heights[side].append(item["milk"])
right.axhline(y[test].mean(), color="black", linestyle="--", linewidth=1)
right.set(xlabel="importance for milk, by gradient", ylabel="share of its test baskets with milk")
right.set_title("Frequent items; dashed: all baskets", fontsize=10)

path = Path(__file__).parent / "_output" / "day_baskets.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"Figure: {path.relative_to(Path(__file__).parent.parent)}")

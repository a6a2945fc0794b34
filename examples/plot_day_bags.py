"""
A day with bags: which molecules smell of musk?
===============================================

A molecule is a bag of the shapes that it can bend into, 2 to 40 of them. Each shape is described by
166 distances to its surface. The molecule is a musk if one of its shapes fits the receptor in our
noses, but nobody knows which shape: there are 92 labels for 476 shapes (Dietterich et al., 1997).

What does attention add to averages here, and how much can 92 bags show?
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
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import AttentionClassifier, RaggedArray, SetPooler
from skattn.display import TokenImportanceDisplay
from skattn.inspection import attention_diagnostics, token_importance
from skattn.pipelines import member_shares, set_pipeline

# %%
# The data
# --------
# The file ``musk1.npz`` stacks all shapes and has offsets where each bag begins, exactly as a
# :class:`skattn.RaggedArray` stores them. Without the file, we draw random bags of the same size,
# in which every second shape of a musk is shifted in one direction.


def load_bags():
    """Bags and their labels, 1 for musk."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SKATTN_DATA") or default)
    if (folder / "musk1.npz").exists():
        print("Musk 1, from the data folder.")
        data = np.load(folder / "musk1.npz")
        return RaggedArray(data["tokens"].astype(float), data["offsets"]), data["y"]
    print("No musk1.npz in SKATTN_DATA: generated bags stand in for molecules.")
    rng = np.random.default_rng(0)
    y, lengths = np.arange(92) % 2, 2 + rng.geometric(0.3, size=92)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    of_shape = np.repeat(np.arange(92), lengths)
    shapes = rng.normal(size=(92, 166))[of_shape] + rng.normal(size=(len(of_shape), 166))
    fits = (y[of_shape] == 1) & ((np.arange(len(of_shape)) - offsets[of_shape]) % 2 == 0)
    return RaggedArray(shapes + np.outer(fits, 0.5 * rng.normal(size=166)), offsets), y


X, y = load_bags()
folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(y, y))

# %%
# The plain baseline, a strong stack, and attention alone
# -------------------------------------------------------
# There are too few bags for a test set, so we predict every bag by a model that was fitted on the
# other two thirds. One shape decides, so the model pools by the maximum. The bags are few and wide,
# so ``alpha`` is 0.1 and not 0.001.

plain = LogisticRegression(max_iter=1000)
attention = AttentionClassifier(pooling="max", alpha=0.1, max_iter=100, tol=None, random_state=0)
models = {
    "means, linear": make_pipeline(SetPooler(("mean",)), StandardScaler(), plain),
    "statistics, linear": make_pipeline(SetPooler(), StandardScaler(), plain),
    'set_pipeline("classifier")': set_pipeline("classifier", cv=2),
    "attention, max": attention,
}
print(f"\n{'held out, 92 bags':<28}{'accuracy':>9}{'AUC':>7}{'3 fits':>9}")
probabilities, shares = {}, []
for name, model in models.items():
    p, start = np.empty(len(y)), time.perf_counter()
    for train, test in folds:
        p[test] = model.fit(X[train], y[train]).predict_proba(X[test])[:, 1]
        if name.startswith("set_pipeline"):
            shares.append(member_shares(model))
    probabilities[name] = p
    right, auc = np.mean((p > 0.5) == y), roc_auc_score(y, p)
    seconds = time.perf_counter() - start
    print(f"{name:<28}{right:>9.2f}{auc:>7.2f}{seconds:>7.1f} s", flush=True)
print(f"One standard error of an accuracy is {np.sqrt(0.87 * 0.13 / 92):.3f}.")

# %%
# On the real bags all models are close, and the differences mean little. The shares of the stack
# are uncertain too, because 61 bags are few to compare its members on.

share = (sum(shares) / len(shares)).sort_values(ascending=False).to_dict()
print("\nShares:", ", ".join(f"{name} {value:.2f}" for name, value in share.items()))
accuracies = {name: np.mean((p > 0.5) == y) for name, p in probabilities.items()}
assert min(accuracies.values()) > 0.7
assert accuracies["attention, max"] > accuracies["means, linear"] - 0.05
assert accuracies['set_pipeline("classifier")'] > accuracies["means, linear"] - 0.02

# %%
# What attention looked at
# ------------------------
# We look at the last third again. A head whose rows have an entropy of 1 gives all shapes equal
# weights: it averages. If most heads average, then the maximum over shapes does the work, and the
# comparison of shapes adds little.

train, test = folds[-1]
attention.fit(X[train], y[train])
X_test = X[test]
columns = ["entropy", "effective_tokens", "self_weight", "verdict"]
print("\n", attention_diagnostics(attention, X_test)[columns].round(2), sep="")

# %%
# Which shape of a musk decides? There are three methods to find out. The plainest leaves a shape
# out and measures how far the decision falls. We check how far the methods agree.

found = token_importance(attention, X_test, method="all")
print("\nRank correlation of three kinds of importance within a bag:")
print(found.agreement.round(2))
assert found.agreement.loc["gradient", "leave_one_out"] > 0.3

# %%
# The figure shows the shapes of one held-out bag: among the bags of 5 to 12 shapes, the model is
# most certain that this one is a musk. In the real data no single shape matters much, because the
# shapes of this molecule are alike and one can replace another.
#
# The figure does not show which shape fits the receptor. Nobody measured that.

surest = np.where((X_test.lengths >= 5) & (X_test.lengths <= 12), found.decision, -np.inf).argmax()

grey, dark = "0.72", "0.35"  # purple and orange mean the sign of a shape only
fig, (left, middle, right) = plt.subplots(
    1, 3, figsize=(13, 4), width_ratios=[1, 1, 1.1], layout="constrained"
)
for ax, values, title in (
    (left, accuracies, "Accuracy, each bag held out once"),
    (middle, share, "Shares of the stack's members"),
):
    bars = ax.barh(list(values), list(values.values()), color=grey)
    ax.bar_label(bars, [f"{value:.2f}" for value in values.values()], padding=3)
    ax.invert_yaxis()
    ax.set_title(title, fontsize=10)
    ax.set_xlim(right=1.15 * max(values.values()))
    ax.spines[["top", "right"]].set_visible(False)
left.patches[-1].set_color(dark)
labels = [f"shape {k}" for k in range(X_test.lengths[surest])]
TokenImportanceDisplay.from_estimator(
    attention, X_test, surest, method="leave_one_out", token_labels=labels, ax=right
)
right.set_xlabel("fall of the log-odds without the shape")
right.set_title("For a musk (purple) or against (orange)", fontsize=10)

path = Path(__file__).parent / "_output" / "day_bags.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"Figure: {path.relative_to(Path(__file__).parent.parent)}")

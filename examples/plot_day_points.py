"""
A day with point clouds: three or five?
=======================================

A handwritten digit becomes a cloud of 30 points, the positions of inked pixels in no order. The
label is three or five (from the test images of MNIST, LeCun et al., 1998). The clouds are centred,
so their means contain almost nothing about the digit.

The two digits differ in where ink lies next to other ink. Which model sees that?
"""

# %%

import os
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import AttentionClassifier, SetPooler
from skattn.display import TokenImportanceDisplay
from skattn.inspection import attention_diagnostics, token_importance
from skattn.pipelines import member_shares, set_pipeline

# %%
# The data
# --------
# If the data folder has ``mnist_points.npz``, we use it. Otherwise we draw threes and fives as two
# strokes with slants and noise; the upper stroke is open to the left or to the right.


def load_clouds():
    """Arrays of points, x and y, and the digit of each."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SKATTN_DATA") or default)
    rng = np.random.default_rng(0)
    if (folder / "mnist_points.npz").exists():
        print("Digits of MNIST, from the data folder.")
        data = np.load(folder / "mnist_points.npz")
        clouds = np.split(data["tokens"][:, :2].astype(float), data["offsets"][1:-1])
        kept = np.flatnonzero(np.isin(data["y"], (3, 5)))
        chosen = [rng.choice(clouds[i], size=30, replace=False) for i in kept]
        return chosen, data["y"][kept]
    print("No mnist_points.npz in SKATTN_DATA: drawn digits stand in for handwriting.")
    clouds, y = [], rng.choice([3, 5], size=550)
    for digit in y:
        angle, lower = rng.uniform(-np.pi / 2, np.pi / 2, size=30), rng.random(30) < 0.5
        x, height = 5 * np.cos(angle), 5 * np.sin(angle) + np.where(lower, -5, 5)
        x[~lower & (digit == 5)] = 5 - x[~lower & (digit == 5)]
        x += rng.normal(scale=0.3) * height
        cloud = np.column_stack([x, height]) * rng.normal(1, 0.1, size=2)
        clouds.append(14 + cloud - cloud.mean(axis=0) + rng.normal(scale=0.8, size=(30, 2)))
    return clouds, y


clouds, y = load_clouds()
order = np.random.default_rng(0).permutation(len(y))
train, test = order[:250], order[250:]
X, X_test = ([clouds[i] for i in part] for part in (train, test))

# %%
# The plain baselines, a strong stack, and attention alone
# --------------------------------------------------------

plain = LogisticRegression(max_iter=1000)
trees = HistGradientBoostingClassifier(max_iter=100, random_state=0)
stack = set_pipeline("classifier", cv=3)
attention = AttentionClassifier(alpha=1e-3, max_iter=150, tol=None, random_state=0)
models = {
    "means, linear": make_pipeline(SetPooler(("mean",)), StandardScaler(), plain),
    "statistics, linear": make_pipeline(SetPooler(), StandardScaler(), plain),
    "statistics, boosted trees": make_pipeline(SetPooler(), trees),
    'set_pipeline("classifier")': stack,
    "attention": attention,
}
scores = {}
print(f"\n{len(test)} test clouds")
print(f"{'model':<28}{'accuracy':>9}{'fit':>9}")
for name, model in models.items():
    start = time.perf_counter()
    model.fit(X, y[train])
    seconds = time.perf_counter() - start
    scores[name] = model.score(X_test, y[test])
    print(f"{name:<28}{scores[name]:>9.3f}{seconds:>7.1f} s", flush=True)
print(f"One standard error of an accuracy of .90 is {np.sqrt(0.09 / len(test)):.3f}.")

share = member_shares(stack).to_dict()
print("\nShares:", ", ".join(f"{name} {value:.2f}" for name, value in share.items()))

assert scores["means, linear"] < 0.65
assert scores["attention"] > scores["statistics, linear"] + 0.03
assert scores['set_pipeline("classifier")'] > scores["statistics, linear"] + 0.03

# %%
# Means are near chance, because the clouds are centred, and statistics of single coordinates are
# little better. Models that read tokens are better, and most of the stack's shares go to them.
# Kernel means are among these members: they compare clouds as densities, without attention.

on_tokens = [name for name in share if not name.startswith("statistics")]
print(f"Of these {sum(share[name] for name in on_tokens):.2f} go to members that read tokens.")
assert sum(share[name] for name in on_tokens) > 0.5

# %%
# What attention looked at
# ------------------------
# The diagnostics find heads that choose: points attend to a third of the others or fewer. But the
# attention that a point receives does not show its importance. It is hardly correlated with the
# fall of the decision when the point is left out.

diagnostics = attention_diagnostics(attention, X_test)
print("\n", diagnostics[["entropy", "effective_tokens", "self_weight", "verdict"]].round(2), sep="")
found = token_importance(attention, X_test, method="all", target=5)
print("\nRank correlation of three kinds of importance within a cloud:")
print(found.agreement.round(2))
assert (diagnostics["effective_tokens"] < 15).any()
assert abs(found.agreement.loc["weights", "leave_one_out"]) < 0.4

# %%
# The figure shows the three and the five of which the model is most certain, and how much each
# point counts for the answer.
#
# The figure does not show that these points make the digit. Without one point the cloud is still
# there, and its neighbours contain most of the same information: note how small the numbers are.


grey, dark = "0.72", "0.35"  # purple and orange mean the sign of a point only
fig, ((left, middle), right) = plt.subplots(
    2, 2, figsize=(10, 7.4), height_ratios=[1, 1.3], layout="constrained"
)
left.set_title("Test accuracy", fontsize=10)
middle.set_title("Shares of the stack's members", fontsize=10)
for ax, values in ((left, scores), (middle, share)):
    bars = ax.barh(list(values), list(values.values()), color=grey)
    ax.bar_label(bars, [f"{value:.2f}" for value in values.values()], padding=3)
    ax.invert_yaxis()
    ax.set_xlim(right=1.15 * max(values.values()))
    ax.spines[["top", "right"]].set_visible(False)
left.patches[-1].set_color(dark)
for ax, digit, sign in zip(right, (3, 5), (-1, 1), strict=True):
    i = np.where(y[test] == digit, sign * found.decision, -np.inf).argmax()
    TokenImportanceDisplay.from_estimator(
        attention, X_test, i, method="leave_one_out", target=digit, ax=ax, kind="points"
    )
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    ax.set_title(f"A {digit}: points for it are purple", fontsize=10)

path = Path(__file__).parent / "_output" / "day_points.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"Figure: {path.relative_to(Path(__file__).parent.parent)}")

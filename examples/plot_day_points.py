"""
A day with point clouds: three or five?
=======================================

A digit that somebody wrote is a cloud of 30 points, the places of inked pixels in no order, and the
label says whether it is a three or a five (from the test images of MNIST, LeCun et al., 1998). The
clouds are centred, so that their means say next to nothing.

What tells the two apart is where ink lies next to other ink. Which model sees that?
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
# From ``mnist_points.npz``, where it is there. Else threes and fives are drawn as two strokes, the
# upper one open to the left or to the right, with slants and noise.


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
# Means are near chance, as they must be, and statistics of single coordinates see little more. What
# reads tokens does better. The shares say that the stack leans on that: kernel means compare clouds
# as densities, and need no attention for it.

on_tokens = [name for name in share if not name.startswith("statistics")]
print(f"Of these {sum(share[name] for name in on_tokens):.2f} go to members that read tokens.")
assert sum(share[name] for name in on_tokens) > 0.5

# %%
# What attention looked at
# ------------------------
# The diagnostics find heads with a choice: points that attend to a third of the others or fewer.
# That is where to look, but not what for. How much attention a point receives does not tell how
# far the decision falls without it; the two hardly go together.

diagnostics = attention_diagnostics(attention, X_test)
print("\n", diagnostics[["entropy", "effective_tokens", "self_weight", "verdict"]].round(2), sep="")
found = token_importance(attention, X_test, method="all", target=5)
print("\nRank correlation of three kinds of importance within a cloud:")
print(found.agreement.round(2))
assert (diagnostics["effective_tokens"] < 15).any()
assert abs(found.agreement.loc["weights", "leave_one_out"]) < 0.4

# %%
# The figure has the three of which the model is surest, and the surest five, and what each point
# says for that answer.
#
# What the figure does not show: that these points make the digit. A cloud without one point is a
# cloud still, and its neighbours tell most of what it told: see the size of the numbers.


blue, orange = "#0072B2", "#D55E00"  # told apart with any colour vision
fig, ((left, middle), right) = plt.subplots(
    2, 2, figsize=(10, 7.4), height_ratios=[1, 1.3], layout="constrained"
)
left.set_title("Test accuracy", fontsize=10)
middle.set_title("Shares of the stack's members", fontsize=10)
for ax, values in ((left, scores), (middle, share)):
    bars = ax.barh(list(values), list(values.values()), color="0.7" if ax is left else blue)
    ax.bar_label(bars, [f"{value:.2f}" for value in values.values()], padding=3)
    ax.invert_yaxis()
    ax.set_xlim(right=1.15 * max(values.values()))
    ax.spines[["top", "right"]].set_visible(False)
left.patches[-1].set_color(orange)
for ax, digit, sign in zip(right, (3, 5), (-1, 1), strict=True):
    i = np.where(y[test] == digit, sign * found.decision, -np.inf).argmax()
    TokenImportanceDisplay.from_estimator(
        attention, X_test, i, method="leave_one_out", target=digit, ax=ax, kind="points"
    )
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    ax.set_title(f"A {digit}, and which points say so", fontsize=10)

path = Path(__file__).parent / "_output" / "day_points.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"Figure: {path.relative_to(Path(__file__).parent.parent)}")

"""Starting values of a fit: drawn, given by the user, or from the fit before."""

import numpy as np


def start_of_layers(network, n_features, init, rng, last=None):
    """Parameters of attention and pooling; `last` is the fitted estimator to continue from."""
    attention = network.attention
    shapes = attention.shapes(n_features)
    named = {} if isinstance(init, str) else init
    start = attention.init_params(n_features, rng, init if isinstance(init, str) else "tied")
    if last is not None:
        named = {name: getattr(last, name + "_") for name in shapes}
    for name, array in named.items():
        if name not in shapes:
            raise ValueError(f"init has an array {name!r}, but may only name {list(shapes)}.")
        array = np.asarray(array)
        if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
            raise ValueError(f"{name} to start from must hold finite real numbers.")
        _check_shape(
            name,
            array,
            shapes[name],
            f": {n_features} features, {attention.n_heads} heads, d_k={attention.d_k}, "
            f"d_v={attention.d_v}.",
        )
        start[name] = array
    pooling = network.pooling.init_params(attention.n_features_out, rng)
    for name in pooling if last is not None else ():
        if name in last.pooling_params_:
            _check_shape(name, last.pooling_params_[name], pooling[name].shape, ".")
            pooling[name] = last.pooling_params_[name]
    return start | pooling


def start_of_head(objective, task, rng, last=None):
    """Starting values of the head, in the units that the fit learns."""
    shape = objective.layout.shapes["coef"]
    if last is not None and hasattr(last, "classes_") and "classes_" in task.fitted():
        classes = task.fitted()["classes_"]
        if not np.array_equal(last.classes_, classes):
            raise ValueError(
                f"warm_start=True needs the classes of the last fit, {last.classes_}, but y "
                f"holds {classes}."
            )
    if last is not None and getattr(last, "coef_", np.empty(0)).shape == shape:
        return task.from_units({"coef": last.coef_, "intercept": last.intercept_})
    head = objective.network.head.init_params(shape[1], rng)
    start = task.loss.start(objective.y, objective.sample_weight)
    return head | {"intercept": np.broadcast_to(start, head["intercept"].shape)}


def _check_shape(name, array, shape, end):
    if array.shape != shape:
        raise ValueError(
            f"{name} to start from has shape {array.shape}, but must have {shape}{end}"
        )

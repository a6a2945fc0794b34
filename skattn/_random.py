"""Random numbers from whatever seeds them."""

import numpy as np


def generator(random_state):
    """A Generator from None, an integer, a RandomState or a Generator.

    The global NumPy state is left alone; a RandomState moves on by one draw.
    """
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(np.iinfo(np.int32).max)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"random_state must be None, an integer of 0 or more, a RandomState or a Generator, "
            f"but is {random_state!r}."
        ) from error

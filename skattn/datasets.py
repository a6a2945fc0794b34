"""Small sets with known answers: five that only interactions solve, and digits in bags.

Every function returns X as a list of float64 arrays of shape (n_tokens, n_features), one per
set, in the form that `skattn.AttentionContextualizer` reads. Two calls with different seeds draw
from one law, so a test set is a second call.
"""

import numpy as np

from ._random import generator

__all__ = [
    "load_digit_bags",
    "make_distinct_counts",
    "make_lookup",
    "make_matching_pairs",
    "make_odd_one_out",
    "make_word_senses",
]


def make_lookup(n_samples=500, *, random_state=None):
    """Sets of six key-value items and one query; the label is the value behind the query's key.

    A token has eight features: its key, six signs, of which any of the 64 can occur; its value,
    +1 or -1, and 0 for the query; and a flag, 1 for the query and 0 for an item. The six keys of
    a set differ, three of its items hold +1 and three -1, and the query repeats one of the six
    keys. The tokens stand in random order.

    Parameters
    ----------
    n_samples : int, default=500
        How many sets.
    random_state : int, RandomState, Generator or None, default=None
        Seeds the draw.

    Returns
    -------
    X : list of ndarray of shape (7, 8)
        The sets.
    y : ndarray of shape (n_samples,)
        1 where the item with the query's key holds +1, else 0.

    Notes
    -----
    **No pooling of single features can do better than chance.** Write k for the six keys, q for
    the item whose key the query repeats, and v for the six values, and let T(X) be any statistics
    that see each feature's multiset of values alone: mean, maximum, standard deviation, quantiles,
    histogram, and all of them together.

    1. The multisets of the key features and of the flag are functions of (k, q).
    2. The multiset of the value feature is {+1, +1, +1, 0, -1, -1, -1} in every set. So T(X) is a
       function of (k, q).
    3. v is a uniformly random arrangement of three +1 and three -1, drawn independently of (k, q).
       Given (k, q), each item holds +1 with probability 1/2, the item q too: P(y = 1 | k, q) = 1/2.
    4. By 2 and 3, P(y = 1 | T(X)) = 1/2 whatever T(X) is, and no classifier on it has an accuracy
       above .5 on average. QED

    Attention solves it with one head: the query attends to the item of its own key.

    Examples
    --------
    >>> from skattn.datasets import make_lookup
    >>> X, y = make_lookup(4, random_state=0)
    >>> [x.shape for x in X]
    [(7, 8), (7, 8), (7, 8), (7, 8)]
    >>> query = X[0][X[0][:, 7] == 1, :6]
    >>> value = X[0][(X[0][:, :6] == query).all(axis=1), 6].sum()  # of the item with that key
    >>> bool(y[0] == (value == 1))
    True
    """
    rng = generator(random_state)
    n_items, n_bits = 6, 6
    X, y = [], np.empty(n_samples, dtype=np.int64)
    for i in range(n_samples):
        codes = rng.choice(2**n_bits, size=n_items, replace=False)
        keys = 2.0 * (codes[:, None] >> np.arange(n_bits) & 1) - 1.0  # (n_items, n_bits) signs
        values = rng.permutation(np.repeat([1.0, -1.0], n_items // 2))
        asked = rng.integers(n_items)
        tokens = np.zeros((n_items + 1, n_bits + 2))
        tokens[:n_items, :n_bits], tokens[:n_items, n_bits] = keys, values
        tokens[n_items, :n_bits], tokens[n_items, n_bits + 1] = keys[asked], 1.0
        X.append(rng.permutation(tokens))
        y[i] = values[asked] > 0
    return X, y


def make_matching_pairs(n_samples=500, *, n_features=6, noise=0.1, random_state=None):
    """Sets of random directions; the label says whether two of them nearly coincide.

    The tokens are independent and uniform on the unit sphere, 8 to 12 of them. In half of the
    sets, on average, one token is replaced by a noisy copy of another.

    Parameters
    ----------
    n_samples : int, default=500
        How many sets.
    n_features : int, default=6
        Dimension of the sphere's space.
    noise : float, default=0.1
        Length of the random vector that is added to the copy, which is then scaled back to
        length 1. With 0 the pair is an exact repeat.
    random_state : int, RandomState, Generator or None, default=None
        Seeds the draw.

    Returns
    -------
    X : list of ndarray of shape (n_tokens, n_features)
        The sets, of 8 to 12 tokens each.
    y : ndarray of shape (n_samples,)
        1 where the set holds a near-duplicate pair, else 0.

    Notes
    -----
    One token alone says nothing: in both classes it is uniform on the sphere. And X and -X have
    the same law and the same label, while a mean-pooled linear read-out of plain attention is odd
    in X up to a constant, so that it stays at chance; the score statistics, which are even, repair
    that. What pooled statistics see is only the slight loss of spread that the pair brings.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.datasets import make_matching_pairs
    >>> X, y = make_matching_pairs(100, random_state=0)
    >>> closest = [np.max(x @ x.T - 2 * np.eye(len(x))) for x in X]  # largest cosine of a pair
    >>> bool(np.min(closest, initial=1, where=y == 1) > 0.97)
    True
    """
    rng = generator(random_state)
    lengths = rng.integers(8, 12, endpoint=True, size=n_samples)
    y = rng.integers(2, size=n_samples)
    X = []
    for n_tokens, has_pair in zip(lengths, y, strict=True):
        tokens = _directions(rng, n_tokens, n_features)
        if has_pair:
            original, copy = rng.choice(n_tokens, size=2, replace=False)
            tokens[copy] = tokens[original] + noise * tokens[copy]
            tokens[copy] /= np.linalg.norm(tokens[copy])
        X.append(tokens)
    return X, y


def make_distinct_counts(n_samples=500, *, n_features=8, random_state=None):
    """Sets of items that repeat; the target is how many distinct ones each set holds.

    A set has 4 to 12 tokens. Its distinct items, from one to as many as it has tokens, are
    directions drawn anew for every set, uniform on the unit sphere: no item can be known by heart.
    Each item occurs at least once, and the rest of the tokens repeat them at random.

    Parameters
    ----------
    n_samples : int, default=500
        How many sets.
    n_features : int, default=8
        Dimension of the sphere's space.
    random_state : int, RandomState, Generator or None, default=None
        Seeds the draw.

    Returns
    -------
    X : list of ndarray of shape (n_tokens, n_features)
        The sets, of 4 to 12 tokens each.
    y : ndarray of shape (n_samples,)
        The number of distinct tokens, as floats: a regression target.

    Notes
    -----
    A sharp head gives every one of m equal tokens the self-weight 1/m, and the self-weights of a
    set sum to the number of its distinct items. Attention with score statistics and
    ``pooling="sum"`` reads the target off directly; a mean lacks the number of tokens.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.datasets import make_distinct_counts
    >>> X, y = make_distinct_counts(50, random_state=0)
    >>> [len(np.unique(x, axis=0)) for x in X] == y.tolist()
    True
    """
    rng = generator(random_state)
    lengths = rng.integers(4, 12, endpoint=True, size=n_samples)
    n_distinct = rng.integers(1, lengths, endpoint=True)
    X = []
    for n_tokens, n_items in zip(lengths, n_distinct, strict=True):
        items = _directions(rng, n_items, n_features)
        repeats = rng.integers(n_items, size=n_tokens - n_items)
        X.append(items[rng.permutation(np.concatenate([np.arange(n_items), repeats]))])
    return X, n_distinct.astype(np.float64)


def make_word_senses(n_samples=400, *, per_token=True, random_state=None):
    """Sentences with one ambiguous word, whose sense the other words decide.

    A token is the vector of a word, 16 features. The vocabulary is the same in every call: four
    ambiguous words with two senses each; for each sense two words that betray it, 16 cues in all;
    and 20 others; all of them random directions. A sentence holds, in random order, one ambiguous
    word; a cue for each of the four, that one and those that are absent, of a sense that is drawn
    for each on its own; and 2 to 6 of the others.

    Parameters
    ----------
    n_samples : int, default=400
        How many sentences.
    per_token : bool, default=True
        Whether there is a label for each token, None where the word is not ambiguous, or one for
        each sentence.
    random_state : int, RandomState, Generator or None, default=None
        Seeds the draw.

    Returns
    -------
    X : list of ndarray of shape (n_tokens, 16)
        The sentences, of 7 to 11 words each.
    y : list of ndarray of shape (n_tokens,), or ndarray of shape (n_samples,)
        0 or 1, the sense of the ambiguous word; object arrays that hold None for all other words
        where `per_token`.

    Notes
    -----
    The ambiguous word has one vector in both senses, and each sense in half of the sentences: its
    own token says nothing, whatever is made of it. The rest of the sentence says little: it holds
    a cue for every ambiguous word, and three of the four are about words that are not there.
    Only the two together tell, by a query from the word to its own cues.

    Examples
    --------
    >>> from skattn.datasets import make_word_senses
    >>> X, y = make_word_senses(2, random_state=0)
    >>> [len(x) for x in X]
    [11, 7]
    >>> y[1]
    array([None, None, None, None, None, None, 1], dtype=object)
    """
    n_words, n_senses, n_cues, n_features = 4, 2, 2, 16
    language = np.random.default_rng(0)  # of its own: every call speaks it
    words = _directions(language, n_words, n_features)
    cues = _directions(language, n_words * n_senses * n_cues, n_features)
    cues = cues.reshape(n_words, n_senses, n_cues, n_features)
    others = _directions(language, 20, n_features)
    rng = generator(random_state)
    X, labels, senses = [], [], np.empty(n_samples, dtype=np.int64)
    for i in range(n_samples):
        word, sense = rng.integers(n_words), rng.integers(n_senses, size=n_words)
        betray = cues[np.arange(n_words), sense, rng.integers(n_cues, size=n_words)]
        rest = others[rng.integers(len(others), size=rng.integers(2, 6, endpoint=True))]
        sentence = np.vstack([words[[word]], betray, rest])
        order = rng.permutation(len(sentence))
        X.append(sentence[order])
        senses[i] = sense[word]
        labels.append(np.where(order == 0, senses[i], None))
    return X, labels if per_token else senses


def make_odd_one_out(n_samples=500, *, n_features=6, noise=0.18, random_state=None):
    """Sets of two crowds; the label says whether a token belongs to neither.

    Every set has two centres of its own, random directions, and 4 to 6 tokens near each. In half
    of the sets, on average, one of these tokens is moved to a third direction of its own.

    Parameters
    ----------
    n_samples : int, default=500
        How many sets.
    n_features : int, default=6
        Dimension of the space.
    noise : float, default=0.18
        Standard deviation of each feature of a token around its centre.
    random_state : int, RandomState, Generator or None, default=None
        Seeds the draw.

    Returns
    -------
    X : list of ndarray of shape (n_tokens, n_features)
        The sets, of 8 to 12 tokens each.
    y : ndarray of shape (n_samples,)
        1 where a token of the set belongs to neither crowd, else 0.

    Notes
    -----
    One token alone says nothing: in both classes it is a random direction with noise. And X and
    -X have the same law and the same label, so that a mean-pooled linear read-out of plain
    attention stays at chance. What tells is how well each token is predicted from the others of
    its set, with no label at all: ``AttentionContextualizer(loss="reconstruction")``. A linear
    model of pooled statistics sees a part of it, the larger spread.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.datasets import make_odd_one_out
    >>> X, y = make_odd_one_out(100, noise=0, random_state=0)
    >>> [len(np.unique(x.round(9), axis=0)) for x in X] == (2 + y).tolist()
    True
    """
    rng = generator(random_state)
    y = rng.integers(2, size=n_samples)
    X = []
    for has_odd_one in y:
        of_centre = np.repeat([0, 1], rng.integers(4, 6, endpoint=True, size=2))
        if has_odd_one:
            of_centre[rng.integers(len(of_centre))] = 2
        tokens = _directions(rng, 3, n_features)[of_centre]
        tokens += noise * rng.normal(size=tokens.shape)
        X.append(rng.permutation(tokens))
    return X, y


def load_digit_bags(
    *,
    n_train=150,
    n_test=500,
    bag_size=10,
    digit=9,
    return_token_labels=False,
    random_state=None,
):
    """Bags of handwritten digits, labelled by whether they hold a certain digit.

    The tokens are scikit-learn's 1797 images of 8 x 8 pixels, as 64 grey levels from 0 to 1. One
    half of the images, chosen at random, is for the training bags and the other for the test
    bags, so no image is in both. Half of the bags are positive: one image of `digit`, and the
    others from all images. A negative bag draws from the images of the other digits. No image
    occurs twice in a bag.

    Parameters
    ----------
    n_train, n_test : int, default=150 and 500
        How many bags to train and to test on.
    bag_size : int, default=10
        Mean number of images in a bag. The sizes are normal with a standard deviation of a fifth
        of it, rounded, and at least 2.
    digit : int, default=9
        The digit to look for, 0 to 9.
    return_token_labels : bool, default=False
        Also return the digit that each image shows.
    random_state : int, RandomState, Generator or None, default=None
        Seeds the draw.

    Returns
    -------
    X_train : list of ndarray of shape (n_tokens, 64)
        The training bags; ``x.reshape(-1, 8, 8)`` are the images of the bag ``x``.
    y_train : ndarray of shape (n_train,)
        1 where the bag holds the digit, else 0.
    X_test : list of ndarray of shape (n_tokens, 64)
        The test bags.
    y_test : ndarray of shape (n_test,)
        Their labels.
    digits_train, digits_test : list of ndarray of shape (n_tokens,)
        The digit of every image, only with ``return_token_labels=True``.

    Notes
    -----
    The images come with scikit-learn; nothing is downloaded. The task follows the MNIST bags of
    Ilse, Tomczak and Welling, "Attention-based deep multiple instance learning", 2018.

    Examples
    --------
    >>> from skattn.datasets import load_digit_bags
    >>> X_train, y_train, X_test, y_test, digits_train, digits_test = load_digit_bags(
    ...     return_token_labels=True, random_state=0
    ... )
    >>> len(X_train), len(X_test), X_train[0].shape[1]
    (150, 500, 64)
    >>> [9 in digits for digits in digits_train] == (y_train == 1).tolist()
    True
    """
    from sklearn.datasets import load_digits

    if digit not in range(10):
        raise ValueError(f"digit is {digit!r}, but the images show the digits 0 to 9.")
    rng = generator(random_state)
    images, shown = load_digits(return_X_y=True)
    images = images / 16.0
    pools = np.array_split(rng.permutation(len(images)), 2)  # disjoint: train, test
    splits = []
    for n_bags, pool in zip((n_train, n_test), pools, strict=True):
        y = rng.permutation(np.arange(n_bags) % 2)
        sizes = np.maximum(np.rint(rng.normal(bag_size, bag_size / 5, size=n_bags)), 2).astype(int)
        bags = [_draw_bag(rng, pool, shown, digit, *bag) for bag in zip(sizes, y, strict=True)]
        splits.append(([images[bag] for bag in bags], y, [shown[bag] for bag in bags]))
    (X_train, y_train, digits_train), (X_test, y_test, digits_test) = splits
    if return_token_labels:
        return X_train, y_train, X_test, y_test, digits_train, digits_test
    return X_train, y_train, X_test, y_test


def _draw_bag(rng, pool, shown, digit, size, is_positive):
    """Indices (size,) of a bag's images out of `pool`: one of `digit` at least, or none at all."""
    holds_digit = shown[pool] == digit
    if not is_positive:
        return rng.choice(pool[~holds_digit], size=size, replace=False)
    wanted = rng.choice(pool[holds_digit])
    others = rng.choice(pool[pool != wanted], size=size - 1, replace=False)
    return rng.permutation(np.append(others, wanted))


def _directions(rng, n_tokens, n_features):
    """Random vectors (n_tokens, n_features), uniform on the unit sphere."""
    vectors = rng.normal(size=(n_tokens, n_features))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

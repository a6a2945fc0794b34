"""Small data sets: five whose labels depend on interactions of tokens, and bags of digits.

Every function returns X as a list of float64 arrays of shape (n_tokens, n_features), one per
set, which `skattn.AttentionContextualizer` reads. Calls with different seeds draw from the same
distribution: use a second call as a test set.
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

    A token has eight features: six signs, which are its key; its value, +1 or -1 for an item and
    0 for the query; and a flag, 1 for the query and 0 for an item. The six keys of a set are
    drawn from the 64 possible ones and differ. Three items hold +1 and three -1, and the query
    repeats one of the six keys. The tokens are in random order.

    Parameters
    ----------
    n_samples : int, default=500
        Number of sets.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers.

    Returns
    -------
    X : list of ndarray of shape (7, 8)
        The sets.
    y : ndarray of shape (n_samples,)
        1 if the item with the query's key holds +1, else 0.

    Notes
    -----
    **No pooling of single features does better than chance.** Let k be the six keys, q the item
    with the query's key and v the six values. Let T(X) be any statistics that depend only on the
    multiset of values of each feature: mean, maximum, standard deviation, quantiles, histogram,
    or all of them together.

    1. The multisets of the key features and of the flag are functions of (k, q).
    2. The multiset of the value feature is {+1, +1, +1, 0, -1, -1, -1} in every set. So T(X) is a
       function of (k, q).
    3. v is a uniformly random arrangement of three +1 and three -1, independent of (k, q). Given
       (k, q), every item, also q, holds +1 with probability 1/2: P(y = 1 | k, q) = 1/2.
    4. By 2 and 3, P(y = 1 | T(X)) = 1/2 for every T(X), and no classifier of T(X) has an expected
       accuracy above .5. QED

    Attention solves the task with one head: the query attends to the item with its own key.

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
    """Sets of random directions; the label is 1 if two of them nearly coincide.

    A set has 8 to 12 tokens, independent and uniform on the unit sphere. In half of the sets, on
    average, a noisy copy of one token replaces another.

    Parameters
    ----------
    n_samples : int, default=500
        Number of sets.
    n_features : int, default=6
        Number of features of a token.
    noise : float, default=0.1
        Length of the random vector added to the copy, before the copy is scaled to length 1. With
        0 the two tokens are equal.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers.

    Returns
    -------
    X : list of ndarray of shape (n_tokens, n_features)
        The sets, of 8 to 12 tokens each.
    y : ndarray of shape (n_samples,)
        1 if the set has a pair of near-duplicates, else 0.

    Notes
    -----
    A single token holds no information: in both classes it is uniform on the sphere. X and -X
    have the same distribution and the same label. A linear model of mean-pooled plain attention
    is odd in X up to a constant and stays at chance; score statistics are even and remove this
    limit. Pooled statistics see only a slight loss of spread due to the pair.

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
    """Sets of repeated items; the target is the number of distinct items of each set.

    A set has 4 to 12 tokens and between one and as many distinct items. The items are uniform on
    the unit sphere and drawn anew for every set, so that a model cannot learn them by heart. Each
    item occurs at least once; the other tokens repeat items at random.

    Parameters
    ----------
    n_samples : int, default=500
        Number of sets.
    n_features : int, default=8
        Number of features of a token.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers.

    Returns
    -------
    X : list of ndarray of shape (n_tokens, n_features)
        The sets, of 4 to 12 tokens each.
    y : ndarray of shape (n_samples,)
        The number of distinct tokens as floats, for regression.

    Notes
    -----
    In a sharp head each of m equal tokens has the self-weight 1/m, and the self-weights of a set
    sum to the number of its distinct items. Attention with score statistics and ``pooling="sum"``
    therefore gives the target directly. Mean pooling loses the number of tokens.

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
    """Sentences with one ambiguous word; the other words determine its sense.

    A token is the vector of a word, 16 features. The vocabulary is the same in every call: four
    ambiguous words with two senses each; two cue words for each sense, 16 in all; and 20 other
    words. All vectors are random directions. A sentence holds, in random order, one ambiguous
    word; one cue for each of the four ambiguous words, also for the three absent ones, for a
    sense drawn independently; and 2 to 6 other words.

    Parameters
    ----------
    n_samples : int, default=400
        Number of sentences.
    per_token : bool, default=True
        Whether to return a label for each token, None for unambiguous words, or one label for
        each sentence.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers.

    Returns
    -------
    X : list of ndarray of shape (n_tokens, 16)
        The sentences, of 7 to 11 words each.
    y : list of ndarray of shape (n_tokens,), or ndarray of shape (n_samples,)
        The sense of the ambiguous word, 0 or 1. With `per_token`, object arrays with None for all
        other words.

    Notes
    -----
    The ambiguous word has the same vector in both senses, and each sense is equally likely: its
    own token holds no information. The rest of the sentence holds little: three of its four cues
    belong to absent words. The sense follows only from both together, when the word attends to
    its own cues.

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
    language = np.random.default_rng(0)  # the vocabulary is the same in every call
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
    """Sets of two clusters; the label is 1 if a token belongs to neither.

    Every set has its own two centres, random directions, and 4 to 6 tokens near each. In half of
    the sets, on average, one of these tokens is moved to a third random direction.

    Parameters
    ----------
    n_samples : int, default=500
        Number of sets.
    n_features : int, default=6
        Dimension of the space.
    noise : float, default=0.18
        Standard deviation of each feature of a token around its centre.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers.

    Returns
    -------
    X : list of ndarray of shape (n_tokens, n_features)
        The sets, of 8 to 12 tokens each.
    y : ndarray of shape (n_samples,)
        1 if a token of the set belongs to neither cluster, else 0.

    Notes
    -----
    A single token holds no information: in both classes it is a random direction with noise. X
    and -X have the same distribution and the same label, so that a linear model of mean-pooled
    plain attention stays at chance. The label follows from how well each token is predicted from
    the other tokens of its set, which ``AttentionContextualizer(loss="reconstruction")`` learns
    without labels. A linear model of pooled statistics sees only the larger spread.

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
    """Bags of handwritten digits; the label is 1 if a bag holds a given digit.

    The tokens are scikit-learn's 1797 images of 8 x 8 pixels, as 64 grey levels from 0 to 1. A
    random half of the images is for the training bags, the other half for the test bags. Half of
    the bags are positive: one image of `digit`, the others from all images. Negative bags hold
    images of the other digits. No image occurs twice in a bag.

    Parameters
    ----------
    n_train, n_test : int, default=150 and 500
        Number of training bags and of test bags.
    bag_size : int, default=10
        Mean number of images in a bag. The sizes are normal with a standard deviation of
        ``bag_size / 5``, rounded, and at least 2.
    digit : int, default=9
        The digit that makes a bag positive, 0 to 9.
    return_token_labels : bool, default=False
        Also return the digit that each image shows.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers.

    Returns
    -------
    X_train : list of ndarray of shape (n_tokens, 64)
        The training bags; ``x.reshape(-1, 8, 8)`` are the images of the bag ``x``.
    y_train : ndarray of shape (n_train,)
        1 if the bag holds the digit, else 0.
    X_test : list of ndarray of shape (n_tokens, 64)
        The test bags.
    y_test : ndarray of shape (n_test,)
        Labels of the test bags.
    digits_train, digits_test : list of ndarray of shape (n_tokens,)
        The digit of every image; only with ``return_token_labels=True``.

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
        raise ValueError(f"digit is {digit!r}, but must be one of 0 to 9.")
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
    """Indices (size,) of a bag's images from `pool`: at least one of `digit`, or none."""
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

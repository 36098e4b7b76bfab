"""Synthetic rows as pure functions of (seed, row number): nothing else decides a bit of them.

All chance is counted, not carried: word i of a key is `mix(key + (i + 1)·STRIDE)`, the splitmix64 sequence
that starts at the key. A row's key comes from the seed and the row's number, so rows may be made in any
order, any number of times and by any number of writers.

The dense kinds draw a row's target and its position along one direction first, its features afterwards and
given that position. A row's place in a sorted dataset therefore costs a few words, not a whole row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.jit import compiled
from streampgs.kernels.randomness import STRIDE, mix

# Every constant that meets a word is a uint64 itself: Numba makes a float64 out of uint64 with int64.
ONE = np.uint64(1)
UNIFORM_SHIFT = np.uint64(11)
LAYER_MASK = np.uint64(0xFF)

# What a key is for. Renumbering them changes every dataset.
ROWS, FEATURE_ORDER, FEATURE_WEIGHTS, DIRECTION, CENTRE, SPREAD, FACTORS = range(7)

# Row numbers far from those that training rows count up from 0. The pilot rows set the sparse bias and are in
# no dataset, so the bias does not depend on what is written.
FIRST_TEST_ROW = 1 << 40
PILOT_ROWS = np.arange(1 << 41, (1 << 41) + 32_768)

# A feature's popularity goes with (rank + offset)^-exponent. 1,000 real RCV1 rows have document frequencies
# .44 .11 .055 .017 .004 at ranks 0, 100, 300, 1000, 3000 and 77.7 ± 53.6 nonzeros; rows from here have
# .32 .11 .043 .011 .003 and 76.8 ± 48.5.
POPULARITY_EXPONENT = 1.25
POPULARITY_OFFSET = 60.0
LENGTH_LOG_MEAN = 4.2
LENGTH_LOG_SPREAD = 0.62
LONGEST_ROW = 512
RARITY_FLOOR = 0.1
# Weights fall so slowly with popularity that much of the signal sits in features that are learned late only.
# Measured with seed 0: w* itself has accuracy .949; hinge models that LIBLINEAR let converge on 50k, 200k and
# 800k rows have .805, .858, .8965 (σ = 3e-5, 3e-6, 1e-6); PGS on 800k rows .885, .893, .895 after 1, 2, 3
# passes.
WEIGHT_EXPONENT = 0.2
SPARSE_LABEL_NOISE = 0.051
SPARSE_POSITIVE_SHARE = 0.47

COMMON_FACTORS = 4
# The best classifier of a standard normal position of this slope is right for 80 rows in 100.
LOGISTIC_SLOPE = 2.4
# Signal against noise 2 : 1 is an r² of .8.
REGRESSION_MEAN = 3.0
REGRESSION_SIGNAL = 2.0
REGRESSION_NOISE = 1.0
REGRESSION_SPREAD = math.hypot(REGRESSION_SIGNAL, REGRESSION_NOISE)
# Between the means, in standard deviations along the direction: the best plane has accuracy Φ(1.25) = .894.
GAUSSIAN_DISTANCE = 2.5


def _ziggurat_edges(layers: int, outermost: float, area: float) -> NDArray[np.float64]:
    edges = np.zeros(layers + 1)
    edges[0] = area / math.exp(-0.5 * outermost**2)
    edges[1] = outermost
    for layer in range(2, layers):
        height = area / edges[layer - 1] + math.exp(-0.5 * edges[layer - 1] ** 2)
        edges[layer] = math.sqrt(-2.0 * math.log(height))
    return edges


# Marsaglia and Tsang 2000: 256 layers of equal area under exp(-x²/2), the lowest with the tail.
OUTERMOST = 3.6541528853610088
EDGES = _ziggurat_edges(256, OUTERMOST, 0.00492867323399)
HEIGHTS = np.exp(-0.5 * EDGES**2)


@compiled
def word_of(key, position):  # type: ignore[no-untyped-def]
    return mix(key + (np.uint64(position) + ONE) * STRIDE)


@compiled
def key_for(seed, purpose):  # type: ignore[no-untyped-def]
    return word_of(mix(np.uint64(seed)), purpose)


@compiled
def uniform(word):  # type: ignore[no-untyped-def]
    """In the open interval (0, 1), so that its logarithm is finite."""
    return (np.float64(word >> UNIFORM_SHIFT) + 0.5) * 2.0**-53


@compiled
def _beyond_outermost(word):  # type: ignore[no-untyped-def]
    while True:
        beyond = -math.log(uniform(word)) / OUTERMOST
        word = mix(word + STRIDE)
        if -2.0 * math.log(uniform(word)) > beyond * beyond:
            return OUTERMOST + beyond
        word = mix(word + STRIDE)


@compiled
def normal(word):  # type: ignore[no-untyped-def]
    """A standard normal number out of one word; the few that a layer rejects mix their word on."""
    while True:
        layer = np.int64(word & LAYER_MASK)
        signed = np.float64(np.int64(word) >> 11) * 2.0**-52
        x = signed * EDGES[layer]
        if abs(x) < EDGES[layer + 1]:
            return x
        word = mix(word + STRIDE)
        if layer == 0:
            return math.copysign(_beyond_outermost(word), signed)
        height = HEIGHTS[layer] + uniform(word) * (HEIGHTS[layer + 1] - HEIGHTS[layer])
        if height < math.exp(-0.5 * x * x):
            return x
        word = mix(word + STRIDE)


@compiled
def words(seed, purpose, count):  # type: ignore[no-untyped-def]
    key = key_for(seed, purpose)
    out = np.empty(count, np.uint64)
    for position in range(count):
        out[position] = word_of(key, position)
    return out


@compiled
def normals(seed, purpose, count):  # type: ignore[no-untyped-def]
    key = key_for(seed, purpose)
    out = np.empty(count, np.float64)
    for position in range(count):
        out[position] = normal(word_of(key, position))
    return out


class Vocabulary(NamedTuple):
    """All that the sparse rows of one seed have in common."""

    cumulative: NDArray[np.float64]
    """Popularity summed up to and including each feature; the last is above 1, so a search ends there."""
    guide: NDArray[np.int32]
    """Where the search for the feature at place u begins: `guide[floor(u·(len(guide) - 1))]`."""
    rarity: NDArray[np.float64]
    """Minus the logarithm of the share of rows that hold the feature: the idf of tf-idf."""
    weights: NDArray[np.float64]
    """The separating plane w*."""
    bias: float


def unbiased_vocabulary(seed: int, features: int) -> Vocabulary:
    order = np.argsort(words(np.uint64(seed), FEATURE_ORDER, features), kind="stable")
    popularity = np.empty(features)
    popularity[order] = (np.arange(features) + POPULARITY_OFFSET) ** -POPULARITY_EXPONENT
    popularity /= popularity.sum()
    cumulative = np.cumsum(popularity)
    cumulative[-1] = 2.0
    # u times a power of two is exact, so the guide never points past the feature sought.
    cells = 1 << features.bit_length()
    guide = np.searchsorted(cumulative, np.arange(cells + 1) / cells, side="right").astype(np.int32)
    typical_length = math.exp(LENGTH_LOG_MEAN + 0.5 * LENGTH_LOG_SPREAD**2)
    rarity = RARITY_FLOOR - np.log(-np.expm1(typical_length * np.log1p(-popularity)))
    weights = popularity**WEIGHT_EXPONENT * normals(np.uint64(seed), FEATURE_WEIGHTS, features)
    return Vocabulary(cumulative, guide, rarity, weights, 0.0)


def vocabulary(seed: int, features: int) -> Vocabulary:
    """With the bias that, label noise included, makes the wished share of rows positive."""
    unbiased = unbiased_vocabulary(seed, features)
    scores = sparse_scores(np.uint64(seed), PILOT_ROWS, unbiased)
    share_before_noise = (SPARSE_POSITIVE_SHARE - SPARSE_LABEL_NOISE) / (1.0 - 2.0 * SPARSE_LABEL_NOISE)
    return unbiased._replace(bias=-float(np.quantile(scores, 1.0 - share_before_noise)))


@compiled
def sparse_row(key, vocabulary, places, indices, values):  # type: ignore[no-untyped-def]
    """Fill `indices` and `values` from their start; return (nonzeros, norm, <w*, unit row> + bias).

    The words of a document are independent draws from the popularity. Sorted uniform numbers are sums of
    exponential spacings over the whole sum, so the draws come in the features' order, repeats side by side.
    """
    cumulative, guide, rarity, weights, bias = vocabulary
    wished = math.exp(LENGTH_LOG_MEAN + LENGTH_LOG_SPREAD * normal(word_of(key, 0)))
    length = 1 + int(min(wished, LONGEST_ROW - 1.0))
    total = 0.0
    for draw in range(length + 1):
        total -= math.log(uniform(word_of(key, 2 + draw)))
        places[draw] = total
    for draw in range(length):
        places[draw] /= total
    cells = len(guide) - 1
    nonzeros = 0
    square = 0.0
    score = 0.0
    draw = 0
    while draw < length:
        feature = guide[np.int64(places[draw] * cells)]
        while cumulative[feature] <= places[draw]:
            feature += 1
        first = draw
        while draw < length and places[draw] < cumulative[feature]:
            draw += 1
        value = rarity[feature]
        if draw - first > 1:
            value *= 1.0 + math.log(np.float64(draw - first))
        indices[nonzeros] = feature
        values[nonzeros] = value
        square += value * value
        score += weights[feature] * value
        nonzeros += 1
    norm = math.sqrt(square)
    return nonzeros, norm, score / norm + bias


@compiled
def sparse_label(key, score):  # type: ignore[no-untyped-def]
    flipped = uniform(word_of(key, 1)) < SPARSE_LABEL_NOISE
    return np.int8(1) if (score > 0.0) != flipped else np.int8(-1)


@compiled
def sparse_scores(seed, numbers, vocabulary):  # type: ignore[no-untyped-def]
    rows_key = key_for(seed, ROWS)
    places = np.empty(LONGEST_ROW + 1, np.float64)
    indices = np.empty(LONGEST_ROW, np.int32)
    values = np.empty(LONGEST_ROW, np.float64)
    scores = np.empty(len(numbers), np.float64)
    for row in range(len(numbers)):
        _, _, scores[row] = sparse_row(word_of(rows_key, numbers[row]), vocabulary, places, indices, values)
    return scores


@compiled
def sparse_labels(seed, numbers, vocabulary):  # type: ignore[no-untyped-def]
    rows_key = key_for(seed, ROWS)
    scores = sparse_scores(seed, numbers, vocabulary)
    labels = np.empty(len(numbers), np.int8)
    for row in range(len(numbers)):
        labels[row] = sparse_label(word_of(rows_key, numbers[row]), scores[row])
    return labels


@compiled
def sparse_rows(seed, numbers, vocabulary):  # type: ignore[no-untyped-def]
    """(labels, offsets, indices, values) of the rows of these numbers, laid out like Arrow's lists."""
    rows_key = key_for(seed, ROWS)
    places = np.empty(LONGEST_ROW + 1, np.float64)
    unscaled = np.empty(LONGEST_ROW, np.float64)
    labels = np.empty(len(numbers), np.int8)
    offsets = np.zeros(len(numbers) + 1, np.int32)
    indices = np.empty(len(numbers) * LONGEST_ROW, np.int32)
    values = np.empty(len(numbers) * LONGEST_ROW, np.float32)
    for row in range(len(numbers)):
        key = word_of(rows_key, numbers[row])
        start = offsets[row]
        nonzeros, norm, score = sparse_row(key, vocabulary, places, indices[start:], unscaled)
        for position in range(nonzeros):
            values[start + position] = unscaled[position] / norm
        labels[row] = sparse_label(key, score)
        offsets[row + 1] = start + nonzeros
    return labels, offsets, indices[: offsets[-1]], values[: offsets[-1]]


class Cloud(NamedTuple):
    """All that the dense rows of one seed have in common: a normal cloud and one direction through it.

    Its covariance is Σ = diag(own)² + loadingsᵀ·loadings; a row's position is <direction, row - centre>.
    """

    direction: NDArray[np.float64]
    """Scaled so that directionᵀ·Σ·direction = 1: positions of the cloud are standard normal."""
    along: NDArray[np.float64]
    """Σ·direction: how much the features move when the position moves by one."""
    centre: NDArray[np.float64]
    own: NDArray[np.float64]
    loadings: NDArray[np.float64]
    """[common factor][feature]"""


def cloud(seed: int, features: int) -> Cloud:
    spread = np.exp(0.3 * normals(np.uint64(seed), SPREAD, features))
    factors = normals(np.uint64(seed), FACTORS, COMMON_FACTORS * features).reshape(COMMON_FACTORS, features)
    own = math.sqrt(0.5) * spread
    loadings = math.sqrt(0.5 / COMMON_FACTORS) * spread * factors
    direction = normals(np.uint64(seed), DIRECTION, features)
    direction /= math.sqrt((direction * _covariance_times(own, loadings, direction)).sum())
    along = _covariance_times(own, loadings, direction)
    centre = 0.5 * normals(np.uint64(seed), CENTRE, features)
    return Cloud(direction, along, centre, own, loadings)


def _covariance_times(
    own: NDArray[np.float64], loadings: NDArray[np.float64], vector: NDArray[np.float64]
) -> NDArray[np.float64]:
    # Not by @: how a BLAS orders its sums depends on the machine and its threads.
    strengths = (loadings * vector).sum(axis=1, keepdims=True)
    product: NDArray[np.float64] = own**2 * vector + (strengths * loadings).sum(axis=0)
    return product


@compiled
def logistic_targets(seed, numbers):  # type: ignore[no-untyped-def]
    """(targets, positions): 1 with the logistic function's probability at the position, else 0."""
    rows_key = key_for(seed, ROWS)
    targets = np.empty(len(numbers), np.float64)
    positions = np.empty(len(numbers), np.float64)
    for row in range(len(numbers)):
        key = word_of(rows_key, numbers[row])
        positions[row] = normal(word_of(key, 0))
        chance = 1.0 / (1.0 + math.exp(-LOGISTIC_SLOPE * positions[row]))
        targets[row] = 1.0 if uniform(word_of(key, 1)) < chance else 0.0
    return targets, positions


@compiled
def regression_targets(seed, numbers):  # type: ignore[no-untyped-def]
    """(targets, positions): linear in the position, plus noise."""
    rows_key = key_for(seed, ROWS)
    targets = np.empty(len(numbers), np.float64)
    positions = np.empty(len(numbers), np.float64)
    for row in range(len(numbers)):
        key = word_of(rows_key, numbers[row])
        positions[row] = normal(word_of(key, 0))
        noise = REGRESSION_NOISE * normal(word_of(key, 1))
        targets[row] = REGRESSION_MEAN + REGRESSION_SIGNAL * positions[row] + noise
    return targets, positions


@compiled
def gaussian_targets(seed, numbers):  # type: ignore[no-untyped-def]
    """(targets, positions): -1 or +1 by a fair coin, and a position around that class's mean."""
    rows_key = key_for(seed, ROWS)
    targets = np.empty(len(numbers), np.float64)
    positions = np.empty(len(numbers), np.float64)
    for row in range(len(numbers)):
        key = word_of(rows_key, numbers[row])
        targets[row] = 1.0 if uniform(word_of(key, 1)) < 0.5 else -1.0
        positions[row] = 0.5 * GAUSSIAN_DISTANCE * targets[row] + normal(word_of(key, 0))
    return targets, positions


@compiled
def dense_rows(seed, numbers, positions, cloud):  # type: ignore[no-untyped-def]
    """Rows of the cloud, each given its position: a free draw, moved along Σ·direction to its place."""
    direction, along, centre, own, loadings = cloud
    common_factors, features = loadings.shape
    rows_key = key_for(seed, ROWS)
    free = np.empty(features, np.float64)
    out = np.empty((len(numbers), features), np.float32)
    for row in range(len(numbers)):
        key = word_of(rows_key, numbers[row])
        for feature in range(features):
            free[feature] = own[feature] * normal(word_of(key, 2 + common_factors + feature))
        for factor in range(common_factors):
            strength = normal(word_of(key, 2 + factor))
            for feature in range(features):
                free[feature] += strength * loadings[factor, feature]
        position = 0.0
        for feature in range(features):
            position += direction[feature] * free[feature]
        move = positions[row] - position
        for feature in range(features):
            out[row, feature] = centre[feature] + free[feature] + move * along[feature]
    return out

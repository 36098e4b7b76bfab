"""The loops that test crosses on residuals, and those of scales by frequency, compared with plain twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.kernels.cross_loop import pair_gains
from streampgs.kernels.frequency_loop import count_rows_with, scale_entries, squared_sums

PULL = 3.0


def plain_gain(first, second, slopes, curvatures):
    """The gain of each row by steps from the other half, for one target."""
    rows, gains = len(first), []
    held = PULL * sum(curvatures) / rows
    halves = [range(rows // 2), range(rows // 2, rows)]
    for learned, judged in (halves, halves[::-1]):
        for r in judged:
            alike = [k for k in learned if (first[k], second[k]) == (first[r], second[r])]
            below = held + sum(curvatures[k] for k in alike)
            step = sum(slopes[k] for k in alike) / below if below else 0.0
            gains.append(step * slopes[r] - 0.5 * curvatures[r] * step * step)
    return gains


rows = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 3),
        st.floats(-1, 1),
        st.one_of(st.just(0.0), st.floats(0.01, 1)),
        st.floats(-1, 1),
    ),
    min_size=1,
    max_size=12,
)


@given(rows=rows)
def test_gains_of_pairs_agree_with_the_plain_twin(rows):
    first, second, slopes, curvatures, more = (list(column) for column in zip(*rows, strict=True))
    codes = np.array([first, second, [0] * len(rows)], np.int64)
    pairs = [(0, 1), (1, 2)]
    out = np.empty((2, 2))
    pair_gains(
        codes, np.array([3, 4, 1]), np.array(pairs), np.array([slopes, more]), np.array([curvatures] * 2), PULL, out
    )
    for (a, b), (mean, error) in zip(pairs, out.tolist(), strict=True):
        gains = [
            gain
            for target in (slopes, more)
            for gain in plain_gain(codes[a].tolist(), codes[b].tolist(), target, curvatures)
        ]
        assert mean == pytest.approx(np.mean(gains), abs=1e-12)
        assert error == pytest.approx(np.std(gains) / math.sqrt(len(gains)), abs=1e-7)


sparse_rows = st.lists(st.lists(st.tuples(st.integers(0, 6), st.floats(-4, 4, width=16)), max_size=4), max_size=6)


@given(rows=sparse_rows, known=st.integers(0, 7))
def test_features_are_counted_and_scaled(rows, known):
    """Features from `known` on have no scale of their own."""
    stops = np.cumsum([0, *map(len, rows)])[1:].astype(np.int64)
    starts = stops - np.array([len(row) for row in rows], np.int64)
    indices = np.array([feature for row in rows for feature, _ in row], np.uint32)
    values = np.array([value for row in rows for _, value in row], np.float32)
    counts, scales = np.zeros(known, np.int64), np.arange(1, known + 1, dtype=np.float32)
    count_rows_with(starts, stops, indices, counts)
    assert counts.tolist() == [int(np.count_nonzero(indices == feature)) for feature in range(known)]
    out = np.empty(len(values), np.float32)
    scale_entries(starts, stops, indices, values, scales, 0.5, out)
    expected = [v * (scales[f] if f < known else 0.5) for f, v in zip(indices.tolist(), values.tolist(), strict=True)]
    assert out.tolist() == expected
    if known == 7:
        before, after = squared_sums(starts, stops, indices, values, scales)
        assert before == pytest.approx(sum(value * value for value in values.tolist()))
        assert after == pytest.approx(sum(value * value for value in out.tolist()))

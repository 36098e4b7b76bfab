"""The solver `kernel`: exactly PGS in the space of the kernel, as long as all rows are supports."""

from __future__ import annotations

import numpy as np
import pytest

from streampgs.data.feature_maps import MapRecord, map_of
from streampgs.learn.kernel import KernelSolverOptions
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.norms import EUCLID
from streampgs.learn.pgs_options import PgsOptions
from tests.feature_maps.test_maps import kernel, mapped, rows_of, window_of
from tests.learn.plain_pgs import PlainPgs, PlainRow
from tests.learn.windows import Training

RECORD = MapRecord("polynomial", 0.2, 3, 512, 3, "dense", 6, 6)
SPEC = LaneSpec("kernel", "hinge", 0.0, EUCLID, 0.01, Target("label"), 0, 1, 0.5, "dense", KernelSolverOptions(2.0))


def supports_of(record: MapRecord, matrix: np.ndarray, most: int = 512) -> object:
    own = map_of(MapRecord(**{**vars(record), "exact": True, "most": most}))
    own.learn(window_of(matrix, record.layout))
    return own


@pytest.mark.parametrize("visits", [1, 3])
def test_steps_are_those_of_pgs_on_all_products_of_features(visits: int) -> None:
    """The explicit features of a polynomial kernel give its space as a vector space of numbers."""
    matrix = rows_of(RECORD, 40)
    labels = np.sign(np.random.default_rng(3).normal(size=40))
    explicit = mapped(map_of(RECORD), matrix).astype(float)
    own = supports_of(RECORD, matrix)
    window = own.mapped(window_of(np.tile(matrix, (visits, 1)), "dense"))
    window.labels, window.weights, window.offsets = np.tile(labels, visits), np.empty(0), np.empty(0)
    training = Training([SPEC], own.width)
    training.advance(window, 0, 40 * visits)
    plain_spec = LaneSpec(**{**vars(SPEC), "learner": "pgs", "intercept": 1.0, "own": PgsOptions(2.0, None, "suffix")})
    twin = PlainPgs(plain_spec, explicit.shape[1] + 1)
    for row in [*range(40)] * visits:
        # The intercept's constant, the constant of the kernel, and all products.
        twin.step([PlainRow(np.concatenate([[0.5, 1.0], explicit[row]]), float(labels[row]))])
    expected = twin.average()
    found = training.weights(0)
    scores = 0.5 * found[0] + window.values.reshape(-1, own.width)[:40].astype(float) @ found[1:]
    assert np.allclose(scores, 0.5 * expected[0] + expected[1] + explicit @ expected[2:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", ["rbf", "polynomial"])
def test_kernels_with_supports_are_exact(name: str, layout: str) -> None:
    record = MapRecord(name, 0.2, 3, 512, 3, layout, 6, 6)  # type: ignore[arg-type]
    matrix, others = rows_of(record, 30), rows_of(record, 10, seed=1)
    own = supports_of(record, matrix)
    lengths = np.sqrt(np.diag(kernel(record, matrix, matrix)))
    assert np.allclose(mapped(own, others), kernel(record, others, matrix) / lengths, rtol=1e-5)
    assert np.array_equal(np.argmax(np.abs(mapped(own, matrix)), axis=1), np.arange(30))


def test_supports_are_the_first_different_rows() -> None:
    matrix = rows_of(RECORD, 20)
    own = supports_of(RECORD, np.concatenate([matrix[:5], matrix[:5], matrix]), most=12)
    assert own.width == 12
    before = own.arrays()
    own.learn(window_of(matrix, "dense"))  # a window may be opened again after a pause
    assert all(np.array_equal(before[name], array) for name, array in own.arrays().items())
    again = map_of(own.record, before)
    assert np.array_equal(mapped(again, matrix), mapped(own, matrix))


@pytest.mark.parametrize("name", ["bounds", "indices", "values"])
def test_supports_that_do_not_fit_are_refused(name: str) -> None:
    own = supports_of(RECORD, rows_of(RECORD, 5))
    arrays = own.arrays()
    broken = {
        "bounds": arrays["bounds"] - 1,
        "indices": arrays["indices"] + np.uint32(6),
        "values": np.full_like(arrays["values"], np.nan),
    }
    with pytest.raises(ValueError, match="supports"):
        map_of(own.record, {**arrays, name: broken[name]})

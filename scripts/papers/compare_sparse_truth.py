"""How many rows are needed if only 20 features matter: PGS with p = 2, with p near 1, and with the entropy.

Rows have n features, each -1 or 1, and the label is the sign of a sum of 20 of them. Every solver sees each row once, and
after each chunk its average is measured on the next one. It prints the number of rows after which the accuracy reaches the
target, with the best of a few sizes of steps.

    python -m scripts.papers.compare_sparse_truth            up to 100,000 features, some minutes
    python -m scripts.papers.compare_sparse_truth --quick    up to 1,000 features, some seconds
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.engine.engine import Engine
from streampgs.learn.entropic import EntropicOptions
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.lines import OnlyRows
from streampgs.learn.norms import EUCLID, PNorm
from streampgs.learn.pgs_options import PgsOptions

IMPORTANT, CHUNK, TARGET, RADIUS = 20, 100, 0.9, 30.0
STEPS = (1.0, 4.0, 16.0)
"""First steps, as multiples of the longest one that is surely safe."""


@dataclass
class Chunk(OnlyRows):
    """Dense rows."""

    x: NDArray[np.float32]
    labels: NDArray[np.float64]
    indices: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    weights: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    offsets: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        self.values, size = self.x.ravel(), self.x.shape[1]
        self.starts = np.arange(len(self.x)) * size
        self.stops, self.numbers = self.starts + size, np.arange(len(self.x))

    def __len__(self) -> int:
        return len(self.x)


def chunks(features: int, seed: int) -> Iterator[Chunk]:
    chance = np.random.default_rng(seed)
    truth = np.zeros(features, np.float32)
    truth[chance.choice(features, IMPORTANT, replace=False)] = chance.choice([-1.0, 1.0], IMPORTANT)
    while True:
        x = chance.integers(0, 2, (CHUNK, features), dtype=np.int8).astype(np.float32) * 2.0 - 1.0
        yield Chunk(x, np.where(x @ truth > 0.5, 1.0, -1.0))


def specs(features: int) -> dict[str, list[LaneSpec]]:
    """Lanes that differ in the size of their steps; σ is so small that it has no effect."""
    near_one = PNorm(2.0 * math.log(features) / (2.0 * math.log(features) - 1.0))
    found: dict[str, list[LaneSpec]] = {}
    for name, learner, norm, strength in (
        ("p = 2", "pgs", EUCLID, float(features)),
        (f"p = {near_one.p:.3f}", "pgs", near_one, features ** (2.0 / near_one.q)),
        (f"entropy, B = {RADIUS:g}", "entropic", EUCLID, RADIUS),
    ):
        for step in STEPS:
            t0 = 1e6
            sigma = 0.25 * strength / step / t0
            own: Any = (
                EntropicOptions(t0, RADIUS, "suffix") if learner == "entropic" else PgsOptions(t0, None, "suffix")
            )
            spec = LaneSpec(learner, "logistic", 0.0, norm, sigma, Target("y"), 0, 1, 0.0, "dense", own)
            found.setdefault(name, []).append(spec)
    return found


def rows_needed(spec: LaneSpec, features: int, most: int, seed: int) -> int | None:
    """Accuracy is the mean over the next two chunks."""
    lanes = Lanes([spec], features)
    engine, rows, before = Engine(lanes, 1), 0, 0.0
    for chunk in chunks(features, seed):
        accuracy = float(np.mean((chunk.x @ lanes.weights(0)[1:] > 0.0) == (chunk.labels > 0.0)))
        if rows and 0.5 * (accuracy + before) >= TARGET:
            return rows
        if rows >= most:
            return None
        before = accuracy
        engine.advance(chunk, 0, CHUNK)
        rows += CHUNK
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer features and one seed")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    sizes, seeds, most = ((100, 1000), 1, 4000) if options.quick else ((100, 1000, 10_000, 100_000), 3, 12_000)
    results = []
    for features in sizes:
        few = min(most, 3000) if features > 10_000 else most
        for name, lanes in specs(features).items():
            needed = []
            for spec in lanes:
                counts = [rows_needed(spec, features, few, seed) for seed in range(seeds)]
                needed.append(float(np.median([math.inf if count is None else count for count in counts])))
            best = min(needed)
            results.append(
                {"features": features, "regularizer": name, "rows": None if math.isinf(best) else best, "most": few}
            )
            if not options.json:
                shown = f"more than {few:,}" if math.isinf(best) else f"{best:,.0f}"
                print(f"{features:>8,} features  {name:<20} {shown} rows", flush=True)
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()

"""Which cells are measured, in full and with --quick."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.papers.pgs.climbs import Method
from scripts.papers.pgs.experiments import Limits

PARTS = ("climbs", "batch", "files", "others", "final", "steps", "printed", "toys")

LOGISTIC, OTHERS = Method(), (Method(p=1.8), Method("squared"))
PRINTED = (Method(paper=True), Method(p=1.8, batch=300, paper=True), Method("squared", paper=True))


@dataclass(frozen=True)
class Plan:
    limits: Limits
    final: Limits
    """Of Table II, where L-BFGS runs until it has nearly converged."""
    rows: dict[str, list[int]]
    """To train on; the last number is that of the table."""
    coarse_rows: list[int]
    """Of the parts others and printed."""
    printed_rows: list[int]
    batch_rows: dict[str, list[int]]
    most_rows_to_search: int
    """With more rows, L-BFGS takes the sigma that was best for fewer, in units of 1/rows."""
    targets: dict[str, list[float]]
    """Accuracies."""
    all_rows: int
    """Of the generated table in files."""
    rows_of_the_paper: int
    rows_of_files: list[int]
    targets_of_files: list[float]
    toy_features: tuple[int, ...]
    toy_rows: list[int]
    toy_runs: int
    toy_visits: int


def halved(most: int, times: int, step: float = 2.0, multiple: int = 1) -> list[int]:
    """Ascending numbers of rows, each `step` times the one before."""
    return sorted({max(1, round(most / step**place / multiple)) * multiple for place in range(times + 1)})


_NAMES, _REUTERS = 3_200_000, 6_291
_MOST = 12_800_000
_LARGE = [800_000, 1_600_000, 3_200_000, 6_400_000, _MOST]
# Accuracies come into reach one after the other between these.
_FINE = [100_000, 150_000, 175_000, 200_000, 225_000, 275_000, 325_000, 400_000, 475_000, 575_000, 675_000, *_LARGE]

FULL = Plan(
    limits=Limits(runs=20, visits=1_500_000, iterations=40, held_out=30_000, seconds=10.0),
    final=Limits(runs=20, visits=2_400_000, iterations=200, held_out=30_000, seconds=10.0),
    rows={"synthetic": _FINE, "names": halved(_NAMES, 6), "reuters": halved(_REUTERS, 4)},
    coarse_rows=halved(1_600_000, 3),
    printed_rows=halved(1_600_000, 1, 4.0),
    batch_rows={
        "synthetic": halved(_MOST, 6),
        "names": halved(400_000, 1, 4.0),
        "reuters": halved(_REUTERS, 2),
    },
    most_rows_to_search=200_000,
    targets={
        "synthetic": [0.80, 0.82, 0.84, 0.85, 0.86, 0.87, 0.88],
        "names": [0.84, 0.85, 0.86, 0.865, 0.87],
        "reuters": [0.94, 0.95, 0.96, 0.965, 0.97],
    },
    all_rows=_MOST,
    rows_of_the_paper=800_000,
    rows_of_files=[150_000, 200_000, 275_000, 400_000, 575_000, *_LARGE],
    targets_of_files=[0.84, 0.86, 0.88],
    toy_features=(10, 20, 40),
    toy_rows=halved(200_000, 5, 2**0.5),
    toy_runs=150,
    toy_visits=400_000,
)

QUICK = Plan(
    limits=Limits(runs=3, visits=200_000, iterations=15, held_out=6_000, seconds=2.0),
    final=Limits(runs=3, visits=300_000, iterations=20, held_out=6_000, seconds=2.0),
    rows={"synthetic": halved(100_000, 2, 2.0, 25_000), "names": [25_000, 100_000], "reuters": [3_000, _REUTERS]},
    coarse_rows=[50_000, 100_000],
    printed_rows=[50_000, 100_000],
    batch_rows={"synthetic": [50_000, 100_000], "names": [25_000], "reuters": [3_000]},
    most_rows_to_search=50_000,
    targets={"synthetic": [0.70, 0.75, 0.78], "names": [0.80, 0.82], "reuters": [0.90, 0.95]},
    all_rows=100_000,
    rows_of_the_paper=100_000,
    rows_of_files=[50_000, 100_000],
    targets_of_files=[0.70, 0.75],
    toy_features=(10,),
    toy_rows=[20_000, 40_000],
    toy_runs=5,
    toy_visits=100_000,
)

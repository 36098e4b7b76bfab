"""Compare the growth policies after new rows arrived: rows until the objective is within 1e-3 of the optimum on all rows,
for both policies and for training from scratch. The new rows are 10 %, 100 % and 900 % of the old rows and follow the same
distribution or another one.

    python scripts/growth.py [--old-rows 30000] [--seeds 3] [--plot growth.png]

A model is trained for 3 epochs on the old rows; then new shards arrive and it is resumed. The objective on the union of
all rows is computed in full precision at growing intervals; L-BFGS finds its optimum. "night" is one plain `streampgs
resume`: the rows that it trains on, and how far above the optimum the model is afterwards.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, hstack

import streampgs
from bench_peers.machine import machine_line
from streampgs.synth import write_dataset

_SIGMA = 1e-4
_INTERCEPT = 0.1
_OLD_EPOCHS = 3
_SHARES = (0.1, 1.0, 9.0)
_WITHIN = 1e-3
_FIRST_LOOK, _LOOK_GROWTH, _MOST_PASSES = 500, 1.12, 8.0
_SHARDS = 4
_POLICIES = ("catch-up", "union", "from scratch")
_NO_END = 1_000_000


@dataclass
class Course:
    """Distance from the optimum by trained rows."""

    rows: list[int] = field(default_factory=list)
    above: list[float] = field(default_factory=list)

    @property
    def arrived(self) -> float:
        within = (rows for rows, above in zip(self.rows, self.above, strict=True) if above <= _WITHIN)
        return next(within, float("inf"))


class Union:
    """The objective on all rows, old and new."""

    def __init__(self, table: pa.Table) -> None:
        table = table.combine_chunks()
        indices = table["indices"].chunk(0)
        entries = (table["values"].chunk(0).flatten().to_numpy(), indices.flatten().to_numpy())
        rows = csr_matrix((*entries, indices.offsets.to_numpy()), dtype=np.float64)
        constant = csr_matrix(np.full((rows.shape[0], 1), _INTERCEPT))
        signs = np.where(table["label"].to_numpy() > 0, 1.0, -1.0)
        self.rows = csr_matrix(hstack([constant, rows]).multiply(signs[:, np.newaxis]))
        start = np.zeros(self.rows.shape[1])
        found = minimize(
            self.value_and_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-13}
        )
        self.optimum = float(found.fun)

    def value_and_slope(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        margins = self.rows @ weights
        slopes = -1.0 / (1.0 + np.exp(np.clip(margins, -700.0, 700.0)))
        value = np.logaddexp(0.0, -margins).mean() + _SIGMA / 2.0 * float(weights @ weights)
        return float(value), self.rows.T @ slopes / len(margins) + _SIGMA * weights

    def above(self, run: Path) -> float:
        model = streampgs.Model.load(run)
        weights = np.zeros(self.rows.shape[1])
        weights[0] = float(model.intercept_) / _INTERCEPT
        weights[1 : 1 + len(model.coef_)] = model.coef_
        return self.value_and_slope(weights)[0] - self.optimum


def made(folder: Path, rows: int, seed: int) -> pa.Table:
    if not folder.exists():
        write_dataset(folder, rows=rows, kind="sparse", shards=1, seed=seed, features=5000)
    (shard,) = folder.glob("*.arrow")
    with pa.OSFile(str(shard)) as file:
        return pa.ipc.open_file(file).read_all().select(["label", "indices", "values"])


def shifted(table: pa.Table, seed: int) -> pa.Table:
    """Rows of another distribution: a third of the labels are flipped where the number of the first feature is even."""
    firsts = np.array([row[0] if row else 1 for row in table["indices"].to_pylist()])
    turned = (firsts % 2 == 0) & (np.random.default_rng(seed).random(len(firsts)) < 1 / 3)
    labels = table["label"].to_numpy()
    return table.set_column(0, "label", pa.array(np.where(turned, np.where(labels > 0, -1, 1), labels).astype(np.int8)))


def write(table: pa.Table, folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    size = -(-table.num_rows // _SHARDS)
    for number in range(_SHARDS):
        part = table.slice(number * size, size)
        with pa.ipc.new_file(str(folder / f"{name}-{number}.arrow"), part.schema) as writer:
            writer.write_table(part, max_chunksize=4096)


def course(union: Union, run: Path, first_rows: int, most: int, policy: str, data: Path) -> Course:
    found, rows = Course(), _FIRST_LOOK
    while rows <= most and found.arrived == float("inf"):
        limits = {"rows": first_rows + rows, "epochs": _NO_END}
        if run.exists():
            streampgs.resume(run, on_growth=None if policy == "from scratch" else policy, **limits)
        else:
            streampgs.train(data, run=run, sigma=_SIGMA, **limits)
        found.rows.append(rows)
        found.above.append(union.above(run))
        rows = int(rows * _LOOK_GROWTH) + 1
    return found


def measure(
    folder: Path, old_rows: int, share: float, shifts: bool, seed: int
) -> tuple[dict[str, Course], dict[str, str]]:
    new_rows = int(old_rows * share)
    everything = made(folder / f"made-{seed}-{share}", old_rows + new_rows, 100 + seed)
    old, new = everything.slice(0, old_rows), everything.slice(old_rows)
    if shifts:
        new = shifted(new, seed)
    union = Union(pa.concat_tables([old, new]))
    data, base = folder / "data", folder / "base"
    for path in (data, base):
        shutil.rmtree(path, ignore_errors=True)
    write(old, data, "old")
    first_rows = streampgs.train(data, run=base, sigma=_SIGMA, epochs=_OLD_EPOCHS, seed=seed).rows
    write(new, data, "part-of-new")
    courses, nights = {}, {}
    for policy in _POLICIES:
        run = folder / "run"
        for start in (True, False):
            shutil.rmtree(run, ignore_errors=True)
            if policy != "from scratch":
                shutil.copytree(base, run)
            if start:
                most = int(_MOST_PASSES * (old_rows + new_rows))
                courses[policy] = course(union, run, first_rows if run.exists() else 0, most, policy, data)
            elif run.exists():
                rows = streampgs.resume(run, on_growth=policy).rows - first_rows
                nights[policy] = f"{rows:,} → {union.above(run):.5f}"
            else:
                rows = streampgs.train(data, run=run, sigma=_SIGMA, epochs=_OLD_EPOCHS, seed=seed).rows
                nights[policy] = f"{rows:,} → {union.above(run):.5f}"
    return courses, nights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old-rows", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--plot", type=Path, default=None)
    chosen = parser.parse_args()
    print(
        f"{machine_line()}; {chosen.old_rows:,} old rows, "
        f"sigma {_SIGMA:g}, medians of {chosen.seeds} seeds; rows to within {_WITHIN:g} of the union's optimum\n"
    )
    print(
        "| new rows | distribution | "
        + " | ".join(_POLICIES)
        + " | "
        + " | ".join(f"night: {p}" for p in _POLICIES)
        + " |"
    )
    print("|---" * (2 + 2 * len(_POLICIES)) + "|")
    drawn = {}
    with tempfile.TemporaryDirectory() as folder:
        for shifts in (False, True):
            for share in _SHARES:
                found = [measure(Path(folder), chosen.old_rows, share, shifts, seed) for seed in range(chosen.seeds)]
                distribution = "another" if shifts else "the same"
                middles = [statistics.median(courses[policy].arrived for courses, _ in found) for policy in _POLICIES]
                cells = [f"{middle:,.0f}" for middle in middles] + [found[0][1][policy] for policy in _POLICIES]
                print(f"| {share:.0%} | {distribution} | " + " | ".join(cells) + " |", flush=True)
                drawn[distribution, share] = found[0][0]
    if chosen.plot is not None:
        draw(drawn, chosen.plot)


def draw(drawn: dict[tuple[str, float], dict[str, Course]], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(_SHARES), figsize=(13, 7), sharey=True)
    for place, ((distribution, share), courses) in zip(axes.ravel(), drawn.items(), strict=True):
        for policy, one in courses.items():
            place.loglog(one.rows, np.maximum(one.above, 1e-5), label=policy)
        place.axhline(_WITHIN, color="grey", linewidth=0.8)
        place.set_title(f"{share:.0%} new rows, {distribution} distribution")
        place.set_xlabel("rows since the arrival (or the start)")
    for row in axes:
        row[0].set_ylabel("objective above the union's optimum")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()

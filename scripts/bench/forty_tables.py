"""Default models of 40 generated tables of 20,000 to 300,000 rows, next to LogisticRegression and Ridge on held-out rows.

    python -m scripts.bench.forty_tables [--tables 40] [--seed 0]

Each table has its own law: 10 to 100 columns (independent, with common factors, with heavy tails, or half of them rare flags),
few or all columns that matter, strong or weak signals, rare or frequent positives. Every fourth table is a regression.
scikit-learn sees standardized columns. Prints a Markdown table of losses and ratios, and the worst ratio. Ends with the
ratios of one law on both sides of 50,000 rows, where the search for σ changes.
"""

from __future__ import annotations

import argparse
import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, mean_squared_error

from scripts.machine import machine_line
from streampgs import StreamClassifier, StreamRegressor
from streampgs.selection.cross_validation import MOST_CROSS_VALIDATED

TEST_ROWS = 50_000
KINDS = ("independent", "common factors", "heavy tails", "rare flags")


class Law(NamedTuple):
    rows: int
    columns: int
    kind: str
    strength: float
    """The standard deviation of the score, whose noise has that of the logistic law."""
    shift: float
    regression: bool
    seed: int

    def name(self) -> str:
        what = "numbers" if self.regression else f"classes, shift {self.shift:g}"
        return f"{self.rows:,} × {self.columns}, {self.kind}, strength {self.strength:g}, {what}"


def law_of(seed: int) -> Law:
    draw = np.random.default_rng(seed)
    rows, columns = (int(np.exp(draw.uniform(*np.log(span)))) for span in ((20_000, 300_000), (10, 100)))
    strength, shift = float(draw.choice([0.5, 1.0, 2.0, 5.5])), float(draw.choice([0.0, 0.0, -1.0, -3.0]))
    return Law(rows, columns, str(draw.choice(KINDS)), strength, shift, seed % 4 == 3, seed)


def table(law: Law) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Columns and labels; the last rows are for testing."""
    draw, rows = np.random.default_rng(10_000 + law.seed), law.rows + TEST_ROWS
    columns = draw.normal(size=(rows, law.columns))
    if law.kind == "common factors":
        factors = max(2, law.columns // 5)
        columns = (
            0.5 * columns + draw.normal(size=(rows, factors)) @ draw.normal(size=(factors, law.columns)) / factors**0.5
        )
    elif law.kind == "heavy tails":
        columns = np.sign(columns) * np.abs(columns) ** 1.5
    elif law.kind == "rare flags":
        columns[:, ::2] = columns[:, ::2] > 1.5
    columns = (columns - columns[: law.rows].mean(0)) / columns[: law.rows].std(0)
    weights = draw.normal(size=law.columns) * (draw.random(law.columns) < draw.choice([0.2, 1.0]))
    weights[0] += 0.1
    scores = columns @ weights
    scores = law.strength * scores / scores.std() + law.shift + draw.logistic(size=rows)
    return columns, scores if law.regression else (scores > 0.0).astype(np.float64)


def losses(law: Law) -> tuple[float, float]:
    """Held-out loss of streampgs and of scikit-learn."""
    (X, y), n = table(law), law.rows
    if law.regression:
        own, peer = (model.fit(X[:n], y[:n]).predict(X[n:]) for model in (StreamRegressor(), Ridge()))
        return mean_squared_error(y[n:], own), mean_squared_error(y[n:], peer)
    models = StreamClassifier(random_state=law.seed), LogisticRegression(max_iter=1000)
    own, peer = (model.fit(X[:n], y[:n]).predict_proba(X[n:])[:, 1] for model in models)
    return log_loss(y[n:], own), log_loss(y[n:], peer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(machine_line())
    print("\n| table | streampgs | scikit-learn | ratio |\n|---|---|---|---|")
    ratios = []
    for number in range(arguments.tables):
        law = law_of(1000 * arguments.seed + number)
        own, peer = losses(law)
        ratios.append(own / peer)
        print(f"| {law.name()} | {own:.4f} | {peer:.4f} | {own / peer:.4f} |", flush=True)
    print(f"\nratio: median {np.median(ratios):.4f}, largest {max(ratios):.4f}\n")
    print("| strength × columns, ratio for rows: | 50,000 | 50,001 | 80,000 |\n|---|---|---|---|")
    for strength, columns in ((5.5, 30), (5.5, 100), (1.0, 30)):
        near = (MOST_CROSS_VALIDATED, MOST_CROSS_VALIDATED + 1, 80_000)
        pairs = [losses(Law(rows, columns, KINDS[0], strength, 0.0, False, arguments.seed)) for rows in near]
        print(f"| {strength:g} × {columns} | {' | '.join(f'{own / peer:.4f}' for own, peer in pairs)} |", flush=True)


if __name__ == "__main__":
    main()

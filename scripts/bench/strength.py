"""How strong a model of raw columns is, with no option set: held-out loss next to splines, boosting and explainable boosting.

    python -m scripts.bench.strength [--tables NAMES] [--peers NAMES] [--ways NAMES] [--quick]

Held-out log loss, or the share of the variance that is not explained (1 - R²), of each table in strength_tables.py; seconds of
the fit, after a fit of the same table that compiles the loops; features with a weight. Ways are ours: the defaults, and pieces
of them alone. Explainable boosting needs interpret-core; without it, and for texts, its cells are empty.

--quick: the small tables only. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_array

import streampgs
from scripts.bench.strength_tables import LABEL, TABLES, Table
from scripts.machine import machine_line

WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "straight": {"numbers": "linear", "find_crosses": "off"},
    "curves": {"numbers": "curves", "find_crosses": "off"},
    "crosses": {"numbers": "linear", "find_crosses": "auto"},
}
"""What becomes of the columns, all with the other defaults."""
_QUICK_ROWS = 20_000
_BAGS = 4
"""Of explainable boosting, whose default are 14, which take three times as long."""


@dataclass(frozen=True)
class Found:
    loss: float
    seconds: float
    features: int | None = None

    def __str__(self) -> str:
        features = "" if self.features is None else f", {self.features:,}"
        return f"{self.loss:.4f} ({self.seconds:.1f} s{features})"


# Ours.


def ours(table: Table, train: pa.Table, test: pa.Table, options: dict[str, Any]) -> Found:
    with tempfile.TemporaryDirectory(prefix="strength-") as name:
        folder = Path(name)
        for part, rows in (("train", train), ("test", test)):
            pq.write_table(rows, folder / f"{part}.parquet")
        chosen = dict(options)
        if table.text:
            chosen["text"] = table.text
        if table.is_regression:
            chosen["loss"] = "squared"
        elif len(train[LABEL].unique()) > 2:
            chosen["classes"] = "auto"
        began = time.perf_counter()
        streampgs.train(folder / "train.parquet", run=folder / "run", progress=False, **chosen)
        seconds = time.perf_counter() - began
        metrics = streampgs.evaluate(folder / "run", folder / "test.parquet")
        weights = streampgs.Model.load(folder / "run").weights
        loss = 1.0 - metrics["r2"] if table.is_regression else metrics["log_loss"]
        return Found(loss, seconds, int(np.count_nonzero(np.atleast_2d(weights).any(axis=0))))


# Peers: each is a pipeline of scikit-learn on columns of numbers and strings.


def linear(table: Table, text: bool) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    model = Ridge() if table.is_regression else LogisticRegression(max_iter=1000)
    if text:
        return make_pipeline(TfidfVectorizer(), model)
    return model if table.is_sparse else make_pipeline(_columns(_standard()), model)


def splines(table: Table, text: bool) -> Any:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer

    if text or table.is_sparse:
        return None
    model = Ridge() if table.is_regression else LogisticRegression(max_iter=1000)
    curves = make_pipeline(_standard(), SplineTransformer(n_knots=8, knots="quantile"))
    return make_pipeline(_columns(curves), model)


def explainable(table: Table, text: bool, pairs: int | str = 0) -> Any:
    try:
        from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor
    except ImportError:
        return None
    if text or table.is_sparse:
        return None
    kind = ExplainableBoostingRegressor if table.is_regression else ExplainableBoostingClassifier
    return kind(interactions=pairs, outer_bags=_BAGS, n_jobs=2)


def explainable_pairs(table: Table, text: bool) -> Any:
    return explainable(table, text, "3x")


def boosting(table: Table, text: bool) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    if text or table.is_sparse:
        return None
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, max_categories=200)
    kind = HistGradientBoostingRegressor if table.is_regression else HistGradientBoostingClassifier
    return make_pipeline(_columns("passthrough", codes), kind())


PEERS: dict[str, Callable[[Table, bool], Any]] = {
    "linear": linear,
    "splines": splines,
    "EBM": explainable,
    "EBM pairs": explainable_pairs,
    "boosting": boosting,
}


def _standard() -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(SimpleImputer(), StandardScaler())


def _columns(of_numbers: Any, of_strings: Any = None) -> Any:
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.preprocessing import OneHotEncoder

    of_strings = of_strings or OneHotEncoder(handle_unknown="ignore")
    return make_column_transformer(
        (of_numbers, make_column_selector(dtype_include="number")),
        (of_strings, make_column_selector(dtype_exclude="number")),
    )


def given(table: Table, rows: pa.Table) -> tuple[Any, Any]:
    """As the peers take them."""
    labels = rows[LABEL].to_numpy()
    if table.text:
        return rows[table.text].to_pylist(), labels
    if table.is_sparse:
        indices, values = (rows[name].combine_chunks() for name in ("indices", "values"))
        entries = (values.values.to_numpy(), indices.values.to_numpy(), indices.offsets.to_numpy())
        return csr_array(entries, shape=(len(rows), 123)), labels
    return rows.drop_columns([LABEL]).to_pandas(), labels


def peer(table: Table, train: pa.Table, test: pa.Table, model: Any) -> Found:
    rows, labels = given(table, train)
    began = time.perf_counter()
    model.fit(rows, labels)
    seconds = time.perf_counter() - began
    rows, labels = given(table, test)
    if table.is_regression:
        return Found(float(np.mean((labels - model.predict(rows)) ** 2) / np.var(labels)), seconds)
    own = model.predict_proba(rows)[np.arange(len(labels)), np.searchsorted(model.classes_, labels)]
    return Found(float(-np.log(np.maximum(own, 1e-15)).mean()), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", help="parts of names; default: all")
    parser.add_argument("--peers", default=",".join(PEERS), help="some of them, or nothing")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--quick", action="store_true", help=f"only tables of at most {_QUICK_ROWS:,} rows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = arguments.tables.split(",") if arguments.tables else [""]
    tables = [table for table in TABLES if any(part in table.name for part in parts)]
    peers, ways = [name for name in arguments.peers.split(",") if name], arguments.ways.split(",")
    print(machine_line())
    print(f"\n| table | rows | {' | '.join([*ways, *peers])} |\n|---|---|{'---|' * len([*ways, *peers])}", flush=True)
    for table in tables:
        train, test = table.make()
        if arguments.quick and len(train) > _QUICK_ROWS:
            continue
        cells = []
        for name in ways:
            ours(table, train, test, WAYS[name])
            cells.append(str(ours(table, train, test, WAYS[name])))
        for name in peers:
            model = PEERS[name](table, bool(table.text))
            cells.append("" if model is None else str(peer(table, train, test, model)))
        print(f"| {table.name} | {len(train):,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""The tables of scripts.bench.strength: real ones, and generated ones with a known structure."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray
from sklearn import datasets

from scripts.bench.click_log import ClickLog

SETS = Path(__file__).resolve().parents[3] / "shared" / "data"
LABEL = "label"
_TESTED, _SEED = 0.3, 5

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    name: str
    make: Callable[[], tuple[pa.Table, pa.Table]]
    """The rows to train on, and the others."""
    is_regression: bool = False
    text: str | None = None
    """The column of texts, if that is all there is."""
    is_sparse: bool = False
    """Rows are lists of indices and values."""
    interacts: bool = False
    """Whether pairs of columns have effects that single ones cannot show."""


def halves(table: pa.Table, in_time: bool = False) -> tuple[pa.Table, pa.Table]:
    """In time order: the last rows are for the test. Otherwise random ones are."""
    if not in_time:
        table = table.take(pa.array(np.random.default_rng(_SEED).permutation(len(table))))
    trained = round(len(table) * (1.0 - _TESTED))
    return table.slice(0, trained), table.slice(trained)


def of_columns(columns: dict[str, object], labels: object) -> pa.Table:
    return pa.table({**columns, LABEL: pa.array(labels)})


def numbers(rows: Floats, labels: object, names: list[str] | None = None) -> pa.Table:
    names = names or [f"x{number}" for number in range(rows.shape[1])]
    return of_columns({name: rows[:, place] for place, name in enumerate(names)}, labels)


def drawn(scores: Floats, draw: np.random.Generator) -> NDArray[np.int64]:
    """Labels of a logistic model."""
    return (scores + draw.logistic(size=len(scores)) > 0.0).astype(np.int64)


# Real tables.


def magic() -> tuple[pa.Table, pa.Table]:
    with gzip.open(SETS / "magic04.data.gz", "rt") as lines:
        cells = [line.strip().split(",") for line in lines][1:]
    return halves(numbers(np.array([row[:-1] for row in cells], float), [int(row[-1] == "g") for row in cells]))


def weather() -> tuple[pa.Table, pa.Table]:
    with gzip.open(SETS / "weather_by_day.csv.gz", "rb") as file:
        table = pa.csv.read_csv(file)
    columns = table.column_names[:-1]
    rows = np.column_stack([table[name].to_numpy() for name in columns])
    return halves(numbers(rows, (table["target"].to_numpy() > 0).astype(int), columns), in_time=True)


def a9a() -> tuple[pa.Table, pa.Table]:
    def read(name: str) -> pa.Table:
        with gzip.open(SETS / name, "rt") as lines:
            cells = [line.split() for line in lines]
        entries = [[int(cell.split(":")[0]) - 1 for cell in row[1:]] for row in cells]
        indices = pa.array(entries, pa.list_(pa.uint32()))
        values = pa.ListArray.from_arrays(indices.offsets, pa.array(np.ones(len(indices.values), np.float32)))
        return of_columns({"indices": indices, "values": values}, [int(row[0] == "+1") for row in cells])

    return read("a9a.gz"), read("a9a.t.gz")


def reuters() -> tuple[pa.Table, pa.Table]:
    with gzip.open(SETS / "reuters21578.jsonl.gz", "rt") as lines:
        stories = [story for story in map(json.loads, lines) if story["topics"]]
    labels = [int(bool({"earn", "acq"} & set(story["topics"]))) for story in stories]
    table = of_columns({"text": [f"{story['title']} {story['body']}" for story in stories]}, labels)
    early = pa.array([int(story["id"]) < 14_826 for story in stories])
    return table.filter(early), table.filter(pc.invert(early))


def names(rows: int = 150_000) -> tuple[pa.Table, pa.Table]:
    """Package names as one column of strings, split into their 2- and 3-grams as words."""
    found = {}
    for label, name in enumerate(("javascript_names.txt.gz", "python_names.txt.gz")):
        with gzip.open(SETS / name, "rt") as lines:
            found[label] = [line.strip() for _, line in zip(range(rows * 20), lines, strict=False)][::20]
    texts = [
        " ".join(f"^{name}$"[k : k + size] for size in (2, 3) for k in range(len(name) + 3 - size))
        for label in found
        for name in found[label]
    ]
    return halves(of_columns({"text": texts}, [label for label in found for _ in found[label]]))


def bundled(load: Callable[[], object]) -> Callable[[], tuple[pa.Table, pa.Table]]:
    def made() -> tuple[pa.Table, pa.Table]:
        found = load()
        return halves(numbers(found.data, found.target))  # type: ignore[attr-defined]

    return made


# Generated tables.


def linear(rows: int = 50_000) -> tuple[pa.Table, pa.Table]:
    """A linear model is the truth: nothing can be gained."""
    draw = np.random.default_rng(11)
    x = draw.standard_normal((rows, 20))
    return halves(numbers(x, drawn(x @ draw.normal(size=20) * 0.5, draw)))


def curved(rows: int = 50_000) -> tuple[pa.Table, pa.Table]:
    """A sum of curves of single columns."""
    draw = np.random.default_rng(12)
    x = np.column_stack([draw.standard_normal((rows, 6)), draw.lognormal(size=(rows, 6))])
    scores = np.sin(2.0 * x[:, 0]) + np.abs(x[:, 1]) - 0.8 + (x[:, 2] > 0.5) + 0.7 * np.log(x[:, 6]) + 0.5 * x[:, 3]
    return halves(numbers(x, drawn(1.5 * (scores - 1.0 / (0.3 + x[:, 7])), draw)))


def crossed(rows: int = 50_000) -> tuple[pa.Table, pa.Table]:
    """Pairs of numbers, of categories, and of one of each have effects of their own."""
    draw = np.random.default_rng(13)
    x = draw.standard_normal((rows, 6))
    kinds, places = draw.integers(0, 8, rows), draw.integers(0, 30, rows)
    pairs, slopes = draw.normal(size=(8, 30)), draw.normal(size=8)
    scores = (
        x[:, 0] * x[:, 1] + np.sin(x[:, 2] + x[:, 3]) + pairs[kinds, places] + slopes[kinds] * x[:, 4] + 0.5 * x[:, 5]
    )
    columns = {f"x{number}": x[:, number] for number in range(6)}
    columns |= {"kind": [f"kind {k}" for k in kinds], "place": [f"place {k}" for k in places]}
    return halves(of_columns(columns, drawn(scores, draw)))


def houses(rows: int = 20_000) -> tuple[pa.Table, pa.Table]:
    """Prices by income, age and place, like those of census blocks: heavy tails, and cities on a map."""
    draw = np.random.default_rng(14)
    income, age = draw.lognormal(1.2, 0.45, rows), draw.integers(1, 53, rows).astype(float)
    rooms, people = draw.lognormal(1.65, 0.25, rows), draw.lognormal(7.0, 0.7, rows)
    places = draw.random((rows, 2)) * 10.0
    cities, heights = draw.random((6, 2)) * 10.0, draw.random(6) + 0.5
    near = (heights * np.exp(-((places[:, None, :] - cities) ** 2).sum(axis=2) / 1.5)).sum(axis=1)
    logs = 0.55 * np.log(income) + 0.1 * np.cos(age / 12.0) + 0.1 * np.log(rooms) - 0.05 * np.log(people) + 0.6 * near
    prices = np.minimum(5.0, np.exp(logs + 0.2 * draw.standard_normal(rows)))
    columns = {
        "income": income,
        "age": age,
        "rooms": rooms,
        "people": people,
        "north": places[:, 0],
        "east": places[:, 1],
    }
    return halves(of_columns(columns, prices))


def charges(rows: int = 20_000) -> tuple[pa.Table, pa.Table]:
    """Medical charges: smokers of a large body mass cost more than both effects together."""
    draw = np.random.default_rng(15)
    age, mass = draw.integers(18, 65, rows), draw.normal(30.0, 6.0, rows)
    children, smokes = draw.integers(0, 6, rows), draw.random(rows) < 0.2
    regions = np.array(["north", "east", "south", "west"])[draw.integers(0, 4, rows)]
    costs = 3.0 + 0.003 * age.astype(float) ** 2 + 0.5 * children + smokes * (14.0 + 18.0 * (mass > 30.0))
    costs += draw.gamma(1.5, 2.0, rows)
    smoking = np.where(smokes, "yes", "no")
    columns = {"age": age, "mass": mass, "children": children, "smokes": smoking, "region": regions}
    return halves(of_columns(columns, costs))


def clicks(rows: int = 300_000) -> tuple[pa.Table, pa.Table]:
    log = ClickLog()
    return log.table(rows, 1), log.table(100_000, 10_000)


TABLES = (
    Table("MAGIC", magic, interacts=True),
    Table("weather, in time order", weather),
    Table("a9a", a9a, is_sparse=True),
    Table("Reuters", reuters, text="text"),
    Table("package names", names, text="text"),
    Table("digits", bundled(datasets.load_digits), interacts=True),
    Table("wine", bundled(datasets.load_wine)),
    Table("iris", bundled(datasets.load_iris)),
    Table("breast cancer", bundled(datasets.load_breast_cancer)),
    Table("diabetes", bundled(datasets.load_diabetes), is_regression=True),
    Table("houses (generated)", houses, is_regression=True, interacts=True),
    Table("charges (generated)", charges, is_regression=True, interacts=True),
    Table("clicks (generated)", clicks, interacts=True),
    Table("linear (generated)", linear),
    Table("curves (generated)", curved),
    Table("crosses (generated)", crossed, interacts=True),
)

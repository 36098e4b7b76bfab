"""`streampgs warm-up`: compile in advance, for container images and for machines that start often."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampgs.base.errors import counted
from streampgs.cli.console import Output, print_result, say
from streampgs.cli.options import Command
from streampgs.losses import LOSSES
from streampgs.options.commands import LOSS_FOR_CLASSES, WarmUpOptions
from streampgs.options.fields import build, values_of
from streampgs.python.progress import LiveLine

if TYPE_CHECKING:
    import pyarrow as pa

_FEW, _MANY = 400, 60_000
"""Rows of tables for which the strength of regularization is found by cross-validation, and in a race."""


@dataclass(frozen=True)
class _Case:
    """A run whose loops are compiled."""

    table: str
    label: str
    loss: str
    options: dict[str, Any]


@click.command("warm-up", cls=Command, short_help="Compile in advance.", kinds=(WarmUpOptions, Output))
def warm_up(json: bool = False, quiet: bool = False, **options: Any) -> int:
    """Compile the loops that training and evaluation use, so that later starts find them on disk.

    The first run with a loss compiles the loops that it needs, which takes some 15 seconds, and keeps them on disk. This
    command compiles those of all losses for the default solver, by training small models on generated rows: more than a
    hundred loops, some three minutes. A second call compiles nothing. For another solver, train a small table once with it.

    \b
      streampgs warm-up                          in the build of a container image
      streampgs warm-up --loss logistic,hinge    for two losses
    """
    from streampgs.kernels import compiling
    from streampgs.kernels.compile_cache import folders

    (chosen,) = build("warm-up", options, WarmUpOptions)
    compiled: list[None] = []
    compiling.listeners[:] = [lambda: compiled.append(None)]
    began = time.perf_counter()
    with closing(LiveLine(say)) as line, tempfile.TemporaryDirectory() as scratch:
        cases = list(_cases(values_of(chosen.loss)))
        tables = _write_tables(Path(scratch))
        for number, case in enumerate(cases):
            if not quiet:
                line.show(number / len(cases), f"{case.loss}, {case.table} · {counted(len(compiled), 'loop')} compiled")
            _run(case, tables[case.table], Path(scratch) / f"run-{number}")
    seconds = time.perf_counter() - began
    used = [folder for folder in folders() if folder.is_dir() and any(folder.glob("*.nbc"))]
    size = sum(file.stat().st_size for folder in used for file in folder.glob("*.nbc"))
    listed = ", ".join(map(str, used)) or "nowhere: no cache folder can be written to (set NUMBA_CACHE_DIR)"
    record = {"compiled": len(compiled), "seconds": seconds, "folders": list(map(str, used)), "bytes": size}
    if json or not quiet:
        text = f"{counted(len(compiled), 'loop')} compiled in {seconds:.1f} s; kept in {listed} ({size / 1e6:,.1f} MB)"
        print_result(text, record, json)
    return 0 if used else 1


def _cases(losses: Sequence[str]) -> Iterator[_Case]:
    for loss in losses:
        label = "flag" if LOSSES[loss].classifies else "count"
        for table in ("numbers", "mixed", "lists", "sparse", "many numbers", "many sparse"):
            yield _Case(table, label, loss, {})
    for table in ("numbers", "mixed") if LOSS_FOR_CLASSES in losses else ():
        yield _Case(table, "kind", LOSS_FOR_CLASSES, {})
        yield _Case(table, "flag", LOSS_FOR_CLASSES, {"sigma": 1e-3})


def _run(case: _Case, data: Path, run: Path) -> None:
    """What a user does: train, continue, evaluate."""
    from streampgs.model.evaluation import evaluate
    from streampgs.model.model import Model
    from streampgs.python import api

    others = [name for name in ("flag", "count", "kind") if name != case.label]
    chosen: dict[str, Any] = {"ignore": others} if case.table in ("numbers", "mixed", "many numbers") else {}
    if case.table == "mixed":
        chosen |= {
            "text": ["note", "large_note"],
            "category": ["size"],
            "cross": [("word", "size")],
            "null_flags": True,
        }
    options = {"run": run, "label": case.label, "loss": case.loss, "memory": "64MB", **chosen, **case.options}
    many = case.table.startswith("many")
    api.train(str(data), epochs=1 if many else 2, progress=False, **options)  # the first of two epochs fills the cache
    if many:
        return
    api.resume(run, epochs=3, progress=False)
    evaluate(Model.load(run), [str(data)])


def _write_tables(folder: Path) -> dict[str, Path]:
    """Rows of each layout, in both formats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = _tables(_FEW)
    tables |= {f"many {name}": table for name, table in _tables(_MANY).items() if name in ("numbers", "sparse")}
    places = {name: folder / f"{name}.parquet" for name in tables}
    places |= {name: folder / f"{name}.arrow" for name in ("lists", "sparse")}
    for name, place in places.items():
        if place.suffix == ".parquet":
            pq.write_table(tables[name], place)
            continue
        with pa.ipc.new_file(place, tables[name].schema) as writer:
            writer.write_table(tables[name])
    return places


def _tables(rows: int) -> dict[str, pa.Table]:
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    score = x[:, 0] + rng.normal(size=rows)
    labels = {
        "flag": pa.array((score > 0).astype(np.int8)),
        "count": pa.array(rng.poisson(np.exp(0.5 * x[:, 0])).astype(np.float64)),
        "kind": pa.array(np.digitize(score, [-0.5, 0.5]).astype(np.int8)),
    }
    numbers = {f"x{k}": pa.array(x[:, k].astype(np.float64)) for k in range(4)}
    words = pa.array([f"word {number}" for number in rng.integers(0, 500, rows)])
    tokens = np.split(np.asarray(words), rows // 2)
    mixed = {
        "word": words,
        "large": words.cast(pa.large_string()),  # as pandas and polars write strings
        "coded": words.dictionary_encode(),
        "large_coded": words.cast(pa.large_string()).dictionary_encode(),
        "size": pa.array(rng.integers(0, 9, rows)),
        "day": pa.array(rng.integers(0, 1 << 40, rows)).cast(pa.timestamp("us")),
        "tags": pa.array([*tokens, *tokens], pa.list_(pa.string())),
        "scores": pa.array(list(x), pa.list_(pa.float32())),
        "note": words,
        "large_note": words.cast(pa.large_string()),
    }
    indices = np.sort(rng.integers(0, 250, (rows, 4)) * 4 + np.arange(4), axis=1).astype(np.int32)
    return {
        "numbers": pa.table({**numbers, **labels}),
        "mixed": pa.table({**numbers, **mixed, **labels}),
        "lists": pa.table({"features": list(x), **labels}),
        "sparse": pa.table({"indices": list(indices), "values": list(np.abs(x)), **labels}),
    }

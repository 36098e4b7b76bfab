"""Write a prediction for each row of a table, block by block in bounded memory."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

from streampgs.base.errors import OptionError
from streampgs.base.faults import exists
from streampgs.base.files import writing
from streampgs.base.globs import is_folder
from streampgs.data.open import columns_of
from streampgs.formats.registry import suffixes
from streampgs.losses import Vector
from streampgs.model.model import Model
from streampgs.model.scoring import ShardScores
from streampgs.reading.bad_rows import counts_by_name
from streampgs.run.saved import saved_run
from streampgs.stores.addresses import is_address_of_path
from streampgs.table.catalog import Catalog

STREAM = Path("-")
_WRITERS: dict[str, Callable[[BinaryIO, pa.Schema], Any]] = {
    ".parquet": partial(pq.ParquetWriter, write_page_checksum=True),
    ".arrow": pa.ipc.new_file,
    ".csv": csv.CSVWriter,
}


def predict(
    model: Model,
    sources: Sequence[str],
    out: Path,
    skip_bad_rows: bool = False,
    keep: Sequence[str] = (),
    force: bool = False,
    threshold: float | None = None,
    where: str | None = None,
) -> dict[str, Any]:
    """Write the score, the prediction and (if the loss has one) the probability of every row, in the order of the rows.
    With more than two classes each has its score and probability, `score_3` and `probability_3`; with several labels
    each has all three. `keep`: columns of the table that are written in front of them; ('all',): all columns.

    With `skip_bad_rows` a row that cannot be used gets nulls. The file gets its name when it is complete; `-` is an Arrow
    stream on standard output. Existing files are kept unless `force` is set. `where`: a condition of the rows.
    """
    model = model if threshold is None else model.with_threshold(threshold)
    rows = _PredictedRows(model, sources, skip_bad_rows, keep, where)
    if out == STREAM:
        with pa.ipc.new_stream(_standard_output(), rows.schema) as writer:
            rows.write(writer)
        return rows.report(out)
    writer_of = _WRITERS.get(out.suffix.lower())
    if writer_of is None:
        raise OptionError(
            f"`--out '{out}'` does not end in one of {', '.join(_WRITERS)}", "the ending decides the format"
        )
    if is_address_of_path(out):
        raise OptionError(
            f"`--out '{out}'` is in an object store",
            "write a file on this machine, and copy it: predict writes no objects",
        )
    _refuse_nested(out, rows.schema)
    _refuse_inputs(out, sources, rows.scores.catalog, model)
    with writing(out, force) as file, _closing(writer_of(file, rows.schema)) as writer:
        rows.write(writer)
    return rows.report(out)


class _PredictedRows:
    def __init__(
        self, model: Model, sources: Sequence[str], skip_bad_rows: bool, keep: Sequence[str], where: str | None
    ) -> None:
        columns = columns_of(replace(model.options, where=where), model.encoding).unlabelled
        self._model, self._where = model, where
        self.scores = ShardScores(model, sources, columns, skip_bad_rows, keep, may_be_empty=True)
        example = self._predicted(np.zeros((1, len(model.targets))[: 1 + (model.weights.ndim > 1)]))
        predicted = [pa.field(name, pa.array(values).type) for name, values in example.items()]
        for field in predicted:
            if field.name in self.scores.others.names:
                raise OptionError(
                    f"the table has a column '{field.name}', which predict writes, too",
                    "leave it out: name the columns to write with `--keep COLUMN`, once for each",
                )
        self.schema = pa.schema([*self.scores.others, *predicted])
        self._rows = 0
        self._skipped: Counter[int] = Counter()

    def write(self, writer: Any) -> None:
        for block in self.scores.blocks():
            predicted = [_in_place(part, block.window.kept) for part in self._predicted(block.scores).values()]
            first = 0
            for others in block.others if len(self.scores.others) else [None]:
                rows = block.all_rows if others is None else others.num_rows
                arrays = [] if others is None else list(others.columns)
                arrays += [part.slice(first, rows) for part in predicted]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
                first += rows
            self._rows += block.all_rows
            self._skipped.update(block.window.counts.skipped)

    def report(self, out: Path) -> dict[str, Any]:
        found: dict[str, Any] = {"rows": self._rows, "out": str(out), **self.scores.selection(self._where)}
        return {**found, "skipped_rows": counts_by_name(self._skipped)} if self._skipped else found

    def _predicted(self, scores: Vector) -> dict[str, NDArray[Any]]:
        """The columns to write."""
        model = self._model
        predictions, probabilities = model.predictions(scores), model.probabilities(scores)
        each = {"score": scores, "prediction": predictions, "probability": probabilities}
        suffixes = [""] if scores.ndim == 1 else [f"_{name}" for name in model.targets]
        columns = {"prediction": each.pop("prediction")} if predictions.ndim < scores.ndim else {}
        for number, suffix in enumerate(suffixes):
            for name, values in each.items():
                columns[name + suffix] = values if values is None or values.ndim == 1 else values[:, number]
        return {name: values for name, values in columns.items() if values is not None}


def _in_place(values: NDArray[Any], kept: NDArray[np.bool_] | None) -> pa.Array:
    if kept is None:
        return pa.array(values)
    spread = np.zeros(len(kept), values.dtype)
    spread[kept] = values
    return pa.array(spread, mask=~kept)


@contextmanager
def _closing(writer: Any) -> Iterator[Any]:
    """Close the writer; after an error without another one, such as that the disk is still full."""
    try:
        yield writer
    except BaseException:
        with suppress(OSError, pa.ArrowException):
            writer.close()
        raise
    writer.close()


def _standard_output() -> BinaryIO:
    if sys.stdout.isatty():
        raise OptionError(
            "`--out -` writes an Arrow stream, which a terminal cannot show",
            "send it to another program: … --out - | …",
        )
    sys.stdout.flush()
    buffer: BinaryIO | None = getattr(sys.stdout, "buffer", None)  # a notebook has none
    if buffer is None:
        raise OptionError("`--out -`, but standard output takes text only", "name a file")
    return buffer


def _refuse_nested(out: Path, schema: pa.Schema) -> None:
    nested = [field for field in schema if pa.types.is_nested(field.type)]
    if out.suffix.lower() == ".csv" and nested:
        raise OptionError(
            f"column '{nested[0].name}' is of type {nested[0].type}, which a CSV file cannot hold",
            "write a .parquet or .arrow file",
        )


def _refuse_inputs(out: Path, sources: Sequence[str], catalog: Catalog, model: Model) -> None:
    """Refuse to write into the run's folder, over a shard, or into a folder where the next command would read it as one."""
    run, place = model.checkpoint.parent, out.parent.resolve() / out.name
    if place.is_relative_to(run.resolve()):
        raise OptionError(f"`--out '{out}'` is in the folder of the run", "name a file elsewhere")
    saved = saved_run(run, None, "worker")
    if exists(out):
        for shard in (*catalog.shards, *saved.catalog().shards):
            if isinstance(shard.path, Path) and exists(shard.path) and os.path.samefile(out, shard.path):
                whose = "DATA" if shard in catalog.shards else "the data that the run is trained on"
                raise OptionError(f"`--out '{out}'` is a file of {whose}", "name another file")
    for source in (*sources, *saved.record.sources, *saved.record.options.validation):
        if _would_read(source, place):
            raise OptionError(
                f"`--out '{out}'` would be read as a shard of '{source}' the next time", "name a file elsewhere"
            )


def _would_read(source: str, place: Path) -> bool:
    """Whether a file at this place belongs to a folder or glob of shards."""
    if place.suffix.lower() not in suffixes():
        return False
    if is_folder(source):
        return place.is_relative_to(Path(source).resolve())
    return has_magic(source) and place.match(os.path.abspath(source))

"""`streampgs synth`: made-up data to try things on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from streampgs.cli.console import say
from streampgs.cli.options import Command
from streampgs.errors import counted
from streampgs.option_fields import COMMON, Choice, Flag, Number, option, settle


@dataclass(frozen=True)
class SynthOptions:
    """What `streampgs synth` writes."""

    rows: int = option(None, Number("N", 1, whole=True), COMMON, "Number of rows.", required=True)
    kind: str = option(
        "sparse",
        Choice(names=("sparse", "dense", "regression", "gaussian")),
        COMMON,
        "Kind of rows. sparse has the shape of the RCV1 data set; gaussian is the toy set of the paper.",
    )
    shards: int = option(8, Number("N", 1, whole=True), COMMON, "Number of files.")
    format: str = option("arrow", Choice(names=("arrow", "parquet")), COMMON, "Format of the files.")
    seed: int = option(0, Number("N", 0, whole=True), COMMON, "Seed of the random numbers.")
    sort: bool = option(
        False, Flag(), COMMON, "Sort the rows by label: the worst case for training on parts.", flag="--sorted"
    )
    features: int | None = option(
        None,
        Number("N", 1, whole=True),
        COMMON,
        "Number of features.",
        shown="47,236 for sparse rows, 28 for dense rows, 20 for gaussian ones",
    )
    test_rows: int = option(
        0, Number("N", 0, whole=True), COMMON, "Number of test rows to write, never sorted, to the folder OUT-test."
    )

    def __post_init__(self) -> None:
        settle(self)


@click.command("synth", cls=Command, short_help="Write random data to try things on.", kinds=(SynthOptions,))
@click.argument("out", type=click.Path(path_type=Path))
def synth(out: Path, **options: Any) -> int:
    """Write random rows to shards in the folder OUT, to try things on.

    \b
      streampgs synth table --rows 200000 --test-rows 20000 --format parquet
    """
    from streampgs.synth import write_dataset

    chosen = asdict(SynthOptions(**options))
    report = write_dataset(out, **{**chosen, "shards": min(chosen["shards"], chosen["rows"])})
    say(
        f"wrote {report.rows:,} {chosen['kind']} rows with {report.features:,} features and {report.nonzeros:,} entries, "
        f"{report.bytes / 1e6:,.1f} MB in {counted(report.files, 'shard')}, to {out}"
        + (f" and {report.test_folder}" if report.test_folder else "")
        + f" in {report.seconds:.1f} s"
    )
    return 0

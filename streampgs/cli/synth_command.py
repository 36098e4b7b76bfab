"""`streampgs synth`: made-up data to try things on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from streampgs.base.errors import counted
from streampgs.cli.console import AsJson, exiting_on_signals, print_json, say
from streampgs.cli.options import Command
from streampgs.options.commands import SynthOptions


@click.command("synth", cls=Command, short_help="Write random data to try things on.", kinds=(SynthOptions, AsJson))
@click.argument("out", type=click.Path(path_type=Path))
def synth(out: Path, json: bool = False, **options: Any) -> int:
    """Write random rows to shards in the folder OUT, to try things on.

    \b
      streampgs synth table --rows 200000 --test-rows 20000 --format parquet
    """
    from streampgs.packing.synth import write_dataset

    with exiting_on_signals():
        report = write_dataset(out, **options)
    say(
        f"wrote {report.rows:,} {report.kind} rows with {report.features:,} features and {report.nonzeros:,} entries, "
        f"{report.bytes / 1e6:,.1f} MB in {counted(report.files, 'shard')}, to {out}"
        + (f" and {report.test_folder}" if report.test_folder else "")
        + f" in {report.seconds:.1f} s"
    )
    if json:
        print_json(asdict(report))
    return 0

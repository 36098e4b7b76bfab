"""`streampgs pack` converts files to shards; `streampgs synth` makes up data to try things on."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampgs.base.errors import counted
from streampgs.cli.console import AsJson, Output, exiting_on_signals, print_json, say, say_note, say_skipped
from streampgs.cli.options import Command
from streampgs.options.commands import SynthOptions
from streampgs.packing.options import PackOptions
from streampgs.python.progress import LineObserver, count, duration

if TYPE_CHECKING:
    from streampgs.packing.packer import PackReport, PackStatus

_SHOWN_COLUMNS = 8


@click.command("pack", cls=Command, short_help="Convert files to shards.", kinds=(PackOptions, Output))
@click.argument("inputs", metavar="IN...", nargs=-1)
@click.argument("out", type=click.Path(path_type=Path))
def pack(out: Path, inputs: tuple[str, ...] = (), json: bool = False, quiet: bool = False, **options: Any) -> int:
    """Convert files of many kinds to shards in the folder OUT.

    IN are files, folders or quoted globs: CSV, JSON lines, svmlight, Vowpal Wabbit, NumPy, Parquet, Arrow. Text files may
    be compressed (.gz, .zst, .bz2). IN::NAME=VALUE adds a column with the same value in all rows of IN. The
    shards get their names when all of them are complete.

    \b
      streampgs pack clicks.csv.gz shards/ --types zip=string
      streampgs pack spam.txt::label=1 ham.txt::label=-1 shards/ --from lines --shuffle
      streampgs pack shards/ --sql "SELECT * EXCLUDE id FROM 'clicks/*.parquet' WHERE day < '2026-11-01'"
    """
    if not inputs and "sql" not in options:
        raise click.UsageError("Name the files to pack, then the folder for the shards.")
    from streampgs.packing.packer import pack as pack_files

    started = time.perf_counter()
    with closing(LineObserver(say)) as line, exiting_on_signals():

        def show(status: PackStatus) -> None:
            seconds = duration(time.perf_counter() - started)
            done = f"{status.phase} · {status.fraction:.0%} · {count(status.rows)} rows · {seconds}"
            line.show(status.fraction, done)

        shown: dict[str, Any] = {} if quiet else {"on_progress": show, "on_note": say_note}
        report = pack_files(inputs, out, **shown, **options)
    if not quiet:
        _say_report(report, out)
    if json:
        print_json(asdict(report))
    return 0


def _say_report(report: PackReport, out: Path) -> None:
    say_skipped(report.skipped_rows)
    size = f"{counted(report.rows, 'row')} in {counted(report.shards, 'shard')}, {report.bytes / 1e6:,.1f} MB"
    columns = [f"{name} {kind}" for name, kind in report.columns.items()]
    more = f", and {len(columns) - _SHOWN_COLUMNS:,} more" if len(columns) > _SHOWN_COLUMNS else ""
    say(f"columns: {', '.join(columns[:_SHOWN_COLUMNS])}{more}")
    say(f"{size}, {report.seconds:.1f} s, peak memory {report.peak_rss_mb:,.0f} MB: {out}")


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

"""`streampgs pack`."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampgs.cli.console import (
    EXIT_CODES,
    LiveLine,
    Output,
    count,
    duration,
    print_json,
    say,
    say_note,
    say_skipped,
    stop_on_signals,
)
from streampgs.cli.options import Command
from streampgs.errors import counted
from streampgs.option_fields import DATA, Flag, option
from streampgs.packing.options import PackOptions, PackWay

if TYPE_CHECKING:
    from streampgs.packing.packer import PackReport, PackStatus

_SHOWN_COLUMNS = 8


@dataclass(frozen=True)
class _NoHeader:
    no_header: bool = option(False, Flag(), DATA, "For CSV: the first line is a row, not the names of the columns.")


@click.command(
    "pack", cls=Command, short_help="Convert files to shards.", kinds=(PackOptions, PackWay, _NoHeader, Output)
)
@click.argument("inputs", metavar="IN...", nargs=-1)
@click.argument("out", type=click.Path(path_type=Path))
def pack(
    out: Path,
    inputs: tuple[str, ...] = (),
    no_header: bool = False,
    json: bool = False,
    quiet: bool = False,
    **options: Any,
) -> int:
    """Convert files of many kinds to shards in the folder OUT.

    IN are files, folders or quoted globs: CSV, JSON lines, svmlight, Vowpal Wabbit, NumPy, Parquet, Arrow. Text files may
    be compressed (.gz, .zst, .bz2). IN::NAME=VALUE adds a column with the same value in all rows of IN. After an
    interruption, the same command continues and writes the same bytes.

    \b
      streampgs pack clicks.csv.gz shards/ --types zip=string
      streampgs pack spam.txt::label=1 ham.txt::label=-1 shards/ --from lines --shuffle
      streampgs pack shards/ --sql "SELECT * EXCLUDE id FROM 'clicks/*.parquet' WHERE day < '2026-11-01'"
    """
    if not inputs and "sql" not in options:
        raise click.UsageError("Name the files to pack, then the folder for the shards.")
    from streampgs.packing.packer import pack as pack_files
    from streampgs.run.report import StopRequest

    stop = StopRequest()
    stop_on_signals(stop)
    with closing(_Progress(quiet)) as progress:
        report = pack_files(
            inputs,
            out,
            header=not no_header,
            on_progress=progress.status,
            on_note=progress.note,
            stop=stop,
            **options,
        )
    if not quiet:
        _say_report(report, out)
    if json:
        print_json(asdict(report))
    return EXIT_CODES.get(report.stopped_by, 0)


def _say_report(report: PackReport, out: Path) -> None:
    say_skipped(report.skipped_rows)
    size = f"{counted(report.rows, 'row')} in {counted(report.shards, 'shard')}, {report.bytes / 1e6:,.1f} MB"
    if report.stopped_by in EXIT_CODES:
        say(f"stopped by {report.stopped_by} with {size}; the same command continues")
    elif report.nothing_to_do:
        say(f"nothing to do: {out} has {size}")
    else:
        columns = [f"{name} {kind}" for name, kind in report.columns.items()]
        more = f", and {len(columns) - _SHOWN_COLUMNS:,} more" if len(columns) > _SHOWN_COLUMNS else ""
        say(f"columns: {', '.join(columns[:_SHOWN_COLUMNS])}{more}")
        say(f"{size}, {report.seconds:.1f} s, peak memory {report.peak_rss_mb:,.0f} MB: {out}")


class _Progress:
    """The progress of a pack on the terminal."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._line = LiveLine()
        self._started = time.perf_counter()
        self.close = self._line.close

    def note(self, message: str) -> None:
        if not self._quiet:
            say_note(message)

    def status(self, status: PackStatus) -> None:
        if not self._quiet:
            seconds = duration(time.perf_counter() - self._started)
            self._line.show(
                status.fraction, f"{status.phase} · {status.fraction:.0%} · {count(status.rows)} rows · {seconds}"
            )

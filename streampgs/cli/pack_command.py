"""`streampgs pack`: its options, and its live line."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampgs.cli.console import EXIT_CODES, count, duration, print_json, say, stop_on_signals
from streampgs.cli.options import Word
from streampgs.option_fields import Size

if TYPE_CHECKING:
    from streampgs.packing.packer import PackReport, PackStatus

_PLAIN_SECONDS = 5.0
_SHOWN_COLUMNS = 8


def _listed(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(","))


def _typed(ctx: click.Context, param: click.Parameter, text: str | None) -> dict[str, str]:
    pairs = [part.rpartition("=") for part in (text or "").split(",") if part]
    for name, _, kind in pairs:
        if not name or not kind:
            raise click.BadParameter("write it like age=int64,zip=string", ctx, param)
    return {name.strip(): kind.strip() for name, _, kind in pairs}


def _delimiter(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    return "\t" if text == "\\t" else text


@click.command(short_help="Convert files to shards.")
@click.argument("inputs", metavar="IN...", nargs=-1)
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "kind",
    metavar="KIND",
    default=None,
    help="What the inputs are: csv, tsv, jsonl, svmlight, vw, matrix (lines of numbers), lines (of text), npz, npy, "
    "parquet, arrow. Default: told by names, or by the first line.",
)
@click.option(
    "--sql",
    metavar="QUERY",
    default=None,
    help="Pack the result of a query instead, by DuckDB: files are named in it, and can be filtered and joined. Needs the "
    "extra streampgs[sql].",
)
@click.option("--no-header", is_flag=True, help="Of CSV: the first line is a row, not the names of the columns.")
@click.option("--names", callback=_listed, metavar="A,B,…", help="Names for the columns, instead of the header's.")
@click.option("--skip-lines", type=int, default=0, metavar="N", help="Lines to leave out at the start of each text.")
@click.option(
    "--delimiter", callback=_delimiter, metavar="C", help="What stands between columns. Default: comma or tab."
)
@click.option(
    "--types",
    callback=_typed,
    metavar="COLUMN=TYPE,…",
    help="Types that are not to be found out: int64, int32, double, float, string, bool, date, timestamp.",
)
@click.option(
    "--null",
    "nulls",
    multiple=True,
    metavar="TEXT",
    help="A text that means that a value is missing; may be given several times. Default: empty, NA, null and their "
    "like, in columns that are no text.",
)
@click.option("--labels", metavar="FILE", help="A number for each row, one a line or .npy: becomes the column 'label'.")
@click.option(
    "--on-bad-row",
    type=click.Choice(("error", "skip")),
    default="error",
    show_default=True,
    help="Stop at a row that cannot be read, or leave it out and count it.",
)
@click.option("--format", "file_format", type=click.Choice(("arrow", "parquet")), default="arrow", show_default=True)
@click.option("--rows-per-shard", type=int, default=None, metavar="N", help="Default: as many as make 134MB.")
@click.option("--block-bytes", type=Word(Size()), default="1MiB", show_default=True, help="What a record batch holds.")
@click.option(
    "--shuffle", is_flag=True, help="Write the rows in a random order: of data that are sorted, say by label."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides the order of --shuffle.")
@click.option(
    "--memory", type=Word(Size()), default="512MB", show_default=True, help="Budget for rows; Python comes on top."
)
@click.option("--overwrite", is_flag=True, help="Start anew in a folder that was packed into before.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output at the end.")
@click.option("--quiet", is_flag=True, help="No progress and no summary.")
def pack(
    inputs: tuple[str, ...],
    out: Path,
    no_header: bool,
    nulls: tuple[str, ...],
    file_format: str,
    as_json: bool,
    quiet: bool,
    **chosen: Any,
) -> int:
    """Turn files of many kinds into a folder OUT of shards to train on.

    IN are files, folders or quoted globs: CSV, JSON lines, svmlight, Vowpal Wabbit, NumPy, Parquet, Arrow; texts may be
    compressed (.gz, .zst, .bz2). IN::NAME=VALUE adds a column with the same value in all rows of IN. What was
    interrupted goes on with the same command, and gives the same bytes.

    \b
      streampgs pack clicks.csv.gz shards/ --types zip=string
      streampgs pack spam.txt::label=1 ham.txt::label=-1 shards/ --from lines --shuffle
      streampgs pack shards/ --sql "SELECT * EXCLUDE id FROM 'clicks/*.parquet' WHERE day < '2026-11-01'"
    """
    if not inputs and chosen["sql"] is None:
        raise click.UsageError("Name the files to pack, and behind them the folder to pack them into.")
    from streampgs.packing.packer import pack as pack_files
    from streampgs.run.report import StopRequest

    stop = StopRequest()
    stop_on_signals(stop)
    with _Progress(quiet) as progress:
        report = pack_files(
            inputs,
            out,
            header=not no_header,
            nulls=nulls or None,
            format=file_format,
            on_progress=progress.status,
            on_note=progress.note,
            stop=stop,
            **chosen,
        )
    if not quiet:
        _say_report(report, out)
    if as_json:
        print_json(dataclasses.asdict(report))
    return EXIT_CODES.get(report.stopped_by, 0)


def _say_report(report: PackReport, out: Path) -> None:
    for fault, rows in report.skipped_rows.items():
        say(click.style("skipped: ", fg="yellow") + f"{rows:,} rows: {fault}")
    size = f"{report.rows:,} rows in {report.shards:,} shards, {report.bytes / 1e6:,.1f} MB"
    if report.stopped_by in EXIT_CODES:
        say(f"stopped by {report.stopped_by} with {size}; the same command goes on")
        return
    if report.nothing_to_do:
        say(f"nothing to do: {out} holds {size}")
        return
    columns = [f"{name} {kind}" for name, kind in report.columns.items()]
    more = f", and {len(columns) - _SHOWN_COLUMNS:,} more" if len(columns) > _SHOWN_COLUMNS else ""
    say(f"columns: {', '.join(columns[:_SHOWN_COLUMNS])}{more}")
    say(f"{size}, {report.seconds:.1f} s, peak memory {report.peak_rss_mb:,.0f} MB: {out}")


class _Progress:
    """A bar in a terminal, a line now and then elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._live: Any = None
        self._bar: Any = None
        self._started = self._last = time.perf_counter()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, message: str) -> None:
        if not self._quiet:
            say(click.style("note: ", fg="yellow") + message)

    def status(self, status: PackStatus) -> None:
        if self._quiet:
            return
        now = time.perf_counter()
        if sys.stderr.isatty():
            if self._live is None:
                self._start_live()
            self._live.update(self._bar, completed=status.fraction, description=self._text(status, now))
        elif now - self._last >= _PLAIN_SECONDS:
            self._last = now
            say(self._text(status, now))

    def _text(self, status: PackStatus, now: float) -> str:
        return f"{status.phase} · {status.fraction:.0%} · {count(status.rows)} rows · {duration(now - self._started)}"

    def _start_live(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._live = Progress(
            BarColumn(bar_width=16), TextColumn("{task.description}"), console=Console(stderr=True), transient=True
        )
        self._bar = self._live.add_task("starting", total=1.0)
        self._live.start()

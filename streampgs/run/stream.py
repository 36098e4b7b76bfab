"""How a run on a stream begins and is resumed: its rows reach the disk, and from there it is a table that grows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from streampgs.base.errors import DataError, OptionError, RunError
from streampgs.options.commands import (
    SPOOL_BYTES,
    STREAM_PASSES,
    STREAM_REPLAY,
    Growth,
    ModelOptions,
)
from streampgs.options.solvers import SOLVERS
from streampgs.reading.blocks import Stopped
from streampgs.run.commands import ResumeCall, TrainCall
from streampgs.run.folder import RunFolder
from streampgs.run.record import RunRecord
from streampgs.run.report import Session, StopRequest
from streampgs.run.spool import Spooler
from streampgs.run.standard_input import largest_batch
from streampgs.table.catalog import Catalog

_OF_SHARDS = (
    *("add", "data", "leave_out", "follow"),
    *("accept_touched", "accept_removed", "accept_changes", "accept_rejected"),
)
"""Options of growth that do not apply to a stream."""


def refuse_for_stream(options: ModelOptions, call: TrainCall | ResumeCall) -> None:
    """Options that do not suit a stream."""
    needs, resources = SOLVERS[options.solver].needs, call.resources
    if needs.passes or needs.in_memory:
        raise OptionError(
            f"`--solver {options.solver}` with a stream: it needs every row several times", "use `--solver pgs`"
        )
    if call.limits.epochs is not None:
        raise OptionError(
            "--epochs with a stream, whose rows arrive once", "limit it with --rows or --seconds, or not at all"
        )
    if resources.no_cache or resources.cache is not None or resources.cache_limit is not None:
        raise OptionError("an option of the cache with a stream, which has none", "leave it out")
    given = [f"--{name.replace('_', '-')}" for name in _OF_SHARDS if getattr(call.growth, name)]
    if given:
        raise OptionError(f"{given[0]} with a stream", "it is for shards: leave it out, a stream grows automatically")


def growth_of_stream(growth: Growth) -> Growth:
    """The growth of a new run, with the defaults of a stream."""
    return replace(
        growth,
        passes=growth.passes or STREAM_PASSES,
        replay=STREAM_REPLAY if growth.replay is None else growth.replay,
        spool=growth.spool or SPOOL_BYTES,
    )


@contextmanager
def new_spool(folder: RunFolder, call: TrainCall, stop: StopRequest) -> Iterator[tuple[Spooler, Path]]:
    """The spool of a new run, and its first shard. If no run begins, no row is kept."""
    assert call.growth.spool is not None
    shutil.rmtree(folder.spool, ignore_errors=True)  # a call that was killed before its first step may have left it
    spooler = Spooler(folder.spool, call.growth.spool, call.growth.poll_seconds)
    try:
        spooler.read(largest_batch(call.resources), stop, 0)
        shard = spooler.next(stop)
        if shard is None and stop.reason is not None:
            raise Stopped
        if shard is None:
            raise DataError("the stream has no rows", "let the producer write record batches after the schema")
        yield spooler, shard
    except Stopped:
        raise RunError(
            f"stopped by {stop.reason} before the first step: nothing was trained on or kept",
            "start again with the same command and the same row of the stream",
        ) from None
    finally:
        spooler.close()
        if not folder.exists:
            shutil.rmtree(folder.spool, ignore_errors=True)


def spool_of(
    folder: RunFolder,
    record: RunRecord,
    catalog: Catalog,
    call: ResumeCall,
    session: Session,
    stop: StopRequest,
) -> Spooler:
    """The spool of a run that is resumed."""
    assert record.spool is not None
    skip_taken = call.changes.skip_taken
    joined = catalog.shards[-1].path
    spooler = Spooler(folder.spool, record.spool, call.growth.poll_seconds, Path(str(joined)))
    if call.stream is not None:
        spooler.read(largest_batch(call.resources), stop, 0 if skip_taken else spooler.rows)
        if skip_taken:
            session.note(f"{spooler.rows:,} rows of the stream were taken before and are skipped")
        elif spooler.rows:
            session.note(
                f"{spooler.rows:,} rows of the stream were taken before: the first row of standard input is taken to be row "
                f"{spooler.rows:,}, counted from 0. If the stream begins again at its first row, give --skip-taken"
            )
    return spooler

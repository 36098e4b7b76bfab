"""The choices of a run: made when it starts; some may change later."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from streampgs.base.checks import Count, Positive, decode, encode
from streampgs.base.stage import Bundle
from streampgs.data.refresh import Table
from streampgs.encoding.encoding import Encoding
from streampgs.options.commands import KEEP, MOST_KEPT, Limits, ModelOptions
from streampgs.order.arrivals import USUAL_UPDATES, UpdateSizes
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import Sizes
from streampgs.run.checkpoint import Kept
from streampgs.table.catalog import Catalog

_CHANGING = (
    "options",
    "limits",
    "sources",
    "encoding",
    "decoder_bytes",
    "updates",
    "keep",
    "begun",
    "trial",
    "left_out",
    "rejected",
    "on_trial",
)


@dataclass(frozen=True)
class BegunUpdate:
    """An update of the run: (epoch, part) names it."""

    epoch: Count
    part: Count
    rows: Count
    """Trained on before it."""


@dataclass(frozen=True)
class RunRecord:
    options: ModelOptions
    sources: tuple[str, ...]
    sizes: Sizes
    cache: str | None
    """The folder of decoded blocks, relative to the run's; None: without a cache."""
    cache_limit: Count | None
    """None: all decoded rows are cached."""
    limits: Limits
    encoding: str | None = None
    """The digest of the run's encoding; None: rows are used as they are."""
    decoder_bytes: Count = 0
    """The memory that decoding a group takes, where it was measured."""
    spool: Positive | None = None
    """The most bytes that the rows of a stream take on disk; None: the run does not train on a stream."""
    updates: UpdateSizes = USUAL_UPDATES
    keep: Positive = KEEP
    """How many checkpoints are kept, and how many before updates."""
    begun: tuple[BegunUpdate, ...] = ()
    """The last updates."""
    trial: Count | None = None
    """The rows of the checkpoint to which a resume returns if it fails; None: no resume is on trial."""
    left_out: tuple[str, ...] = ()
    """Shards that are not used: paths, folders and globs."""
    rejected: tuple[str, ...] = ()
    """The contents of shards that are not used, because a resume on trial that brought them has failed."""
    on_trial: dict[str, float] = field(default_factory=dict)
    """What --fail-if asks about the shards that have joined in the resume that is on trial."""

    @property
    def kept(self) -> Kept:
        """All from before a resume that is on trial are kept: if it fails, the run is left as it was."""
        before = tuple(update.rows for update in self.begun[-self.keep :])
        return Kept(self.keep, before, -1 if self.trial is None else self.trial)

    def with_update(self, epoch: int, part: int, rows: int) -> RunRecord:
        """In an update that begins after so many rows, or has begun already."""
        if self.begun and (self.begun[-1].epoch, self.begun[-1].part) == (epoch, part):
            return self
        return replace(self, begun=(*self.begun, BegunUpdate(epoch, part, rows))[-MOST_KEPT:])

    def changes(self) -> Bundle:
        """The section of a checkpoint: the choices that may have changed since the start."""
        return Bundle({name: encode(getattr(self, name)) for name in _CHANGING})

    def as_of(self, section: Bundle) -> RunRecord:
        """With the changes since the start, from the section of a checkpoint."""
        return decode(RunRecord, {**encode(self), **{name: section.values[name] for name in _CHANGING}})

    def table(self, catalog: Catalog, cursor: Cursor, encoding: Encoding | None) -> Table:
        limit = self.cache_limit if self.cache is not None else 0
        return Table(
            self.options, self.sources, catalog, cursor, encoding, self.sizes, limit,
            self.decoder_bytes, self.updates, self.left_out, self.rejected, self.on_trial,
        )  # fmt: skip

    def of_table(self, table: Table) -> RunRecord:
        """With the options, sources, encoding and left out shards of the table as it is now."""
        digest = None if table.encoding is None else table.encoding.digest
        return replace(
            self, options=table.options, sources=table.sources, encoding=digest, decoder_bytes=table.decoder_bytes,
            left_out=table.left_out, on_trial={} if self.trial is None else table.on_trial,
        )  # fmt: skip

"""What is decided when a run starts, and stays."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streampgs.checks import Count, decode, encode
from streampgs.encoding.encoding import Encoding
from streampgs.options import Limits, ModelOptions
from streampgs.order.schedule import Sizes
from streampgs.reading.mixed_window import StreamSizes
from streampgs.stage import Bundle

_CHANGING = ("options", "limits", "sources", "encoding", "decoder_bytes")


@dataclass(frozen=True)
class RunRecord:
    options: ModelOptions
    sources: tuple[str, ...]
    sizes: Sizes
    cache: str | None
    """The folder of decoded blocks, seen from the run's; None: none are kept."""
    cache_limit: Count | None
    """None: all decoded rows are cached."""
    limits: Limits
    encoding: str | None = None
    """The digest of the run's encoding; None: rows are used as they are."""
    decoder_bytes: Count = 0
    """What decoding a group takes, where it was looked at."""
    stream: StreamSizes | None = None
    """Of a run on a stream; None: it trains on shards."""

    def changes(self) -> Bundle:
        """The section of a checkpoint: what may have changed since the start."""
        return Bundle({name: encode(getattr(self, name)) for name in _CHANGING})

    def as_of(self, section: Bundle) -> RunRecord:
        """With what has changed since the start, by the section of a checkpoint."""
        return decode(RunRecord, {**encode(self), **{name: section.values[name] for name in _CHANGING}})

    def grown(self, options: ModelOptions, encoding: Encoding | None, decoder_bytes: int) -> RunRecord:
        """With what new shards have brought."""
        return replace(
            self,
            options=options,
            encoding=None if encoding is None else encoding.digest,
            decoder_bytes=max(self.decoder_bytes, decoder_bytes),
        )

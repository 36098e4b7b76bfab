"""What is decided when a run starts, and stays."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from streampgs.checks import require, typed
from streampgs.encoding.encoding import Encoding
from streampgs.options import MOST_REPLAY, Limits, ModelOptions
from streampgs.order.schedule import Sizes
from streampgs.reading.mixed_window import StreamSizes
from streampgs.stage import Bundle


@dataclass(frozen=True)
class RunRecord:
    options: ModelOptions
    sources: tuple[str, ...]
    sizes: Sizes
    cache: str | None
    """The folder of decoded blocks, seen from the run's; None: none are kept."""
    cache_limit: int | None
    """None: all decoded rows are cached."""
    limits: Limits
    encoding: str | None = None
    """The digest of the run's encoding; None: rows are used as they are."""
    decoder_bytes: int = 0
    """What decoding a group takes, where it was looked at."""
    stream: StreamSizes | None = None
    """Of a run on a stream; None: it trains on shards."""

    def changes(self) -> Bundle:
        """The section of a checkpoint: what may have changed since the start."""
        return Bundle(
            {
                "options": self.options.to_json(),
                "limits": asdict(self.limits),
                "sources": list(self.sources),
                "encoding": self.encoding,
                "decoder_bytes": self.decoder_bytes,
            }
        )

    def as_of(self, section: Bundle) -> RunRecord:
        """With what has changed since the start, by the section of a checkpoint."""
        saved = section.values
        found = replace(
            self,
            options=ModelOptions.from_json(saved["options"]),
            limits=Limits(**saved["limits"]),
            sources=tuple(saved["sources"]),
            encoding=saved["encoding"],
            decoder_bytes=saved["decoder_bytes"],
        )
        typed(found)
        require(found.decoder_bytes >= 0, "a negative size")
        return found

    def grown(self, options: ModelOptions, encoding: Encoding | None, decoder_bytes: int) -> RunRecord:
        """With what new shards have brought."""
        return replace(
            self,
            options=options,
            encoding=None if encoding is None else encoding.digest,
            decoder_bytes=max(self.decoder_bytes, decoder_bytes),
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "options": self.options.to_json()}

    @staticmethod
    def from_json(record: dict[str, Any]) -> RunRecord:
        found = RunRecord(
            ModelOptions.from_json(record["options"]),
            tuple(record["sources"]),
            Sizes(**record["sizes"]),
            record["cache"],
            record["cache_limit"],
            Limits(**record["limits"]),
            record["encoding"],
            record["decoder_bytes"],
            None if record.get("stream") is None else StreamSizes(**record["stream"]),
        )
        typed(found)
        require(
            min(found.sizes.window_bytes, found.sizes.block_bytes) > 0, f"windows of {found.sizes.window_bytes} bytes"
        )
        require(min(found.cache_limit or 0, found.decoder_bytes) >= 0, "a negative size")
        if found.stream is not None:
            _check_stream(found.stream)
        return found


def _check_stream(sizes: StreamSizes) -> None:
    """The reservoir has room for the longest row that a window may hold."""
    require(sizes.window_bytes > 0 and sizes.horizon > 0, f"windows of {sizes.window_bytes} bytes")
    require(0.0 <= sizes.replay <= MOST_REPLAY, f"replay {sizes.replay}")
    least = 2 * sizes.window_bytes if sizes.replay else 0
    require(least <= sizes.reservoir_bytes, f"a reservoir of {sizes.reservoir_bytes} bytes")

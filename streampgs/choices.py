"""The choices of a run in words, for the lines that a user reads before the first step."""

from __future__ import annotations

import math

from streampgs.order.schedule import Sizes
from streampgs.planning import Forecast
from streampgs.solver.pgs import PgsSettings
from streampgs.table.catalog import Catalog


def data_choice(catalog: Catalog, features: int) -> str:
    return f"{len(catalog.shards):,} shards, {catalog.rows:,} rows, {catalog.kind}, {features:,} features"


def model_choice(settings: PgsSettings) -> str:
    s = settings
    ball = "no ball" if math.isinf(s.radius) else f"ball {s.radius:.4g}"
    return (
        f"{s.loss}, p {s.p:g}, sigma {s.sigma:g}, t0 {s.t0:.6g}, {ball}, batch {s.batch}, intercept {s.intercept:g}, "
        f"return {s.returns}, seed {s.seed}"
    )


def window_choice(sizes: Sizes, rows: int, blocks: int, is_all: bool, sampling: str) -> str:
    share = (
        f"all the data, {blocks:,} blocks"
        if is_all
        else f"{blocks:,} blocks of up to {sizes.block_bytes / 1e3:,.0f} kB"
    )
    return f"{sizes.window_bytes / 1e6:,.1f} MB; the first mixes {rows:,} rows from {share}; {sampling} sampling"


def cache_choice(catalog: Catalog, folder: str | None) -> str:
    decoded = sum(shard.decoded for shard in catalog.shards)
    kept = sum(shard.cached for shard in catalog.shards)
    if not decoded:
        return "not needed: all shards can be read in slices"
    if not kept:
        return "none: shards are decoded in every epoch"
    return f"{kept} of {decoded} shards are decoded once, into {folder}"


def memory_choice(forecast: Forecast) -> str:
    parts = {
        "process": forecast.process,
        "two windows": forecast.windows,
        "reading": forecast.reading,
        "decoding": forecast.decoding,
        "model": forecast.model,
    }
    listed = ", ".join(f"{name} {value / 1e6:,.0f} MB" for name, value in parts.items() if value)
    return f"about {forecast.total / 1e6:,.0f} MB at the peak: {listed}"

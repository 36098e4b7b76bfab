"""The results of inspections, for people."""

from __future__ import annotations

from typing import Any

import click


def _lines(pairs: dict[str, str]) -> str:
    width = max(map(len, pairs))
    return "\n".join(f"{click.style(name.ljust(width), bold=True)}  {text}" for name, text in pairs.items())


def _catalog_text(catalog: dict[str, Any]) -> str:
    return (
        f"{catalog['rows']:,} {catalog['layout']} rows with {catalog['entries']:,} entries in {catalog['shards']:,} shards "
        f"({', '.join(catalog['formats'])}, {catalog['groups']:,} groups, {catalog['bytes'] / 1e6:,.1f} MB)"
    )


def run_text(result: dict[str, Any]) -> str:
    options, settings = result["options"], result["settings"]
    ball = "no ball" if settings["radius"] is None else f"ball {settings['radius']:.4g}"
    pairs = {
        "run": f"{result['run']} (checkpoint {result['checkpoint']})",
        "trained": f"{result['rows']:,} rows, {result['t']:,} steps, in epoch {result['epoch']}",
        "model": f"{settings['loss']}, p {settings['p']:g}, sigma {settings['sigma']:g}, t0 {settings['t0']:.6g}, {ball}, "
        f"batch {settings['batch']}, return {settings['returns']}",
        "weights": f"{result['nonzeros']:,} of {result['features']:,} features are not zero, intercept {result['intercept']:.6g}",
        "dual": f"sha256 {result['dual_sha256']}",
        "data": f"{_catalog_text(result['catalog'])}, label column '{options['label']}'",
    }
    if result["progressive_loss"] is not None:
        pairs["progress"] = f"loss {result['progressive_loss']:.5f}, certified gap {result['gap']:.3g}"
    for number, fault in enumerate(result["damaged_checkpoints"]):
        pairs[f"damaged {number + 1}"] = fault
    return _lines(pairs)


def data_text(result: dict[str, Any]) -> str:
    pairs = {
        "data": _catalog_text(result["catalog"]),
        "columns": ", ".join(result["catalog"]["columns"]),
        "window": f"{result['window_bytes'] / 1e6:,.1f} MB, about {result['rows_per_window']:,} rows from "
        f"{result['blocks_per_window_first_epoch']} blocks in the first epoch, {result['blocks_per_window_later']} later",
        "clustering": f"{result['clustering']:.3f} (labels inside blocks of about {result['clustering_block_rows']:,} rows; "
        "0 mixed, 1 sorted)",
    }
    if result["ignored_files"]:
        pairs["left out"] = f"{result['ignored_files']} files that are no shards by their names"
    text = _lines(pairs)
    for warning in result["warnings"]:
        text += "\n" + click.style("warning: ", fg="yellow") + warning
    return text

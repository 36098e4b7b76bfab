"""The report of the benchmark: a Markdown table and a plot."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench.peers.peers import PEERS

Row = dict[str, Any]
"""A peer in the report: its name, outcome and summary, or the reason why there is none."""

# The share of the plot below the target.
_LEAST_BELOW, _MOST_BELOW = 0.03, 0.06

_HEAD = (
    "peer",
    "reads",
    "start s",
    "load s",
    "train s",
    "total s to target",
    "passes",
    "cores",
    "peak RSS",
    "final accuracy",
)


def markdown(result: dict[str, Any]) -> str:
    """The table, fastest peer first, with the explanation of its columns and notes."""
    machine, data, target, rows = result["machine"], result["data"], result["target"], result["peers"]
    text_seconds = result["found_beforehand"].get("seconds_converting_to_text")
    notes = [
        f"{data['rows']:,} rows, {data['features']:,} features ({data['train']}); target accuracy {target:.4f}. "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}, "
        f"Python {machine['python']}, {machine['date'][:10]}; files in the page cache. `start` is the time of imports and of "
        "loading compiled code; the total does not include it."
    ]
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD)), *(_line(_cells(row)) for row in sorted(rows, key=_place))]
    notes_below = [_own_stop(row) for row in rows if "own_stop" in row.get("outcome", {}).get("notes", {})]
    if text_seconds is not None:
        notes_below.append(f"Writing the text input of Vowpal Wabbit took {text_seconds:.1f} s, which is not counted.")
    return "\n".join([*notes, "", *lines, "", *(f"- {note}" for note in notes_below)])


def _place(row: Row) -> tuple[bool, bool, bool, float]:
    summary = row.get("summary", {})
    return (
        "failed" in row,
        not PEERS[row["peer"]].learns,
        not summary.get("reached", False),
        summary.get("seconds", 0.0),
    )


def _cells(row: Row) -> list[str]:
    peer = PEERS[row["peer"]]
    if "failed" in row:
        return [peer.title, peer.reads, f"failed: {row['failed']}", *[""] * (len(_HEAD) - 3)]
    outcome, summary = row["outcome"], row["summary"]
    memory = f"{outcome['peak_rss_mb']:,.0f} MB"
    start = f"{outcome['seconds_importing'] + outcome['seconds_preparing']:.2f}"
    if not peer.learns:
        return [peer.title, peer.reads, start, f"{outcome['seconds_loading']:.2f}", "", "", "", "", memory, ""]
    loading, total = summary["seconds_loading"], summary["seconds"]
    return [
        peer.title,
        peer.reads,
        start,
        f"{loading:.2f}" if loading else "–",
        f"{total - loading:.2f}",
        f"**{total:.2f}**" if summary["reached"] else "not reached",
        f"{summary['passes']:.3g}" if summary["passes"] is not None else "–",
        f"{summary['cores']:.1f}",
        memory,
        f"{summary['final_accuracy']:.4f}",
    ]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _own_stop(row: Row) -> str:
    peer, stop = PEERS[row["peer"]], row["outcome"]["notes"]["own_stop"]
    return (
        f"{peer.title} from {peer.reads} with `--target-accuracy`: ended by {stop['stopped_by']} after "
        f"{stop['passes']:.2f} passes and {stop['seconds']:.2f} s ({stop['seconds_of_command']:.2f} s for the whole command) "
        f"with accuracy {stop['accuracy']:.4f}."
    )


def median_curve(outcomes: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Seconds and accuracies: medians over repeated runs, point by point. The points of streampgs are separate runs, of
    which a longer one may have taken less time by chance; here time never runs backwards."""
    curves = [outcome["curve"] for outcome in outcomes if outcome.get("curve")]
    points = list(zip(*curves, strict=False))
    seconds = [float(np.median([point["seconds"] for point in alike])) for alike in points]
    accuracies = [float(np.median([point["accuracy"] for point in alike])) for alike in points]
    return np.maximum.accumulate(seconds).tolist(), accuracies


def plot(rows: list[Row], outcomes: dict[str, list[dict[str, Any]]], target: float, path: Path) -> None:
    """Accuracy over seconds, a line for each peer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(12, 6), layout="constrained")
    colours = dict(zip(PEERS, pyplot.get_cmap("tab20").colors, strict=False))
    curves = {row["peer"]: median_curve(outcomes[row["peer"]]) for row in sorted(rows, key=_place) if "outcome" in row}
    curves = {name: curve for name, curve in curves.items() if curve[0]}
    for name, (seconds, accuracies) in curves.items():
        ours = name.startswith("streampgs")
        axes.plot(
            seconds,
            accuracies,
            marker="o" if ours else ".",
            linewidth=2.5 if ours else 1.2,
            color=colours[name],
            label=f"{PEERS[name].title} ({PEERS[name].reads})",
        )
    axes.axhline(target, color="black", linewidth=1, linestyle=":")
    axes.annotate(f"target {target:.4f}", (0.005, target), xycoords=("axes fraction", "data"), va="bottom")
    bests = [max(accuracies) for _, accuracies in curves.values()]
    axes.set_ylim(np.clip(min(bests) - 0.01, target - _MOST_BELOW, target - _LEAST_BELOW), max(*bests, target) + 0.003)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("seconds of loading and training (log scale); a curve ends at twice the seconds to the target")
    axes.set_ylabel("accuracy on the test rows")
    axes.grid(alpha=0.3, which="both")
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)

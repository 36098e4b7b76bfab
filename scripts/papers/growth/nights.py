"""Tables that arrive night by night: each night a plain resume, then evaluation on the rows of the next night.

    python -m scripts.papers.growth.nights [--tables weather,reuters,constant,rotation,abrupt,season,frequencies] [--nights 20]
        [--night-rows 3000] [--seeds 3] [--out FOLDER]

Next to it, on the same nights: a model that is never updated; scikit-learn's SGDClassifier.partial_fit; the model as it was
before the resume of that night; a new run on all rows so far, and on those of the last 1, 2 and 5 nights. The first night has
three epochs (--epochs), and so have new runs. weather and reuters are real tables in time order, cut into equal parts and
read from the folder --source; the others are generated, and their law changes slowly, abruptly in night 10, with a season of
8 nights, or only in the frequencies of features. Each finished table is a line of FOLDER/nights.jsonl.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scripts import real_data
from scripts.machine import machine_line
from scripts.papers.finished import Cell, Finished
from scripts.papers.growth import laws
from scripts.papers.growth.cells import folders_of
from scripts.papers.growth.peer import PartialFit
from scripts.papers.growth.summary import markdown
from scripts.papers.growth.tables import IN_TIME_ORDER, TABLES, Folders
from scripts.papers.growth.training import Place

_CELL = ("table", "seed", "nights", "night_rows", "epochs", "options")
_WINDOWS = (1, 2, 5)
_SPREAD_ROWS = 1_000_000
ACCURACY, LOSS = 0, 1

_NEVER, _PEER, _BEFORE, _RESUMED, _ALL = "never updated", "partial_fit", "before", "resume", "new run, all rows"
_LINEAGES = ("long", "recent", "fresh")
_TOLERANCE = 1e-4
_WITHIN_WINDOW = 0.002


def parts_of(table: str, nights: int, night_rows: int, seed: int, folders: Folders) -> list[pa.Table]:
    if table in IN_TIME_ORDER:
        rows = TABLES[table](folders, _SPREAD_ROWS, seed)
        cuts = np.linspace(0, rows.num_rows, nights + 1).astype(int)
        return [rows.slice(first, stop - first) for first, stop in pairwise(cuts)]
    spans = (night + np.linspace(0.0, 1.0, night_rows, endpoint=False) for night in range(nights))
    return [laws.drawn(table, times, seed, night) for night, times in enumerate(spans)]


def lived(parts: list[pa.Table], seed: int, epochs: int, folders: Folders, options: dict[str, Any]) -> Cell:
    """The quality of each model on the rows of the next night, by night; and what each resume told."""
    place = Place(folders.work / "place", seed, {})
    for number, part in enumerate(parts):
        place.add_test(f"{number}", part)
    place.arrive(parts[0], "night-00")
    place.train("nightly", epochs=epochs)
    place.copy("nightly", "never")
    peer = PartialFit(parts[0], _features(parts), seed)
    found: dict[str, list[list[float]]] = {}
    reports = []
    for night in range(1, len(parts) - 1):
        following = f"{night + 1}"
        measured = {_BEFORE: place.quality("nightly", following)[following]}
        place.arrive(parts[night], f"night-{night:02}")
        report = place.resume("nightly", **options)
        reports.append({"rows": report.rows_this_call, "notes": report.notes})
        measured[_RESUMED] = place.quality("nightly", following)[following]
        measured[_NEVER] = place.quality("never", following)[following]
        peer.update(parts[night])
        measured[_PEER] = peer.quality(parts[night + 1])
        for name, window in ((_ALL, night + 1), *((window_name(w), w) for w in _WINDOWS)):
            shards = sorted(str(path) for path in place.data.glob("*.arrow"))[-window:]
            place.train("fresh", shards, epochs=epochs)
            measured[name] = place.quality("fresh", following)[following]
        for name, quality in measured.items():
            found.setdefault(name, []).append(quality)
    rows = [part.num_rows for part in parts]
    return {"quality": found, "resumes": reports, "rows": rows, "judgements": place.judgements("nightly")}


def window_name(nights: int) -> str:
    return f"new run, {nights} night{'s' * (nights > 1)}"


def _features(parts: list[pa.Table]) -> int:
    if "indices" not in parts[0].column_names:
        return len(parts[0].column_names) - 1
    return 1 + max(int(part["indices"].combine_chunks().flatten().to_numpy().max()) for part in parts)


def summary(cells: list[Cell]) -> Iterable[str]:
    names = [_NEVER, _PEER, _BEFORE, _RESUMED, _ALL, *map(window_name, _WINDOWS)]
    by_table = {table: [c for c in cells if c["table"] == table] for table in dict.fromkeys(c["table"] for c in cells)}
    yield "Log loss/accuracy on the rows of the next night, means over nights and seeds:\n"
    yield from markdown(
        ["", *by_table], ([name, *(_pair(group, name) for group in by_table.values())] for name in names)
    )
    yield "\nWorst nights: log loss of the resumed model minus that of another one (night, seed)\n"
    yield from markdown(
        ["", *by_table],
        ([f"minus {name}", *(_worst(group, name) for group in by_table.values())] for name in (_NEVER, _PEER, _BEFORE)),
    )
    yield from _lineages(by_table)
    yield "\nMust hold, by the mean log loss:\n"
    for name in (_PEER, _NEVER, _BEFORE):
        yield verdict(by_table, f"at most that of {name}", lambda group, name=name: _mean(group, name) + _TOLERANCE)
    yield verdict(
        by_table,
        f"within {_WITHIN_WINDOW:g} of the best window of a new run",
        lambda group: min(_mean(group, window_name(window)) for window in _WINDOWS) + _WITHIN_WINDOW,
    )


def _lineages(by_table: dict[str, list[Cell]]) -> Iterable[str]:
    """The log losses that the updates reported, except for the first ones: there was no mixture before them."""
    judged = {table: [j for cell in group for j in cell["judgements"][1:]] for table, group in by_table.items()}
    judged = {table: found for table, found in judged.items() if found}
    if not judged:
        return
    yield "\nLog loss on the judged rows, as the updates reported it: means over nights and seeds\n"
    rows = [["mixture", *(f"{_average(j['before'] for j in found):.4f}" for found in judged.values())]]
    for number, name in enumerate(_LINEAGES):
        rows.append([name, *(f"{_average(j['lineages'][number] for j in found):.4f}" for found in judged.values())])
    rows.append(["shares", *(_shares(found) for found in judged.values())])
    yield from markdown(["", *judged], rows)


def _average(results: Iterable[dict[str, float]]) -> float:
    return statistics.fmean(result["loss"] for result in results)


def _shares(found: list[dict[str, Any]]) -> str:
    return " ".join(f"{statistics.fmean(j['shares'][number] for j in found):.2f}" for number in range(len(_LINEAGES)))


def verdict(by_table: dict[str, list[Cell]], text: str, limit: Any) -> str:
    broken = [
        f"{table} ({_mean(group, _RESUMED):.4f}, limit {limit(group):.4f})"
        for table, group in by_table.items()
        if _mean(group, _RESUMED) > limit(group)
    ]
    return f"- {text}: {len(by_table) - len(broken)} of {len(by_table)} tables" + "".join(
        f"; not {one}" for one in broken
    )


def _mean(cells: list[Cell], name: str, which: int = LOSS) -> float:
    return statistics.fmean(night[which] for cell in cells for night in cell["quality"][name])


def _pair(cells: list[Cell], name: str) -> str:
    return f"{_mean(cells, name):.4f}/{_mean(cells, name, ACCURACY):.4f}"


def _worst(cells: list[Cell], name: str) -> str:
    excess, night, seed = max(
        (own[LOSS] - other[LOSS], night, cell["seed"])
        for cell in cells
        for night, (own, other) in enumerate(zip(cell["quality"][_RESUMED], cell["quality"][name], strict=True), 1)
    )
    return f"{excess:+.4f} ({night}, {seed})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join((*IN_TIME_ORDER, *laws.LAWS)))
    parser.add_argument("--nights", type=int, default=20)
    parser.add_argument("--night-rows", type=int, default=3000, help="of a generated table")
    parser.add_argument("--epochs", type=int, default=3, help="of the first night, and of new runs")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--passes", type=int, help="of a resume; default: its own")
    parser.add_argument("--replay", type=float, help="of a resume; default: its own")
    parser.add_argument("--out", type=Path, default=Path("bench-out/growth"))
    parser.add_argument("--source", type=Path, default=real_data.SOURCE, help="folder of the published files")
    chosen = parser.parse_args()
    for name in chosen.tables.split(","):
        if name not in (*IN_TIME_ORDER, *laws.LAWS):
            parser.error(f"unknown table '{name}'; choose from {', '.join((*IN_TIME_ORDER, *laws.LAWS))}")
    folders = folders_of(chosen.source, chosen.out)
    finished = Finished(chosen.out / "nights.jsonl", _CELL)
    options = {name: value for name in ("passes", "replay") if (value := getattr(chosen, name)) is not None}
    print(machine_line(), flush=True)
    wanted: list[Cell] = [
        dict(zip(_CELL, (table, seed, chosen.nights, chosen.night_rows, chosen.epochs, options), strict=True))
        for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds)
        for table in chosen.tables.split(",")
    ]
    for cell in wanted:
        if cell not in finished:
            began = time.perf_counter()
            parts = parts_of(cell["table"], chosen.nights, chosen.night_rows, cell["seed"], folders)
            nights = lived(parts, cell["seed"], chosen.epochs, folders, options)
            finished.add(cell | nights | {"seconds": round(time.perf_counter() - began, 1)})
    cells = finished.like(wanted)
    print(f"{len(cells)} tables with seeds, {sum(cell['seconds'] for cell in cells):.0f} s\n")
    print("\n".join(summary(cells)))


if __name__ == "__main__":
    main()

"""Delta tables in a bucket are read with the same credentials and retries as shards."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from deltalake import DeltaTable, write_deltalake

import streampgs
from streampgs.base.errors import DataError
from streampgs.model.evaluation import evaluate
from streampgs.stores.access import RemoteObject, settings_for_rust
from streampgs.stores.addresses import parse
from streampgs.table.delta import change_of, list_table
from streampgs.table.locate import locate
from tests.end_to_end.test_delta import PARTITIONS, rows, with_constants
from tests.stores.conftest import MARKER, SMALL
from tests.stores.moto import BUCKET, Moto, Proxy, Request


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table on disk, for tests to upload."""
    for number in range(4):
        whole = with_constants(rows(number), number)
        write_deltalake(str(tmp_path / "table"), whole, mode="append", partition_by=list(PARTITIONS))
    return tmp_path / "table"


def uploaded(table: Path, store: Moto, prefix: str) -> str:
    for file in sorted(table.rglob("*")):
        if file.is_file():
            store.put(quote(f"{prefix}/{file.relative_to(table)}"), file.read_bytes())
    return f"s3://{BUCKET}/{prefix}"


def test_listing_a_table_reads_no_data_files(table: Path, proxied: Proxy, moto: Moto) -> None:
    address = uploaded(table, moto, "delta/listed")
    assert len(locate([address]).paths) == 4
    assert not [path for _, path, _ in proxied.requests if path.endswith(".parquet")]
    assert len(proxied.requests) < 20


class FailsAtFirst:
    """A fault in the first requests for the log."""

    def __init__(self, fault: str, times: int) -> None:
        self.fault, self.times = fault, times

    def __call__(self, request: Request) -> str | None:
        self.times -= "_delta_log" in request[1]
        return self.fault if self.times >= 0 and "_delta_log" in request[1] else None


def keys(address: str) -> list[str]:
    return [str(path).removeprefix(address).lstrip("/") for path in locate([address]).paths]


def test_a_table_in_a_bucket_gives_the_same_bits(table: Path, store: Moto, tmp_path: Path) -> None:
    (table / "left-behind.parquet").write_bytes(b"PAR1")
    address = uploaded(table, store, "delta/bits")
    assert keys(address) == [str(path.relative_to(table)) for path in locate([str(table)]).paths]
    found = {
        streampgs.train(data, run=tmp_path / run, epochs=2, **SMALL).dual_sha256
        for data, run in ((table, "disk"), (address, "bucket"))
    }
    assert len(found) == 1
    model = streampgs.Model.load(tmp_path / "bucket")
    assert evaluate(model, [f"{address}/"]) == evaluate(model, [str(table)])


def test_a_table_written_in_the_bucket_grows_and_changes(store: Moto, tmp_path: Path) -> None:
    address = f"s3://{BUCKET}/delta/written"
    options = settings_for_rust(parse(address))
    write_deltalake(address, rows(0), storage_options=options)
    streampgs.train(address, run=tmp_path / "run", rows=300, **SMALL)
    known = list_table(address).files
    write_deltalake(address, rows(1), mode="append", storage_options=options)
    change = change_of(list_table(address), known)
    assert (len(change.added), change.gone) == (1, ())
    assert streampgs.resume(tmp_path / "run", epochs=2).rows > 2 * len(rows(0))
    DeltaTable(address, storage_options=options).optimize.compact()
    change = change_of(list_table(address), known)
    assert change.gone == known == (RemoteObject(str(known[0])),)
    assert [str(removal) for removal in change.removals] == [
        "version 2, OPTIMIZE, removed 1 file: its rows are in other files"
    ]


def test_a_part_of_a_table_in_a_bucket_is_refused_with_the_name_of_the_table(table: Path, store: Moto) -> None:
    address = uploaded(table, store, "delta/deep/part")
    day = next(path.name for path in table.iterdir() if path.name.startswith("day=2026-01"))
    sources = [
        f"{address}/{day}",
        f"{address}/*/*/*/*",
        f"{address}/**",
        f"{address}/day=*",
        f"s3://{BUCKET}/delta/deep",
    ]
    for source in (*sources, f"{address}/_delta_log", f"s3://{BUCKET}/delta/dee*"):
        with pytest.raises(DataError) as refused:
            locate([source])
        assert f"name the table itself: '{address}'" in str(refused.value), source


@pytest.mark.parametrize("fault", ["500", "503", "truncate", "close"])
def test_temporary_faults_of_a_store_are_retried(fault: str, table: Path, proxied: Proxy, moto: Moto) -> None:
    address = uploaded(table, moto, "delta/failing")
    expected = keys(address)
    proxied.fault = FailsAtFirst(fault, 5)
    assert keys(address) == expected
    assert proxied.faults == 5


@pytest.mark.parametrize("fault", ["500", "403", "close", "stall"])
def test_a_log_that_cannot_be_read_is_an_error_without_secrets(
    fault: str, table: Path, proxied: Proxy, moto: Moto
) -> None:
    address = uploaded(table, moto, "delta/away")
    proxied.fault = lambda request: fault if request[1].endswith(".json") else None
    with pytest.raises(DataError, match="delta/away") as refused:
        list_table(address)
    assert MARKER not in str(refused.value)
    assert "\x1b" not in str(refused.value)

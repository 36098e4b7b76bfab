"""Mutated valid files give rows or a StreampgsError: no crash, no endless loop, and no allocation as large as a number in
them. (Arrow metadata: tests/table/test_arrow_damage.py; Parquet footers: test_parquet_footer.py; arbitrary bytes as text:
tests/packing/test_text.py.)"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.base.errors import StreampgsError
from streampgs.packing.packer import pack
from streampgs.run.memory import peak_rss_bytes
from streampgs.run.seal import SealBroken, read_sealed
from tests.faults.torture.mutations import PACKED, SHARDS, read_mutations

FILES = int(os.environ.get("STREAMPGS_FUZZ", "12"))
"""Damaged files of each kind."""


@pytest.mark.parametrize(
    ("name", "packed"), [*((name, False) for name in SHARDS), *((name, True) for name in PACKED)], ids=str
)
def test_a_real_file_with_random_damage_is_read_or_refused(name: str, packed: bool, tmp_path: Path) -> None:
    found = read_mutations(name, {**SHARDS, **PACKED}[name], packed, range(FILES), tmp_path)
    assert found.keys() <= {"read", "refused"}, "\n".join(found)
    assert found.total() == FILES


TEXTS = {
    "rows.svm": b"1 qid:3 1:0.5 7:1e-3 # a word\n-1 2:nan\n+1 3:4\n" * 3,
    "rows.vw": b"1 2.0 'tag |a x:1 y |b z:-3e4\n-1 |a x |c:2 w\n" * 3,
    "rows.csv": b'a,b,c\n1,"x ""y""",2.5\n,,\n-3,z,1e300\n' * 3,
    "rows.jsonl": b'{"a": 1, "b": [1, 2], "c": {"d": "\\u00e9"}}\n{"a": null}\n' * 3,
}
ODD = [
    b"\0",
    b"\xff",
    b"\n",
    b'"',
    b"{",
    b"[" * 200,
    b"9" * 400,
    b":",
    b"|",
    b",",
    b"-",
    b"e9999",
    b"4294967296:1",
    b" 99999999999:1",
]


def mutated(draw: st.DataObject, data: bytes) -> bytes:
    for _ in range(draw.draw(st.integers(1, 4))):
        place = draw.draw(st.integers(0, len(data)))
        length = draw.draw(st.sampled_from([0, 0, 1, 2, 9]))
        data = data[:place] + draw.draw(st.sampled_from(ODD) | st.binary(max_size=6)) + data[place + length :]
    return data


@pytest.mark.parametrize("name", TEXTS)
@given(data=st.data())
def test_text_gives_rows_or_a_clear_error(name: str, data: st.DataObject) -> None:
    text = mutated(data, TEXTS[name])
    before = peak_rss_bytes()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(text)
        try:
            report = pack(
                Path(folder) / name, Path(folder) / "out", on_bad_row=data.draw(st.sampled_from(["error", "skip"]))
            )
            assert report.rows >= 0
        except StreampgsError as error:
            assert error.found
    assert peak_rss_bytes() - before < 500 * 10**6


@given(st.binary(max_size=300))
def test_random_bytes_are_not_a_sealed_file(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        with pytest.raises(SealBroken):
            read_sealed(Path(file.name))


@pytest.mark.parametrize("number", [1042, 1401])
def test_offsets_of_a_damaged_arrow_stream_lead_nowhere(number: int, tmp_path: Path) -> None:
    """Without a check of each batch, the process ends with a segmentation fault."""
    found = read_mutations("rows.arrows", PACKED["rows.arrows"], True, range(number, number + 1), tmp_path)
    assert found == {"refused": 1}

"""First attempts of users of other tools, and their mistakes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import DataError
from streampgs.model.evaluation import evaluate
from streampgs.reading import decode as decoding
from tests.end_to_end.streaming import standard_input, written

ROWS = 4000


@pytest.fixture(scope="module")
def prices() -> pa.Table:
    random = np.random.default_rng(1)
    x = random.standard_normal((ROWS, 4))
    price = 9e5 + 3e5 * (x @ [1.0, 2.0, -1.0, 0.5]) + 1e4 * random.standard_normal(ROWS)
    return pa.table({**{f"x{i}": x[:, i] for i in range(4)}, "price": price})


@pytest.mark.parametrize("options", [{"loss": loss} for loss in ("squared", "huber", "absolute")], ids=str)
def test_a_regression_finds_the_scale_of_its_labels(options, prices, tmp_path):
    pq.write_table(prices, tmp_path / "prices.parquet")
    streampgs.train(tmp_path / "prices.parquet", run=tmp_path / "run", label="price", epochs=8, **options)
    assert evaluate(streampgs.Model.load(tmp_path / "run"), [str(tmp_path / "prices.parquet")])["r2"] > 0.99


@pytest.mark.parametrize("factor", [1.0, 2.0**20])
def test_the_unit_of_the_labels_does_not_change_a_model_with_absolute_loss(factor, prices, tmp_path):
    for name, scale in (("plain", 1.0), ("scaled", factor)):
        column = prices.schema.get_field_index("price")
        table = prices.set_column(column, "price", pa.array(prices["price"].to_numpy() * scale))
        pq.write_table(table, tmp_path / f"{name}.parquet")
        streampgs.train(tmp_path / f"{name}.parquet", run=tmp_path / name, label="price", loss="absolute", epochs=2)
    plain, scaled = (streampgs.Model.load(tmp_path / name).coef_ for name in ("plain", "scaled"))
    np.testing.assert_allclose(scaled, factor * plain, rtol=1e-9)


@pytest.mark.slow
def test_rows_much_longer_than_the_sample_are_encoded_in_parts_or_refused(tmp_path, monkeypatch):
    """A batch of long texts is encoded in parts with the same bits; a window far beyond the forecast is refused."""
    texts = ["a b"] * 3000 + [" ".join(f"w{i}" for i in range(200))] * 1000
    table = pa.table({"text": texts, "y": [0, 1] * 2000})
    pq.write_table(table, tmp_path / "data.parquet")

    def trained(run: str) -> str | None:
        report = streampgs.train(
            tmp_path / "data.parquet", run=tmp_path / run, label="y", text="text", epochs=2, hash_bits=10
        )
        return report.dual_sha256

    whole = trained("whole")
    monkeypatch.setattr(decoding, "_ENCODED_BATCH_BYTES", 1 << 14)
    monkeypatch.setattr(decoding, "_LARGEST_SLICE", 1 << 12)
    assert trained("parts") == whole

    lists = [["a"]] * 70_000 + [[f"t{i}" for i in range(400)]] * 9000
    longer = pa.table({"tags": lists, "y": [0, 1] * (len(lists) // 2)})
    pq.write_table(longer, tmp_path / "longer.parquet", row_group_size=len(lists))
    with pytest.raises(DataError, match="times as long as in the sample"):
        streampgs.train(tmp_path / "longer.parquet", run=tmp_path / "longer", label="y", epochs=1)


def test_a_stream_is_trained_on_and_resumed_from_python(tmp_path):
    table = pa.table({"label": [1, -1] * 500, "indices": [[1, 2], [3, 4]] * 500})
    stream = written(table, [100])
    with standard_input(stream):
        first = streampgs.train("-", run=tmp_path / "run", rows=300, replay=0.0, memory="60MB", window="200kB")
    with standard_input(stream):
        again = streampgs.resume(tmp_path / "run", "-", rows=10**6, skip_taken=True, memory="60MB")
    assert first.rows == 300
    assert (again.rows, again.stream_rows) == (1000, 1000)

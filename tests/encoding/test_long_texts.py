"""Rows of texts and lists of tokens that are encoded in several pieces have the values that they have at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streampgs.base.errors import DataError
from streampgs.encoding.codebook import Tokens
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.kinds import text as text_kind
from streampgs.encoding.kinds.kind import RowMarks
from streampgs.encoding.learning import learn
from streampgs.encoding.plan import plan_columns
from streampgs.options.commands import EncodingOptions

WORDS = [f"w{number}" for number in range(50)]


@pytest.mark.parametrize("name", ["text", "characters", "both", "list"])
def test_rows_in_pieces_are_encoded_as_all_at_once(name, monkeypatch):
    random = np.random.default_rng(1)
    rows = [" ".join(random.choice(WORDS, count)) for count in (3, 0, 4000, 5, 900, 2, 1)]
    array = pa.array([*rows, None])
    options = EncodingOptions(text=("t",), ngrams=(1, 2), hash_bits=12)
    if name == "characters":
        options = EncodingOptions(text=("t",), ngrams=None, char_ngrams=(2, 3), hash_bits=12)
    if name == "both":
        options = EncodingOptions(text=("t",), ngrams=(1, 1), char_ngrams=(2, 3), hash_bits=12)
    if name == "list":
        array, options = pa.array([row.split() for row in rows] + [None]), EncodingOptions(hash_bits=12)
    sample = [{"t": array}]
    encoding = learn(plan_columns(pa.schema([("t", array.type)]), options, {}, "a table"), options, sample)

    def encoded() -> list[bytes]:
        found = Encoder(encoding).entries({"t": array}, len(array), RowMarks.of(len(array)))
        return [part.tobytes() for part in found]

    whole = encoded()
    monkeypatch.setattr(text_kind, "PIECE_TOKENS", 100)
    assert encoded() == whole


def test_no_piece_has_more_tokens_than_its_bound_or_several_rows(monkeypatch):
    monkeypatch.setattr(text_kind, "PIECE_TOKENS", 1000)
    options = EncodingOptions(text=("t",), ngrams=None, char_ngrams=(3, 5))
    kind = text_kind.Text()
    [column] = plan_columns(pa.schema([("t", pa.string())]), options, {}, "a table").columns
    array = pa.array(["ab " * 5000, "c", "d" * 200] * 20)
    tokens: list[Tokens] = list(kind.tokens(column, array, options))
    assert len(tokens) > 20
    assert all(len(part.starts) <= 1100 or len(part.offsets) == 2 for part in tokens)


def test_a_row_that_the_loops_cannot_count_is_refused(monkeypatch):
    monkeypatch.setattr(text_kind, "_LARGEST_ROW", 10)
    options = EncodingOptions(text=("t",))
    [column] = plan_columns(pa.schema([("t", pa.string())]), options, {}, "a table").columns
    with pytest.raises(DataError, match="column 't' holds a row of 11 bytes or tokens"):
        list(text_kind.Text().tokens(column, pa.array(["a" * 11]), options))

"""Texts and lists that are split piece by piece have the tokens, and the rows the values, that they have as a whole."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streampgs.encoding.codebook import Tokens
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.kinds import text as text_kind
from streampgs.encoding.kinds.kind import RowMarks
from streampgs.encoding.learning import learn
from streampgs.encoding.long_texts import Tally, character_pieces, word_pieces
from streampgs.encoding.plan import plan_columns
from streampgs.kernels.encoder_loop import BINARY, COUNTED, LOG_COUNTED, bags
from streampgs.options.commands import EncodingOptions
from tests.kernels.plain_grams import plain_character_grams, plain_word_grams

texts = st.text("aZ0_ .\n-äÄß中😀\u2014", max_size=60)
sizes = st.sampled_from([(1, 1), (1, 2), (2, 3), (3, 5)])


def counted(pieces: Any) -> Counter[bytes]:
    return Counter(
        part.data[start:stop].tobytes() for part in pieces for start, stop in zip(part.starts, part.stops, strict=True)
    )


@given(text=texts, sizes=sizes, most=st.integers(1, 20))
@example(text="a b c d e f", sizes=(2, 3), most=1)
@example(text="ÄÖÜ äöü", sizes=(1, 2), most=2)
def test_pieces_have_the_words_of_the_whole(text, sizes, most):
    data = np.frombuffer(text.encode(), np.uint8)
    expected = plain_word_grams(text.lower().encode(), *sizes)
    assert counted(word_pieces(data, sizes, most, "t", True)) == Counter(expected)


@given(text=texts.filter(bool), sizes=sizes, most=st.integers(1, 20))
@example(text="abcdef", sizes=(3, 5), most=1)
def test_pieces_have_the_characters_of_the_whole(text, sizes, most):
    data = np.frombuffer(text.encode(), np.uint8)
    expected = plain_character_grams(text.lower().encode(), *sizes)
    assert counted(character_pieces(data, sizes, most, "t", True)) == Counter(expected)


def test_bytes_that_are_not_utf8_are_split_without_an_error():
    data = np.frombuffer(b"\x80\x80ab\xff \xc3 cd\xe2\x80" * 5, np.uint8)
    assert counted(word_pieces(data, (1, 1), 3, "t", True)).total() > 0
    assert counted(character_pieces(data, (1, 2), 3, "t", True)).total() > 0


@pytest.mark.parametrize("weighting", [BINARY, COUNTED, LOG_COUNTED])
def test_a_tally_has_the_bits_of_a_row_that_is_counted_at_once(weighting):
    random = np.random.default_rng(0)
    codes = (random.integers(0, 9000, 40_000) | (random.integers(0, 2, 40_000) << 31)).astype(np.uint32)
    rarity = random.random(9000).astype(np.float32)
    tally = Tally()
    for first in range(0, len(codes), 1711):
        tally.add(codes[first : first + 1711])
    expected = bags(codes, np.array([0, len(codes)]), weighting, rarity, 0, True)
    for found, array in zip(tally.entries(weighting, rarity, 0), expected, strict=True):
        assert np.asarray(found).tobytes() == np.asarray(array).tobytes()


WORDS = [f"w{number}" for number in range(50)]


@pytest.mark.parametrize("name", ["text", "characters", "both", "list"])
def test_long_rows_are_encoded_as_short_ones(name, monkeypatch):
    """The order of entries may differ in long rows; features and values do not."""
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

    def encoded() -> list[dict[int, float]]:
        offsets, indices, values = Encoder(encoding).entries({"t": array}, len(array), RowMarks.of(len(array)))
        cuts = pairwise(offsets.tolist())
        return [dict(zip(indices[a:b].tolist(), values[a:b].tolist(), strict=True)) for a, b in cuts]

    whole = encoded()
    monkeypatch.setattr(text_kind, "PIECE_TOKENS", 100)
    monkeypatch.setattr(text_kind, "_SMALLEST_PIECE", 100)
    assert encoded() == [pytest.approx(row, rel=1e-6) for row in whole]
    assert max(map(len, whole)) > 40


def test_no_piece_has_more_tokens_than_its_bound(monkeypatch):
    monkeypatch.setattr(text_kind, "PIECE_TOKENS", 1000)
    monkeypatch.setattr(text_kind, "_SMALLEST_PIECE", 1)
    options = EncodingOptions(text=("t",), ngrams=None, char_ngrams=(3, 5))
    kind = text_kind.Text()
    [column] = plan_columns(pa.schema([("t", pa.string())]), options, {}, "a table").columns
    array = pa.array(["ab " * 5000, "c", "d" * 200] * 20)
    tokens: list[Tokens] = list(kind.tokens(column, array, options))
    assert len(tokens) > 20
    assert max(len(part.starts) for part in tokens) <= 1100

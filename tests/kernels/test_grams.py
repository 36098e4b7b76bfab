"""Splitting texts into tokens, compared with plain twins that use Python's strings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streampgs.kernels.grams import TEXT_END, TEXT_START, character_grams, word_grams, words_of
from tests.kernels.plain_grams import ascii_lower, plain_character_grams, plain_word_grams, plain_words

# Letters of one to four bytes in both cases, and characters in and next to each block of punctuation.
CHARACTERS = "aZ09_ .,-'\t\n\x00\x7fäÄßªµº«¿À\x80ñıſКλ\u1fff\u2000\u2014\u203f\u2040\u206f\u2070\u20ac中\u2fff\u3000\u3001\u303f\u3040😀"
texts = st.one_of(st.text(CHARACTERS, max_size=12), st.text(max_size=6)).map(lambda text: text.encode())
tables = st.lists(texts, max_size=6)
lengths = st.sampled_from([(1, 1), (1, 2), (2, 2), (2, 4), (3, 3), (1, 32), (31, 32)])


def column_of(texts: list[bytes], kind: type) -> tuple[np.ndarray, np.ndarray]:
    """A slice from the middle of a column, with other text before and after it."""
    data = np.frombuffer(b"Before\xc3\xa9 " + b"".join(texts) + b"Behind", np.uint8)
    return data, (9 + np.cumsum([0, *(len(text) for text in texts)])).astype(kind)


def spelled(text: np.ndarray, starts: np.ndarray, stops: np.ndarray, rows: np.ndarray) -> list[list[bytes]]:
    """The tokens of each row."""
    assert len(starts) == len(stops) == rows[-1]
    assert rows[0] == 0
    tokens = [text[start:stop].tobytes() for start, stop in zip(starts, stops, strict=True)]
    return [tokens[first:stop] for first, stop in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True)]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@given(texts=tables)
@example(texts=[])
@example(texts=[b"", b"", b"a", b""])
@example(texts=[b"a b c d e f g h", b"-", b"A-b_C9 "])
@example(texts=["Straße\u2014ÄRGER\u3001中文\u00a0ª".encode(), "\u2000".encode(), b"x"])
def test_words_agree_with_the_plain_twin(kind, texts):
    data, offsets = column_of(texts, kind)
    assert spelled(*words_of(data, offsets)) == [plain_words(text) for text in texts]


@given(texts=tables, sizes=lengths)
@example(texts=[b"one two three", b"", b"one", b"one two"], sizes=(2, 3))
def test_runs_of_words_agree_with_the_plain_twin(texts, sizes):
    data, offsets = column_of(texts, np.int32)
    text, starts, stops, rows = words_of(data, offsets)
    found = spelled(text, *word_grams(starts, stops, rows, *sizes))
    assert found == [plain_word_grams(text, *sizes) for text in texts]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@given(texts=tables, sizes=lengths)
@example(texts=["Äb😀".encode(), b"", b"Q", b""], sizes=(2, 4))
@example(texts=[], sizes=(1, 1))
def test_runs_of_characters_agree_with_the_plain_twin(kind, texts, sizes):
    data, offsets = column_of(texts, kind)
    found = spelled(*character_grams(data, offsets, *sizes))
    assert found == [plain_character_grams(text, *sizes) for text in texts]


@given(texts=st.lists(st.binary(max_size=10), max_size=4), sizes=lengths)
@example(texts=[b"\x80\x80a", b"\xff", b"\xe2\x80"], sizes=(1, 2))
def test_runs_of_characters_of_any_bytes_stay_in_their_rows(texts, sizes):
    """A continuation byte belongs to the character before it. Runs of length 1 are a partition of the text."""
    data, offsets = column_of(texts, np.int32)
    shortest, longest = sizes
    found = spelled(*character_grams(data, offsets, *sizes))
    for text, grams in zip(texts, found, strict=True):
        marked = bytes([TEXT_START]) + ascii_lower(text) + bytes([TEXT_END])
        pieces = [marked[:1]]
        for byte in marked[1:]:
            if byte & 0xC0 == 0x80:
                pieces[-1] += bytes([byte])
            else:
                pieces.append(bytes([byte]))
        expected = [
            b"".join(pieces[first : first + size])
            for first in range(len(pieces))
            for size in range(shortest, longest + 1)
            if first + size <= len(pieces)
        ]
        assert grams == (expected if text else [])

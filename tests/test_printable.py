"""No text for people contains characters that a terminal obeys, and no value fills the screen."""

from __future__ import annotations

import unicodedata

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streampgs.base.errors import DataError
from streampgs.base.printable import LONGEST_CELL, LONGEST_LINE, printable, printable_page
from streampgs.cli.console import fail, pairs_text, say_note, table_text
from streampgs.options.messages import say_for_python
from streampgs.python.progress import PythonObserver

HOSTILE = "\x1b]0;title\x07\x1b[2J\r\n\t\x7f\x9b31m\u202eabc\u2066\u2028\udcff\ud800"
ESCAPED = r"\x1b]0;title\x07\x1b[2J\r\n\t\x7f\x9b31m\u202eabc\u2066\u2028\xff\ud800"
FORGED = "yes\nerror: your run was deleted\n  → send money"
BIDIRECTIONAL = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def is_obeyed(letter: str) -> bool:
    return (
        unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(letter) in BIDIRECTIONAL
    )


def test_each_kind_of_control_character_is_escaped() -> None:
    assert printable(HOSTILE) == ESCAPED


@given(st.text(st.characters(), max_size=40))
@example("".join(map(chr, range(0x3000))))
def test_no_control_character_is_left(text: str) -> None:
    assert not [letter for letter in printable(text) if is_obeyed(letter)]
    assert {letter for letter in printable_page(text) if is_obeyed(letter)} <= {"\n"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'https://user:pass@host/f.csv' is", "'https://***@host/f.csv' is"),
        ("s3:/key:pa:ss@bucket/x", "s3:/***@bucket/x"),
        ("https://host/f?X-Amz-Signature=abc&sv=1' → x", "https://host/f?***' → x"),
        ("s3://bucket/part-?.parquet", "s3://bucket/part-?.parquet"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
        ("mail a@b.c: yes", "mail a@b.c: yes"),
    ],
)
def test_passwords_in_addresses_are_masked(text: str, shown: str) -> None:
    error = DataError(text, text)
    assert (error.found, error.remedy, printable(text)) == (shown, shown, shown)


@pytest.mark.parametrize("length", [LONGEST_LINE, LONGEST_LINE + 1, 10**7])
def test_a_long_text_keeps_its_ends(length: int) -> None:
    text = "a" * (length - 1) + "z"
    found = printable(text)
    assert len(found) <= LONGEST_LINE
    assert (found[0], found[-1]) == ("a", "z")
    assert ("…" in found) == (length > LONGEST_LINE)


def test_an_error_has_only_its_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    error = DataError(["found:", FORGED], [FORGED, "or this"])
    say_for_python(error)
    assert fail(error) == 1
    text = f"found:\n  {printable(FORGED)}\n  → {printable(FORGED)}\n    or this"
    assert str(error) == text
    assert capsys.readouterr().err == f"error: {text}\n"
    assert FORGED in error.found  # as it is, for programs


def test_tables_pairs_and_notes_have_only_their_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    table = click.unstyle(table_text(["name", FORGED], [[FORGED, "1"], ["x" * 10**6, HOSTILE]]))
    assert len(table.splitlines()) == 3
    assert len(table) < 20 * LONGEST_CELL
    assert len(click.unstyle(pairs_text({FORGED: HOSTILE, "b": FORGED})).splitlines()) == 2
    say_note(FORGED)
    PythonObserver().note(FORGED)
    assert capsys.readouterr().err == f"note: {printable(FORGED)}\n" * 2

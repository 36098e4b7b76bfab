"""Records that are read back hold what their dataclass declares, or the error names the field."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from streampgs.base import checks
from streampgs.base.checks import Count, decode, encode


@dataclass(frozen=True)
class Inner:
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Outer:
    size: Count
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    sigma: float | Literal["auto"] | tuple[float, ...] = "auto"
    merit: list[float] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    inner: Inner | None = None

    def __post_init__(self) -> None:
        if self.size == 13:
            raise ValueError("13 is unlucky")


VALUE = Outer(3, 1.0, (0.5, 0.25), [math.inf, 1.0], {7: 2}, Inner(((1, 2), (3, 4))))


def test_decode_reads_what_encode_wrote():
    assert decode(Outer, encode(VALUE)) == VALUE
    assert encode(VALUE)["inner"] == {"spans": ((1, 2), (3, 4))}


@pytest.mark.parametrize(
    ("changes", "field_name"),
    [
        ({"size": -1}, "size"),
        ({"size": 1.0}, "size"),
        ({"size": True}, "size"),
        ({"size": None}, "size"),
        ({"share": 1.5}, "share"),
        ({"share": "0.5"}, "share"),
        ({"sigma": "none"}, "sigma"),
        ({"sigma": [1.0, "auto"]}, "sigma"),
        ({"counts": {"seven": 2}}, "counts"),
        ({"inner": {"spans": [[1, 2, 3]]}}, "inner.spans"),
        ({"size": 13}, "13 is unlucky"),
    ],
    ids=str,
)
def test_wrong_values_are_refused_by_the_name_of_their_field(changes: dict[str, Any], field_name: str):
    with pytest.raises(ValueError, match=r"^Outer") as refused:
        decode(Outer, {**encode(VALUE), **changes})
    assert field_name in str(refused.value)


def test_brackets_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"[[" * 9 + b"]" * 4 + b"{" * 30
    assert checks.most_brackets(text) == 44
    monkeypatch.setattr(checks, "_PART_BYTES", 7)
    assert checks.most_brackets(text) == 44

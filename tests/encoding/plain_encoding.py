"""Plain twins of learning and encoding: a row is a dict of Python values, its encoding a dict of features.

Written from the documentation of each kind of column. Features are named: `("age", 0)` is the first
feature of a column of numbers, `("word", 3)` that of the fourth-most frequent string, `("slot", 17)` a hashed one,
`("vector", 5)` an entry of a sparse vector. A row that cannot be used is a fault instead of a dict.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from sklearn.utils import murmurhash3_32

from streampgs.encoding.rows import LENGTHS_DIFFER, WIDTH_DIFFERS
from streampgs.options.commands import EncodingOptions
from tests.kernels.plain_grams import plain_character_grams, plain_word_grams

Feature = tuple[str, int]
Row = dict[Feature, float]
Values = dict[str, Any]
"""A row: numbers as float, times as seconds, strings as str or bytes, lists as lists, vectors as pairs of lists."""

DAY = 86400.0
CYCLES = (DAY, 7 * DAY, 365.2425 * DAY)
SECOND_SEED = 0x9E3779B9
NULL = b"\x00"


@dataclass(frozen=True)
class Spec:
    """A column for the twin."""

    name: str
    role: str
    """number, time, category, text, tokens, weighed, list, vector or cross"""
    parts: tuple[str, ...] = ()


@dataclass
class PlainEncoding:
    """Learned from a sample."""

    specs: list[Spec]
    options: EncodingOptions
    bits: int
    standards: dict[Feature, tuple[float, float]] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    words: dict[tuple[int, int], int] = field(default_factory=dict)
    rarities: dict[str, Counter[Feature]] = field(default_factory=dict)
    rows: int = 0

    def of_role(self, *roles: str) -> list[Spec]:
        return [spec for spec in self.specs if spec.role in roles]


HASHED = ("category", "text", "tokens", "weighed", "cross")


def plain_learn(
    specs: list[Spec], options: EncodingOptions, sample: list[Values], bits: int | None = None
) -> PlainEncoding:
    found = PlainEncoding(specs, options, bits or options.hash_bits or 0, rows=len(sample))
    for spec in found.of_role("number", "time"):
        if options.standardize != "off":
            known = [row[spec.name] for row in sample if row[spec.name] is not None]
            found.standards[spec.name, 0] = standard([value for value in known if math.isfinite(value)])
    for spec in found.of_role("list"):
        _learn_list(found, spec, [row[spec.name] for row in sample])
    for spec in found.of_role("weighed", "vector"):
        _learn_factor(found, spec, [row[spec.name] for row in sample])
    if options.vocabulary:
        counts: Counter[tuple[int, int]] = Counter()
        for spec in found.of_role(*HASHED):
            for row in sample:
                counts.update(key for part in strings_of(found, spec, row) for key in part if not _is_null(spec, row))
        ordered = sorted(counts, key=lambda key: (-counts[key], (key[0] << 32) + key[1]))
        found.words = {key: number for number, key in enumerate(ordered[: 1 << found.bits])}
    for spec in found.of_role("text", "tokens"):
        documents: Counter[Feature] = Counter()
        for row in sample:
            for part in strings_of(found, spec, row):
                documents.update(counted(found, part).keys())
        found.rarities[spec.name] = documents
    return found


def distinct_strings(specs: list[Spec], options: EncodingOptions, sample: list[Values]) -> int:
    plain = PlainEncoding(specs, options, 20)
    keys = {
        (spec.name, part_number, key)
        for spec in plain.of_role(*HASHED)
        for row in sample
        for part_number, part in enumerate(strings_of(plain, spec, row))
        for key in part
        if not _is_null(spec, row)
    }
    return len(keys)


def _is_null(spec: Spec, row: Values) -> bool:
    return spec.role == "category" and row[spec.name] is None


def standard(known: list[float]) -> tuple[float, float]:
    """Mean 0 and spread 1, but columns that are mostly zero keep their zeros, and constant ones become small."""
    filled = [Fraction(value) for value in known if value]
    if not filled:
        return 0.0, 1.0
    if 10 * len(filled) < len(known):
        return 0.0, 1.0 / root(sum(value**2 for value in filled) / len(filled))
    mean = sum(filled) / len(known)
    spread = root(sum((Fraction(value) - mean) ** 2 for value in known) / len(known))
    return float(mean), 1.0 / (abs(float(mean)) if spread <= 1e-12 * abs(float(mean)) else spread)


def root(number: Fraction) -> float:
    """A square root whose square may be far outside the range of floats."""
    if not number:
        return 0.0
    shift = (number.numerator.bit_length() - number.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(number / Fraction(4) ** shift), shift)


def _learn_list(found: PlainEncoding, spec: Spec, lists: list[Any]) -> None:
    sizes = Counter(len(one) for one in lists if one)
    width = found.widths[spec.name] = min(sizes, key=lambda size: (-sizes[size], size))
    columns = [
        [
            one[k]
            for one in lists
            if one is not None and len(one) == width and one[k] is not None and math.isfinite(one[k])
        ]
        for k in range(width)
    ]
    sizes_of_columns = [root(sum(Fraction(v) ** 2 for v in column) / len(column)) for column in columns if any(column)]
    wild = bool(sizes_of_columns) and max(sizes_of_columns) > 100.0 * min(sizes_of_columns)
    if found.options.standardize == "on" or (
        found.options.standardize == "auto"
        and (wild or any(map(off_centre, columns)) or (len(found.specs) > 1 and out_of_scale(sizes_of_columns)))
    ):
        for k, column in enumerate(columns):
            found.standards[spec.name, k] = standard(column)


def off_centre(column: list[float]) -> bool:
    """The mean is more than ten standard deviations away from 0."""
    values = [Fraction(value) for value in column]
    mean = sum(values, Fraction(0)) / max(1, len(values))
    square = sum(((value - mean) ** 2 for value in values), Fraction(0)) / max(1, len(values))
    return bool(square) and mean**2 > 100 * square


def out_of_scale(sizes: list[float]) -> bool:
    """Much larger or smaller than the standardized numbers next to it."""
    return bool(sizes) and (max(sizes) > 3.0 or math.sqrt(sum(size**2 for size in sizes)) < 0.03)


def _learn_factor(found: PlainEncoding, spec: Spec, cells: list[Any]) -> None:
    """One number for all values of maps or vectors."""
    values = [
        value
        for cell in cells
        for value in ([pair[1] for pair in cell or []] if spec.role == "weighed" else (cell or ([], []))[1])
        if value and math.isfinite(value)
    ]
    if not values or found.options.standardize == "off":
        return
    size = root(sum(Fraction(value) ** 2 for value in values) / len(values))
    each = max(1, round(len(values) / len(cells)))
    if found.options.standardize == "on" or (len(found.specs) > 1 and out_of_scale([size] * each)):
        found.standards[spec.name, 0] = (0.0, 1.0 / size)


# Strings.


def hashes(plain: PlainEncoding, namespace: str, text: bytes) -> tuple[int, int]:
    """The hash with the namespace's seed, which is the hash of its name, and a second hash."""
    seed = int(murmurhash3_32(namespace.encode(), seed=plain.options.hash_seed, positive=True))
    return (
        int(murmurhash3_32(text, seed=seed, positive=True)),
        int(murmurhash3_32(text, seed=seed ^ SECOND_SEED, positive=True)),
    )


def strings_of(plain: PlainEncoding, spec: Spec, row: Values) -> list[list[tuple[int, int]]]:
    """The two hashes of each string of a row; words and runs of characters of a text are separate lists."""
    options = plain.options
    if spec.role == "cross":
        pair = b"".join(hashes(plain, part, text_of(row[part]))[0].to_bytes(4, "little") for part in spec.parts)
        return [[hashes(plain, spec.name, pair)]]
    value = row[spec.name]
    if spec.role == "category":
        return [[hashes(plain, spec.name, text_of(value))]]
    if spec.role in ("tokens", "weighed"):
        tokens = [token[0] if spec.role == "weighed" else token for token in value or []]
        return [[hashes(plain, spec.name, (token or "").encode()) for token in tokens]]
    text = b"" if value is None else value if isinstance(value, bytes) else value.lower().encode()
    found = []
    if options.ngrams is not None:
        found.append([hashes(plain, spec.name, gram) for gram in plain_word_grams(text, *options.ngrams)])
    if options.char_ngrams is not None:
        grams = plain_character_grams(text, *options.char_ngrams)
        found.append([hashes(plain, spec.name + " characters", gram) for gram in grams])
    return found


def text_of(value: Any) -> bytes:
    """The text of a category's value."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float) and abs(value) < 2**63 and value == math.floor(value):
        return str(int(value)).encode()
    return str(value).encode()


def feature_of(plain: PlainEncoding, key: tuple[int, int]) -> tuple[Feature, float]:
    """The feature of a string, and its sign."""
    if key in plain.words:
        return ("word", plain.words[key]), 1.0
    return ("slot", key[0] % 2**plain.bits), -1.0 if key[0] >= 2**31 else 1.0


def counted(plain: PlainEncoding, keys: Iterable[tuple[int, int]]) -> Row:
    """How often each feature occurs: the difference between the two signs."""
    found: Row = {}
    for key in keys:
        feature, sign = feature_of(plain, key)
        found[feature] = found.get(feature, 0.0) + sign
    return {feature: count for feature, count in found.items() if count}


def unit(row: Row) -> Row:
    length = math.sqrt(math.fsum(value**2 for value in row.values()))
    return {feature: value / length for feature, value in row.items()} if row else {}


def bag_of(plain: PlainEncoding, spec: Spec, row: Values) -> Row:
    if spec.role == "weighed":
        found: Row = {}
        for key, pair in zip(strings_of(plain, spec, row)[0], row[spec.name] or [], strict=True):
            feature, sign = feature_of(plain, key)
            value = 0.0 if pair[1] is None else scaled(pair[1], *plain.standards.get((spec.name, 0), (0.0, 1.0)))
            found[feature] = found.get(feature, 0.0) + sign * value
        return found
    parts = []
    for keys in strings_of(plain, spec, row):
        part: Row = {}
        for feature, count in counted(plain, keys).items():
            weighting = plain.options.text_weights
            size = {"binary": 1.0, "tf": abs(count), "tf-idf": 1.0 + math.log(abs(count))}[weighting]
            if weighting == "tf-idf":
                size *= math.log((1.0 + plain.rows) / (1.0 + plain.rarities[spec.name][feature])) + 1.0
            part[feature] = math.copysign(size, count)
        parts.append(unit(part))
    if len(parts) == 1:
        return parts[0]
    joined = added(*parts)
    if max(map(abs, joined.values()), default=1.0) < 1e-3:
        raise OnlyRoundingLeft
    return unit(joined)


class OnlyRoundingLeft(Exception):
    """Words and runs of characters share their features and cancel out: scaled to length 1, roundings are all that
    would be compared."""


def added(*rows: Row) -> Row:
    found: Row = {}
    for row in rows:
        for feature, value in row.items():
            found[feature] = found.get(feature, 0.0) + value
    return found


# Whole rows.


def plain_encode(plain: PlainEncoding, row: Values) -> Row | int:
    found = [_number(plain, spec, row[spec.name]) for spec in plain.of_role("number", "time")]
    for spec in plain.of_role("list"):
        part = _list(plain, spec, row[spec.name])
        if isinstance(part, int):
            return part
        found.append(part)
    for spec in plain.of_role("category", "cross"):
        ((key,),) = strings_of(plain, spec, row)
        feature, sign = feature_of(plain, key)
        found.append({feature: sign})
    found += [bag_of(plain, spec, row) for spec in plain.of_role("text", "tokens", "weighed")]
    for spec in plain.of_role("vector"):
        indices, values = row[spec.name] if row[spec.name] is not None else ([], [])
        if len(indices) != len(values):
            return LENGTHS_DIFFER
        factor = plain.standards.get((spec.name, 0), (0.0, 1.0))
        found.append(
            {
                ("vector", index): math.nan if value is None else scaled(value, *factor)
                for index, value in zip(indices, values, strict=True)
            }
        )
    return added(*found)


def _number(plain: PlainEncoding, spec: Spec, value: float | None) -> Row:
    centre, scale = plain.standards.get((spec.name, 0), (0.0, 1.0))
    row: Row = {}
    if value is not None:
        row[spec.name, 0] = scaled(value, centre, scale)
    width = 1
    if spec.role == "time" and spec.name in plain.options.cyclic:
        for period in CYCLES:
            if value is not None:
                turn = 2.0 * math.pi * ((value / period) % 1.0)
                row[spec.name, width], row[spec.name, width + 1] = math.sin(turn), math.cos(turn)
            width += 2
    if plain.options.null_flags:
        row[spec.name, width] = float(value is None)
    return row


def _list(plain: PlainEncoding, spec: Spec, values: list[float | None] | None) -> Row | int:
    width = plain.widths[spec.name]
    flag = {(spec.name, width): float(values is None)} if plain.options.null_flags else {}
    if values is None:
        return flag
    if len(values) != width:
        return WIDTH_DIFFERS
    return flag | {
        (spec.name, k): scaled(value, *plain.standards.get((spec.name, k), (0.0, 1.0)))
        for k, value in enumerate(values)
        if value is not None
    }


def scaled(value: float, centre: float, scale: float) -> float:
    if not math.isfinite(value):
        return value
    found = (value - centre) * scale
    return found if (centre, scale) == (0.0, 1.0) else min(8.0, max(-8.0, found))

"""What has to be learnt of a table's columns before rows can be encoded, from a random sample of its rows: centres and
scales of numbers, how rare words are, which words there are, and what hashed features are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.encoder import Encoder, Tokens, as_text, is_there
from streampgs.encoding.encoding import (
    BAGS,
    HASHED,
    EncodedColumn,
    Encoding,
    number_width,
    placed,
    second_seed,
)
from streampgs.encoding.plan import CATEGORY, CROSS, LIST, NUMBER, TEXT, TOKENS, VECTOR, Plan, PlannedColumn, matches
from streampgs.errors import DataError, OptionError
from streampgs.kernels.encoder_loop import BINARY, bags, counted_rows
from streampgs.kernels.grams import TEXT_END, TEXT_START
from streampgs.kernels.hashing import hash_pairs, hash_spans, wide_keys
from streampgs.options import MOST_HASH_BITS, EncodingOptions

MOST_FEATURES = 2**31 - 1
_MOST_NAMES = 1 << 15
_NAMING_BATCHES = 8
_USUAL_HASH_BITS, _FEWEST_HASH_BITS = 20, 10
_SPARE_BITS = 10  # features for each different string: one in a thousand shares its own
_MOSTLY_ZERO = 0.1
_WILD_RATIO = 100.0
"""Columns of a list of numbers differ in scale by more than that: then they are scaled."""

_SMALLEST = float(np.finfo(np.float64).tiny)
"""Of a smaller number the reciprocal may not be finite."""

Columns = dict[str, pa.Array]


def learn(
    plan: Plan,
    options: EncodingOptions,
    sample: Sequence[Columns],
    most_hash_bits: int = MOST_HASH_BITS,
) -> Encoding:
    """`sample`: batches of rows, as arrays by column; `most_hash_bits`: where the options leave their number open."""
    rows = sum(len(next(iter(batch.values()))) for batch in sample)
    if not rows:
        raise DataError("the sample of rows that encodings are learnt from is empty", "name shards that hold rows")
    columns, first = [], 0
    for planned in plan.of_kind(NUMBER):
        columns.append(_number(planned, options, sample, first))
        first += columns[-1].width
    numbers = first
    for planned in plan.of_kind(LIST):
        columns.append(_list(planned, options, sample, first))
        first += columns[-1].width
    hashed = plan.of_kind(*HASHED)
    columns += [placed(planned, first=first) for planned in hashed]
    vectors = plan.of_kind(VECTOR)
    if len(vectors) > 1:
        raise OptionError(
            f"columns {', '.join(vector.name for vector in vectors)} are vectors of unknown width",
            "keep one of them and --ignore the others, or write them as one vector",
        )
    dense = not hashed and not vectors
    bits = options.hash_bits or _USUAL_HASH_BITS
    encoding = Encoding(options, tuple(columns), plan.left_out, numbers, first, first, bits, dense, 1.0)
    if hashed and options.hash_bits is None:
        encoding = replace(encoding, hash_bits=min(most_hash_bits, _fitting_bits(encoding, sample)))
    if hashed and options.vocabulary:
        encoding = replace(encoding, words=_words(encoding, sample))
    behind = first + (len(encoding.words) + encoding.hash_mask + 1 if hashed else 0)
    if behind > MOST_FEATURES:
        raise OptionError(f"--hash-bits {bits}: {behind:,} features", "give fewer bits")
    columns += [placed(planned, first=behind) for planned in vectors]
    encoding = replace(encoding, columns=tuple(columns), unbounded_first=behind)
    if hashed:
        if options.text_weights == "tf-idf":
            encoding = replace(encoding, rarities=_rarities(encoding, sample, rows))
        named, names, signs = _names(encoding, sample[:: -(-len(sample) // _NAMING_BATCHES)])
        encoding = replace(encoding, named=named, names=names, signs=signs)
    return replace(
        encoding,
        entries_per_row=_entries_per_row(encoding, sample, rows),
        tokens_per_row=_tokens_per_row(encoding, sample),
        bytes_per_row=sum(read_bytes(batch) for batch in sample) / rows,
    )


def _fitting_bits(encoding: Encoding, sample: Sequence[Columns]) -> int:
    """Fewer than usual if two of the sample's strings hardly ever share a feature all the same: a model of a million
    features takes its time and memory for each of them."""
    different = 0
    for column in encoding.columns:
        if column.kind not in HASHED:
            continue
        known = np.empty(0, np.uint64)
        for batch in sample:
            known = np.unique(np.concatenate([known, *_wide_keys_of(encoding, column, batch)]))
            if (different + len(known)) << _SPARE_BITS >= 1 << _USUAL_HASH_BITS:
                return _USUAL_HASH_BITS
        different += len(known)
    return max(_FEWEST_HASH_BITS, (different << _SPARE_BITS).bit_length())


def _entries_per_row(encoding: Encoding, sample: Sequence[Columns], rows: int) -> float:
    if encoding.dense:
        return float(encoding.unbounded_first)
    encoder = Encoder(encoding)
    entries = 0
    for batch in sample:
        count = len(next(iter(batch.values())))
        entries += len(encoder.entries(batch, count, np.zeros(count, np.uint8))[1])
    return max(1.0, entries / rows)


def _tokens_per_row(encoding: Encoding, sample: Sequence[Columns]) -> float:
    """In some of the batches."""
    some = sample[:: -(-len(sample) // _NAMING_BATCHES)]
    bagged = [column for column in encoding.columns if column.kind in BAGS]
    tokens = sum(
        len(part.starts) for column in bagged for batch in some for part in _token_sources(encoding, column, batch)
    )
    return tokens / max(1, sum(len(next(iter(batch.values()))) for batch in some))


def read_bytes(batch: Columns) -> int:
    """Of a batch's rows; what they share, the values of dictionaries, is not counted."""
    arrays = (types.plain(array) for array in batch.values())
    return sum((array.indices if pa.types.is_dictionary(array.type) else array).nbytes for array in arrays)


def arrays_of(sample: Sequence[Columns], name: str) -> Iterator[pa.Array]:
    """Of a column, from the batches that have it."""
    return (array for batch in sample if (array := types.leaf_if_there(batch, name)) is not None)


# Numbers.


def _number(planned: PlannedColumn, options: EncodingOptions, sample: Sequence[Columns], first: int) -> EncodedColumn:
    cyclic = matches(planned.name, options.cyclic)
    found = placed(
        planned,
        first=first,
        width=number_width(cyclic, options.null_flags),
        null_flag=options.null_flags,
        cyclic=cyclic,
    )
    if options.standardize == "off":
        return found
    known = np.concatenate([np.empty(0), *(known_numbers(array) for array in arrays_of(sample, planned.name))])
    centre, scale = _standard(known)
    return replace(found, centre=(centre,), scale=(scale,))


def known_numbers(array: pa.Array) -> NDArray[np.float64]:
    """The finite numbers of a column."""
    array = types.undictionaried(array)
    values, nulls = np.asarray(types.numbers_of(array), np.float64), types.nulls_of(array)
    return values[np.isfinite(values) if nulls is None else np.isfinite(values) & ~nulls]


def _standard(known: NDArray[np.float64]) -> tuple[float, float]:
    """Centre and scale. Of a column that is mostly zero only the scale, lest its zeros become numbers."""
    filled = known[known != 0.0]
    if not filled.size:
        return 0.0, 1.0
    largest = float(np.abs(filled).max())  # squares of very large or small numbers leave the range
    if len(filled) < _MOSTLY_ZERO * len(known):
        return 0.0, 1.0 / max(largest * float(np.sqrt(np.mean((filled / largest) ** 2))), _SMALLEST)
    centre = largest * float(np.mean(known / largest))
    spread = largest * float(np.std((known - centre) / largest))
    if spread <= 1e-12 * abs(centre):
        spread = abs(centre)  # one and the same number throughout
    return centre, 1.0 / max(spread, _SMALLEST)


def _list(planned: PlannedColumn, options: EncodingOptions, sample: Sequence[Columns], first: int) -> EncodedColumn:
    matrices: list[NDArray[np.float64]] = []
    width: int | None = None
    for array in arrays_of(sample, planned.name):
        offsets, child = types.lists_of(array)
        lengths = np.diff(offsets)
        if width is None:
            filled = lengths[lengths > 0]
            if not filled.size:
                continue
            width = int(np.bincount(filled).argmax())
        values = np.asarray(types.numbers_of(child), np.float64)
        nulls = types.nulls_of(child)
        if nulls is not None:
            values = np.where(nulls, np.nan, values)
        matrices.append(values[np.repeat(lengths == width, lengths)].reshape(-1, width))
    if width is None:
        raise DataError(
            f"column '{planned.name}': all its lists are empty", f"leave it out with --ignore {planned.name}"
        )
    found = placed(planned, first=first, width=width + options.null_flags, null_flag=options.null_flags)
    matrix = np.concatenate(matrices)
    matrix = np.where(np.isfinite(matrix), matrix, np.nan)
    standards = [_standard(column[~np.isnan(column)]) for column in matrix.T]
    if options.standardize == "off" or (options.standardize == "auto" and not _is_wild(matrix)):
        return found
    return replace(found, centre=tuple(c for c, _ in standards), scale=tuple(s for _, s in standards))


def _is_wild(matrix: NDArray[np.float64]) -> bool:
    """Whether positions of a list differ so much in scale, or lie so far off zero, that learning would suffer."""
    known = np.count_nonzero(~np.isnan(matrix), axis=0)
    sizes = np.abs(np.where(np.isnan(matrix), 0.0, matrix))
    largest = sizes.max(axis=0, initial=0.0)
    filled = largest > 0.0
    squares = np.sum((sizes[:, filled] / largest[filled]) ** 2, axis=0)  # those of the numbers may leave the range
    size = largest[filled] * np.sqrt(squares / (known[filled] + 1.0))
    return bool(size.size and size.max() / _WILD_RATIO > size.min())


# Words.


def _token_sources(encoding: Encoding, column: EncodedColumn, batch: Columns) -> list[Tokens]:
    """The strings of a column that get features, in rows; of a category each row has one."""
    array = types.leaf_if_there(batch, column.name)
    if array is None:
        return []
    if column.kind in (TEXT, TOKENS):
        return Encoder(encoding).tokens(column, array)
    if column.kind == CATEGORY:
        array = as_text(types.undictionaried(array))
        array = array.filter(array.is_valid())
        data, bounds = types.bytes_of(array)
        return [Tokens(data, bounds[:-1], bounds[1:], np.arange(len(bounds)), column.name)]
    offsets, keys, _ = types.pairs_of(array)
    data, bounds = types.bytes_of(keys)
    return [Tokens(data, bounds[:-1], bounds[1:], offsets, column.name)]


def _words(encoding: Encoding, sample: Sequence[Columns]) -> NDArray[np.uint64]:
    """Keys of the strings of the sample, the most frequent first; as many as there are hashed features at most."""
    counts: dict[int, int] = {}
    for column in encoding.columns:
        if column.kind not in HASHED:
            continue
        for batch in sample:
            for keys in _wide_keys_of(encoding, column, batch):
                found, count = np.unique(keys, return_counts=True)
                for key, times in zip(found.tolist(), count.tolist(), strict=True):
                    counts[key] = counts.get(key, 0) + times
    ordered = sorted(counts, key=lambda key: (-counts[key], key))[: encoding.hash_mask + 1]
    return np.array(ordered, np.uint64)


def _wide_keys_of(encoding: Encoding, column: EncodedColumn, batch: Columns) -> list[NDArray[np.uint64]]:
    if column.kind == CROSS:
        if not is_there(column, batch):
            return []
        first, second = (Encoder(encoding).hashes_alone(batch, name) for name in column.parts)
        seed = encoding.seed_of(column.name)
        return [wide_keys(hash_pairs(first, second, seed), hash_pairs(first, second, second_seed(seed)))]
    found = []
    for tokens in _token_sources(encoding, column, batch):
        seed = encoding.seed_of(tokens.namespace)
        hashes = [hash_spans(tokens.data, tokens.starts, tokens.stops, s) for s in (seed, second_seed(seed))]
        found.append(wide_keys(*hashes))
    return found


def _rarities(encoding: Encoding, sample: Sequence[Columns], rows: int) -> dict[str, NDArray[np.float32]]:
    """log((1 + rows) / (1 + rows that have it)) + 1, for each feature of each column of texts or tokens."""
    encoder, found = Encoder(encoding), {}
    size = len(encoding.words) + encoding.hash_mask + 1
    for column in encoding.columns:
        if column.kind not in BAGS or column.kind not in (TEXT, TOKENS):
            continue
        counts = np.zeros(size, np.int64)
        for array in arrays_of(sample, column.name):
            for tokens in encoder.tokens(column, array):
                codes = encoder.codes_of(tokens)
                _, indices, _ = bags(codes, tokens.offsets, BINARY, np.empty(0, np.float32), 0, False)
                counted_rows(indices.astype(np.int64) - encoding.hashed_first, counts)
        found[column.name] = (np.log((1.0 + rows) / (1.0 + counts)) + 1.0).astype(np.float32)
    return found


@dataclass(frozen=True)
class _Named:
    """Different strings of a batch: which feature each has (in the upper half of its key) and how often it comes."""

    keys: NDArray[np.uint64]
    times: NDArray[np.int64]
    signs: NDArray[np.int8]
    name_of: Callable[[int], str]


def _names(
    encoding: Encoding, sample: Sequence[Columns]
) -> tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.int8]]:
    """Names of the features that the sample's strings have, and the signs of their values: of the most frequent ones,
    and where several strings share a feature of the most frequent of these."""
    encoder = Encoder(encoding)
    parts: list[_Named] = []
    for column in encoding.columns:
        for batch in sample if column.kind in HASHED else ():
            if not is_there(column, batch):
                continue
            if column.kind == CROSS:
                parts.append(_named_crosses(encoder, column, batch))
                continue
            parts += [_named_tokens(encoder, column, tokens) for tokens in _token_sources(encoding, column, batch)]
            if column.kind == CATEGORY:
                parts.append(_named_null(encoder, column, batch))
    if not parts:
        return np.empty(0, np.int64), (), np.empty(0, np.int8)
    ends = np.cumsum([len(part.keys) for part in parts])
    keys, firsts, places = np.unique(
        np.concatenate([part.keys for part in parts]), return_index=True, return_inverse=True
    )
    times = np.bincount(places, np.concatenate([part.times for part in parts]), len(keys))
    features = (keys >> np.uint64(32)).astype(np.int64)
    order = np.lexsort((-times, features))
    leading = order[np.flatnonzero(np.diff(features[order], prepend=-1))]
    leading = np.sort(leading[np.argsort(-times[leading], kind="stable")[:_MOST_NAMES]])
    names, signs = [], np.ones(len(leading), np.int8)
    for number, first in enumerate(firsts[leading].tolist()):
        part = int(np.searchsorted(ends, first, side="right"))
        place = first - (int(ends[part - 1]) if part else 0)
        names.append(parts[part].name_of(place))
        signs[number] = parts[part].signs[place]
    return features[leading], tuple(names), signs


def _named_tokens(encoder: Encoder, column: EncodedColumn, tokens: Tokens) -> _Named:
    between = "=" if column.kind == CATEGORY else ": "
    second = hash_spans(
        tokens.data, tokens.starts, tokens.stops, second_seed(encoder.encoding.seed_of(tokens.namespace))
    )
    keys, firsts, times, signs = _different(encoder.codes_of(tokens), second)

    def name_of(number: int) -> str:
        token = tokens.data[tokens.starts[firsts[number]] : tokens.stops[firsts[number]]].tobytes()
        return f"{column.name}{between}{_shown(token)}"

    return _Named(keys, times, signs, name_of)


def _named_null(encoder: Encoder, column: EncodedColumn, batch: Columns) -> _Named:
    array = types.leaf(batch, column.name)
    nulls = array.null_count + (array.dictionary.null_count if pa.types.is_dictionary(array.type) else 0)
    codes = np.full(1 if nulls else 0, encoder.null_code(column.name), np.uint32)
    keys, _, times, signs = _different(codes, np.zeros(len(codes), np.uint32))
    return _Named(keys, times * nulls, signs, lambda _: f"{column.name} is null")


def _named_crosses(encoder: Encoder, column: EncodedColumn, batch: Columns) -> _Named:
    first, second = (encoder.hashes_alone(batch, name) for name in column.parts)
    second_hashes = hash_pairs(first, second, second_seed(encoder.encoding.seed_of(column.name)))
    keys, firsts, times, signs = _different(encoder.category_codes(column, batch), second_hashes)
    parts = [as_text(types.undictionaried(types.leaf(batch, name))) for name in column.parts]

    def name_of(number: int) -> str:
        row = int(firsts[number])
        values = (_shown_value(part[row : row + 1]) for part in parts)
        return " ".join(f"{name}={value}" for name, value in zip(column.parts, values, strict=True))

    return _Named(keys, times, signs, name_of)


def _different(
    codes: NDArray[np.uint32], second_hashes: NDArray[np.uint32]
) -> tuple[NDArray[np.uint64], NDArray[Any], NDArray[Any], NDArray[np.int8]]:
    """The keys of different strings, where each is met first, how often it is met, and its sign."""
    keys, firsts, times = np.unique(
        wide_keys(codes & np.uint32(2**31 - 1), second_hashes), return_index=True, return_counts=True
    )
    signs = np.where(codes[firsts] >> np.uint32(31), -1, 1).astype(np.int8)
    return keys, firsts, times, signs


def _shown_value(text: pa.Array) -> str:
    """Of an array of one; it may be no UTF-8."""
    data, bounds = types.bytes_of(text)
    return "None" if text.null_count else data[bounds[0] : bounds[1]].tobytes().decode(errors="replace")


def _shown(token: bytes) -> str:
    marked = token.replace(bytes([TEXT_START]), b"^").replace(bytes([TEXT_END]), b"$")
    return marked.decode(errors="replace")

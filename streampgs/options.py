"""What a user can choose. Words become checked values here, once; nothing further in compares strings with strings."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from streampgs.errors import OptionError
from streampgs.losses import CLASSIFYING, LOSSES, Loss

RETURN_NAMES = ("suffix", "average", "last", "random")
SAMPLING_NAMES = ("epoch", "independent")
TEXT_WEIGHTS = ("tf-idf", "tf", "binary")
CATCH_UP, UNION = "catch-up", "union"
ON_GROWTH_NAMES = (CATCH_UP, UNION)
STANDARDIZE_NAMES = ("auto", "on", "off")
MOST_HASH_BITS = 28
LONGEST_GRAM = 32
DEFAULT_EPOCHS = 3
EPOCHS_FOR_A_TARGET = 100
SMALLEST_P = 1.001
MOST_CANDIDATES = 64
MOST_THREADS = 256
MOST_BATCH = 1 << 20
SMALLEST_MEMORY = 48 * 10**6

_LARGEST_SIZE = 2.0**62
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY_UNITS = {
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}


def parse_size(text: str | int) -> int:
    """Bytes from '512MB', '2GiB', '1.5G' or a plain number."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", str(text))
    unit = match.group(2).upper() if match else ""
    factor = _UNITS.get(unit, _BINARY_UNITS.get(unit))
    if match is None or factor is None:
        raise OptionError(f"'{text}' is no size", "write it like 512MB, 2GiB or 1.5G")
    size = float(match.group(1)) * factor
    if size > _LARGEST_SIZE:
        raise OptionError(f"'{text}' is more than any machine has", "write it like 512MB, 2GiB or 1.5G")
    return int(size)


def parse_duration(text: str | float) -> float:
    """Seconds from '30s', '5m', '1h' or a plain number."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([smh]?)\s*", str(text))
    if match is None:
        raise OptionError(f"'{text}' is no duration", "write it like 30s, 5m or 1h")
    return float(match.group(1)) * {"": 1, "s": 1, "m": 60, "h": 3600}[match.group(2)]


def values_of(option: Any) -> tuple[Any, ...]:
    """The values of an option of which several may be given."""
    return tuple(option) if isinstance(option, tuple | list) else (option,)


@dataclass(frozen=True)
class EncodingOptions:
    """How the columns of an ordinary table become features."""

    features: tuple[str, ...] = ()
    """Patterns of the columns to use; none: all that can be features."""
    ignore: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    """Columns whose values are names, be they numbers."""
    text: tuple[str, ...] = ()
    ngrams: tuple[int, int] | None = None
    char_ngrams: tuple[int, int] | None = None
    text_weights: str = "tf-idf"
    cross: tuple[tuple[str, str], ...] = ()
    cyclic: tuple[str, ...] = ()
    hash_bits: int | None = None
    """None: 20, or fewer where a sample has few different strings."""
    hash_seed: int = 0
    vocabulary: bool = False
    standardize: str = "auto"
    null_flags: bool = False

    def __post_init__(self) -> None:
        for name in ("features", "ignore", "category", "text", "cyclic"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        object.__setattr__(self, "cross", tuple(_crossed(pair) for pair in values_of(self.cross)))
        for name in ("ngrams", "char_ngrams"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _lengths(name, getattr(self, name)))
        if self.text and self.ngrams is None and self.char_ngrams is None:
            object.__setattr__(self, "ngrams", (1, 1))
        if not self.text and (self.ngrams or self.char_ngrams):
            raise OptionError("--ngrams or --char-ngrams without --text", "name the column of texts with --text COLUMN")
        _one_of("--text-weights", self.text_weights, TEXT_WEIGHTS)
        _one_of("--standardize", self.standardize, STANDARDIZE_NAMES)
        if self.hash_bits is not None and not 1 <= self.hash_bits <= MOST_HASH_BITS:
            raise OptionError(
                f"--hash-bits {self.hash_bits} is outside [1, {MOST_HASH_BITS}]", "20 is a million features"
            )
        if not 0 <= self.hash_seed < 2**32:
            raise OptionError(f"--hash-seed {self.hash_seed} is outside [0, 2^32)", "give another")

    @property
    def given(self) -> bool:
        """Whether they ask for something that lists of features as they are do not give."""
        return replace(self, standardize="auto") != EncodingOptions() or self.standardize == "on"


def _crossed(pair: Any) -> tuple[str, str]:
    parts = tuple(pair.split(",") if isinstance(pair, str) else pair)
    if len(parts) != 2:
        raise OptionError(f"--cross {pair}", "name two columns with a comma between them")
    return parts


def _lengths(name: str, lengths: Any) -> tuple[int, int]:
    shortest, longest = (lengths, lengths) if isinstance(lengths, int) else lengths
    if not 1 <= shortest <= longest <= LONGEST_GRAM:
        raise OptionError(
            f"--{name.replace('_', '-')} {shortest}-{longest}", f"give lengths like 1-2, from 1 to {LONGEST_GRAM}"
        )
    return int(shortest), int(longest)


def parse_lengths(text: str) -> tuple[int, int]:
    """'1-2' or '3'."""
    match = re.fullmatch(r"\s*(\d{1,3})\s*(?:-\s*(\d{1,3})\s*)?", text)
    if match is None:
        raise OptionError(f"'{text}' is no range of lengths", "write it like 1-2 or 3")
    return int(match.group(1)), int(match.group(2) or match.group(1))


@dataclass(frozen=True)
class ModelOptions:
    """What defines the model, given the data: recorded in the run and never changed by a resume."""

    # Of the first four several values may be given: a model is trained for each combination, and the best is chosen.
    loss: str | tuple[str, ...] = "logistic"
    solver: str = "pgs"
    p: float | Literal["auto"] | tuple[float, ...] = 2.0
    sigma: float | Literal["auto"] | tuple[float, ...] = "auto"
    ball: float | Literal["auto", "none"] | tuple[float, ...] | None = None
    """B, or how to find it; None: 'auto' for losses that need a ball, else 'none'."""
    t0: float | Literal["auto"] = "auto"
    batch: int = 1
    quantile: float | None = None
    huber_width: float | None = None
    intercept: float = 0.1
    """The constant feature of the intercept's coordinate; 0 leaves the intercept out."""
    returns: str = "suffix"
    sampling: str = "epoch"
    seed: int = 0
    label: str | tuple[str, ...] = "label"
    """The column to predict; of several each gets a model of its own."""
    positive: float | str | None = None
    classes: tuple[float | str, ...] | None = None
    """The labels, of two classes the negative one first; None: found in a sample of the labels."""
    joined_classes: int = 0
    """Of the classes the last ones, in the order of their coming: the data had none of them when the run started."""
    label_pairs: tuple[tuple[str, str] | None, ...] = ()
    """With several label columns: the strings of each, the negative one first; None: it holds numbers."""
    weight: str | None = None
    offset: str | None = None
    """A column of numbers that are added to the rows' scores."""
    class_weight: Literal["balanced"] | tuple[float, ...] | None = None
    """A factor for the rows of each class, the negative one first."""
    feature_count: int | None = None
    on_bad_row: str = "error"
    validation: tuple[str, ...] = ()
    """Data to judge on; without them models are judged on rows that they are yet to be trained on."""
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("loss", "p", "sigma", "ball", "label", "classes", "class_weight", "validation"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        pairs = tuple(None if pair is None else tuple(pair) for pair in self.label_pairs)
        object.__setattr__(self, "label_pairs", pairs)
        if isinstance(self.classes, float | int | str):  # a list of one
            object.__setattr__(self, "classes", (self.classes,))
        for loss in self.losses:
            _one_of("--loss", loss, tuple(LOSSES))
        if 0 < sum(loss in CLASSIFYING for loss in self.losses) < len(self.losses):
            raise OptionError(
                f"--loss {','.join(self.losses)} mixes losses of classification and of regression",
                "give losses of one of the two",
            )
        _one_of("--return", self.returns, RETURN_NAMES)
        _one_of("--sampling", self.sampling, SAMPLING_NAMES)
        _one_of("--on-bad-row", self.on_bad_row, ("error", "skip"))
        for p in values_of(self.p):
            if p != "auto" and not (isinstance(p, float | int) and SMALLEST_P <= p <= 2.0):
                raise OptionError(
                    f"--p {p} is outside [{SMALLEST_P}, 2]",
                    "2 is the Euclidean norm; for sparse solutions go towards 1, say 1.1; 'auto' tries some",
                )
        for sigma in values_of(self.sigma):
            if sigma != "auto":
                _above("--sigma", sigma, 0.0)
        for ball in values_of(self.ball):
            if isinstance(ball, float | int):
                _above("--ball", ball, 0.0)
            elif ball not in (None, "auto", "none"):
                raise OptionError(f"--ball {ball!r}", "give a radius, 'auto' or 'none'")
        for name in ("loss", "p", "sigma", "ball", "label"):
            listed = values_of(getattr(self, name))
            if not listed or len(set(listed)) < len(listed) or (len(listed) > 1 and "auto" in listed):
                raise OptionError(f"--{name} {','.join(map(str, listed))}", "give each value once, and 'auto' alone")
        combinations = math.prod(len(values_of(getattr(self, name))) for name in ("loss", "p", "sigma", "ball"))
        if combinations > MOST_CANDIDATES:
            raise OptionError(
                f"{combinations} combinations of --loss, --p, --sigma and --ball", f"at most {MOST_CANDIDATES} fit"
            )
        if self.classes is not None:
            first = self.classes[: len(self.classes) - self.joined_classes]
            if len(first) < 2 or not _are_classes(first) or len(set(self.classes)) < len(self.classes):
                raise OptionError(
                    f"--classes {','.join(map(label_text, self.classes))}",
                    "list two or more different labels, numbers in ascending order; of two, the positive one last",
                )
            if self.positive is not None or len(values_of(self.label)) > 1:
                raise OptionError("--classes together with --positive or with several labels", "give one of them")
            if not self.classifies:
                raise OptionError(
                    f"--classes with --loss {','.join(self.losses)}, which does not classify",
                    f"choose one of {', '.join(CLASSIFYING)}",
                )
        if not 1 <= self.threads <= MOST_THREADS:
            raise OptionError(
                f"--threads {self.threads} is outside [1, {MOST_THREADS}]", "give as many as cores are free"
            )
        if not isinstance(self.t0, float | int):
            _one_of("--t0", self.t0, ("auto",))
        else:
            _above("--t0", self.t0, 0.0)
        if not 1 <= self.batch <= MOST_BATCH:
            raise OptionError(
                f"--batch {self.batch} is outside [1, {MOST_BATCH}]",
                "1 row a step is the best choice for nearly all data",
            )
        if self.intercept < 0.0 or not math.isfinite(self.intercept):
            raise OptionError(f"the intercept's constant {self.intercept} is not a number ≥ 0", "the default is 0.1")
        for known in LOSSES.values():
            self._check_parameter(known)
        if isinstance(self.positive, float | int) and not math.isfinite(self.positive):
            raise OptionError(f"--positive {self.positive} is no label", "give the one that marks the positive class")
        if self.class_weight is not None:
            self._check_class_weight()
        if abs(self.seed) >= 2**62:
            raise OptionError(f"--seed {self.seed} is outside (-2^62, 2^62)", "give a smaller number")
        if self.feature_count is not None and not 1 <= self.feature_count < 2**31:
            raise OptionError(
                f"--feature-count {self.feature_count} is outside [1, 2^31)", "leave it out to have it found"
            )

    def _check_parameter(self, loss: Loss) -> None:
        value = self.loss_parameter(loss.name)
        if value is None or loss.parameter is None:
            return
        if self.losses != (loss.name,):
            raise OptionError(
                f"{loss.parameter.option} with --loss {','.join(self.losses)}", f"use it with --loss {loss.name} alone"
            )
        if not (math.isfinite(value) and loss.parameter.accepts(value)):
            raise OptionError(
                f"{loss.parameter.option} {value} is not {loss.parameter.range_text}", "give such a number"
            )

    def loss_parameter(self, name: str) -> float | None:
        """The chosen parameter of a loss; None: its default."""
        parameter = LOSSES[name].parameter
        value: float | None = None
        if parameter is not None and parameter.is_option:
            value = getattr(self, parameter.name)
        return value

    def _check_class_weight(self) -> None:
        if not self.classifies or len(self.labels) > 1:
            raise OptionError("--class-weight without classes of one label", "leave it out, or name a --weight column")
        if self.class_weight == "balanced":
            return
        weights = values_of(self.class_weight)
        object.__setattr__(self, "class_weight", weights)
        expected = len(self.classes) if self.classes is not None else max(2, len(weights))
        sound = all(isinstance(weight, float | int) and 0.0 < weight < math.inf for weight in weights)
        if not sound or len(weights) < 2 or len(weights) != expected:
            raise OptionError(
                f"--class-weight {','.join(map(str, weights))}",
                "give 'balanced', or a number above 0 for each class, the negative one first",
            )

    @property
    def losses(self) -> tuple[str, ...]:
        return values_of(self.loss)

    @property
    def multiclass(self) -> bool:
        """Whether there are more than two classes."""
        return self.classes is not None and len(self.classes) > 2

    @property
    def weighted(self) -> bool:
        return self.weight is not None or self.class_weight is not None

    @property
    def row_values(self) -> int:
        """Numbers that a row in memory has in addition to its labels and features."""
        return self.weighted + (self.offset is not None)

    @property
    def classifies(self) -> bool:
        return LOSSES[self.losses[0]].classifies

    @property
    def labels(self) -> tuple[str, ...]:
        return values_of(self.label)


DEFAULT_REPLAY = 0.5
MOST_REPLAY = 16.0


@dataclass(frozen=True)
class StreamOptions:
    """Of rows that come on standard input."""

    replay: float = DEFAULT_REPLAY
    """Rows from the reservoir for each new one."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.replay <= MOST_REPLAY:
            raise OptionError(
                f"--replay {self.replay} is outside [0, {MOST_REPLAY:g}]",
                "1 replays a row beside each new one, 0.5 one beside every second, 0 none",
            )


@dataclass(frozen=True)
class Limits:
    """When training ends: totals counted from the run's first row; whichever comes first. Nothing of the model."""

    epochs: int | None = None
    rows: int | None = None
    seconds: float | None = None
    target_accuracy: float | None = None
    target_gap: float | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "rows", "seconds", "target_gap"):
            if getattr(self, name) is not None:
                _above("--" + name.replace("_", "-"), getattr(self, name), 0.0)
        if self.target_accuracy is not None and not 0.0 < self.target_accuracy <= 1.0:
            raise OptionError(f"--target-accuracy {self.target_accuracy} is outside (0, 1]", "give a share, like 0.95")

    def or_default(self) -> Limits:
        """With no limit at all, a few epochs; with targets alone, which may be out of reach, many."""
        if not self.given:
            return Limits(epochs=DEFAULT_EPOCHS)
        if self.epochs is None and self.rows is None and self.seconds is None:
            return replace(self, epochs=EPOCHS_FOR_A_TARGET)
        return self

    @property
    def given(self) -> bool:
        return any(value is not None for value in asdict(self).values())


@dataclass(frozen=True)
class Resources:
    """What training may use of the machine. Never a part of the result."""

    memory: int = 512 * 10**6
    window: int | None = None
    """Bytes of rows mixed at once; None: from the memory. Only asked for when a run starts."""
    cache: Path | None = None
    """Where decoded blocks are kept; None: in the run's folder."""
    cache_limit: int | None = None
    """None: no limit."""
    no_cache: bool = False
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.memory < SMALLEST_MEMORY:
            raise OptionError(
                f"--memory {self.memory / 1e6:,.0f}MB is too little for two windows that mix 64 blocks each",
                f"give at least {SMALLEST_MEMORY // 10**6}MB",
            )
        if self.window is not None:
            _above("--window", self.window, 0)
        if self.cache_limit is not None and self.cache_limit < 0:
            raise OptionError(
                f"--cache-limit {self.cache_limit} is negative", "give a size like 20GB; 0 caches nothing"
            )
        if not self.checkpoint_seconds >= 0.0:
            raise OptionError(f"--checkpoint-every {self.checkpoint_seconds} is negative", "give a time like 30s")
        if self.window is not None and 2 * self.window > self.memory:
            raise OptionError(
                f"two windows of {self.window / 1e6:,.0f} MB do not fit into --memory {self.memory / 1e6:,.0f}MB",
                "give more memory or a smaller --window",
            )
        if self.no_cache and (self.cache is not None or self.cache_limit is not None):
            raise OptionError("--no-cache together with --cache or --cache-limit", "give one or the other")


@dataclass(frozen=True)
class Growth:
    """What is done about data that grow or change."""

    add: tuple[str, ...] = ()
    """More files, folders, globs and addresses for the run."""
    on_growth: str | None = None
    """How new rows join in; None: catching up if they are no more than the old, else union."""
    follow: bool = False
    """Wait for more when all is used up."""
    poll_seconds: float = 10.0
    accept_touched: bool = False
    """Trust shards whose time stamp alone has changed."""
    accept_rewrite: bool = False
    """Go on without shards that are gone or replaced."""
    sigma: float | Literal["auto"] | tuple[float, ...] | None = None
    """Another σ from now on: the best one shrinks as the data grow. None: as it is."""

    def __post_init__(self) -> None:
        if isinstance(self.add, str | Path):
            object.__setattr__(self, "add", (str(self.add),))
        object.__setattr__(self, "add", tuple(str(source) for source in self.add))
        if self.on_growth is not None:
            _one_of("--on-growth", self.on_growth, ON_GROWTH_NAMES)
        _above("--poll", self.poll_seconds, 0.0)


def label_text(label: float | str) -> str:
    return label if isinstance(label, str) else f"{label:g}"


def _are_classes(classes: tuple[Any, ...]) -> bool:
    """Numbers in ascending order, or different strings."""
    if all(isinstance(label, str) for label in classes):
        return len(set(classes)) == len(classes)
    if not all(isinstance(label, float | int) and math.isfinite(label) for label in classes):
        return False
    return list(classes) == sorted(set(classes))


def _one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{option} {value!r} is unknown", f"choose one of {', '.join(choices)}")


def _above(option: str, value: float, bound: float) -> None:
    if not (value > bound and math.isfinite(value)):
        raise OptionError(f"{option} {value} is not a number above {bound:g}", "give a finite number above it")

"""Which options there are: each is a field with its values, help, heading and default (see option_fields.py).

Nothing behind this module checks an option again or writes a default a second time.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from streampgs.errors import OptionError
from streampgs.losses import CLASSIFYING, LOSSES
from streampgs.option_fields import (
    COMMON,
    DATA,
    GROWTH,
    LIMITS,
    MODEL,
    RESOURCES,
    STREAMS,
    Choice,
    Duration,
    FilePath,
    Flag,
    Label,
    Lengths,
    Listed,
    Number,
    Pair,
    Repeated,
    Size,
    Text,
    option,
    settle,
    size_text,
)
from streampgs.option_fields import values_of as values_of
from streampgs.solvers import SOLVERS

RETURN_NAMES = ("suffix", "average", "last", "random")
SAMPLING_NAMES = ("epoch", "independent")
CATCH_UP, UNION = "catch-up", "union"
ON_BAD_ROW = Choice(("error", "skip"))
MOST_HASH_BITS = 28
LONGEST_GRAM = 32
DEFAULT_EPOCHS = 3
EPOCHS_FOR_A_TARGET = 100
SMALLEST_P = 1.001
MOST_CANDIDATES = 64
MOST_THREADS = 256
MOST_BATCH = 1 << 20
MOST_SEED = (1 << 62) - 1
MOST_REPLAY = 16.0
SMALLEST_MEMORY = 48 * 10**6

_GLOB, _COLUMN = Text("GLOB"), Text("COLUMN")
_SIGMA = Listed(Number("S", low=0.0, above=True, words=("auto",)), alone=("auto",))


def _loss_parameter(loss: str) -> Number:
    parameter = LOSSES[loss].parameter
    assert parameter is not None
    return Number("X", parameter.above, parameter.below, above=True, below=True)


@dataclass(frozen=True)
class EncodingOptions:
    """How the columns of an ordinary table become features."""

    features: tuple[str, ...] = option(
        (),
        Repeated(_GLOB),
        "Use only these columns: names or patterns like 'user_*'. Can be repeated.",
        DATA,
        shown="all columns that can become features",
    )
    ignore: tuple[str, ...] = option((), Repeated(_GLOB), "Leave out these columns. Can be repeated.", COMMON)
    category: tuple[str, ...] = option(
        (),
        Repeated(_GLOB),
        "Treat these columns of numbers as categories: postcodes, user ids. Can be repeated.",
        COMMON,
    )
    text: tuple[str, ...] = option(
        (), Repeated(_GLOB), "Split these columns into words (see --ngrams, --char-ngrams). Can be repeated.", COMMON
    )
    ngrams: tuple[int, int] | None = option(
        None,
        Lengths(LONGEST_GRAM),
        "For --text: sequences of A to B words.",
        DATA,
        shown="1-1, unless --char-ngrams is given",
    )
    char_ngrams: tuple[int, int] | None = option(
        None, Lengths(LONGEST_GRAM), "For --text: sequences of A to B characters.", DATA
    )
    text_weights: str = option(
        "tf-idf",
        Choice(("tf-idf", "tf", "binary")),
        "Weight of a word: its frequency times its rarity (tf-idf), its frequency (tf) or 1 (binary). Each text is scaled "
        "to length 1.",
        DATA,
    )
    cross: tuple[tuple[str, str], ...] = option(
        (), Repeated(Pair()), "Add a category for each pair of values of two columns. Can be repeated.", DATA
    )
    cyclic: tuple[str, ...] = option(
        (),
        Repeated(_GLOB),
        "Add the hour of the day, the day of the week and the day of the year of these times. Can be repeated.",
        DATA,
    )
    standardize: str = option(
        "auto",
        Choice(("auto", "on", "off")),
        "Center and scale numbers, measured on a sample. auto: always for columns of numbers, and for lists of numbers "
        "if their scales differ widely.",
        DATA,
    )
    null_flags: bool = option(False, Flag(), "Add a feature per column of numbers that marks nulls.", DATA)
    hash_bits: int | None = option(
        None,
        Number("BITS", 1, MOST_HASH_BITS, whole=True, remedy="20 bits are a million features"),
        "Hash categories and words to 2^BITS features.",
        DATA,
        shown="20, or fewer if a sample has few different ones",
    )
    hash_seed: int = option(
        0,
        Number("N", 0, 2**32, below=True, whole=True),
        "Changes which categories and words share a feature.",
        DATA,
    )
    vocabulary: bool = option(
        False, Flag(), "Give each category and word of a sample its own feature; hash only the others.", DATA
    )

    def __post_init__(self) -> None:
        settle(self)
        if self.text and self.ngrams is None and self.char_ngrams is None:
            object.__setattr__(self, "ngrams", (1, 1))
        if not self.text and (self.ngrams or self.char_ngrams):
            raise OptionError("--ngrams or --char-ngrams without --text", "name the text column with --text COLUMN")

    @property
    def given(self) -> bool:
        """Whether they ask for something that rows of features cannot give."""
        return replace(self, standardize="auto") != EncodingOptions() or self.standardize == "on"


@dataclass(frozen=True)
class ModelOptions:
    """What defines the model, given the data: recorded in the run, and changed by a resume only where it says so."""

    label: str | tuple[str, ...] = option(
        "label",
        Repeated(_COLUMN, always=False, unique=True),
        "Column to predict. Repeat it to train a model per column.",
        COMMON,
    )
    loss: str | tuple[str, ...] = option(
        "logistic",
        Listed(Choice(LOSSES, metavar="LOSS")),
        f"Loss to minimize: {', '.join(LOSSES)}. With several values here or in --p, --sigma and --ball, a model is "
        "trained for each combination in the same pass, and the best one is kept.",
        COMMON,
    )
    solver: str = option("pgs", Choice(SOLVERS), "How the model is trained; docs/solvers.md compares them.", MODEL)
    p: float | Literal["auto"] | tuple[float, ...] = option(
        2.0,
        Listed(
            Number(
                "P",
                SMALLEST_P,
                2.0,
                words=("auto",),
                remedy="2 is the Euclidean norm; values near 1, like 1.1, give sparse models; 'auto' tries some",
            ),
            alone=("auto",),
        ),
        "Norm of the regularizer, in (1, 2]. Smaller is sparser. auto: the best of 2, 1.8, 1.5, 1.2 and one near 1.",
        MODEL,
    )
    sigma: float | Literal["auto"] | tuple[float, ...] = option(
        "auto", _SIGMA, "Weight of the regularizer. auto: found during the first half epoch.", COMMON
    )
    ball: float | Literal["auto", "none"] | tuple[float, ...] | None = option(
        None,
        Listed(
            Number("B", 0.0, above=True, words=("auto", "none"), remedy="give a radius, 'auto' or 'none'"),
            alone=("auto",),
        ),
        "Keep the p-norm of the weights below B.",
        MODEL,
        shown="auto for losses that need it ("
        + ", ".join(n for n, one in LOSSES.items() if not one.lipschitz)
        + "), else none",
    )
    l1: float | tuple[float, ...] | None = option(
        None,
        Listed(Number("X", 0.0, remedy="1e-5 is a start; larger values set more weights to zero")),
        "For --solver truncated-gradient: weight of the sum of all |w|. With several values the best one is returned.",
        MODEL,
    )
    step: float | Literal["auto"] | tuple[float, ...] = option(
        "auto",
        Listed(Number("ETA", 0.0, above=True, words=("auto",)), alone=("auto",)),
        "For --solver truncated-gradient: size of the steps. auto: from the norms of the rows.",
        MODEL,
    )
    t0: float | Literal["auto"] = option(
        "auto",
        Number("T0", 0.0, above=True, words=("auto",)),
        "Offset of the step count: larger means smaller first steps. The paper uses 1. auto: from the norms of the rows.",
        MODEL,
    )
    batch: int = option(
        1,
        Number("N", 1, MOST_BATCH, whole=True, remedy="1 is the best choice for nearly all data"),
        "Rows per step.",
        MODEL,
    )
    quantile: float | None = option(
        None, _loss_parameter("quantile"), "Quantile that --loss quantile estimates, in (0, 1).", MODEL, shown="0.5"
    )
    huber_width: float | None = option(
        None,
        _loss_parameter("huber"),
        "Error at which --loss huber changes from squared to absolute.",
        MODEL,
        shown="the mean distance of the labels from their median",
    )
    intercept: float = option(
        0.1,
        Number("C", 0.0, remedy="the default is 0.1; 0 leaves the intercept out"),
        "Constant feature that carries the intercept; 0 leaves the intercept out.",
        MODEL,
    )
    returns: str = option(
        "suffix",
        Choice(RETURN_NAMES),
        "Weights to return: the average of the later steps (suffix), of all steps (average), the last ones (last), or "
        "those of a random step as in the paper (random).",
        MODEL,
        flag="--return",
    )
    sampling: str = option(
        "epoch",
        Choice(SAMPLING_NAMES),
        "Order of rows: each row once per epoch (epoch), or uniform draws (independent).",
        MODEL,
    )
    seed: int = option(
        0,
        Number("N", -MOST_SEED, MOST_SEED, whole=True),
        "Seed of the order of rows.",
        MODEL,
    )
    positive: float | str | None = option(
        None,
        Label(),
        "Label of the positive class; all other labels are negative.",
        DATA,
        shown="found in a sample: 1 against 0 or -1, the larger of two numbers, the later of two strings",
    )
    classes: tuple[float | str, ...] | None = option(
        None,
        Listed(Label(), always=True, unique=False),
        "Labels of the classes. With two classes the positive one is last.",
        DATA,
        shown="found in a sample of the labels",
    )
    joined_classes: int = 0
    """The last classes, in order of arrival: the data did not have them when the run started."""
    label_pairs: tuple[tuple[str, str] | None, ...] = ()
    """With several label columns: the strings of each, the negative one first; None: it holds numbers."""
    weight: str | None = option(None, _COLUMN, "Column of row weights.", DATA)
    offset: str | None = option(None, _COLUMN, "Column of numbers that are added to the scores of the rows.", DATA)
    class_weight: Literal["balanced"] | tuple[float, ...] | None = option(
        None,
        Listed(
            Number(
                "X",
                0.0,
                above=True,
                words=("balanced",),
                remedy="give 'balanced', or a number above 0 for each class, the negative one first",
            ),
            alone=("balanced",),
            unique=False,
        ),
        "Weight of the rows of each class, the negative class first. balanced: all classes weigh the same.",
        DATA,
    )
    feature_count: int | None = option(
        None,
        Number("N", 1, 2**31, below=True, whole=True, remedy="leave it out to have it found"),
        "Number of features, for rows that are lists of features.",
        DATA,
        shown="found while reading",
    )
    on_bad_row: str = option(
        "error", ON_BAD_ROW, "At a row that cannot be used: stop (error), or leave it out and count it (skip).", DATA
    )
    validation: tuple[str, ...] = option(
        (),
        Repeated(Text("DATA")),
        "Rows to compare models on, for --sigma auto and --target-accuracy. Ten thousand are enough. Can be repeated.",
        COMMON,
        shown="rows that were not trained on yet",
    )
    threads: int = option(
        1,
        Number("N", 1, MOST_THREADS, whole=True, remedy="give the number of free cores"),
        "Threads that train at the same time. The result depends on N, not on the machine.",
        RESOURCES,
    )

    def __post_init__(self) -> None:
        settle(self)
        self._check_solver()
        self._check_losses()
        self._check_candidates()
        if self.classes is not None:
            self._check_classes(self.classes)
        if self.class_weight is not None:
            self._check_class_weight()

    def _check_solver(self) -> None:
        taken = SOLVERS[self.solver].options
        for name, solver in SOLVERS.items():
            for option_of in set(solver.options) - set(taken):
                if getattr(self, option_of) != type(self).__dataclass_fields__[option_of].default:
                    flag = "--return" if option_of == "returns" else f"--{option_of}"
                    raise OptionError(
                        f"{flag} with --solver {self.solver}", f"use it with --solver {name}, or leave it out"
                    )

    def _check_losses(self) -> None:
        if 0 < sum(loss in CLASSIFYING for loss in self.losses) < len(self.losses):
            raise OptionError(
                f"--loss {','.join(self.losses)} mixes losses for classification and regression",
                "choose losses of one of the two",
            )
        for loss in LOSSES.values():
            if self.loss_parameter(loss.name) is not None and self.losses != (loss.name,):
                assert loss.parameter is not None
                raise OptionError(
                    f"{loss.parameter.option} with --loss {','.join(self.losses)}",
                    f"use it with --loss {loss.name} alone",
                )

    def _check_candidates(self) -> None:
        listed = (self.loss, self.p, self.sigma, self.ball, self.l1, self.step)
        combinations = math.prod(len(values_of(choice)) for choice in listed)
        if combinations > MOST_CANDIDATES:
            raise OptionError(
                f"{combinations} combinations of --loss and the numbers of the solver",
                f"give at most {MOST_CANDIDATES} combinations",
            )

    def _check_classes(self, classes: tuple[float | str, ...]) -> None:
        first = classes[: len(classes) - self.joined_classes]
        if len(first) < 2 or not _are_classes(first) or len(set(classes)) < len(classes):
            raise OptionError(
                f"--classes {','.join(map(label_text, classes))}",
                "list two or more different labels, numbers in ascending order; of two, the positive one last",
            )
        if self.positive is not None or len(self.labels) > 1:
            raise OptionError("--classes together with --positive or with several labels", "give one of them")
        if not self.classifies:
            raise OptionError(
                f"--classes with --loss {','.join(self.losses)}, which does not classify",
                f"choose one of {', '.join(CLASSIFYING)}",
            )

    def _check_class_weight(self) -> None:
        if not self.classifies or len(self.labels) > 1:
            raise OptionError("--class-weight without classes of one label", "leave it out, or name a --weight column")
        if self.class_weight == "balanced":
            return
        weights = values_of(self.class_weight)
        expected = len(self.classes) if self.classes is not None else max(2, len(weights))
        if len(weights) != expected:
            raise OptionError(
                f"--class-weight {','.join(map(str, weights))}",
                "give 'balanced', or a number above 0 for each class, the negative one first",
            )

    def loss_parameter(self, name: str) -> float | None:
        """The chosen parameter of a loss; None: its default."""
        parameter = LOSSES[name].parameter
        value: float | None = None
        if parameter is not None and parameter.is_option:
            value = getattr(self, parameter.name)
        return value

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


@dataclass(frozen=True)
class StreamOptions:
    """How a stream on standard input is trained on."""

    replay: float = option(
        0.5,
        Number("RATIO", 0.0, MOST_REPLAY, remedy="1 replays one old row per new row, 0.5 one per two, 0 none"),
        "For a stream (DATA is '-': Arrow IPC on standard input): old rows to train on again per new row, drawn from a "
        "uniform sample of all rows so far.",
        STREAMS,
    )

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True)
class Limits:
    """When training ends: totals since the run's first row. The first limit that is reached ends it."""

    epochs: int | None = option(
        None,
        Number("N", 1, whole=True),
        "Passes over the data.",
        COMMON,
        shown=f"{DEFAULT_EPOCHS}; {EPOCHS_FOR_A_TARGET} if only a target is given; for a resume, as before",
    )
    rows: int | None = option(None, Number("N", 1, whole=True), "Rows to train on.", LIMITS)
    seconds: float | None = option(None, Duration(above=True), "Time to train, like 90s, 5m or 1h.", LIMITS)
    target_accuracy: float | None = option(
        None,
        Number("A", 0.0, 1.0, above=True, remedy="give a share, like 0.95"),
        "Stop when the accuracy reaches A, like 0.95: on --validation, or else on rows before they are trained on.",
        LIMITS,
    )
    target_gap: float | None = option(
        None,
        Number("G", 0.0, above=True),
        "Stop when the certified distance from the optimal objective falls to G.",
        LIMITS,
    )

    def __post_init__(self) -> None:
        settle(self)

    def or_default(self) -> Limits:
        """Without a limit, a few epochs; with only targets, which may be out of reach, many."""
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
    """What training may use of the machine. Does not change the result, unless `window` or `cache_limit` is given."""

    memory: int = option(
        512 * 10**6,
        Size(low=SMALLEST_MEMORY, remedy="two windows that mix 64 blocks each must fit"),
        "Memory for reading and mixing rows. Python and the model need more on top.",
        COMMON,
    )
    window: int | None = option(
        None,
        Size(above=True),
        "Bytes of rows to mix at once.",
        RESOURCES,
        shown="as much as --memory allows, at most 268MB",
        command="train",
    )
    cache: Path | None = option(
        None,
        FilePath("DIR"),
        "Folder for decoded Parquet blocks.",
        RESOURCES,
        shown="in the run's folder",
        command="train",
    )
    cache_limit: int | None = option(
        None,
        Size(remedy="give a size like 20GB; 0 caches nothing"),
        "Largest size of the cache. It decides how finely rows are mixed.",
        RESOURCES,
        shown="no limit",
        command="train",
    )
    no_cache: bool = option(False, Flag(), "Decode Parquet again in every epoch.", RESOURCES, command="train")
    checkpoint_seconds: float = option(
        30.0, Duration(), "Time between checkpoints. Does not change the result.", RESOURCES, flag="--checkpoint-every"
    )

    def __post_init__(self) -> None:
        settle(self)
        if self.window is not None and 2 * self.window > self.memory:
            raise OptionError(
                f"two windows of {size_text(self.window)} do not fit into --memory {size_text(self.memory)}",
                "give more memory or a smaller --window",
            )
        if self.no_cache and (self.cache is not None or self.cache_limit is not None):
            raise OptionError("--no-cache together with --cache or --cache-limit", "give one or the other")


@dataclass(frozen=True)
class Growth:
    """How a run takes data that grow or change."""

    add: tuple[str, ...] = option(
        (),
        Repeated(Text("DATA")),
        "Add these files, folders, globs or addresses to the run. Can be repeated.",
        GROWTH,
        command="resume",
    )
    on_growth: str | None = option(
        None,
        Choice((CATCH_UP, UNION)),
        "How often the rows of new shards are trained on in the current epoch: as often as old rows at its end "
        "(catch-up), or once (union).",
        GROWTH,
        shown="catch-up, or union if there are more new rows than old ones",
    )
    follow: bool = option(
        False, Flag(), "Wait for more shards when all rows are used. Ctrl-C or SIGTERM ends it.", GROWTH
    )
    poll_seconds: float = option(
        10.0, Duration(above=True), "Time between looks for new shards, for --follow.", GROWTH, flag="--poll"
    )
    accept_touched: bool = option(
        False, Flag(), "Accept shards of which only the time stamp changed.", GROWTH, command="resume"
    )
    accept_rewrite: bool = option(
        False,
        Flag(),
        "Continue without shards that were deleted or replaced. The current epoch starts again.",
        GROWTH,
        command="resume",
    )
    sigma: float | Literal["auto"] | tuple[float, ...] | None = option(
        None,
        _SIGMA,
        "Weight of the regularizer from now on: the best one shrinks as the data grow. auto: search for it again. The "
        "weights are kept; averages and the certificate start again.",
        MODEL,
        command="resume",
    )

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True)
class ResumeOptions:
    """What only a resume can change or needs to know."""

    on_bad_row: str | None = option(
        None, ON_BAD_ROW, "Change what happens at a row that cannot be used.", DATA, shown="as before"
    )
    skip_taken: bool = option(
        False, Flag(), "The stream starts again at its first row: skip the rows that were taken already.", STREAMS
    )

    def __post_init__(self) -> None:
        settle(self)


TRAIN_OPTIONS = (ModelOptions, EncodingOptions, Limits, Resources, Growth, StreamOptions)
RESUME_OPTIONS = (Limits, Resources, Growth, ResumeOptions)


def label_text(label: float | str) -> str:
    return label if isinstance(label, str) else f"{label:g}"


def _are_classes(classes: tuple[Any, ...]) -> bool:
    """Numbers in ascending order, or different strings."""
    if all(isinstance(label, str) for label in classes):
        return len(set(classes)) == len(classes)
    if any(isinstance(label, str) for label in classes):
        return False
    return list(classes) == sorted(set(classes))

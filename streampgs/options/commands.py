"""Which options are there? Each is a field with its values, heading, help and default (see fields.py).

Nothing behind this module checks an option again or writes a default a second time. The options of solvers are in
solvers.py, the parameters of losses in losses/.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from streampgs.base.errors import OptionError
from streampgs.losses import CLASSIFYING, ELSEWHERE, LOSSES
from streampgs.options.fields import (
    COMMON,
    DATA,
    GROWTH,
    LIMITS,
    MODEL,
    RESOURCES,
    STREAMS,
    Checked,
    Choice,
    Duration,
    FilePath,
    Flag,
    Label,
    Lengths,
    Listed,
    More,
    Number,
    Pair,
    Repeated,
    Size,
    Text,
    Total,
    option,
    options_of,
    size_text,
    values_of,
)
from streampgs.options.solvers import SIGMA, SOLVERS, Needs, SolverOptions, solvers_with

MOST_DEGREE, MOST_KERNEL_FEATURES = 8, 1 << 16


@dataclass(frozen=True)
class KernelOptions:
    """The kernel, its parameters and the number of features."""

    # fmt: off
    kernel: Literal["rbf", "polynomial"] | None = option(None, Choice(names=("rbf", "polynomial")), COMMON,
        "Train a model that is not linear. rbf compares the distances of rows, polynomial multiplies features "
        "(docs/kernels.md).", shown="none: a linear model")
    gamma: float | Literal["auto"] = option("auto", Number("X", 0.0, above=True, words=("auto",)), MODEL,
        "For --kernel: larger values let the model change over shorter distances. auto: 1 / (features · their variance).")
    degree: int = option(2, Number("D", 1, MOST_DEGREE, whole=True, remedy="2 are products of two features"), MODEL,
        "For `--kernel polynomial`: number of features in a product, at most.")
    kernel_features: int = option(1024,
        Number("N", 2, MOST_KERNEL_FEATURES, whole=True, remedy="1024 is a start; more are slower and more accurate"), MODEL,
        "For --kernel: number of features that approximate the kernel, at most.")
    # fmt: on

    def _check_kernel(self, solver: str) -> None:
        flags = {name: declared.flag for name, declared in options_of(KernelOptions).items() if name != "kernel"}
        own = [flag for name, flag in flags.items() if getattr(self, name) != getattr(KernelOptions, name)]
        if solver == "kernel":
            own.append("`--solver kernel`")
        if self.kernel is None and own:
            raise OptionError(
                f"{own[0]} without --kernel", "give `--kernel rbf` or `--kernel polynomial`, or leave it out"
            )
        if self.kernel is not None and SOLVERS[solver].needs.columns:
            raise OptionError(
                f"--kernel with `--solver {solver}`, which reads columns", "use a solver that reads rows, such as pgs"
            )
        if solver == "kernel" and "--kernel-features" in own:
            raise OptionError(
                "--kernel-features with `--solver kernel`", "give the number of support rows with --supports"
            )
        if self.kernel == "rbf" and "--degree" in own:
            raise OptionError("--degree with `--kernel rbf`", "use it with `--kernel polynomial`, or leave it out")


LOSS_FOR_CLASSES, LOSS_FOR_NUMBERS = "logistic", "squared"
ALL_CLASSES = ("auto",)
ON_BAD_ROW = Choice(names=("error", "skip"))
MOST_HASH_BITS = 28
_FEWEST_EPOCHS, _MOST_EPOCHS, _USUAL_VISITS = 3, 200, 200_000
EPOCHS_FOR_A_TARGET = MOST_PASSES_OF_A_SOLVER = 100
RELATIVE_GAP, MOST_EPOCHS_OF_COLUMNS = 1e-4, 1000
MOST_CANDIDATES = 64
KEEP, MOST_KEPT = 3, 1000
MOST_BATCH = 1 << 20
MOST_SEED = (1 << 62) - 1
STREAM_PASSES, STREAM_REPLAY, SPOOL_BYTES = 1, 2.0, 4 * 10**9
PASSES, MOST_PASSES = 3, 100
REPLAY, MOST_REPLAY = 3.0, 100.0
SMALLEST_MEMORY = 48 * 10**6
DEFAULT_MEMORY = 512 * 10**6
_MOST_SYNTHETIC_ROWS = 1 << 40

_THRESHOLD = Number("P", 0.0, 1.0)
_CONDITION = Text("EXPR")
_GLOBS, _COLUMN, _LENGTHS = Repeated(of=Text("GLOB")), Text("COLUMN"), Lengths(high=32)
_CLASS_WEIGHT = Number("X", 0.0, above=True, words=("balanced",),
    remedy="give 'balanced', or a number above 0 for each class, the negative one first")  # fmt: skip


def default_epochs(rows: int) -> int:
    """Passes over a table of so many rows: a few, but over a small table as many as its models need to converge."""
    return max(_FEWEST_EPOCHS, min(_MOST_EPOCHS, -(-_USUAL_VISITS // max(1, rows))))


@dataclass(frozen=True)
class EncodingOptions(Checked):
    """How the columns of an ordinary table become features."""

    # fmt: off
    features: tuple[str, ...] = option((), _GLOBS, DATA,
        "Use only these columns: names or patterns like 'user_*'. Can be repeated.",
        shown="all columns that can become features")
    ignore: tuple[str, ...] = option((), _GLOBS, COMMON, "Leave out these columns. Can be repeated.")
    category: tuple[str, ...] = option((), _GLOBS, COMMON,
        "Treat these columns of numbers as categories: postcodes, user ids. Can be repeated.")
    text: tuple[str, ...] = option((), _GLOBS, COMMON,
        "Split these columns into words (see --ngrams, --char-ngrams). Can be repeated.")
    ngrams: tuple[int, int] | None = option(None, _LENGTHS, DATA, "For --text: sequences of A to B words.",
        shown="1-1, unless --char-ngrams is given")
    char_ngrams: tuple[int, int] | None = option(None, _LENGTHS, DATA, "For --text: sequences of A to B characters.")
    text_weights: str = option("tf-idf", Choice(names=("tf-idf", "tf", "binary")), DATA,
        "Weight of a word: its frequency times its rarity (tf-idf), its frequency (tf) or 1 (binary). Each text is scaled "
        "to length 1.")
    cross: tuple[tuple[str, str], ...] = option((), Repeated(of=Pair()), COMMON,
        "Add a feature for each pair of values of two columns; a number stands for the two knots of a curve next to it. Can be "
        "repeated.")
    find_crosses: str = option("auto", Choice(names=("auto", "off")), DATA,
        "auto: also cross pairs of columns that predict other rows of a sample better together than alone; none with --l1, "
        "--kernel or another --solver.")
    cyclic: tuple[str, ...] = option((), _GLOBS, DATA,
        "Add the hour of the day, the day of the week and the day of the year of these times. Can be repeated.")
    standardize: str = option("auto", Choice(names=("auto", "on", "off")), DATA,
        "Center and scale numbers, measured on a sample, and clip them at 8 standard deviations. auto: always for columns "
        "of numbers, and for lists, maps and vectors where their scales differ widely, or from those of other columns.")
    numbers: str = option("auto", Choice(names=("auto", "linear", "curves")), DATA,
        "linear: a number adds its weight times its value to the score. curves: it may also add any piecewise linear function "
        "of its value. auto: curves if they predict other rows of a sample better; linear with --l1, --kernel or other "
        "solvers.")
    null_flags: bool = option(False, Flag(), DATA, "Add a feature per column of numbers that marks nulls.")
    hash_bits: int | None = option(None,
        Number("BITS", 1, MOST_HASH_BITS, whole=True, remedy="20 bits are a million features"), DATA,
        "Hash categories and words to 2^BITS features.", shown="20, or fewer if a sample has few different ones")
    hash_seed: int = option(0, Number("N", 0, 2**32, below=True, whole=True), DATA,
        "Changes which categories and words share a feature.")
    vocabulary: bool = option(False, Flag(), DATA,
        "Give each category and word of a sample its own feature; hash only the others.")
    # fmt: on

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text and self.ngrams is None and self.char_ngrams is None:
            object.__setattr__(self, "ngrams", (1, 1))
        if not self.text and (self.ngrams or self.char_ngrams):
            raise OptionError("--ngrams or --char-ngrams without --text", "name the text column with `--text COLUMN`")

    @property
    def given(self) -> bool:
        """Whether they ask for something that rows of features cannot give."""
        return (
            replace(self, standardize="auto", numbers="auto", find_crosses="auto") != EncodingOptions()
            or self.standardize == "on"
        )


LabelType = Literal["boolean", "integer", "number", "string"]


@dataclass(frozen=True)
class LabelOptions:
    """The labels to predict, and how much each row counts."""

    # fmt: off
    label: str | tuple[str, ...] = option("label", Repeated(of=_COLUMN, always=False, unique=True), COMMON,
        "Column to predict, or an expression such as 'delay > 15' (docs/expressions.md). Repeat it to train a model per "
        "column.")
    label_expressions: tuple[str, ...] = ()
    """The labels that are expressions."""
    positive: float | str | None = option(None, Label(), DATA,
        "Label of the positive class; all other labels are negative.",
        shown="found in the labels: 1 against 0 or -1, the larger of two numbers, the later of two strings")
    classes: tuple[float | str, ...] | None = option(None,
        Listed(of=Label(), alone=ALL_CLASSES, always=True, unique=False), DATA,
        "Labels of the classes. With two classes the positive one is last. auto: all values of the label column, also "
        "hundreds of whole numbers.", shown="found in the labels")
    joined_classes: int = 0
    """The last classes, in order of arrival: the data did not have them when the run started."""
    label_types: tuple[LabelType, ...] = ()
    """The type of each label column that holds classes."""
    label_pairs: tuple[tuple[float | str, float | str] | None, ...] = ()
    """With several label columns: the two classes of each, the negative one first; None: -1 and 1."""
    class_weight: Literal["balanced"] | tuple[float, ...] | None = option(None,
        Listed(of=_CLASS_WEIGHT, alone=("balanced",), unique=False), DATA,
        "Weight of the rows of each class, the negative class first. balanced: all classes weigh the same.")
    weight: str | None = option(None, _COLUMN, COMMON, "Column of row weights.")
    offset: str | None = option(None, _COLUMN, DATA,
        "Column of numbers that are added to the scores of the rows.")
    # fmt: on

    @property
    def takes_all_classes(self) -> bool:
        """Whether every value of the label column is a class. A new run replaces this by the values."""
        return self.classes == ALL_CLASSES

    @property
    def names_classes(self) -> bool:
        """Whether the options make sense for classes alone."""
        return self.classes is not None or self.positive is not None or self.class_weight is not None

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
    def labels(self) -> tuple[str, ...]:
        return values_of(self.label)

    def _check_classes(self, classifies: bool) -> None:
        classes = self.classes or ()
        if self.takes_all_classes:
            classes = ("A", "B")  # the rules for their combination with other options are the same
        first = classes[: len(classes) - self.joined_classes]
        texts = sum(isinstance(label, str) for label in first)
        in_order = texts == len(first) or (texts == 0 and list(first) == sorted(first))
        if len(first) < 2 or not in_order or len(set(classes)) < len(classes):
            raise OptionError(
                f"`--classes {','.join(map(Label().text, classes))}`",
                "list two or more different labels, numbers in ascending order; of two, the positive one last",
            )
        if self.positive is not None or len(self.labels) > 1:
            raise OptionError("--classes together with --positive or with several labels", "give one of them")
        if not classifies:
            raise OptionError(
                "--classes with a --loss that does not classify", f"choose one of {', '.join(CLASSIFYING)}"
            )

    def _check_class_weight(self, classifies: bool) -> None:
        if not classifies or len(self.labels) > 1:
            raise OptionError("--class-weight without classes of one label", "leave it out, or name a --weight column")
        weights = values_of(self.class_weight)
        known = self.classes is not None and not self.takes_all_classes
        expected = len(self.classes or ()) if known else max(2, len(weights))
        if self.class_weight != "balanced" and len(weights) != expected:
            raise OptionError(f"`--class-weight {','.join(map(str, weights))}`", _CLASS_WEIGHT.remedy)


_PARAMETERS = [each.parameter for each in LOSSES.values() if each.parameter is not None and each.parameter.help]

if TYPE_CHECKING:

    class _LossParameters:
        """A field for the parameter of each loss."""

else:
    _LossParameters = make_dataclass(
        "_LossParameters",
        [
            (
                each.name,
                float | None,
                option(None, Number("X", each.above, each.below, True, True), MODEL, each.help, shown=each.shown),
            )
            for each in _PARAMETERS
        ],
        frozen=True,
    )


@dataclass(frozen=True)
class LossOptions(_LossParameters):
    """The loss, and the parameters of all losses."""

    # fmt: off
    loss: str | tuple[str, ...] | None = option(None, Listed(of=Choice("LOSS", LOSSES, ELSEWHERE)), COMMON,
        f"Loss to minimize: {', '.join(LOSSES)}. With several values here or for numbers of the solver, such as "
        "--sigma, a model is trained for each combination in the same pass, and the best one is kept.",
        shown=f"{LOSS_FOR_CLASSES} for classes, {LOSS_FOR_NUMBERS} for numbers; docs/labels.md has the rule")
    # fmt: on

    @property
    def losses(self) -> tuple[str, ...]:
        """Until the labels are known, an open loss counts as that for classes."""
        return values_of(self.loss or LOSS_FOR_CLASSES)

    @property
    def classifies(self) -> bool:
        return LOSSES[self.losses[0]].classifies

    def loss_parameter(self, name: str) -> float | None:
        """The chosen parameter of a loss; None: its default."""
        parameter = LOSSES[name].parameter
        value: float | None = None if parameter is None else getattr(self, parameter.name, None)
        return value

    def _check_losses(self) -> None:
        if 0 < sum(loss in CLASSIFYING for loss in self.losses) < len(self.losses):
            raise OptionError(
                f"`--loss {','.join(self.losses)}` mixes losses for classification and regression",
                "choose losses of one of the two",
            )
        if len(self.losses) > 1 and not self.classifies:
            raise OptionError(
                f"`--loss {','.join(self.losses)}`: losses of regression have different units and cannot be compared",
                "train a run for each, and compare them with `streampgs evaluate`",
            )
        for name, loss in LOSSES.items():
            if loss.parameter is not None and self.loss_parameter(name) is not None and self.losses != (name,):
                raise OptionError(
                    f"{loss.parameter.option} with `--loss {','.join(self.losses)}`",
                    f"use it with `--loss {name}` alone",
                )


@dataclass(frozen=True)
class ModelOptions(KernelOptions, SolverOptions, LossOptions, LabelOptions, Checked):
    """What defines the model, given the data: recorded in the run, and changed by a resume only where it says so."""

    # fmt: off
    batch: int = option(1,
        Number("N", 1, MOST_BATCH, whole=True, remedy="1 is the best choice for nearly all data"), MODEL,
        "Rows per step.")
    intercept: float | Literal["auto"] = option("auto",
        Number("C", 0.0, words=("auto",), remedy="the default is auto; 0 leaves the intercept out"), MODEL,
        "Constant feature that corrects the base value of the model; 0 leaves the intercept out.",
        shown="auto: a share of the rows' norm")
    seed: int = option(0, Number("N", -MOST_SEED, MOST_SEED, whole=True), MODEL, "Seed of the order of rows.")
    feature_count: int | None = option(None,
        Number("N", 1, 2**31, below=True, whole=True, remedy="leave it out to have it found"), DATA,
        "Number of features, for rows that are lists of features.", shown="found while reading")
    on_bad_row: str = option("error", ON_BAD_ROW, DATA,
        "At a row that cannot be used: stop (error), or leave it out and count it (skip).")
    where: str | None = option(None, _CONDITION, COMMON,
        "Train only on rows that fulfil a condition, such as \"year >= 2020 and carrier != 'AA'\" (docs/expressions.md).")
    validation: tuple[str, ...] = option((), Repeated(of=Text("DATA")), COMMON,
        "Rows to compare models on. They decide values that are found or listed, and --target-accuracy. Ten thousand are enough. "
        "Can be repeated.",
        shown="rows that were not trained on yet")
    threads: int = option(1,
        Number("N", 1, 256, whole=True, remedy="give the number of free cores"), RESOURCES,
        "Threads that train at the same time. The result depends on N, not on the machine.")
    # fmt: on

    def without_kernel(self) -> ModelOptions:
        """For rows that have kernel features already."""
        defaults: dict[str, Any] = {each.name: each.default for each in fields(KernelOptions)}
        return replace(self, **defaults)

    @property
    def row_values(self) -> int:
        return super().row_values + self.kernel_bytes // 8

    @property
    def mapped_features(self) -> int:
        """Kernel features at most: of the solver `kernel`, one for each support."""
        return self.supports if self.solver == "kernel" else self.kernel_features

    @property
    def kernel_bytes(self) -> int:
        """What a row in memory takes in addition."""
        return 0 if self.kernel is None else 4 * self.mapped_features

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_losses()
        self._check_solver()
        self._check_kernel(self.solver)
        self._check_candidates()
        if self.classes is not None:
            self._check_classes(self.classifies)
        if self.class_weight is not None:
            self._check_class_weight(self.classifies)

    def _check_solver(self) -> None:
        taken = SOLVERS[self.solver].options
        self._check_needs(SOLVERS[self.solver].needs)
        for name, declared in options_of(SolverOptions).items():
            if name not in ("solver", *taken) and getattr(self, name) != getattr(type(self), name):
                raise OptionError(
                    f"{declared.flag} with `--solver {self.solver}`",
                    f"use it with `--solver {solvers_with(name)}`, or leave it out",
                )
        SOLVERS[self.solver].refuse(self)

    def _check_needs(self, needs: Needs) -> None:
        if needs.smooth and not all(LOSSES[loss].smooth for loss in self.losses):
            smooth = ", ".join(name for name, loss in LOSSES.items() if loss.smooth)
            raise OptionError(
                f"`--loss {','.join(self.losses)}` with `--solver {self.solver}`, which needs a loss without kinks",
                f"use `--loss {smooth}`, or `--solver pgs`",
            )
        if needs.columns and self.threads > 1:
            raise OptionError(
                f"`--threads {self.threads}` with `--solver {self.solver}`, which visits columns one by one",
                "leave --threads out, or use another solver",
            )
        if needs.passes and self.batch > 1:
            raise OptionError(
                f"`--batch {self.batch}` with `--solver {self.solver}`, whose steps use all rows", "leave --batch out"
            )

    def _check_candidates(self) -> None:
        listed = [name for name, declared in options_of(type(self)).items() if type(declared.value) is Listed]
        names = [name for name in listed if name not in ("classes", "class_weight")]
        combinations = math.prod(len(values_of(getattr(self, name))) for name in names)
        if combinations > MOST_CANDIDATES:
            raise OptionError(
                f"{combinations} combinations of --loss and the numbers of the solver",
                f"give at most {MOST_CANDIDATES} combinations",
            )


_EPOCHS, _ROWS, _SECONDS = Number("N", 1, whole=True), Number("N", 1, whole=True), Duration(above=True)


def _target_accuracy() -> Any:
    share = Number("A", 0.0, 1.0, above=True, remedy="give a share, like 0.95")
    return option(None, share, LIMITS,
        "Stop when the accuracy reaches A, like 0.95: on --validation, or else on rows before they are trained on."
    )  # fmt: skip


def _target_gap() -> Any:
    return option(None, Number("G", 0.0, above=True), LIMITS,
        "Stop when the certified distance from the optimal objective falls to G. docs/solvers.md lists the solvers that "
        "measure it."
    )  # fmt: skip


@dataclass(frozen=True)
class Limits(Checked):
    """When training ends: totals since the run's first row. The first limit that is reached ends it."""

    # fmt: off
    epochs: int | None = option(None, _EPOCHS, COMMON, "Passes over the data.",
        shown=f"{_FEWEST_EPOCHS}, more for fewer than {_USUAL_VISITS // _FEWEST_EPOCHS:,} rows; {EPOCHS_FOR_A_TARGET} if "
        f"only a target is given. coordinate and greedy-coordinate end when they have converged, after "
        f"{MOST_EPOCHS_OF_COLUMNS:,} at most; l-bfgs and gradient-descent likewise, after {MOST_PASSES_OF_A_SOLVER} at most")
    rows: int | None = option(None, _ROWS, LIMITS,
        "Rows to train on.")
    seconds: float | None = option(None, _SECONDS, LIMITS, "Time to train, like 90s, 5m or 1h.")
    target_accuracy: float | None = _target_accuracy()
    target_gap: float | None = _target_gap()
    # fmt: on
    relative_gap: float | None = None
    """The certified distance at the end of an epoch, as a share of the objective of weights 0: the default of solvers of
    columns."""

    def or_default(self, rows: int, needs: Needs | None = None) -> Limits:
        """Without a limit, as many epochs as suit a table of so many rows; with only targets, which may be out of reach,
        more. A solver of columns trains until its certificate is small, one of whole passes until it has converged."""
        if not self.given and needs is not None and needs.columns:
            return Limits(epochs=MOST_EPOCHS_OF_COLUMNS, relative_gap=RELATIVE_GAP)
        if not self.given and needs is not None and needs.passes:
            return Limits(epochs=MOST_PASSES_OF_A_SOLVER)
        if not self.given:
            return Limits(epochs=default_epochs(rows))
        if self.epochs is None and self.rows is None and self.seconds is None:
            return replace(self, epochs=max(EPOCHS_FOR_A_TARGET, default_epochs(rows)))
        return self


@dataclass(frozen=True)
class NewLimits(Checked):
    """The limits of a resume. They replace those of the run."""

    # fmt: off
    epochs: int | More | None = option(None, Total(of=_EPOCHS), COMMON,
        "Passes over the data since the start of the run. +N: N more than are done, after the one that has begun.",
        shown="as before")
    rows: int | More | None = option(None, Total(of=_ROWS), LIMITS,
        "Rows to train on since the start of the run. +N: N more.")
    seconds: float | More | None = option(None, Total(of=_SECONDS), LIMITS,
        "Time to train since the start of the run, like 90s, 5m or 1h. +TIME: so much more.")
    target_accuracy: float | None = _target_accuracy()
    target_gap: float | None = _target_gap()
    # fmt: on

    def after(self, epochs: int, rows: int, seconds: float) -> Limits:
        """As totals, for a run that has begun so many epochs and has trained on so many rows for so long."""
        done = {"epochs": epochs, "rows": rows, "seconds": seconds}
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        totals: dict[str, Any] = {
            name: done[name] + value.amount if isinstance(value, More) else value for name, value in found.items()
        }
        return Limits(**totals)


@dataclass(frozen=True)
class Resources(Checked):
    """What training may use of the machine. Only `window` and `cache_limit` change the result."""

    # fmt: off
    memory: int | None = option(None,
        Size(low=SMALLEST_MEMORY, remedy="two windows that mix 64 blocks each must fit"), COMMON,
        "Memory for reading and mixing rows. Python and the model need more on top.",
        shown=f"{size_text(DEFAULT_MEMORY)}, or a quarter of the memory of the machine or container if that is less; more "
        "if row groups need it")
    window: int | None = option(None, Size(above=True), RESOURCES, "Bytes of rows to mix at once.",
        shown="as much as --memory allows, at most 268MB", command="train")
    cache: Path | None = option(None, FilePath("DIR"), RESOURCES,
        "Folder for decoded Parquet blocks, and for copies of shards in object stores.",
        shown="in the run's folder", command="train")
    cache_limit: int | None = option(None, Size(remedy="give a size like 20GB; 0 caches nothing"), RESOURCES,
        "Largest size of the cache. It decides how finely rows are mixed.", shown="no limit", command="train")
    no_cache: bool = option(False, Flag(), RESOURCES, "Decode Parquet again in every epoch.", command="train")
    checkpoint_seconds: float = option(30.0, Duration(), RESOURCES,
        "Time between checkpoints. Does not change the result.", flag="--checkpoint-every")
    keep: int | None = option(None, Number("N", 1, MOST_KEPT, whole=True), RESOURCES,
        "Keep the newest N checkpoints, and those before the last N updates, to return to them with resume --back-to.",
        shown=f"{KEEP}, or as before")
    # fmt: on

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None and 2 * self.window > self.budget:
            raise OptionError(
                f"two windows of {size_text(self.window)} do not fit into `--memory {size_text(self.budget)}`",
                "give more memory or a smaller --window",
            )
        if self.no_cache and (self.cache is not None or self.cache_limit is not None):
            raise OptionError("--no-cache together with --cache or --cache-limit", "give one or the other")

    @property
    def budget(self) -> int:
        """The same on all machines if no memory was given; run.fitting looks at the machine."""
        return DEFAULT_MEMORY if self.memory is None else self.memory


@dataclass(frozen=True)
class Growth(Checked):
    """How a run takes data that grow or change."""

    # fmt: off
    add: tuple[str, ...] = option((), Repeated(of=Text("DATA")), COMMON,
        "Add these files, folders, globs or addresses to the run. Can be repeated.", command="resume")
    data: tuple[str, ...] = option((), Repeated(of=Text("DATA")), COMMON,
        "The data of the run are here now: all shards are looked for in these places, by content. Can be repeated.",
        command="resume")
    leave_out: tuple[str, ...] = option((), Repeated(of=Text("SHARD")), COMMON,
        "Do not train on this shard from now on: its path, or a folder or glob. Can be repeated.", command="resume")
    passes: int | None = option(None, Number("N", 1, MOST_PASSES, whole=True), GROWTH,
        "How often an update trains on the rows of new shards. An update follows when shards arrive after the end of an "
        "epoch.", shown=f"{PASSES}, or as before; for a stream {STREAM_PASSES}")
    replay: float | None = option(None,
        Number("RATIO", 0.0, MOST_REPLAY, remedy="1 replays one old row per new row, 0.5 one per two, 0 none"), GROWTH,
        "Old rows that an update trains on again for each new row.",
        shown=f"{REPLAY:g}, or as before; for a stream {STREAM_REPLAY:g}")
    follow: bool = option(False, Flag(), GROWTH,
        "Wait for more shards when all rows are used. Ctrl-C or SIGTERM ends it.")
    poll_seconds: float = option(10.0, Duration(above=True), GROWTH,
        "Time between looks for new shards, for --follow. Rows of a stream that comes slowly are trained on after this time.",
        flag="--poll")
    spool: int | None = option(None,
        Size(low=1 << 24, remedy="it holds 16 shards of at least 1 MiB"), STREAMS,
        "Most disk that the rows of a stream take (DATA is '-': Arrow IPC on standard input). When it is full, rows that were "
        "trained on leave at random; the producer waits for the others.", shown=size_text(SPOOL_BYTES), command="train")
    accept_touched: bool = option(False, Flag(), COMMON,
        "Accept shards of which only the time stamp changed.", command="resume")
    accept_removed: bool = option(False, Flag(), COMMON,
        "Continue without shards that were deleted; a shard that was replaced is still refused.", command="resume")
    accept_changes: bool = option(False, Flag(), COMMON,
        "Continue without shards that were deleted or replaced. Those with new content join as new rows.", command="resume")
    accept_rejected: bool = option(False, Flag(), COMMON,
        "Train on the shards that are left out since --fail-if rejected them.", command="resume")
    sigma: float | Literal["auto"] | tuple[float, ...] | None = option(None, SIGMA, MODEL,
        "Weight of the regularizer from now on: the best one shrinks as the data grow. auto: search for it again. The "
        "weights are kept; averages and the certificate start again.", command="resume")
    # fmt: on


@dataclass(frozen=True)
class ResumeOptions(Checked):
    """What only a resume can change or needs to know."""

    # fmt: off
    back_to: str | None = option(None, Text("CHECKPOINT"), COMMON,
        "Return to an earlier checkpoint, and continue from there: its number of rows, its file name, or "
        "'before-last-update'. Later checkpoints are removed. inspect and history list the checkpoints.")
    validation: tuple[str, ...] = option((), Repeated(of=Text("DATA")), COMMON,
        "Measure the model on these rows before and after training, and report both. Can be repeated.",
        shown="that of the run, for --fail-if")
    fail_if: tuple[str, ...] = option((), Repeated(of=Text("CONDITION")), COMMON,
        "Leave the run as it was if this holds after training: 'log_loss > 1.1 * before', with one metric of evaluate; or "
        "'drift', or 'null_share.COLUMN > 0.5'. Can be repeated.")
    dry_run: bool = option(False, Flag(), COMMON,
        "Say what this resume would do, and change nothing: new, missing and ignored files, errors, and whether it would train.")
    on_bad_row: str | None = option(None, ON_BAD_ROW, DATA, "Change what happens at a row that cannot be used.",
        shown="as before")
    skip_taken: bool = option(False, Flag(), STREAMS,
        "The stream starts again at its first row: skip the rows that were taken already.")
    # fmt: on

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dry_run and self.back_to:
            raise OptionError(
                "--dry-run together with --back-to", "give one of them; `streampgs history` lists checkpoints"
            )


@dataclass(frozen=True)
class EvaluateOptions(Checked):
    """How a model is measured."""

    # fmt: off
    on_bad_row: str = option("error", ON_BAD_ROW, COMMON,
        "At a row that cannot be used: stop (error), or leave it out and count it (skip).")
    where: str | None = option(None, _CONDITION, COMMON, "Measure only rows that fulfil this condition; true: all rows.",
        shown="the condition of the run")
    by: str | None = option(None, _COLUMN, COMMON, "Also measure the rows of each value of this column.")
    record: bool = option(False, Flag(), COMMON, "Add the metrics to the history of the run.")
    threshold: float | None = option(None, _THRESHOLD, COMMON,
        "Probability from which on the positive class of two is predicted.", shown="0.5")
    # fmt: on


@dataclass(frozen=True)
class PredictOptions(Checked):
    """How predictions are written."""

    # fmt: off
    out: Path | None = option(None, FilePath("FILE"), COMMON,
        "File to write: .parquet, .arrow or .csv; - writes an Arrow stream to standard output.", required=True)
    keep: tuple[str, ...] = option((), Repeated(of=_COLUMN), COMMON,
        "Also write this column of DATA. Repeat it for more columns; all: all columns.")
    where: str | None = option(None, _CONDITION, COMMON, "Write only rows that fulfil this condition.", shown="all rows")
    force: bool = option(False, Flag(), COMMON, "Overwrite FILE if it exists.")
    threshold: float | None = option(None, _THRESHOLD, COMMON,
        "Probability from which on the positive class of two is predicted.", shown="0.5")
    on_bad_row: str = option("error", ON_BAD_ROW, COMMON,
        "At a row that cannot be used: stop (error), or write nulls in its place (skip).")
    # fmt: on


@dataclass(frozen=True)
class InspectOptions(Checked):
    """What `streampgs inspect` shows."""

    # fmt: off
    top: int = option(0, Number("N", 0, whole=True), COMMON, "For a run: show the N features with the largest weights.")
    path: Path | None = option(None, FilePath("FILE"), COMMON,
        "For a run with several values of --l1: draw the weights and the accuracy against l1 in FILE, a .png, .svg or .pdf. "
        "Needs matplotlib.")
    curves: Path | None = option(None, FilePath("FILE"), COMMON,
        "For a run with curves of numbers: draw them in FILE, a .png, .svg or .pdf. Needs matplotlib.")
    label: str = option("label", _COLUMN, COMMON, "For data: column to predict.")
    where: str | None = option(None, _CONDITION, COMMON, "For data: leave out rows that do not fulfil this condition.")
    memory: int = option(DEFAULT_MEMORY, Size(), COMMON, "For data: memory that training would have.")
    # fmt: on


@dataclass(frozen=True)
class HistoryOptions(Checked):
    """What `streampgs history` shows."""

    # fmt: off
    last: int | None = option(None, Number("N", 1, whole=True), COMMON, "Show the last N events.", shown="all")
    # fmt: on


@dataclass(frozen=True)
class SynthOptions(Checked):
    """What `streampgs synth` writes."""

    # fmt: off
    rows: int = option(None, Number("N", 1, _MOST_SYNTHETIC_ROWS, whole=True), COMMON, "Number of rows.", required=True)
    kind: str = option("sparse", Choice(names=("sparse", "dense", "regression", "gaussian")), COMMON,
        "Kind of rows. sparse has the shape of the RCV1 data set; gaussian is the toy set of the paper.")
    shards: int = option(8, Number("N", 1, whole=True), COMMON, "Number of files.")
    format: str = option("arrow", Choice(names=("arrow", "parquet")), COMMON, "Format of the files.")
    seed: int = option(0, Number("N", 0, 2**64, below=True, whole=True), COMMON, "Seed of the random numbers.")
    features: int | None = option(None, Number("N", 1, 2**24, whole=True), COMMON, "Number of features.",
        shown="47,236 for sparse rows, 28 for dense rows, 20 for gaussian ones")
    test_rows: int = option(0, Number("N", 0, _MOST_SYNTHETIC_ROWS, whole=True), COMMON,
        "Number of test rows to write to the folder OUT-test.")
    # fmt: on

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "sparse" and self.features == 1:
            raise OptionError(
                "`--features 1` with `--kind sparse`", "give 2 or more: with one, all rows would be the same"
            )


TRAIN_OPTIONS = (ModelOptions, EncodingOptions, Limits, Resources, Growth)
RESUME_OPTIONS = (NewLimits, Resources, Growth, ResumeOptions)

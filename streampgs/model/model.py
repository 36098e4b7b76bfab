"""A trained model, read from a run: its weights and its predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import understanding
from streampgs.base.errors import OptionError
from streampgs.data.feature_maps import FeatureMap, MapStage, Numbering, RowMap
from streampgs.encoding.encoding import Encoding
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import lane_spec
from streampgs.losses import LOSSES, Vector
from streampgs.model.metrics import Task
from streampgs.model.scoring import scores_in_memory
from streampgs.options.commands import ModelOptions
from streampgs.options.messages import python_errors
from streampgs.run.checkpoint import rows_in_name
from streampgs.run.saved import RETURNED, SavedRun, returned_in, saved_run

_ESTIMATING = " or ".join(f"`--loss {name}`" for name, loss in LOSSES.items() if loss.probability is not None)


@dataclass(frozen=True, repr=False)
class Model:
    weights: Vector
    """With several classes or labels a row for each. They are those of the features, of the kernel features, or of the
    numbers of those features that rows have shown."""
    intercept_: float | Vector
    options: ModelOptions
    settings: LaneSpec
    """The specification of the best candidate, for its first target."""
    targets: tuple[str, ...]
    """The classes if there are more than two, or the labels if there are several."""
    steps: int
    rows: int
    checkpoint: Path
    damaged: tuple[str, ...]
    """Newer checkpoints that could not be used, and why."""
    paused: str | None = None
    """How to continue, if training was paused before its limit."""
    encoding: Encoding | None = None
    """How columns of tables become features; None: rows hold features."""
    threshold: float | None = None
    """The probability from which on the positive class of two is predicted; None: a score above 0."""
    row_map: RowMap | None = None
    """It maps the features of rows to the kernel features or numbers that have the weights; None: the features have them."""

    @staticmethod
    @python_errors
    def load(run: str | Path) -> Model:
        """The model of a run's newest undamaged checkpoint; the best of several candidates."""
        return load_model(Path(run))

    def __repr__(self) -> str:
        what = f"{self.settings.loss}, {self.features:,} features, {self.rows:,} rows"
        return f"<Model of {self.checkpoint.parent}: {what}>"

    @cached_property
    def coef_(self) -> Vector:
        """One weight per feature, or per kernel feature; with several classes or labels a row for each."""
        if self._numbering is None:
            return self.weights
        spread = [self._numbering.spread(vector) for vector in np.atleast_2d(self.weights)]
        return spread[0] if self.weights.ndim == 1 else np.stack(spread)

    @property
    def kernel(self) -> FeatureMap | None:
        return self.row_map if isinstance(self.row_map, FeatureMap) else None

    @property
    def _numbering(self) -> Numbering | None:
        return self.row_map if isinstance(self.row_map, Numbering) else None

    @property
    def coefficients(self) -> int:
        """How many numbers `coef_` has for a class or label."""
        return int(self.weights.shape[-1]) if self._numbering is None else self._numbering.inputs

    def place_of(self, weight: int) -> int:
        """The place in `coef_` of a weight."""
        return weight if self._numbering is None else int(self._numbering.listed[weight])

    @property
    def layout(self) -> str:
        """The layout of the rows."""
        return self.settings.layout if self.kernel is None else self.kernel.record.layout

    def name_of(self, place: int) -> str:
        """The name of the feature, or of the kernel feature, at a place of `coef_`."""
        return self._feature_name(place) if self.kernel is None else self.kernel.name_of(place, self._feature_name)

    def _feature_name(self, feature: int) -> str:
        """Its number if it has no name."""
        return self.encoding.name_of(feature) if self.encoding is not None else str(feature)

    def sign_of(self, feature: int) -> int:
        """The sign that hashing gave the feature: of its value in a row that has it."""
        return self.encoding.sign_of(feature) if self.encoding is not None and self.kernel is None else 1

    @property
    def features(self) -> int:
        """The number of features of the rows."""
        return self.coefficients if self.kernel is None else self.kernel.record.inputs

    @property
    def classifies(self) -> bool:
        return self.options.classifies

    @property
    def classes_(self) -> NDArray[Any] | None:
        """The values that `predict` chooses from, of the type of the labels; None if it predicts numbers. With several
        labels of different values: -1 and 1."""
        if not self.classifies:
            return None
        first, *others = (self.classes_of(label) for label in range(len(self.options.labels)))
        alike = all(one.dtype == first.dtype and np.array_equal(one, first) for one in others)
        return first if alike else np.array([-1.0, 1.0])

    def classes_of(self, label: int) -> NDArray[Any]:
        """The classes of a label column, by its number; of two, the negative one first."""
        options = self.options
        known = options.classes if len(options.labels) == 1 else (options.label_pairs or (None,) * (label + 1))[label]
        kind = options.label_types[label] if options.label_types else "number"
        if kind == "boolean":
            return np.array([True, False] if options.positive == 0.0 else [False, True])
        classes = np.array(known if known is not None else (-1.0, 1.0))
        return classes.astype(np.int64) if kind == "integer" else classes

    @property
    def task(self) -> Task:
        """How its scores become predictions."""
        classes = len(self.classes_) if self.classes_ is not None else 0
        return Task(
            LOSSES[self.settings.loss],
            self.settings.label_shape,
            classes if self.options.multiclass else min(classes, 2),
            self.threshold,
        )

    def with_threshold(self, threshold: float) -> Model:
        """The same model; it predicts the positive class from this probability on."""
        if not (self.task.classes == 2 and self.task.estimates):
            kind = f"{self.task.classes} classes" if self.classifies else "numbers as labels"
            raise OptionError(
                f"`--threshold {threshold:g}` for a model of loss {self.settings.loss} with {kind}",
                f"leave it out: it needs two classes, and {_ESTIMATING}",
            )
        return replace(self, threshold=threshold)

    @python_errors
    def decision_function(self, rows: Any, offset: Any = None) -> Vector:
        """<w, x> + b for each row; unknown features add nothing. With several classes or labels: a column for each.

        Rows are a table of pyarrow, polars, pandas, DuckDB and others, or an iterator of record batches, whose columns are
        found by name; a NumPy array, a list of lists, or a SciPy sparse matrix. A model of named columns takes a matrix if
        every column is a number: the columns are expected in the order of the training data. A model with offsets adds
        them: `offset`, or the offset column of the table.
        """
        return scores_in_memory(self, rows, offset)

    def predict(self, rows: Any, offset: Any = None) -> NDArray[Any]:
        """Classes, or numbers (of a Poisson model the expected count); with several labels a column for each."""
        return self.predictions(self.decision_function(rows, offset))

    @python_errors
    def predict_proba(self, rows: Any, offset: Any = None) -> Vector:
        """A column for each class, as in `classes_`. With several labels: the probability of +1, a column for each."""
        found = self.probabilities(self.decision_function(rows, offset))
        if found is None:
            raise OptionError(f"a model of loss {self.settings.loss} has no probabilities", f"train with {_ESTIMATING}")
        return np.stack([1.0 - found, found], axis=1) if found.ndim == 1 else found

    def predictions(self, scores: Vector) -> NDArray[Any]:
        """Classes or numbers for these scores."""
        classes = self.classes_
        if classes is None:
            return self.task.loss.prediction(scores)
        chosen = self.task.chosen(scores)
        if len(self.options.labels) == 1:
            return np.asarray(classes[chosen])
        columns = [self.classes_of(label)[chosen[:, label]] for label in range(chosen.shape[1])]
        if len({column.dtype.kind for column in columns}) > 1:
            columns = [column.astype(object) for column in columns]
        return np.stack(columns, axis=1)

    def probabilities(self, scores: Vector) -> Vector | None:
        """The probability of the positive class, or of each class, so that they add up to 1; None if the loss estimates none."""
        return self.task.probabilities(scores)


def load_model(run: Path, checkpoint: Path | None = None) -> Model:
    """`checkpoint`: one of the run's; None: the newest undamaged one."""
    return model_of(saved_run(run, checkpoint, RETURNED, MapStage.name))


def model_of(saved: SavedRun) -> Model:
    """The model that the run returns at this checkpoint."""
    found, maps = saved.checkpoint, MapStage()
    found.restore(maps, required=False)
    facts, vectors = returned_in(found)
    with understanding(found.path):
        spec = lane_spec(facts.spec)
    weights, single = [maps.folded(vector[1:]) for vector in vectors], len(vectors) == 1
    return Model(
        weights[0] if single else np.stack(weights),
        float(vectors[0][0]) if single else np.array([vector[0] for vector in vectors]),
        saved.record.options,
        spec,
        facts.targets,
        facts.steps,
        rows_in_name(found.path),
        found.path,
        tuple(f"{path.name} ({why})" for path, why in found.damaged),
        saved.paused(facts),
        saved.folder.encoding(saved.record.encoding),
        row_map=maps.map if isinstance(maps.map, FeatureMap) else maps.numbering,
    )

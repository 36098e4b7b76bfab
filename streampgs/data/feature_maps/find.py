"""Which map of rows belongs to a run: found from its options and its first rows, and saved as a stage."""

from __future__ import annotations

from streampgs.base.checks import decode
from streampgs.base.stage import Bundle, Stage
from streampgs.data.feature_maps.approximate import FourierFeatures, Monomials, TensorSketch, monomials
from streampgs.data.feature_maps.feature_map import FeatureMap, MapRecord, RowMap
from streampgs.data.feature_maps.frequency_scale import FrequencyScale, restored_scale
from streampgs.data.feature_maps.numbering import Numbering, first_numbering, restored_numbering
from streampgs.data.feature_maps.supports import Arrays, Supports
from streampgs.data.row_form import RowForm
from streampgs.kernels.feature_map_loop import entry_sums
from streampgs.kernels.rows import Rows
from streampgs.losses import Vector
from streampgs.options.commands import ModelOptions

_SAMPLE_ROWS = 1 << 14


def map_of(record: MapRecord, arrays: Arrays | None = None) -> FeatureMap:
    """Its kind depends on the number of features at the start of the run. `arrays`: its part of a checkpoint."""
    if record.exact:
        return Supports(record, arrays)
    if record.kernel == "rbf":
        return FourierFeatures(record)
    few = record.first_inputs > 0 and monomials(record.first_inputs, record.degree) <= record.most
    return Monomials(record) if few else TensorSketch(record)


def first_map(form: RowForm, window: Rows) -> RowMap | None:
    """`window`: the first rows, in visiting order."""
    known, options = form.feature_count or 0, form.options
    if options.kernel is not None:
        return found_map(options, form.layout, known, window)
    return first_numbering(form, window)


def found_map(options: ModelOptions, layout: str, inputs: int, window: Rows) -> FeatureMap:
    """`window`: the first rows, in visiting order; `inputs`: features of rows, as far as they are known."""
    inputs = max(inputs, window.features)
    gamma = automatic_gamma(window, inputs) if options.gamma == "auto" else float(options.gamma)
    assert options.kernel is not None
    record = MapRecord(
        options.kernel, gamma, options.degree, options.mapped_features, options.seed, layout, inputs, inputs,
        options.solver == "kernel",
    )  # fmt: skip
    return map_of(record)


def automatic_gamma(window: Rows, inputs: int) -> float:
    """1 / (features · variance of all entries), like gamma='scale' of scikit-learn; 1 if all entries are the same."""
    starts, stops = window.starts[:_SAMPLE_ROWS], window.stops[:_SAMPLE_ROWS]
    total, squares = entry_sums(starts, stops, window.values)
    rows, features = max(1, len(starts)), max(1, inputs)
    spread = squares / rows - (total / rows) ** 2 / features
    return 1.0 / spread if spread > 1e-200 else 1.0


class MapStage:
    name = "feature map"

    def __init__(self) -> None:
        self.map: RowMap | None = None
        """None before the first row, and for runs that take the rows as they are."""

    def stages(self) -> list[Stage]:
        return [] if self.map is None else [self]

    @property
    def numbering(self) -> Numbering | None:
        found = self.map.numbering if isinstance(self.map, FrequencyScale) else self.map
        return found if isinstance(found, Numbering) else None

    def folded(self, weights: Vector) -> Vector:
        """Weights of the rows as a solver takes them, without the scales of features."""
        return self.map.folded(weights) if isinstance(self.map, FrequencyScale) else weights

    def spread(self, weights: Vector) -> Vector:
        """The same as weights of the features, if they are not those of kernel features."""
        weights = self.folded(weights)
        return weights if self.numbering is None else self.numbering.spread(weights)

    def state(self) -> Bundle:
        assert self.map is not None
        return self.map.state()

    def restore(self, bundle: Bundle) -> None:
        if "record" in bundle.values:
            self.map = map_of(decode(MapRecord, bundle.values["record"]), bundle.arrays)
        elif "power" in bundle.values:
            self.map = restored_scale(bundle)
        else:
            self.map = restored_numbering(bundle)

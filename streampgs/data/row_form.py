"""What the rows of a run consist of, and how other rows of the same form are read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streampgs.base.errors import DataError
from streampgs.data.open import columns_of
from streampgs.encoding.encoding import Encoding
from streampgs.kernels.rows import Rows
from streampgs.options.commands import ModelOptions
from streampgs.reading.loader import one_pass
from streampgs.reading.placing import RowRules
from streampgs.table.catalog import build_catalog
from streampgs.table.layout import Columns

_VALIDATION_BYTES = 32 << 20


@dataclass(frozen=True)
class RowForm:
    options: ModelOptions
    encoding: Encoding | None
    layout: str
    """'sparse' or 'dense': of the rows as they are read."""

    @property
    def model_layout(self) -> str:
        """The layout of the rows that a solver takes: kernel features are dense."""
        return self.layout if self.options.kernel is None else "dense"

    @property
    def columns(self) -> Columns:
        return columns_of(self.options, self.encoding)

    @property
    def feature_count(self) -> int | None:
        """The number of features, where it is fixed."""
        encoded = self.encoding.features if self.encoding is not None else None
        if self.encoding is not None and self.encoding.before is not None:
            return encoded
        return self.options.feature_count or encoded

    def rules(self, features: int = 0) -> RowRules:
        """`features` of the model, if it is in training already: dense rows must have as many."""
        fixed = features if self.layout == "dense" and features else self.feature_count
        options = self.options
        return RowRules(self.columns, options.classifies, options.on_bad_row == "skip", fixed)

    def validation(self, features: int) -> Rows | None:
        """Rows of the validation data, evenly from all of them, as many as are needed to judge models of so many
        features."""
        if not self.options.validation:
            return None
        catalog = build_catalog(self.options.validation, self.columns)
        if catalog.kind != self.layout:
            raise DataError(
                f"the validation data have {catalog.kind} rows, the training data {self.layout} ones",
                "give validation data of the same layout",
            )
        rules = self.rules(features)
        if catalog.kind == "dense":
            rules = replace(rules, features=features)
        with one_pass(catalog, rules) as filler:
            window = filler.sample(_VALIDATION_BYTES, self.options.kernel_bytes)
        if len(window) == 0:
            raise DataError(
                "the validation data have no usable row",
                f"give rows of {features:,} features, with labels" if catalog.kind == "dense" else "give other data",
            )
        return window

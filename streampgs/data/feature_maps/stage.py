"""The feature map of a run: a stage, because gamma and the number of features are found from rows."""

from __future__ import annotations

from dataclasses import replace

from streampgs.base.checks import decode, encode
from streampgs.base.stage import Bundle, Stage
from streampgs.data.feature_maps.feature_map import FeatureMap, MapRecord
from streampgs.data.feature_maps.find import map_of


class MapStage:
    name = "feature map"

    def __init__(self) -> None:
        self.map: FeatureMap | None = None
        """None before the first row, and for runs without a kernel."""

    def stages(self) -> list[Stage]:
        return [] if self.map is None else [self]

    def grow(self, inputs: int) -> None:
        """Rows may have more features than those before."""
        assert self.map is not None
        if inputs > self.map.record.inputs:
            self.map.grow(replace(self.map.record, inputs=inputs))

    def state(self) -> Bundle:
        assert self.map is not None
        return Bundle({"record": encode(self.map.record)}, self.map.arrays())

    def restore(self, bundle: Bundle) -> None:
        self.map = map_of(decode(MapRecord, bundle.values["record"]), bundle.arrays)

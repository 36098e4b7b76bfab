"""Maps from the features of a row to the kernel features that a solver takes."""

from __future__ import annotations

from streampgs.data.feature_maps.feature_map import FeatureMap, MapRecord
from streampgs.data.feature_maps.find import found_map, map_of
from streampgs.data.feature_maps.stage import MapStage

__all__ = ["FeatureMap", "MapRecord", "MapStage", "found_map", "map_of"]

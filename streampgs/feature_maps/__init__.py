"""Maps from the features of a row to the kernel features that a solver takes."""

from __future__ import annotations

from streampgs.feature_maps.feature_map import FeatureMap, MapRecord
from streampgs.feature_maps.find import found_map, map_of
from streampgs.feature_maps.stage import MapStage

__all__ = ["FeatureMap", "MapRecord", "MapStage", "found_map", "map_of"]

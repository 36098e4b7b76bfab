"""Maps from the features of a row to the kernel features that a solver takes."""

from __future__ import annotations

from streampgs.data.feature_maps.feature_map import FeatureMap, MapRecord
from streampgs.data.feature_maps.find import MapStage, found_map, map_of

__all__ = ["FeatureMap", "MapRecord", "MapStage", "found_map", "map_of"]

"""Maps from the rows that are read to the rows that a solver takes: kernel features, or numbers for the features."""

from __future__ import annotations

from streampgs.data.feature_maps.feature_map import FeatureMap, MapRecord, RowMap
from streampgs.data.feature_maps.find import MapStage, first_map, found_map, map_of
from streampgs.data.feature_maps.numbering import Numbering

__all__ = ["FeatureMap", "MapRecord", "MapStage", "Numbering", "RowMap", "first_map", "found_map", "map_of"]

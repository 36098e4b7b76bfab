"""Maps from the rows that are read to the rows that a solver takes: kernel features, numbers for features, or their scales."""

from __future__ import annotations

from streampgs.data.feature_maps.feature_map import FeatureMap, MapRecord, RowMap
from streampgs.data.feature_maps.find import MapStage, first_map, found_map, map_of
from streampgs.data.feature_maps.frequency_scale import FrequencyScale, frequency_scale
from streampgs.data.feature_maps.numbering import Numbering

__all__ = [
    "FeatureMap",
    "FrequencyScale",
    "MapRecord",
    "MapStage",
    "Numbering",
    "RowMap",
    "first_map",
    "found_map",
    "frequency_scale",
    "map_of",
]

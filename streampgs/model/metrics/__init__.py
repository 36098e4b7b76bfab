"""How good are predictions? Rows arrive in batches, in any order, and memory is bounded."""

from __future__ import annotations

from streampgs.model.metrics.groups import GroupMetrics, LabelMetrics
from streampgs.model.metrics.registry import HEADINGS, METRICS, Metric, Metrics
from streampgs.model.metrics.sums import Batch, Size, Sums, Task

__all__ = ["HEADINGS", "METRICS", "Batch", "GroupMetrics", "LabelMetrics", "Metric", "Metrics", "Size", "Sums", "Task"]

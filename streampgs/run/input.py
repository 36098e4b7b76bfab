"""The data of a run, as training sees them."""

from __future__ import annotations

from typing import Any, Protocol

from streampgs.data.budget import Forecast
from streampgs.data.row_form import RowForm
from streampgs.data.source import Source
from streampgs.order.cursor import Cursor
from streampgs.reading.placing import RowRules
from streampgs.reading.window import Window
from streampgs.run.record import RunRecord


class Input(Protocol):
    """The data of a run: shards as they are catalogued, or a stream."""

    @property
    def record(self) -> RunRecord: ...

    @property
    def form(self) -> RowForm: ...

    @property
    def cursor(self) -> Cursor:
        """Where training continues."""

    def with_record(self, record: RunRecord) -> Input: ...

    def source(self, rules: RowRules) -> Source: ...

    def facts(self) -> dict[str, Any]:
        """The facts about the data in every event of the history."""

    def forecast(self, process: int, features: int, feature_bytes: int) -> Forecast:
        """The memory of the process at its peak."""

    def choices(self, window: Window, features: int) -> dict[str, str]:
        """In words, 'data' first."""

    def hints(self, window: Window) -> list[str]:
        """Notes for the user about the first window."""

    def remarks(self, source: Source) -> list[str]:
        """Notes for the user when training has stopped."""

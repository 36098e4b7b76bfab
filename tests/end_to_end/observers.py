"""Observers that remember what a run says, or that stop it."""

from __future__ import annotations

from streampgs.run.report import Observer, StopRequest


class Notes(Observer):
    """Keeps the notes and the choices of a run."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.chosen: dict[str, str] = {}

    def note(self, message: str) -> None:
        self.notes.append(message)

    def choices(self, choices: dict[str, str]) -> None:
        self.chosen = choices


class StopAfter(Observer):
    """Asks for a stop when a number of checkpoints were written: somewhere in the middle, at no special place."""

    def __init__(self, stop: StopRequest, checkpoints: int = 1) -> None:
        self.stop = stop
        self.left = checkpoints

    def saved(self, checkpoint: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.stop.ask("SIGTERM")

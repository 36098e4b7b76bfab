"""Stretches of training: sums over the steps since a power of two, for averages, the certificate and progressive losses.

The average of the iterates over the later part of training is better than the last iterate and than the average of
all. A running sum cannot forget its beginning, so it is restarted whenever the step count reaches a power of two, and
the sum of the stretch before is kept: the two together always cover between a third and two thirds of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streampgs.learn.state import LANE, Array, Field, Fields, Merge, Pack, Role, State, counter


@dataclass
class Tallies:
    """Sums over the steps of a stretch, of one lane."""

    steps: int = 0
    regularizer: float = 0.0
    """Σ σ·r(w), of learners with a certificate."""
    linear: float = 0.0
    """Σ <g, w>, likewise."""
    loss: float = 0.0
    correct: float = 0.0
    weight: float = 0.0
    """Σ of the rows' weights, by which loss and correct are divided."""


TALLIES = 5
"""Rows of the array `tallies`, in the order of the fields of Tallies after `steps`."""


class Stretches:
    """The present stretch and the one before, in the state of a learner."""

    def __init__(self, sums: Fields, whole: bool = False, pack: Pack | None = None) -> None:
        """`sums`: arrays that steps add to, besides `tallies`, which is in `pack`. `whole`: all of training counts,
        not only its later part."""
        self.whole = whole
        tallies = Field((TALLIES, LANE), Merge.SUM, Role.AVERAGE)
        self.sums = {"tallies": tallies._replace(pack=pack), **sums}
        earlier = {f"earlier_{name}": f._replace(merge=Merge.SAME, pack=None) for name, f in self.sums.items()}
        counts = {"stretch_began": counter(), "earlier_steps": counter(role=Role.AVERAGE)}
        self.fields: Fields = {**self.sums, **earlier, **counts}

    def is_over(self, state: State) -> bool:
        return int(state["steps"]).bit_length() > int(state["stretch_began"]).bit_length()

    def steps_left(self, state: State) -> int:
        """Until the present stretch ends, at the next power of two."""
        steps = int(state["steps"])
        return (1 << steps.bit_length()) - steps

    def begin(self, state: State) -> None:
        """Keep the sums of the present stretch and start another one."""
        for name in self.sums:
            ended = state[name].copy()
            if self.whole:
                ended += state[f"earlier_{name}"]
            state[f"earlier_{name}"] = ended
            state[name][...] = 0.0
        steps = state["steps"] - state["stretch_began"]
        state["earlier_steps"][...] = steps + (state["earlier_steps"] if self.whole else 0)
        state["stretch_began"][...] = state["steps"]

    def kept_of_faded(self, state: State, steps: int) -> int:
        """As how many steps all that is covered counts, if so many steps follow that should replace some of it: at least as
        half."""
        covered = self.steps_covered(state)
        return max(covered // 2, covered - steps)

    def fade(self, state: State, steps: int) -> None:
        """Everything that is covered counts less from now on, and the steps that follow are added to it."""
        covered, kept = self.steps_covered(state), self.kept_of_faded(state, steps)
        for name in self.sums:
            total = self.with_earlier(state, name, ..., state[name])
            state[f"earlier_{name}"] = total * (kept / max(1, covered))
            state[name][...] = 0.0
        state["earlier_steps"][...] = kept
        state["stretch_began"][...] = state["steps"]

    def needs_earlier(self, state: State) -> bool:
        """Whether the present stretch is too short alone (or all of training counts)."""
        return self.whole or bool(state["steps"] < 1.5 * state["stretch_began"])

    def steps_covered(self, state: State) -> int:
        """The steps that averages and certificates are about."""
        own = int(state["steps"] - state["stretch_began"])
        return own + (int(state["earlier_steps"]) if self.needs_earlier(state) else 0)

    def with_earlier(self, state: State, name: str, chosen: Any, present: Array) -> Array:
        """The sum of the present stretch, and of the one before where that counts."""
        return present + state[f"earlier_{name}"][chosen] if self.needs_earlier(state) else present

    def tallies(self, state: State, lane: int) -> Tallies:
        chosen = (slice(None), lane)
        sums = self.with_earlier(state, "tallies", chosen, state["tallies"][chosen])
        return Tallies(self.steps_covered(state), *sums.tolist())


class NoStretches(Stretches):
    """Training whose results are those of the present weights."""

    def is_over(self, state: State) -> bool:
        return False

    def steps_left(self, state: State) -> int:
        return 1 << 62

    def fade(self, state: State, steps: int) -> None:
        """There is nothing to count less."""

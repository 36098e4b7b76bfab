"""What disturbs the sessions of a simulated run."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from random import Random

from streampgs.options.commands import Growth, Limits, Resources
from tests.faults.simulator.learner import MOST_EPOCHS

_FAULTS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES)


@dataclass
class Plan:
    """The events of a session. Numbers count from its start; 0: it does not happen."""

    kill_at: int = 0
    """Before this operation of the disk."""
    loses_power: bool = False
    fault_at: int = 0
    fault: int = 0
    fault_lasts: bool = False
    """All later operations fail, too."""
    look_fault_at: int = 0
    """At this call that only looks at the disk."""
    stop_at: int = 0
    """After this stretch of rows SIGTERM arrives."""
    change_at: int = 0
    """After this stretch the table changes."""
    undoes: bool = False
    """The session begins by returning to an earlier checkpoint."""
    limits: Limits = field(default_factory=Limits)
    growth: Growth = field(default_factory=Growth)
    resources: Resources = field(default_factory=Resources)
    sleeps: int = 3
    """After so many looks for shards SIGTERM arrives."""


def disturbed(random: Random, rows: int, epoch: int) -> Plan:
    """After so many rows, in this epoch."""
    plan = Plan(limits=_limits(random, rows, epoch))
    fate = random.random()
    most = random.choice((8, 15, 40, 90))
    if fate < 0.55:
        plan.kill_at, plan.loses_power = random.randint(1, most), fate < 0.35
    elif fate < 0.65:
        plan.fault_at, plan.fault = random.randint(1, most), random.choice(_FAULTS)
        plan.fault_lasts = random.random() < 0.3
    elif fate < 0.75:
        plan.look_fault_at = random.randint(1, random.choice((20, 100, 300)))
    if random.random() < 0.2:
        plan.stop_at = random.randint(1, 12)
    if random.random() < 0.2:
        plan.change_at = random.randint(1, 12)
    plan.growth = Growth(
        passes=random.choice((1, 2, 3)),
        replay=random.choice((0.0, 1.0, 3.0, 3.0, 100.0)),
        follow=random.random() < 0.15,
        accept_changes=random.random() < 0.2,
        accept_removed=random.random() < 0.2,
        accept_touched=random.random() < 0.2,
    )
    plan.undoes = random.random() < 0.3
    plan.resources = _resources(random)
    plan.sleeps = random.randint(1, 8)
    return plan


def undisturbed_tries(random: Random, epoch: int) -> list[Plan]:
    """The sessions at the end of a history: each accepts what the one before has refused."""
    limits = Limits(epochs=min(MOST_EPOCHS - 1, epoch + random.randint(1, 2)))
    growths = Growth(), Growth(accept_touched=True), Growth(accept_removed=True), Growth(accept_changes=True)
    return [Plan(limits=limits, growth=growth, resources=_resources(random)) for growth in growths]


def _limits(random: Random, rows: int, epoch: int) -> Limits:
    if random.random() < 0.5:
        return Limits(rows=rows + random.randint(1, 60), epochs=MOST_EPOCHS - 2)
    return Limits(epochs=min(MOST_EPOCHS - 2, epoch + random.randint(1, 2)))


def _resources(random: Random) -> Resources:
    return Resources(memory=random.choice((100, 200, 800)) * 10**6, checkpoint_seconds=random.choice((0.0, 0.05, 30.0)))

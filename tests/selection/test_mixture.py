"""The mixture: shares that fit judged rows, shrinking, the memory of judged rows, drift, and saved state."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streampgs.base.stage import Bundle
from streampgs.losses import CLASSIFYING, LOSSES
from streampgs.selection import judged_rows
from streampgs.selection import mixture as mixture_module
from streampgs.selection.mixture import LossShape, Mixture, Scored, prior_of

PRIOR = (0.9, 0.05, 0.05)
WEIGHT = 10.0
LOGISTIC = [LossShape("logistic", 0.0)]


@pytest.fixture(autouse=True)
def same_prior_for_all_rows(monkeypatch):
    monkeypatch.setattr(mixture_module, "_FEW_ROWS", 0)
    monkeypatch.setattr(mixture_module, "_LEAST_DIFFICULTY", 1.0)


every_loss = pytest.mark.parametrize("name", LOSSES)


def random_labels(name, truth, random):
    if name in CLASSIFYING:
        return np.where(random.random(truth.shape) < 1.0 / (1.0 + np.exp(-truth)), 1.0, -1.0)
    return random.poisson(np.exp(truth)).astype(float) if name == "poisson" else truth + random.normal(size=truth.shape)


def some_rows(name="logistic", seed=0, rows=400, noise=(0.5, 1.0, 2.0), targets=1, weights=None):
    """Scores are the truth plus noise, a number for each lineage. The model before is the first lineage."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=(rows, targets)) * 1.5
    scores = np.stack([truth + own * random.normal(size=truth.shape) for own in noise], 1)
    fixed = np.full(truth.shape, 0.1)
    return Scored(
        scores,
        scores[:, 0, :].copy(),
        fixed,
        random_labels(name, truth + 0.1, random),
        np.ones(rows) if weights is None else weights,
    )


def losses_of(name, targets=1):
    return [LossShape(name, LOSSES[name].shape(np.array([1.0, 2.0])))] * targets


def plain_objective(batches, losses, shares, prior=PRIOR):
    """From (scored, weight of a row) pairs: the mean of the losses and the prior's part."""
    total, weight = 0.0, 0.0
    for scored, each in batches:
        mixed = scored.fixed + np.einsum("rkt,k->rt", scored.scores, np.array(shares))
        for target, (name, shape, _) in enumerate(losses):
            total += float(each @ LOSSES[name].values(mixed[:, target], scored.labels[:, target], shape))
        weight += float(each.sum())
    distance = sum(share * math.log(share / likely) for share, likely in zip(shares, prior, strict=True) if share > 0.0)
    return (total + WEIGHT * distance) / weight


def ones(scored):
    return np.ones(len(scored.weights))


def slow_shares(batches, losses, prior=PRIOR):
    """By nets around the best point so far, finer and finer."""
    best, least = list(prior), plain_objective(batches, losses, prior, prior)
    for level in range(12):
        centre = best
        for steps in itertools.product(range(-3, 4), repeat=len(prior) - 1):
            free = [at + 0.2 * 0.5**level * step for at, step in zip(centre, steps, strict=False)]
            shares = [*free, 1.0 - sum(free)]
            value = plain_objective(batches, losses, shares, prior) if min(shares) > 0.0 else math.inf
            if value < least:
                best, least = shares, value
    return best


# Shares.


@every_loss
def test_shares_are_as_good_as_those_of_ever_finer_nets(name):
    for seed, noise in enumerate([(0.5, 0.5, 2.0), (2.0, 1.0, 0.3)]):
        scored, losses, mixture = some_rows(name, seed, 120, noise), losses_of(name), Mixture(3)
        mixture.judge(scored, losses, 120)
        slow = slow_shares([(scored, ones(scored))], losses)
        found = plain_objective([(scored, ones(scored))], losses, mixture.shares)
        assert found <= plain_objective([(scored, ones(scored))], losses, slow) + 1e-9
        assert found == pytest.approx(plain_objective([(scored, ones(scored))], losses, slow), abs=1e-4)


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(list(LOSSES)), seed=st.integers(0, 10**6), rows=st.integers(1, 60), targets=st.integers(1, 3),
    size=st.sampled_from([0.01, 1.0, 30.0]),
)  # fmt: skip
def test_shares_are_on_the_simplex_and_never_worse_than_the_prior(name, seed, rows, targets, size):
    scored, losses, mixture = some_rows(name, seed, rows, targets=targets), losses_of(name, targets), Mixture(3)
    scored = replace(scored, scores=scored.scores * size)
    mixture.judge(scored, losses, rows)
    assert min(mixture.shares) >= 0.0
    assert sum(mixture.shares) == pytest.approx(1.0, abs=1e-12)
    batches = [(scored, ones(scored))]
    found, at_prior = (plain_objective(batches, losses, shares) for shares in (mixture.shares, PRIOR))
    assert found <= at_prior + 1e-12 * abs(at_prior)


def test_lineages_that_learn_from_few_rows_have_small_shares_before_rows_are_judged(monkeypatch):
    monkeypatch.undo()
    shares = [prior_of(3, rows) for rows in (1, 100, 10_000, 10**9)]
    assert all(sum(each) == pytest.approx(1.0) for each in shares)
    assert shares[0][1] < 0.001
    assert shares[1][1] == pytest.approx(0.0125)
    assert shares[3] == pytest.approx(PRIOR, abs=1e-6)


def test_rows_that_are_easy_to_predict_weaken_the_prior(monkeypatch):
    """A lineage that is twice as good gets as much with small losses as with large ones."""
    monkeypatch.undo()
    shares = []
    for size in (1.0, 4.0, 16.0):
        truth = size * np.where(np.random.default_rng(1).random((200, 1)) < 0.5, 1.0, -1.0)
        scores = np.stack([truth, truth + 1.0 * np.sign(truth), truth], 1)
        scored = Scored(scores, truth.copy(), np.zeros_like(truth), np.sign(truth), np.ones(200))
        mixture = Mixture(3)
        mixture.judge(scored, LOGISTIC, 10_000)
        shares.append(mixture.shares[1])
    assert shares[0] > 0.5
    assert shares[1] > 0.3
    assert shares[2] < 0.06  # one hundredth of what an error costs at 4: nothing to learn from


# The order of rows, weights, and scores that left the range.


def test_the_order_of_rows_changes_rounding_only_and_the_same_rows_give_the_same_bits():
    scored, order = some_rows(), np.random.default_rng(1).permutation(400)
    shuffled = Scored(*(np.ascontiguousarray(array[order]) for array in vars(scored).values()))
    one, other, again = Mixture(3), Mixture(3), Mixture(3)
    assert one.judge(scored, LOGISTIC, 400) == again.judge(scored, LOGISTIC, 400)
    other.judge(shuffled, LOGISTIC, 400)
    assert one.shares == pytest.approx(other.shares, abs=1e-6)


# The report.


# Older rows.


def test_older_rows_count_less_by_the_number_of_new_ones():
    batches, mixture = [some_rows(seed=seed, rows=200, noise=(2.0, 1.0, 0.5)) for seed in range(3)], Mixture(3)
    for scored, new_rows in zip(batches, (200, 500, 100_000), strict=True):
        mixture.judge(scored, LOGISTIC, new_rows)
    weighted = [(s, np.full(200, w)) for s, w in zip(batches, (0.75 / 3.0, 1.0 / 3.0, 1.0), strict=True)]
    assert mixture.shares == pytest.approx(slow_shares(weighted, LOGISTIC), abs=2e-3)


def test_the_memory_of_rows_is_bounded_and_the_oldest_go_first(monkeypatch):
    monkeypatch.setattr(judged_rows, "MOST_NUMBERS", 1 << 14)
    targets = 3
    most = (1 << 14) // (targets * 5 + 1)
    mixture, losses = Mixture(3), losses_of("logistic", targets)
    for seed in range(3):
        mixture.judge(some_rows(seed=seed, rows=700, targets=targets), losses, 100)
        state = mixture.state()
        assert sum(array.size for array in state.arrays.values()) <= 1 << 14
    assert [batch["rows"] for batch in state.values["batches"]] == [most - 700, 700]
    newest = some_rows(seed=2, rows=700, targets=targets)
    np.testing.assert_array_equal(state.arrays["labels"][:, -700:], newest.labels.T)
    oldest = some_rows(seed=1, rows=700, targets=targets)
    np.testing.assert_array_equal(state.arrays["labels"][:, : most - 700], oldest.labels[1400 - most :].T)


def test_after_a_reset_a_mixture_is_as_at_the_beginning_and_drift_is_measured_from_the_last_rows():
    mixture, new = Mixture(3), Mixture(3)
    for seed in range(3):
        mixture.judge(some_rows(seed=seed), LOGISTIC, 400)
    mixture.reset()
    new.measure(some_rows(seed=2), LOGISTIC)
    assert saved(mixture) == saved(new)
    assert mixture.judge(some_rows(), LOGISTIC, 400) == new.judge(some_rows(), LOGISTIC, 400)


# Shrinking.


def returned(mixture, scored):
    """The scores of the model that the mixture returns."""
    return replace(scored, before=mixture.shrink * np.einsum("rkt,k->rt", scored.scores, mixture.shares))


def test_the_factor_is_the_best_one_for_all_mixtures_that_were_returned():
    mixture, sums, factors = Mixture(3), np.zeros(26), np.linspace(1.0, 0.5, 26)
    for seed, (rows, times) in enumerate([(50, 1.0), (3000, 1.3), (20, 1.6), (1500, 1.1), (600, 0.6)]):
        weights = np.random.default_rng(seed).uniform(0.0, 3.0, rows)
        scored = some_rows("logistic", seed, rows, noise=(0.3, 0.3, 0.3), weights=weights)
        scored = returned(mixture, replace(scored, scores=times * scored.scores))
        if seed:
            unshrunk = scored.before / mixture.shrink
            margins = (factors * unshrunk + scored.fixed) * scored.labels  # (rows, factors)
            counted = weights * weights.sum() / (weights @ weights)
            sums = sums * max(0.9, 1.0 - counted.sum() / 10_000) + counted @ np.log1p(np.exp(-margins))
        mixture.judge(scored, LOGISTIC, 5000)
        assert mixture.shrink == pytest.approx(factors[np.argmin(sums + WEIGHT * (1.0 - factors) ** 2)])
    assert mixture.shrink < 1.0


# Drift.


def nights(random, law, rows, shift=0.0):
    """The model before knows the truth of a law up to `shift`."""
    truth = random.normal(size=(rows, 1)) * 2.0
    labels = random_labels(law, np.minimum(truth, 3.0), random)
    scores = np.repeat((1.0 - shift) * truth[:, np.newaxis], 3, axis=1)
    return Scored(scores, scores[:, 0], np.zeros((rows, 1)), labels, np.ones(rows))


@pytest.mark.parametrize("rows", [30, 1000])
def test_the_same_law_is_no_drift(rows):
    for seed in range(200):
        random, mixture = np.random.default_rng(seed), Mixture(3)
        law = list(LOSSES)[seed % len(LOSSES)]
        for _ in range(2):
            assert mixture.judge(nights(random, law, rows), losses_of(law), rows).drift is None


@every_loss
def test_an_abrupt_change_is_drift_once(name):
    random, mixture = np.random.default_rng(1), Mixture(3)
    found = [mixture.judge(nights(random, name, 1000, s), losses_of(name), 1000) for s in (0.0, 0.0, 1.5, 1.5, 0.0)]
    drifts = [judgement.drift for judgement in found]
    assert [drift is not None for drift in drifts] == [False, False, True, False, False]
    assert (drifts[2].loss, drifts[2].before) == (found[2].before.loss, found[1].before.loss)


# The state.


def saved(mixture):
    bundle = mixture.state()
    return json.dumps(bundle.values), {name: (a.shape, a.tobytes()) for name, a in bundle.arrays.items()}


def copied(mixture):
    bundle = mixture.state()
    other = Mixture(mixture.lineages)
    arrays = {name: array.copy() for name, array in bundle.arrays.items()}
    other.restore(Bundle(json.loads(json.dumps(bundle.values)), arrays))
    return other


@every_loss
def test_saving_and_restoring_after_any_judgement_changes_no_bit(name):
    straight, interrupted = Mixture(3), copied(Mixture(3))
    for seed in range(4):
        scored = some_rows(name, seed, rows=100 + seed)
        expected = straight.judge(scored, losses_of(name), 300)
        assert interrupted.judge(scored, losses_of(name), 300) == expected
        interrupted = copied(interrupted)
        assert saved(interrupted) == saved(straight)


def replaced(values, *path, by):
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = by


DAMAGE = {
    "shares that do not add up": lambda v, a: replaced(v, "choice", "shares", 0, by=0.99),
    "a negative share": lambda v, a: replaced(v, "choice", "shares", by=[1.5, -0.25, -0.25]),
    "two shares": lambda v, a: replaced(v, "choice", "shares", by=[0.5, 0.5]),
    "a share that is not a number": lambda v, a: replaced(v, "choice", "shares", 0, by=math.nan),
    "shrinking by an unknown factor": lambda v, a: replaced(v, "choice", "shrink", by=0.0),
    "too few factors": lambda v, a: replaced(v, "choice", "shrunk_losses", by=[0.0]),
    "a negative variance": lambda v, a: replaced(v, "choice", "last", "variance", by=-1.0),
    "a batch without rows": lambda v, a: replaced(v, "batches", 0, "rows", by=0),
    "a batch of too many rows": lambda v, a: replaced(v, "batches", 0, "rows", by=41),
    "a recency above 1": lambda v, a: replaced(v, "batches", 0, "recency", by=1.5),
    "no batches": lambda v, a: v.pop("batches"),
    "no scores": lambda v, a: a.pop("scores"),
    "another array": lambda v, a: a.update(more=np.zeros(3)),
    "scores of two lineages": lambda v, a: a.update(scores=a["scores"][:, :, :2]),
    "labels of one row less": lambda v, a: a.update(labels=a["labels"][:, 1:]),
    "numbers of another type": lambda v, a: a.update(fixed=a["fixed"].astype(np.float32)),
    "a score that is not finite": lambda v, a: replaced(
        a, "scores", by=np.where(a["scores"] > 2.0, np.inf, a["scores"])
    ),
    "a score out of range": lambda v, a: replaced(a, "scores", by=a["scores"] * 1e61),
    "a weight of zero": lambda v, a: a.update(weights=0.0 * a["weights"]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_state_is_refused(damage):
    mixture = Mixture(3)
    mixture.judge(some_rows(rows=40), LOGISTIC, 40)
    bundle = mixture.state()
    values, arrays = json.loads(json.dumps(bundle.values)), {name: a.copy() for name, a in bundle.arrays.items()}
    DAMAGE[damage](values, arrays)
    with pytest.raises((ValueError, KeyError)):
        Mixture(3).restore(Bundle(values, arrays))

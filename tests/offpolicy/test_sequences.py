"""Confidence sequences against the densities they integrate, against each other, and against the truth at all times."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import gammainc, gammaln

import kernel_bandits as kb
from kernel_bandits.offpolicy import ArmDifference, BoundedMean, SubGaussianMean
from kernel_bandits.offpolicy.sequences import LARGE, MIXTURE, Sums, excess

RUNS, ROUNDS = 400, 600


def mixture(s, v):
    """The average of exp(λs − ψ(λ)v) over λ, by quadrature (Howard et al. 2021, proof of Proposition 9)."""
    rho = MIXTURE
    # the density is proportional to exp(−ρψ(λ))/(1 − λ), where ψ(λ) = −log(1 − λ) − λ, on [0, 1)
    log_constant = rho * np.log(rho) - rho - gammaln(rho) - np.log(gammainc(rho, rho))

    def integrand(rate):
        psi = -np.log1p(-rate) - rate
        return np.exp(rate * s - (v + rho) * psi - np.log1p(-rate) + log_constant)

    return quad(integrand, 0.0, 1.0, epsabs=0.0, epsrel=1e-10, limit=500)[0]


@pytest.mark.parametrize("variance", [0.0, 0.3, 5.0, 80.0, 2000.0])
@pytest.mark.parametrize("failure", [0.4, 0.025, 1e-5])
def test_the_bound_is_where_the_mixture_reaches_one_over_alpha(variance, failure):
    s = float(excess(variance, failure))
    assert mixture(s, variance) == pytest.approx(1.0 / failure, rel=1e-6)
    assert mixture(0.0, 0.0) == pytest.approx(1.0, rel=1e-8)


def test_the_bound_holds_for_arrays_from_tiny_to_huge():
    variances = np.logspace(-6, 12, 60)
    found = excess(variances, 0.025)
    assert (np.diff(found) > 0.0).all()
    # at least the normal quantile of a fixed time, at most twice it where the mixture is at its best
    useful = (variances > 30) & (variances < 1e5)
    ratios = found[useful] / (1.96 * np.sqrt(variances[useful]))
    assert ratios.min() > 1.5
    assert ratios.max() < 2.0


def test_bounds_are_those_of_confseq():
    """Written by confseq 0.0.11: benchmarks/peers/confseq_bounds.py."""
    known = json.loads(Path(__file__).with_name("confseq.json").read_text())
    for variance, failure, bound in known["gamma"]:
        assert float(excess(variance, failure)) == pytest.approx(bound, rel=1e-8)
    for variance, failure, bound in known["normal"]:
        if variance < 1e4:
            low, high = SubGaussianMean(1.0, 1.0 - failure).after(np.zeros(int(variance))).interval
            assert 0.5 * (high - low) * variance == pytest.approx(bound, rel=1e-12)


def test_the_bound_has_no_seam_where_its_formula_changes():
    around = LARGE * np.array([1 - 1e-9, 1 - 1e-12, 1 + 1e-12, 1 + 1e-9])
    found = excess(around, 0.025) / np.sqrt(around)
    assert np.ptp(found) < 1e-6 * found[0]
    huge = excess(np.logspace(12, 26, 15), 0.025) / np.sqrt(np.logspace(12, 26, 15))
    assert (np.diff(huge) > 0.0).all()
    # √(log V + …) asymptotically
    assert huge[-1] == pytest.approx(np.sqrt(np.log(1e26 / MIXTURE) - 2 * np.log(0.025)), rel=0.01)


def dense_bounded(values):
    """Bounds of the mean of values in [0, 1], term by term."""
    total = squares = 0.0
    for t, value in enumerate(values):
        squares += (value - (0.5 + total) / (t + 1)) ** 2
        total += value
    count = len(values)
    return (total - excess(squares, 0.025)) / count, (total + excess(squares, 0.025)) / count


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_values_one_by_one_in_blocks_and_densely_give_one_interval(seed, count):
    generator = np.random.default_rng(seed)
    values, cut = generator.random(count), int(generator.integers(0, count + 1))
    blocks, single = BoundedMean().after(values[:cut]).after(values[cut:]), BoundedMean()
    for value in values:
        single = single.after(value)
    low, high = dense_bounded(values)
    assert blocks.interval == pytest.approx((max(low, 0.0), min(high, 1.0)), abs=1e-12)
    assert single.interval == pytest.approx(blocks.interval, abs=1e-12)
    assert single.count == count
    assert single.estimate == pytest.approx(values.mean())
    path = BoundedMean().path(values)
    assert (path.interval[0][-1], path.interval[1][-1]) == pytest.approx(blocks.interval, abs=1e-12)


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_the_difference_of_two_groups_is_its_formula_round_by_round(seed, count):
    generator = np.random.default_rng(seed)
    shares, rewards = generator.uniform(0.2, 0.8, count), generator.uniform(-1.0, 3.0, count)
    first = generator.random(count) < shares
    start = ArmDifference(-1.0, 3.0, least_share=0.2)
    single, known, terms, squares = start, {True: [1.0], False: [1.0]}, [], 0.0
    for t in range(count):
        single = single.after(bool(first[t]), rewards[t], shares[t])
        mean = {group: np.mean(rewards_of) for group, rewards_of in known.items()}
        misfit = (rewards[t] - mean[first[t]]) / (shares[t] if first[t] else shares[t] - 1.0)
        terms.append(mean[True] - mean[False] + misfit)
        squares += misfit**2
        known[bool(first[t])].append(rewards[t])
    cut = int(generator.integers(0, count + 1))
    block = start.after(first[:cut], rewards[:cut], shares[:cut]).after(first[cut:], rewards[cut:], shares[cut:])
    half = 20.0 * float(excess(squares / 400.0, 0.025)) / count
    center = np.mean(terms)
    assert block.interval == pytest.approx((max(center - half, -4.0), min(center + half, 4.0)), abs=1e-9)
    assert single.interval == pytest.approx(block.interval, abs=1e-9)
    assert block.counts == (first.sum(), count - first.sum())


def of_runs(sequence):
    """Return a sequence of RUNS logs at once."""
    zeros = np.zeros(RUNS)
    changes = {"sums": Sums(zeros, zeros, zeros)}
    if isinstance(sequence, ArmDifference):
        changes |= {"counts": (zeros, zeros), "totals": (zeros, zeros)}
    return replace(sequence, **changes)


def ever_left(path, truth):
    low, high = path.interval
    return float(((low > truth) | (high < truth)).any(axis=-1).mean())


def test_means_stay_inside_at_all_times():
    """At most 5 % of runs; the sequences are far from loose: at a tenth of the level they fail."""
    generator = np.random.default_rng(0)
    clicks = (generator.random((RUNS, ROUNDS)) < 0.3).astype(float)
    assert ever_left(of_runs(BoundedMean()).path(clicks), 0.3) <= 0.05
    assert ever_left(of_runs(BoundedMean(level=0.2)).path(clicks), 0.3) > 0.2
    noisy = 5.0 + 2.0 * generator.normal(size=(RUNS, ROUNDS))
    assert ever_left(of_runs(SubGaussianMean(2.0)).path(noisy), 5.0) <= 0.05
    assert ever_left(of_runs(SubGaussianMean(1.0)).path(noisy), 5.0) > 0.2


def test_the_difference_stays_inside_where_the_share_follows_the_rewards():
    """Half of the runs assign more to the group that is ahead, which breaks the plain difference of means."""
    generator = np.random.default_rng(1)
    rewards = (generator.random((RUNS, ROUNDS)) < 0.3).astype(float)
    sequence, left = of_runs(ArmDifference(least_share=0.1)), np.zeros(RUNS, dtype=bool)
    for t in range(ROUNDS):
        with np.errstate(divide="ignore", invalid="ignore"):
            means = [np.divide(total, count) for total, count in zip(sequence.totals, sequence.counts, strict=True)]
        share = np.where(means[0] > means[1], 0.9, 0.1)
        first = generator.random(RUNS) < share
        sequence = sequence.after(first[:, None], rewards[:, t, None], share[:, None])
        low, high = sequence.interval
        left |= (low > 0.0) | (high < 0.0)
    assert left.mean() <= 0.05
    low, high = sequence.interval
    assert np.abs(sequence.estimate.mean()) < 4 * sequence.estimate.std() / np.sqrt(RUNS)
    assert (high - low).mean() < 0.6


def test_a_state_is_a_value_of_plain_numbers_that_can_be_stored():
    for sequence, values in (
        (BoundedMean(), (np.array([0.0, 1.0, 1.0]),)),
        (SubGaussianMean(1.0), (np.array([0.3, -2.0]),)),
        (ArmDifference(), (np.array([True, False]), np.array([1.0, 0.0]))),
    ):
        later = sequence.after(*values)
        assert sequence.count == 0
        assert later == sequence.after(*values)
        stored = json.loads(json.dumps(asdict(later)))
        stored["sums"] = Sums(**stored["sums"])
        for name in ("counts", "totals"):
            if name in stored:
                stored[name] = tuple(stored[name])
        assert type(sequence)(**stored) == later
        assert later.after(np.array([], dtype=bool), *values[1:-1], np.array([])) == later if len(values) > 1 else True


def test_without_observations_everything_is_possible():
    assert BoundedMean(0.0, 5.0).interval == (0.0, 5.0)
    assert ArmDifference(0.0, 5.0).interval == (-5.0, 5.0)
    assert SubGaussianMean(1.0).interval == (-np.inf, np.inf)
    assert np.isnan(BoundedMean().estimate)


def test_what_the_guarantee_rests_on_is_checked():
    with pytest.raises(kb.InputError, match=r"values: expected numbers from 0 to 1, got 1\.5"):
        BoundedMean().after([0.5, 1.5])
    with pytest.raises(kb.InputError, match="finite numbers"):
        BoundedMean().after(np.nan)
    with pytest.raises(kb.InputError, match=r"probability: expected 0\.1 to 0\.9"):
        ArmDifference(least_share=0.1).after(True, 1.0, 0.95)
    with pytest.raises(kb.InputError, match="True or False"):
        ArmDifference().after(1, 1.0)
    with pytest.raises(kb.InputError, match="one for each"):
        ArmDifference().after([True, False], [1.0, 0.0, 1.0])
    for change in ({"level": 1.0}, {"low": 1.0}, {"low": -np.inf}):
        with pytest.raises(kb.InputError, match="expected"):
            BoundedMean(**change)
    with pytest.raises(kb.InputError, match="least_share"):
        ArmDifference(least_share=0.6)
    with pytest.raises(kb.InputError, match="noise"):
        SubGaussianMean(0.0)

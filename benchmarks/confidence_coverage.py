"""Do the confidence sets hold θ*, and how large are they? Simulated on functions of known norm.

    python benchmarks/confidence_coverage.py            the sets of every radius, a reward in every round
    python benchmarks/confidence_coverage.py pending    the bounds where rewards come 1, 5, 20 or 100 decisions late
    python benchmarks/confidence_coverage.py stages     the bounds of every stage of SupKernelUCB

Set OPENBLAS_NUM_THREADS=1. A run fails if in any round the bounds of one action on offer miss its expected reward.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from joblib import Parallel, delayed

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.confidence import Confidence, GuaranteedRadius
from kernel_bandits.dictionaries.kors import LeverageDictionary
from kernel_bandits.policy import Decision, Policy, UpperConfidenceBound
from kernel_bandits.posterior import NystromPosterior

HORIZON, RUNS = 300, 200
NORM, NOISE, FAILURE, RIDGE = 1.0, 0.1, 0.1, 0.01
KERNEL = kb.Gaussian(0.3)


class Bounds(TypedDict):
    """What every radius with a guarantee is told."""

    norm_bound: float
    noise_bound: float
    failure_probability: float


BOUNDS = Bounds(norm_bound=NORM, noise_bound=NOISE, failure_probability=FAILURE)
RADII: dict[str, dict[str, Confidence]] = {
    "exact": {
        "Lemma31, as printed": kb.Lemma31(**BOUNDS),
        "Lemma31, log-determinant": kb.Lemma31(**BOUNDS, complexity="log_determinant"),
        "ChowdhuryGopalan": kb.ChowdhuryGopalan(**BOUNDS, horizon=HORIZON),
        "KrauseOng": kb.KrauseOng(**BOUNDS),
        "Tightened": kb.Tightened(**BOUNDS),
    },
    "projected": {
        "Lemma41, as printed": kb.Lemma41(**BOUNDS),
        "Lemma41, log-determinant": kb.Lemma41(**BOUNDS, complexity="log_determinant"),
        "Tightened": kb.Tightened(**BOUNDS),
    },
    "history-free": {"Tightened": kb.Tightened(**BOUNDS)},
}


@dataclass(frozen=True)
class KnownFunction:
    """θ* = Σ α_j k(c_j, ·) with ‖θ*‖ = NORM, so that |θ*(s)| ≤ NORM·√k(s, s) = 1."""

    centres: FloatArray
    coefficients: FloatArray

    def __call__(self, points: FloatArray) -> FloatArray:
        return KERNEL(points, self.centres) @ self.coefficients


def draw_function(generator: np.random.Generator) -> KnownFunction:
    centres, coefficients = generator.random((20, 2)), generator.standard_normal(20)
    norm = math.sqrt(coefficients @ KERNEL(centres) @ coefficients)
    return KnownFunction(centres, NORM / norm * coefficients)


def projected_distance(posterior: NystromPosterior, function: KnownFunction) -> float:
    """‖θ̃ − θ*‖ in the norm of Ṽ: (q − w)ᵀA(q − w) + λ(B² − ‖q‖²), squared, with q = J θ*(Z) the projection of θ*."""
    basis, regression = posterior.basis, posterior.regression
    projection = basis.whitening.upper.T @ function(posterior.dictionary_points)
    gap = projection - regression.weights
    inside = gap @ np.linalg.solve(regression.covariance, gap)
    return math.sqrt(max(float(inside + RIDGE * (NORM**2 - projection @ projection)), 0.0))


@dataclass(frozen=True)
class CoverageRun:
    """One run: the largest distance/radius of each radius, its final value, the regret, and what the theorems need."""

    worst_ratios: dict[str, float]
    final_radii: dict[str, float]
    regret: float
    effective_dimension: float
    dictionary_size: int
    draws: int
    summed_widths: float
    residual_trace: float


def build(kind: str, seed: int) -> UpperConfidenceBound:
    """The policy of the theorems: its lemma at δ = 1/T (Tightened where the paper has none)."""
    bounds = Bounds(norm_bound=NORM, noise_bound=NOISE, failure_probability=1.0 / HORIZON)
    if kind == "exact":
        return kb.k_ucb(
            KERNEL, regularization=RIDGE, confidence=kb.Lemma31(**bounds, complexity="log_determinant"), seed=seed
        )
    if kind == "projected":
        return kb.ek_ucb(
            KERNEL, regularization=RIDGE, confidence=kb.Lemma41(**bounds, complexity="log_determinant"), seed=seed
        )
    return kb.ek_ucb(
        KERNEL, regularization=RIDGE, confidence=kb.Tightened(**bounds), dictionary=kb.Kors(history="none"), seed=seed
    )


def draws_of(policy: UpperConfidenceBound) -> int:
    """How many points the policy's dictionary has drawn, if it draws any."""
    dictionary = policy.posterior.dictionary if isinstance(policy.posterior, NystromPosterior) else None
    return dictionary.draws if isinstance(dictionary, LeverageDictionary) else 0


def one_run(kind: str, seed: int) -> CoverageRun:
    """Play T rounds against a fresh function with noise ±NOISE, which is bounded by R and R-sub-Gaussian."""
    generator = np.random.default_rng(seed)
    function, policy = draw_function(generator), build(kind, seed)
    worst = dict.fromkeys(RADII[kind], 0.0)
    noise_energy = explained = regret = widths = 0.0
    observed = []
    for _ in range(HORIZON):
        context, actions = generator.random(1), generator.random((10, 1))
        expected = function(np.column_stack([np.full(10, context[0]), actions]))
        decision = policy.select(context, actions)
        # the regret of a round is at most 2βσ while θ* is in the set, and at most 2 since |θ*(s)| ≤ 1
        widths += min(2.0 * policy.confidence.radius(policy.posterior) * decision.std / math.sqrt(RIDGE), 2.0)
        noise = NOISE * (1.0 if generator.random() < 0.5 else -1.0)
        reward = float(expected[decision.index]) + noise
        policy.update(context, decision.action, reward)
        regret += float(expected.max() - expected[decision.index])
        observed.append([context[0], decision.action[0]])
        # ‖θ̂ − θ*‖²_V = Σε² + λB² − λ·yᵀ(K + λI)⁻¹y, and yᵀ(K + λI)⁻¹y = Σ (r − mean)²/(std² + λ)
        noise_energy += noise**2
        explained += (reward - decision.mean) ** 2 / (decision.std**2 + RIDGE)
        if isinstance(policy.posterior, NystromPosterior):
            distance = projected_distance(policy.posterior, function)
        else:
            distance = math.sqrt(max(noise_energy + RIDGE * NORM**2 - RIDGE * explained, 0.0))
        for name, confidence in RADII[kind].items():
            worst[name] = max(worst[name], distance / confidence.radius(policy.posterior))
    return CoverageRun(
        worst_ratios=worst,
        final_radii={name: radius.radius(policy.posterior) for name, radius in RADII[kind].items()},
        regret=regret,
        effective_dimension=kb.theory.effective_dimension(KERNEL(np.array(observed)), RIDGE),
        dictionary_size=policy.dictionary_size,
        draws=draws_of(policy),
        summed_widths=widths,
        residual_trace=policy.posterior.residual_trace,
    )


# Of the runs with late rewards and of SupKernelUCB; noise is smaller there, so that several stages are reached.
ROUNDS, ACTIONS, STAGE_NOISE = 200, 10, 0.02
DICTIONARIES = {"exact": None, "projected": kb.Kors(), "history-free": kb.Kors(history="none")}


@dataclass(frozen=True)
class BoundsRun:
    """Whether a bound failed, with β as it is and with β that ignores awaited points; the mean factor between them."""

    failed: bool
    failed_settled: bool
    factor: float
    stages: int


def bounds_run(kind: str, late: int, seed: int, *, in_stages: bool) -> BoundsRun:
    """Play with rewards that come ``late`` decisions late; look at the bounds of all offered actions in every round."""
    generator = np.random.default_rng(seed)
    function, noise = draw_function(generator), STAGE_NOISE if in_stages else NOISE
    policy, confidence = played_by(kind, seed, in_stages=in_stages)
    waiting, factors = deque[tuple[Decision, float]](), list[float]()
    failed = np.zeros(2, dtype=bool)
    for _ in range(ROUNDS):
        context, actions = generator.random(1), generator.random((ACTIONS, 1))
        points = np.column_stack([np.full(ACTIONS, context[0]), actions])
        expected = function(points)
        for posterior in policy.posteriors:
            radii = np.array([confidence.radius(posterior), confidence.settled_radius(posterior)])
            prediction = posterior.predict(points)
            # βσ = β·std/√λ, up to rounding
            widths = radii[:, None] / math.sqrt(RIDGE) * prediction.std + 1e-9
            failed |= (np.abs(expected - prediction.mean) > widths).any(axis=1)
            factors.append(radii[0] / radii[1])
        decision = policy.ask(context, actions)
        sign = 1.0 if generator.random() < 0.5 else -1.0
        waiting.append((decision, float(expected[decision.index]) + sign * noise))
        if len(waiting) > late:
            policy.tell(*waiting.popleft())
    return BoundsRun(bool(failed[0]), bool(failed[1]), float(np.mean(factors)), len(policy.posteriors))


def played_by(kind: str, seed: int, *, in_stages: bool) -> tuple[Policy, GuaranteedRadius]:
    """The policy of a posterior, UCB or SupKernelUCB, and its radius."""
    rule = DICTIONARIES[kind]
    if in_stages:
        bounds = BOUNDS | {"noise_bound": STAGE_NOISE}
        eta = kb.StageRadius(**bounds, horizon=ROUNDS, number_of_actions=ACTIONS)
        policy = kb.sup_kernel_ucb(
            KERNEL, horizon=ROUNDS, dictionary=rule, regularization=RIDGE, confidence=eta, seed=seed
        )
        return policy, eta
    beta = kb.Tightened(**BOUNDS)
    if rule is None:
        return kb.k_ucb(KERNEL, regularization=RIDGE, confidence=beta, seed=seed), beta
    return kb.ek_ucb(KERNEL, dictionary=rule, regularization=RIDGE, confidence=beta, seed=seed), beta


def print_bounds(lateness: tuple[int, ...], *, in_stages: bool) -> None:
    """Print how many runs failed beside δ, twice the standard error of that count, and without the factor on β."""
    error = 1.96 * math.sqrt(FAILURE * (1 - FAILURE) * RUNS)
    allowed = f"{FAILURE * RUNS:.0f} ± {error:.0f}"
    print(
        f"| posterior | rewards late by | failed, of {RUNS} | δ allows | failed without the factor | mean factor on β |"
    )
    print("|---|---|---|---|---|---|")
    for kind in DICTIONARIES:
        for late in lateness:
            run = delayed(bounds_run)
            runs = Parallel(n_jobs=-1)(run(kind, late, seed, in_stages=in_stages) for seed in range(RUNS))
            failed, without = sum(run.failed for run in runs), sum(run.failed_settled for run in runs)
            factor = np.mean([run.whitening.upper for run in runs])
            print(f"| {kind} | {late} | {failed} | {allowed} | {without} | {factor:.2f} |", flush=True)
    if in_stages:
        print(f"At most {max(run.stages for run in runs)} stages were reached.")


def main() -> None:
    if sys.argv[1:] == ["pending"]:
        print_bounds((1, 5, 20, 100), in_stages=False)
    if sys.argv[1:] == ["stages"]:
        print_bounds((0, 20), in_stages=True)
    if not sys.argv[1:]:
        print_radii()


def print_radii() -> None:
    """Print for each radius how many runs left its set."""
    print("| posterior | radius | β at T | in units of Tightened | runs that left the set | largest distance/β |")
    print("|---|---|---|---|---|---|")
    for kind, radii in RADII.items():
        runs = Parallel(n_jobs=-1)(delayed(one_run)(kind, seed) for seed in range(RUNS))
        tightened = np.mean([run.final_radii["Tightened"] for run in runs])
        for name in radii:
            radius = np.mean([run.final_radii[name] for run in runs])
            ratios = np.array([run.worst_ratios[name] for run in runs])
            print(
                f"| {kind} | {name} | {radius:.2f} | {radius / tightened:.2f} "
                f"| {(ratios > 1).sum()} of {RUNS} | {ratios.max():.2f} |"
            )


if __name__ == "__main__":
    main()

"""CBKB and CBBKB that redraw by the variances of another moment: after the newest observation, or as published.

Calandriello et al. take σ² before the newest observation in BKB (2019) and at the start of the batch in BBKB (2020);
the library takes it after the newest one. Both play the same seeds; printed are dictionary sizes and regrets, and the
paired difference of the regrets (published less ours) with its 95 % interval.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/resampling_moment.py [--seeds 10] [--horizon 500]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Self

import numpy as np
from kernel_bandits_lab import mean_interval

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.dictionaries.base import PlayedPoints
from kernel_bandits.dictionaries.resampling import Resampling, ResamplingDictionary
from kernel_bandits.values import evolve

ENVIRONMENTS = ("Chessboard", "Bump", "StepDiagonal")
LIMITS = (1.0, 3.0, 10.0, 30.0)


@dataclass(frozen=True, kw_only=True)
class AtBatchStart(Resampling):
    """Redraws by the posterior variance at the start of the batch, computed densely.

    Args:
        kernel: of the posterior.
    """

    kernel: kb.Kernel

    def start(self, regularization: float, generator: np.random.Generator) -> AtBatchStartDictionary:
        return AtBatchStartDictionary(self, regularization, generator)


class AtBatchStartDictionary(ResamplingDictionary):
    """The state of :class:`AtBatchStart`: the anchors and the observations when the batch began."""

    __slots__ = ("_anchors", "_kernel", "_points")

    def __init__(self, rule: AtBatchStart, regularization: float, coins: np.random.Generator) -> None:
        super().__init__(rule, regularization, coins)
        self._kernel = rule.kernel
        self._anchors = self._points = np.empty((0, 0))

    def redrawn(self, played: PlayedPoints) -> tuple[FloatArray, Self]:
        before = PlayedPoints(played.points, lambda: self._variances(played.points))
        anchors, dictionary = super().redrawn(before)
        return anchors, evolve(dictionary, _anchors=anchors, _points=played.points)

    def _variances(self, points: FloatArray) -> FloatArray:
        prior = self._kernel.diag(points)
        if not len(self._anchors):
            return prior / self.regularization
        values, vectors = np.linalg.eigh(self._kernel(self._anchors))
        keep = values > 1e-10 * values.max()
        # φ(s) = Λ^{-1/2}Uᵀk_Z(s), and λσ² = k(s, s) − ‖φ‖² + λφᵀ(λI + Σφφᵀ)⁻¹φ
        whiten = vectors[:, keep] / np.sqrt(values[keep])
        features, seen = (
            self._kernel(points, self._anchors) @ whiten,
            self._kernel(self._points, self._anchors) @ whiten,
        )
        precision = self.regularization * np.eye(features.shape[1]) + seen.T @ seen
        explained = np.vecdot(features, np.linalg.solve(precision, features.T).T)
        return np.maximum(prior - np.vecdot(features, features), 0.0) / self.regularization + explained


def one_run(rule: Resampling, kernel: kb.Kernel, name: str, horizon: int, seed: int) -> tuple[float, float]:
    policy = kb.ek_ucb(kernel, regularization=1.0, dictionary=rule, seed=seed)
    result = kb.run(policy, getattr(kb.environments, name)(), horizon, seed)
    return float(result.regret[-1]), float(result.dictionary_size[-1])


def main() -> None:
    """Print a row for every environment and limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--horizon", type=int, default=500)
    options = parser.parse_args()
    print("| environment | C | m, ours | m, published | regret, ours | regret, published | difference |")
    print("|---|---|---|---|---|---|---|")
    for name in ENVIRONMENTS:
        kernel = kb.Gaussian(getattr(kb.environments, name)().lengthscale)
        for limit in LIMITS:
            rules = (
                Resampling(batch_variance_limit=limit, keeps_first=True),
                AtBatchStart(batch_variance_limit=limit, keeps_first=True, kernel=kernel),
            )
            seeds = range(options.seeds)
            runs = np.array([[one_run(rule, kernel, name, options.horizon, s) for rule in rules] for s in seeds])
            regrets, sizes = runs[:, :, 0], runs[:, :, 1].mean(axis=0)
            mean, half_width = mean_interval(regrets[:, 1] - regrets[:, 0])
            ours, published = regrets.mean(axis=0)
            print(
                f"| {name} | {limit:g} | {sizes[0]:.0f} | {sizes[1]:.0f} | {ours:.1f} | {published:.1f} "
                f"| {mean:+.1f} ± {half_width:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

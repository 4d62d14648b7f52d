"""SupKernelUCB: stages of ridge regressions on independent parts of the history (Valko et al. 2013)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_bandits.arrays import FloatArray, as_count, as_reward
from kernel_bandits.confidence import Confidence
from kernel_bandits.policies.base import Decision, Policy
from kernel_bandits.posteriors.base import Evaluation, Posterior


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Where the walk through the stages ended.

    Attributes:
        index: the row to play.
        stage: whose set the round joins, counted from 0; None if it joins none.
        evaluation: of the chosen point at the deciding stage.
        width: ησ of the chosen point there.
    """

    index: int
    stage: int | None
    evaluation: Evaluation
    width: float


class SupKernelUCB(Policy):
    """Play by stages, so that the rewards a stage learns from are independent given its points.

    Stage s = 1, 2, … regresses on its own set Ψ⁽ˢ⁾ alone; an action has width w = ησ there. In each round, from s = 1
    with all offered actions:

    1. all widths ≤ 1/√T: play the largest upper bound; the round joins no set;
    2. all widths ≤ 2⁻ˢ: keep the actions whose upper bound is within 2^{1−s} of the best, go on with stage s + 1;
    3. else: play the action of the largest width; the round joins Ψ⁽ˢ⁾.

    There are S = ⌈½·log₂T⌉ + 1 stages: at the last one the second case implies the first.

    Args:
        stage_posterior: builds the posterior of a stage, given its index from 0; called when the stage is first
            reached.
        confidence: answers η for a stage's posterior.
        horizon: T.
        ties: the generator that breaks ties.
    """

    def __init__(
        self,
        stage_posterior: Callable[[int], Posterior[Any]],
        confidence: Confidence,
        horizon: int,
        ties: np.random.Generator,
    ) -> None:
        super().__init__(ties)
        self.confidence = confidence
        self.horizon = as_count("horizon", horizon)
        self.number_of_stages = math.ceil(0.5 * math.log2(self.horizon)) + 1
        self.stages = [stage_posterior(0)]
        self._stage_posterior = stage_posterior
        self._chosen: tuple[FloatArray, _Outcome] | None = None

    @property
    def dictionary_size(self) -> int:
        return sum(stage.dictionary_size for stage in self.stages)

    def _walk(self, points: FloatArray) -> _Outcome:
        """Go through the stages with these points as the offered ones; the sets stay as they are."""
        active = np.arange(len(points))
        for s in range(1, self.number_of_stages + 1):
            posterior = self.stages[s - 1] if s <= len(self.stages) else self._stage_posterior(s - 1)
            evaluation = posterior.evaluate(points[active])
            # w = ησ with the paper's σ = std/√λ
            widths = self.confidence.radius(posterior) / math.sqrt(posterior.regularization) * evaluation.std
            upper_bounds = evaluation.mean + widths
            if (widths <= 1.0 / math.sqrt(self.horizon)).all():
                chosen, stage = self._argmax(upper_bounds), None
            elif (widths <= 2.0**-s).all():
                active = active[upper_bounds >= upper_bounds.max() - 2.0 ** (1 - s)]
                continue
            else:
                chosen, stage = self._argmax(widths), s - 1
            return _Outcome(int(active[chosen]), stage, evaluation.row(chosen), float(widths[chosen]))
        raise AssertionError("2⁻ˢ ≤ 1/√T at the last stage, so the walk has ended there")

    def _select(self, points: FloatArray, actions: FloatArray) -> Decision:
        outcome = self._walk(points)
        self._chosen = (points[outcome.index], outcome)
        mean, std = float(outcome.evaluation.mean[0]), float(outcome.evaluation.std[0])
        action = np.array(actions[outcome.index], dtype=np.float64)
        return Decision(outcome.index, action, mean, std, mean + outcome.width)

    def _update(self, point: FloatArray, reward: float) -> None:
        reward = as_reward(reward)
        if self._chosen is not None and (self._chosen[0] == point).all():
            outcome = self._chosen[1]
        else:
            # A point that select did not choose joins the stage it would have been played at, had it been alone.
            outcome = self._walk(point[None, :])
        if outcome.stage is not None:
            missing = [self._stage_posterior(s) for s in range(len(self.stages), outcome.stage + 1)]
            stages = [*self.stages, *missing]
            stages[outcome.stage].update(point, reward, outcome.evaluation)
            self.stages = stages
        self._chosen = None

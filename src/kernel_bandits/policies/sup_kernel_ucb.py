"""SupKernelUCB: stages of ridge regressions on independent parts of the history (Valko et al. 2013)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import setitem
from typing import Any, final

import numpy as np

from kernel_bandits.arrays import FloatArray, as_count
from kernel_bandits.commit import Steps
from kernel_bandits.confidence import Confidence, require_radius
from kernel_bandits.policies.decision import Choice
from kernel_bandits.policies.policy import Policy
from kernel_bandits.posteriors.base import Evaluation, Posterior
from kernel_bandits.theory import number_of_stages


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Where the walk through the stages ended."""

    stage: int | None  # the stage whose set the round joins, counted from 0; None if it joins none
    evaluation: Evaluation  # of the actions that were left at the deciding stage
    row: int  # of the chosen action there


@final
class SupKernelUCB(Policy):
    """Play in stages, so that the rewards a stage learns from are independent given its points.

    Stage s = 1, 2, … regresses on its own set Ψ⁽ˢ⁾ alone; an action has width w = ησ there. In each round, from s = 1
    with all offered actions:

    1. all widths ≤ 1/√T: play the largest upper bound; the round joins no set;
    2. all widths ≤ 2⁻ˢ: keep the actions whose upper bound is within 2^{1−s} of the best, go on with stage s + 1;
    3. else: play the action of the largest width; the round joins Ψ⁽ˢ⁾.

    There are S = ⌈½·log₂T⌉ + 1 stages as in the paper; 2⁻ˢ ≤ 1/√T one stage earlier, where the second case implies the
    first, so the last one is never reached.

    Args:
        stage_posterior: builds the posterior of a stage, given its index from 0; called when the stage is first
            reached.
        confidence: returns η for a stage's posterior.
        horizon: T.
        generator: breaks ties.
    """

    def __init__(
        self,
        stage_posterior: Callable[[int], Posterior[Any]],
        confidence: Confidence,
        horizon: int,
        generator: np.random.Generator,
    ) -> None:
        super().__init__(generator)
        self.confidence = confidence
        self.horizon = as_count("horizon", horizon)
        self.number_of_stages = number_of_stages(self.horizon)
        self.stages = [stage_posterior(0)]
        require_radius(confidence, self.stages[0], in_stages=True)
        self._stage_posterior = stage_posterior
        # The stage whose set an anticipated round joins.
        self._stage_of: dict[int, int] = {}

    @property
    def posteriors(self) -> Sequence[Posterior[Any]]:
        return self.stages

    def choose(self, points: FloatArray) -> Choice:
        """Walk through the stages; the sets stay as they are."""
        active = np.arange(len(points))
        for s in range(1, self.number_of_stages + 1):
            posterior = self.stages[s - 1] if s <= len(self.stages) else self._stage_posterior(s - 1)
            evaluation = posterior.evaluate_finite(points[active])
            # w = ησ with the paper's σ = std/√λ
            widths = self.confidence.radius(posterior) / math.sqrt(posterior.regularization) * evaluation.std
            upper_bounds = evaluation.mean + widths
            if (widths <= 1.0 / math.sqrt(self.horizon)).all():
                row, stage = self.argmax(upper_bounds), None
            elif (widths <= 2.0**-s).all():
                active = active[upper_bounds >= upper_bounds.max() - 2.0 ** (1 - s)]
                continue
            else:
                row, stage = self.argmax(widths), s - 1
            mean, std = evaluation.mean.item(row), evaluation.std.item(row)
            outcome = _Outcome(stage, evaluation, row)
            return Choice(int(active[row]), mean, std, mean + widths.item(row), None, outcome)
        raise AssertionError("2⁻ˢ ≤ 1/√T at the last stages, so the walk has ended there")

    def _outcome_of(self, point: FloatArray, choice: Choice | None) -> _Outcome:
        # A point that was not chosen joins the stage at which it would have been played, had it been offered alone.
        return (choice or self.choose(point[None, :])).computed

    def _stages_up_to(self, stage: int) -> list[Posterior[Any]]:
        return [*self.stages, *(self._stage_posterior(s) for s in range(len(self.stages), stage + 1))]

    def learn(self, point: FloatArray, reward: float, choice: Choice | None) -> Steps:
        outcome = self._outcome_of(point, choice)
        if outcome.stage is None:
            return []
        stages = self._stages_up_to(outcome.stage)
        steps = stages[outcome.stage].observe_steps(point, reward, outcome.evaluation, outcome.row)
        return [*steps, (setattr, self, "stages", stages)]

    def anticipate(self, key: int, point: FloatArray, choice: Choice | None) -> Steps:
        outcome = self._outcome_of(point, choice)
        # also where no set grows: by its point a decision is told from one of another policy
        waiting: Steps = [(setitem, self._waiting, key, point)]
        if outcome.stage is None:
            return waiting
        stages = self._stages_up_to(outcome.stage)
        steps = stages[outcome.stage].anticipate_steps(key, point, outcome.evaluation, outcome.row)
        return [*steps, *waiting, (setattr, self, "stages", stages), (setitem, self._stage_of, key, outcome.stage)]

    def fulfil(self, key: int, reward: float) -> Steps:
        if key not in self._stage_of:
            return self._settled(key)
        return [*self.stages[self._stage_of[key]].fulfil_steps(key, reward), *self._settled(key)]

    def abandon(self, key: int) -> Steps:
        if key not in self._stage_of:
            return self._settled(key)
        return [*self.stages[self._stage_of[key]].abandon_steps([key]), *self._settled(key)]

    def _settled(self, key: int) -> Steps:
        return [(self._waiting.pop, key, None), (self._stage_of.pop, key, None)]

    def __repr__(self) -> str:
        return (
            f"SupKernelUCB({self.stages[0].kernel!r}, regularization={self.stages[0].regularization:g}, "
            f"{self.confidence!r}, horizon={self.horizon}, {len(self.stages)} of {self.number_of_stages} stages, "
            f"round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )

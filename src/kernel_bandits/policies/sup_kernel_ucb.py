"""SupKernelUCB: stages of ridge regressions on independent parts of the history (Valko et al. 2013)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_bandits.arrays import FloatArray, as_count
from kernel_bandits.confidence import Confidence, require_radius
from kernel_bandits.policies.base import Choice, Policy
from kernel_bandits.posteriors.base import Evaluation, Posterior


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Where the walk through the stages ended.

    Attributes:
        index: the row to play.
        stage: whose set the round joins, counted from 0; None if it joins none.
        evaluation: of the actions that were left at the deciding stage.
        row: of the chosen one there.
        width: ησ of the chosen point there.
    """

    index: int
    stage: int | None
    evaluation: Evaluation
    row: int
    width: float

    @property
    def choice(self) -> Choice:
        """As the policy answers it."""
        mean, std = self.evaluation.mean.item(self.row), self.evaluation.std.item(self.row)
        return self.index, mean, std, mean + self.width, None


class SupKernelUCB(Policy):
    """Play by stages, so that the rewards a stage learns from are independent given its points.

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
        require_radius(confidence, self.stages[0])
        self._stage_posterior = stage_posterior
        self._chosen: _Outcome | None = None
        self._rewards_seen = 0
        # The stage whose set an anticipated round joins.
        self._stage_of: dict[int, int] = {}

    @property
    def posteriors(self) -> Sequence[Posterior[Any]]:
        return self.stages

    @property
    def round_index(self) -> int:
        return self._rewards_seen

    @property
    def dictionary_size(self) -> int:
        return sum(stage.dictionary_size for stage in self.stages)

    def _walk(self, points: FloatArray) -> _Outcome:
        """Go through the stages with these points as the offered ones; the sets stay as they are."""
        active = np.arange(len(points))
        for s in range(1, self.number_of_stages + 1):
            posterior = self.stages[s - 1] if s <= len(self.stages) else self._stage_posterior(s - 1)
            evaluation = posterior.evaluate_finite(points[active])
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
            return _Outcome(int(active[chosen]), stage, evaluation, chosen, widths.item(chosen))
        raise AssertionError("2⁻ˢ ≤ 1/√T at the last stages, so the walk has ended there")

    def _select(self, points: FloatArray) -> Choice:
        outcome = self._walk(points)
        self._chosen = outcome
        return outcome.choice

    def _select_many(self, points: FloatArray) -> list[Choice]:
        return [self._walk(offered).choice for offered in points]

    def _outcome_of(self, point: FloatArray, chosen: bool) -> _Outcome:
        # A point that select did not choose joins the stage it would have been played at, had it been alone.
        return self._chosen if chosen and self._chosen is not None else self._walk(point[None, :])

    def _stages_up_to(self, stage: int) -> list[Posterior[Any]]:
        return [*self.stages, *(self._stage_posterior(s) for s in range(len(self.stages), stage + 1))]

    def _update(self, point: FloatArray, reward: float, chosen: bool) -> None:
        outcome = self._outcome_of(point, chosen)
        if outcome.stage is not None:
            stages = self._stages_up_to(outcome.stage)
            stages[outcome.stage].observe(point, reward, outcome.evaluation, outcome.row)
            self.stages = stages
        self._chosen = None
        self._rewards_seen += 1

    def _anticipate(self, key: int, point: FloatArray) -> None:
        outcome = self._outcome_of(point, chosen=True)
        if outcome.stage is not None:
            stages = self._stages_up_to(outcome.stage)
            stages[outcome.stage].anticipate(key, point, outcome.evaluation, outcome.row)
            self.stages, self._stage_of[key] = stages, outcome.stage
        self._chosen = None

    def _fulfil(self, key: int, reward: float) -> None:
        if key in self._stage_of:
            self.stages[self._stage_of[key]].fulfil(key, reward)
            del self._stage_of[key]
        self._chosen = None
        self._rewards_seen += 1

    def _abandon(self, key: int) -> None:
        if key in self._stage_of:
            self.stages[self._stage_of[key]].abandon(key)
            del self._stage_of[key]
        self._chosen = None

    def _update_many(self, points: FloatArray, rewards: FloatArray) -> None:
        for point, reward in zip(points, rewards.tolist(), strict=True):
            self._update(point, reward, chosen=False)

    def __repr__(self) -> str:
        return (
            f"SupKernelUCB({self.stages[0].kernel!r}, regularization={self.stages[0].regularization:g}, "
            f"{self.confidence!r}, horizon={self.horizon}, {len(self.stages)} of {self.number_of_stages} stages, "
            f"round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )

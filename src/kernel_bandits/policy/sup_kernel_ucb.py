"""SupKernelUCB: stages of ridge regressions on independent parts of the history (Valko et al. 2013)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np

from kernel_bandits.arrays import FloatArray, as_count
from kernel_bandits.confidence import Confidence, GuaranteedRadius, StageRadius, require_radius
from kernel_bandits.errors import InputError
from kernel_bandits.policy.policy import Choice, Policy
from kernel_bandits.posterior.arms import reseeded_factory
from kernel_bandits.posterior.base import Evaluation, Model, Posterior, Weights
from kernel_bandits.theory import number_of_stages
from kernel_bandits.values import Pending, evolve


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Where the walk through the stages ended."""

    stage: int | None  # the stage whose set the round joins, counted from 0; None if it joins none
    evaluation: Evaluation  # of the actions that were left at the deciding stage
    row: int  # of the chosen action there


class Stages(Model):
    """The sets Ψ⁽ˢ⁾ of SupKernelUCB, each with its posterior.

    Args:
        build: builds the posterior of a stage, given its index from 0; called when the stage is first reached.
        confidence: returns η for a stage's posterior.
        horizon: T.

    Attributes:
        posteriors: of the stages that were reached so far.
        stage_of: the stage whose set an awaited round joins, by key.
    """

    __slots__ = ("_build", "_posteriors", "confidence", "horizon", "stage_of")

    def __init__(self, build: Callable[[int], Posterior], confidence: Confidence, horizon: int) -> None:
        self._build = build
        self.confidence: Confidence = confidence
        self.horizon: int = horizon
        self._posteriors = (build(0),)
        self.stage_of: Pending[int] = Pending[int]()

    @property
    def posteriors(self) -> Sequence[Posterior]:
        return self._posteriors

    @property
    def number_of_stages(self) -> int:
        """S."""
        return number_of_stages(self.horizon)

    def walk(self, points: FloatArray, argmax: Callable[[FloatArray], int]) -> Choice:
        """Choose one of the points (A, d) by a walk through the stages."""
        active = np.arange(len(points))
        for s in range(1, self.number_of_stages + 1):
            posterior = self._posteriors[s - 1] if s <= len(self._posteriors) else self._build(s - 1)
            evaluation = posterior.evaluate_finite(points[active])
            # w = ησ with the paper's σ = std/√λ
            widths = self.confidence.radius(posterior) / math.sqrt(posterior.regularization) * evaluation.std
            upper_bounds = evaluation.mean + widths
            if (widths <= 1.0 / math.sqrt(self.horizon)).all():
                row, stage = argmax(upper_bounds), None
            elif (widths <= 2.0**-s).all():
                active = active[upper_bounds >= upper_bounds.max() - 2.0 ** (1 - s)]
                continue
            else:
                row, stage = argmax(widths), s - 1
            mean, std = evaluation.mean.item(row), evaluation.std.item(row)
            outcome = _Outcome(stage, evaluation, row)
            return Choice(int(active[row]), mean, std, mean + widths.item(row), None, outcome)
        raise AssertionError("2⁻ˢ ≤ 1/√T at the last stages, so the walk has ended there")

    def _outcome(self, point: FloatArray, evaluated: _Outcome | None) -> _Outcome:
        # A point that was not chosen joins the stage at which it would have been played, had it been offered alone.
        if evaluated is not None:
            return evaluated
        found: _Outcome = self.walk(point, lambda values: int(values.argmax())).computed
        return found

    def _with(self, stage: int, posterior: Posterior) -> Self:
        """Return the stages with another posterior of one of them."""
        posteriors = [*self._posteriors, *(self._build(s) for s in range(len(self._posteriors), stage + 1))]
        posteriors[stage] = posterior
        return evolve(self, _posteriors=tuple(posteriors))

    def _stage(self, stage: int) -> Posterior:
        return self._posteriors[stage] if stage < len(self._posteriors) else self._build(stage)

    def learned(self, points: FloatArray, rewards: FloatArray, weights: Weights = None, evaluated: Any = None) -> Self:
        _refuse_weights(weights)
        stages = self
        for row in range(len(points)):
            one = slice(row, row + 1)
            outcome = stages._outcome(points[one], evaluated if row == 0 else None)
            if outcome.stage is not None:
                posterior = stages._stage(outcome.stage)
                known = outcome.evaluation, outcome.row
                stages = stages._with(outcome.stage, posterior.learned(points[one], rewards[one], None, known))
        return stages

    def awaiting(self, keys: Sequence[int], points: FloatArray, evaluated: _Outcome | None = None) -> Self:
        stages = self
        for row, key in enumerate(keys):
            one = slice(row, row + 1)
            outcome = stages._outcome(points[one], evaluated if row == 0 else None)
            if outcome.stage is not None:
                known = outcome.evaluation, outcome.row
                posterior = stages._stage(outcome.stage).awaiting([key], points[one], known)
                stage_of = stages.stage_of.with_items({key: outcome.stage})
                stages = evolve(stages._with(outcome.stage, posterior), stage_of=stage_of)
        return stages

    def settled(self, keys: Sequence[int], points: FloatArray, rewards: FloatArray, weights: Weights = None) -> Self:
        _refuse_weights(weights)
        stages = self
        for row, key in enumerate(keys):
            if key in stages.stage_of:
                stage, one = stages.stage_of[key], slice(row, row + 1)
                posterior = stages._posteriors[stage].settled([key], points[one], rewards[one])
                stages = evolve(stages._with(stage, posterior), stage_of=stages.stage_of.without([key]))
        return stages

    def abandoned(self, keys: Collection[int]) -> Self:
        stages = self
        for key in keys:
            if key in stages.stage_of:
                stage = stages.stage_of[key]
                posterior = stages._posteriors[stage].abandoned([key])
                stages = evolve(stages._with(stage, posterior), stage_of=stages.stage_of.without([key]))
        return stages

    def reseeded(self, entropy: int) -> Self:
        posteriors = tuple(posterior.reseeded(entropy) for posterior in self._posteriors)
        return evolve(self, _posteriors=posteriors, _build=reseeded_factory(self._build, entropy))


def _refuse_weights(weights: FloatArray | None) -> None:
    if weights is not None:
        raise InputError("weight: SupKernelUCB takes no weights; leave weight= and noise_variance= out.")


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
        confidence: returns η for a stage's posterior; the δ of a radius for all rounds is shared by the S stages.
        horizon: T.
        generator: breaks ties.
    """

    saved: ClassVar[tuple[str, ...]] = (*Policy.saved, "confidence", "horizon")

    def __init__(
        self,
        stage_posterior: Callable[[int], Posterior],
        confidence: Confidence,
        horizon: int,
        generator: np.random.Generator,
    ) -> None:
        of_each = confidence
        if isinstance(confidence, GuaranteedRadius) and not isinstance(confidence, StageRadius):
            # each stage has a set of its own, and all of them are to hold
            failure = confidence.failure_probability / number_of_stages(horizon)
            of_each = replace(confidence, failure_probability=failure)
        stages = Stages(stage_posterior, of_each, as_count("horizon", horizon))
        super().__init__(stages, generator)
        self.confidence: Confidence = confidence
        self.horizon: int = stages.horizon
        require_radius(confidence, stages.posteriors[0], in_stages=True)
        if isinstance(confidence, StageRadius):
            confidence.require_covers(stages.horizon, 1)

    @property
    def stages(self) -> Sequence[Posterior]:
        """The posteriors of the stages that were reached so far."""
        return self.posteriors

    @property
    def number_of_stages(self) -> int:
        """S."""
        return number_of_stages(self.horizon)

    def choose(self, points: FloatArray) -> Choice:
        stages: Any = self.model
        if isinstance(self.confidence, StageRadius):
            state = self._state
            # decisions that expired count too, where all were asked for
            played = max(state.issued, state.rewards_learned + len(state.pending))
            self.confidence.require_covers(played + 1, len(points))
        choice: Choice = stages.walk(points, self.argmax)
        return choice

    def __repr__(self) -> str:
        return (
            f"SupKernelUCB({self.stages[0].kernel!r}, regularization={self.stages[0].regularization:g}, "
            f"{self.confidence!r}, horizon={self.horizon}, {len(self.stages)} of {self.number_of_stages} stages, "
            f"round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )

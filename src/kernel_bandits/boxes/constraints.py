"""Measured outputs that must stay within limits: a posterior for each, and the actions they leave."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_points, as_positive, as_reward, join, require_finite
from kernel_bandits.boxes.search import around, candidates
from kernel_bandits.dictionaries import DictionaryRule
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.posterior.base import Posterior, Prediction
from kernel_bandits.posterior.exact import ExactPosterior
from kernel_bandits.posterior.nystrom import NystromPosterior
from kernel_bandits.values import evolve

# Of a box: rounds of neighbours around the best safe actions, and how many of these there are.
REFINEMENTS, CENTRES = 4, 24
# Actions that differ by less than this share of a column's largest value are the same.
SAME_ACTION = 1e-13
# Where the numbers of the coins of constraints begin, beyond those that other parts spawn.
CONSTRAINT_COINS = 2**30


@dataclass(frozen=True)
class Constraint(ABC):
    """A limit on a measured output, known up to a Gaussian process of its own.

    Args:
        limit: in the units of the output.
        kernel: covariance of the output at joint points, its variance included: ``25.0 * kb.Matern(0.5)``. It has to be
            given: outputs at safe actions say nothing about how steep the others are.
        regularization: the noise variance of the output.
        deviations: c; an action is allowed if the output is within the limit by c standard deviations.
        prior_mean: the output expected where nothing is known; the limit unless given.
    """

    limit: float
    kernel: KernelLike
    regularization: float = 0.1
    deviations: float = 2.0
    prior_mean: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.limit):
            raise InputError(f"limit: expected a finite number, got {self.limit!r}.")
        as_positive("regularization", self.regularization)
        as_positive("deviations", self.deviations)

    @property
    def offset(self) -> float:
        """What is taken off outputs before they are learned."""
        return self.limit if self.prior_mean is None else self.prior_mean

    @property
    @abstractmethod
    def sign(self) -> float:
        """1 where the output must stay below the limit, −1 where it must stay above."""

    def bound(self, mean: FloatArray, std: FloatArray) -> FloatArray:
        """Return the value, c standard deviations towards the limit, that must keep it."""
        return mean + self.sign * self.deviations * std

    def excess(self, mean: FloatArray, std: FloatArray) -> FloatArray:
        """Return by how much outputs of this mean and std may pass the limit; at most 0 if an action is allowed."""
        return self.sign * (self.bound(mean, std) - self.limit)


@dataclass(frozen=True)
class Below(Constraint):
    """An output that must stay below a limit: mean + c·std ≤ limit."""

    sign = 1.0


@dataclass(frozen=True)
class Above(Constraint):
    """An output that must stay above a limit: mean − c·std ≥ limit."""

    sign = -1.0


class Guards:
    """The constraints of a policy with what was measured so far, a value.

    Args:
        constraints: by the name of their output.
        posteriors: of the outputs less their offset, by name.
        safe_actions: allowed in every context, shape (n, d_a), or None.
        if_unsafe: what to do when no offered action is allowed: an error, or the least unsafe with ``safe`` False.
    """

    __slots__ = ("constraints", "if_unsafe", "posteriors", "safe_actions")
    constraints: dict[str, Constraint]
    posteriors: dict[str, Posterior]
    safe_actions: FloatArray | None

    def __init__(
        self,
        constraints: Mapping[str, Constraint],
        posteriors: Mapping[str, Posterior],
        safe_actions: ArrayLike | None,
        if_unsafe: Literal["error", "flag"] = "error",
    ) -> None:
        if if_unsafe not in ("error", "flag"):
            raise InputError(f"if_unsafe: expected 'error' or 'flag', got {if_unsafe!r}.")
        self.constraints, self.posteriors, self.if_unsafe = dict(constraints), dict(posteriors), if_unsafe
        self.safe_actions = None if safe_actions is None else as_points("safe_actions", safe_actions).copy()
        if self.safe_actions is not None:
            require_finite("safe_actions", self.safe_actions)

    @classmethod
    def of(
        cls,
        constraints: Mapping[str, Constraint],
        rule: DictionaryRule | None,
        seed: Any,
        safe_actions: ArrayLike | None,
        if_unsafe: Literal["error", "flag"],
    ) -> Self:
        """Return the guards of constraints that were never measured, with coins of a seed sequence."""
        if not isinstance(constraints, Mapping) or not all(
            isinstance(each, Constraint) for each in constraints.values()
        ):
            raise InputError(
                "constraints: expected limits by the name of an output, {'pressure': Below(8.0, kernel)}, got "
                f"{constraints!r}."
            )
        posteriors: dict[str, Posterior] = {}
        for number, (name, each) in enumerate(constraints.items()):
            if rule is None:
                posteriors[name] = ExactPosterior(each.kernel, each.regularization)
            else:
                own = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, CONSTRAINT_COINS + number))
                posteriors[name] = NystromPosterior(each.kernel, each.regularization, rule, np.random.default_rng(own))
        return cls(constraints, posteriors, safe_actions, if_unsafe)

    def predict(self, points: FloatArray) -> dict[str, Prediction]:
        """Return mean and standard deviation of each output at joint points (A, d)."""
        predictions = {}
        for name, posterior in self.posteriors.items():
            evaluation = posterior.evaluate_finite(points)
            predictions[name] = Prediction(evaluation.mean + self.constraints[name].offset, evaluation.std)
        return predictions

    def excess(self, points: FloatArray) -> FloatArray:
        """Return the largest excess over all limits at joint points, in prior standard deviations, shape (A,)."""
        largest = np.full(len(points), -np.inf)
        for name, prediction in self.predict(points).items():
            scale = np.sqrt(self.posteriors[name].kernel.diag(points))
            excess = self.constraints[name].excess(prediction.mean, prediction.std)
            largest = np.maximum(largest, excess / np.maximum(scale, np.finfo(float).tiny))
        return largest

    def allowed(self, points: FloatArray) -> tuple[NDArray[np.bool_], FloatArray]:
        """Return which joint points may be played, and their excess, shape (A,) each."""
        excess = self.excess(points)
        allowed = excess <= 0.0
        if self.safe_actions is not None:
            actions = points[:, -self.safe_actions.shape[1] :]
            # equal but for rounding: a setting may be 1e-9 in its units, or a box lie far from the origin
            largest = np.abs(self.safe_actions).max(axis=0)
            known = np.abs(actions[:, None, :] - self.safe_actions[None, :, :]) <= SAME_ACTION * largest
            allowed = np.logical_or(allowed, np.any(np.all(known, axis=2), axis=1))
        return allowed, excess

    def require_columns(self, count: int) -> None:
        """Raise unless actions of so many columns can be compared with those that are safe."""
        if self.safe_actions is not None and self.safe_actions.shape[1] != count:
            raise InputError(
                f"safe_actions: expected {count} columns, as of the actions on offer, got "
                f"{self.safe_actions.shape[1]}; a choice in a box has several: pass box.encode({{…}}) of settings."
            )

    def require_flag(self) -> None:
        """Raise where an action that is not known to be safe must not be played."""
        if self.if_unsafe == "error":
            raise UnavailableError(
                f"constraints: no offered action is known to keep {', '.join(self.constraints)} within limits; offer "
                "others, pass safe_actions= to begin with, or if_unsafe='flag' to play the least unsafe."
            )

    def checked(self, outputs: Mapping[str, float] | None) -> dict[str, float]:
        """Return measured outputs as finite numbers; some may be missing."""
        if outputs is None or not isinstance(outputs, Mapping):
            names = ", ".join(f"{name!r}: …" for name in self.constraints)
            raise InputError(
                f"outputs: expected {{{names}}}, got {outputs!r}; pass what was measured with every reward, {{}} if "
                "nothing was."
            )
        unknown = set(outputs) - set(self.constraints)
        if unknown:
            raise InputError(f"outputs: {sorted(unknown)} have no constraint; expected {sorted(self.constraints)}.")
        found = {}
        for name, value in outputs.items():
            try:
                found[name] = as_reward(value)
            except InputError as reason:
                raise InputError(f"outputs: {name}: expected a finite number, got {value!r}; leave it out.") from reason
        return found

    def learned(self, point: FloatArray, outputs: Mapping[str, float]) -> Self:
        """Return the guards with measured outputs at a point (d,)."""
        posteriors = dict(self.posteriors)
        for name, value in outputs.items():
            offset = self.constraints[name].offset
            posteriors[name] = posteriors[name].learned(point[None, :], np.array([value - offset]))
        return evolve(self, posteriors=posteriors)

    def reseeded(self, entropy: int) -> Self:
        """Return the guards whose posteriors have fresh coins."""
        posteriors = {name: posterior.reseeded(entropy) for name, posterior in self.posteriors.items()}
        return evolve(self, posteriors=posteriors)

    def shortlist(
        self,
        posterior: Posterior,
        bonus: float,
        context: FloatArray,
        box: Box,
        generator: np.random.Generator,
        wanted: FloatArray | None = None,
    ) -> FloatArray:
        """Return allowed actions of a box with large bounds, shape (n, d_a), or the nearest one to a wanted action.

        The least unsafe if none is allowed. Candidates cover the box; neighbours of the best allowed ones follow at all
        scales, since the allowed part may be small.
        """

        def bounds(actions: FloatArray) -> FloatArray:
            evaluation = posterior.evaluate_finite(join(context, actions))
            return evaluation.mean + bonus * evaluation.std

        def nearness(actions: FloatArray) -> FloatArray:
            assert wanted is not None
            away = box.places(actions) - box.places(wanted[None, :])
            return -np.vecdot(away, away)

        values_of = bounds if wanted is None else nearness
        actions = candidates(posterior, context, box, generator)
        if self.safe_actions is not None:
            inside = self.safe_actions[box.contains(self.safe_actions)]
            actions = np.concatenate([actions, inside])
        if wanted is not None:
            actions = np.concatenate([wanted[None, :], actions])
        best, values = self._best(values_of, context, actions)
        spacing = len(actions) ** (-1.0 / len(box.settings))
        for _ in range(REFINEMENTS):
            centres = box.fractions(best[:CENTRES])
            near = box.at(
                np.concatenate([around(centres, spacing, generator), box.neighbours(centres)[len(centres) :]])
            )
            best, values = self._best(values_of, context, np.concatenate([best, near]))
        return best[: 1 if wanted is not None else max(1, int(np.isfinite(values).sum()))]

    def _best(
        self, values_of: Callable[[FloatArray], FloatArray], context: FloatArray, actions: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return actions and their values, largest first.

        Those that are not allowed have −∞ and stand last, the least unsafe first.
        """
        allowed, excess = self.allowed(join(context, actions))
        values = np.full(len(actions), -np.inf)
        if allowed.any():
            values[allowed] = values_of(actions[allowed])
        order = np.lexsort((excess, -values))[:CENTRES]
        return actions[order], values[order]

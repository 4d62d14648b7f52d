"""What every posterior offers: predictions with standard deviations, and updates by one observation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Self, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.actions import Box, join
from kernel_bandits.arrays import FloatArray, as_points, as_positive, as_reward, as_vector, require_finite
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.errors import UnavailableError
from kernel_bandits.kernels import require_columns
from kernel_bandits.posteriors.bounds import Bound
from kernel_bandits.posteriors.facts import (
    Evaluation,
    Fulfilled,
    Prediction,
    require_finite_kernel,
)
from kernel_bandits.posteriors.reported import Reported

E = TypeVar("E", bound=Evaluation)


class Posterior(Reported, Generic[E]):
    """Kernel ridge regression on joint points.

    A point may be played long before its reward comes. :meth:`anticipate` counts it into the standard deviations, which
    depend on points alone; :meth:`fulfil` brings the reward into the mean, in whatever order rewards come; and
    :meth:`abandon` takes the point out again. What comes out does not depend on the order: dictionary rules decide when
    a point is anticipated, and never look at rewards.

    Args:
        facts: what the posterior counts; it changes them in place.
        pending: the regression that carries it, with what is awaited.
    """

    def describe(self, context_columns: int, points: FloatArray, box: Box | None = None) -> None:
        """Take note, before the first round, of what the columns of joint points are.

        Args:
            context_columns: how many of the leading columns are the context.
            points: the joint points on offer, shape (A, d).
            box: the box that they are of, if it is one.
        """
        del context_columns, points, box  # a kernel that is given knows its columns

    def within_box(self, low: FloatArray, high: FloatArray) -> None:
        """Take note of the box (d_a,), (d_a,) that actions are chosen from; predictions stay as they are."""
        del low, high  # a kernel that is given knows its columns

    def predict_awaited(self, key: int) -> tuple[float, float]:
        """Return mean and standard deviation of the expected reward at an anticipated point; writes nothing."""
        evaluation = self.evaluate_finite(self.awaited_point(key)[None, :])
        return evaluation.mean.item(0), evaluation.std.item(0)

    def bound_in(self, context: FloatArray, bonus: float) -> Bound:
        """Return mean + bonus·std in one context (d_x,) as a function of the action, up to a constant and a unit.

        It is good until the next change of the posterior.
        """
        return _JointBound(self, context, bonus)

    @abstractmethod
    def evaluate(self, points: FloatArray) -> E:
        """Predict at finite points (A, d) of the right width and keep the intermediate results; writes nothing.

        Where the kernel is not finite the evaluation is not either; :meth:`require_finite` raises then.
        """

    def means(self, points: FloatArray) -> FloatArray:
        """Return the expected rewards at finite points (A, d), shape (A,), without their standard deviations.

        Writes nothing; raises if the kernel is not finite at the points.
        """
        return self.evaluate_finite(points).mean

    def evaluate_gram(self, points: FloatArray, gram: FloatArray, prior: FloatArray) -> E:
        """Evaluate points whose k(points, anchors) (A, m) and k(s, s) (A,) are known; writes nothing."""
        del gram, prior  # a posterior without anchors has no use for them
        return self.evaluate(points)

    def evaluate_rounds(self, points: FloatArray, split: int) -> Evaluation:
        """Evaluate n rounds (n, A, d) that offer the same actions, in the columns from ``split`` on: n·A rows."""
        del split
        return self.evaluate(points.reshape(-1, points.shape[2]))

    def group_columns(self, labels: NDArray[np.intp]) -> None:
        """Take note, before the first round, of which columns encode one variable, shape (d,)."""
        del labels  # a kernel that is given knows its columns

    def contenders(self, points: FloatArray, bonus: float) -> tuple[NDArray[np.intp] | None, E]:
        """Evaluate the points that may have the largest mean + bonus·std, and no more of the others than it takes.

        Returns:
            Their indices, or None for all, and their evaluation.
        """
        del bonus  # a posterior that has no cheap bounds looks at all
        return None, self.evaluate(points)

    @abstractmethod
    def gradient(self, points: FloatArray, evaluation: E, bonus: float, first: int = 0) -> FloatArray:
        """Return the gradient of mean + bonus·std at evaluated points, shape (A, d − first); writes nothing.

        Where std is 0 it has none, and counts as constant.

        Args:
            points: shape (A, d).
            evaluation: of these points, with the observations held now.
            bonus: of one standard deviation.
            first: the column to begin with: that of the first action column where the context is fixed.
        """

    @abstractmethod
    def covariance(self, points: FloatArray, evaluation: E) -> FloatArray:
        """Return the posterior covariance of the expected rewards at evaluated points, shape (A, A); writes nothing."""

    @abstractmethod
    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Return what the mean at a point (d,) is the sum of.

        Returns:
            n points (n, d), what each contributes (n,), and the rewards observed at them (n,); or None in their place
                where the history is not kept and the points are anchors.
        """

    @abstractmethod
    def observe_steps(self, point: FloatArray, reward: float, evaluation: E, row: int = 0) -> Steps:
        """Prepare :meth:`observe`; writes nothing. The list is the caller's to add to."""

    @final
    def observe(self, point: FloatArray, reward: float, evaluation: E, row: int = 0) -> None:
        """Learn one valid observation at a point that was evaluated; either succeeds or changes nothing.

        Args:
            point: shape (d,).
            reward: finite.
            evaluation: of this point and perhaps others, with the observations held now.
            row: where in the evaluation the point stands.
        """
        carry_out(self.observe_steps(point, reward, evaluation, row))

    def observe_weighted_steps(self, point: FloatArray, reward: float, weight: float) -> Steps:
        """Prepare :meth:`observe_weighted`; writes nothing."""
        raise UnavailableError(f"weight: {type(self).__name__} cannot learn {reward} at {point} with weight {weight}.")

    @final
    def observe_weighted(self, point: FloatArray, reward: float, weight: float) -> None:
        """Learn an observation of noise variance λ/weight, √weight·reward at √weight·φ; succeeds or changes nothing."""
        carry_out(self.observe_weighted_steps(point, reward, weight))

    def weight_of(self, noise_variance: float) -> float:
        """The weight λ/σ² of an observation with noise variance σ²."""
        return self.regularization / as_positive("noise_variance", noise_variance)

    @abstractmethod
    def anticipate_steps(self, key: int, point: FloatArray, evaluation: E, row: int = 0) -> Steps:
        """Prepare :meth:`anticipate`; writes nothing."""

    @final
    def anticipate(self, key: int, point: FloatArray, evaluation: E, row: int = 0) -> None:
        """Count a point as played whose reward is still to come; either succeeds or changes nothing.

        Args:
            key: names it until the reward comes.
            point: shape (d,).
            evaluation: of this point and perhaps others, as for :meth:`observe`.
            row: where in the evaluation the point stands.
        """
        carry_out(self.anticipate_steps(key, point, evaluation, row))

    def anticipate_all(self, points: Mapping[int, FloatArray]) -> None:
        """Count points by key as played, in a posterior that nobody else holds and that awaits none yet."""
        for key, point in points.items():
            self.anticipate(key, point, self.evaluate_finite(point[None, :]))

    @abstractmethod
    def fulfil_steps(self, key: int, reward: float) -> Steps:
        """Prepare :meth:`fulfil`; writes nothing."""

    @final
    def fulfil(self, key: int, reward: float) -> None:
        """Learn the reward of an anticipated point; either succeeds or changes nothing."""
        carry_out(self.fulfil_steps(key, reward))

    def fulfil_weighted_steps(self, key: int, reward: float, weight: float) -> Steps:
        """Prepare to learn the reward of an anticipated point as :meth:`observe_weighted` does; writes nothing."""
        # it was counted with weight 1: both changes are made apart, in a copy
        twin = self.copy()
        twin.observe_weighted(twin.awaited_point(key), reward, weight)
        twin.abandon(key)
        return [replace_state(self, twin)]

    def anticipate_many_steps(self, keys: Sequence[int], points: FloatArray) -> tuple[int, Steps]:
        """Prepare :meth:`anticipate` of leading points (n, d) together: how many, 0 by default, and the steps."""
        del keys, points
        return 0, []

    def fulfil_many_steps(self, keys: Sequence[int], rewards: FloatArray) -> Fulfilled | None:
        """Prepare :meth:`fulfil` of points together; None by default, for one by one."""
        del keys, rewards
        return None

    @abstractmethod
    def abandon_steps(self, keys: Collection[int]) -> Steps:
        """Prepare :meth:`abandon` of several points at once; writes nothing."""

    def abandon_many_steps(self, keys: Sequence[int]) -> Iterator[tuple[int, Steps]]:
        """Prepare :meth:`abandon` of many points part by part: how many each part forgets, and its steps."""
        yield len(keys), self.abandon_steps(keys)

    @final
    def abandon(self, key: int) -> None:
        """Forget an anticipated point whose reward will never come; an anchor it has become stays."""
        carry_out(self.abandon_steps([key]))

    @abstractmethod
    def copy(self) -> Self:
        """Return a posterior that learns apart from this one; what never changes is shared."""

    @abstractmethod
    def batch(self) -> AbstractContextManager[Callable[[FloatArray], float]]:
        """Play a batch of points before any of their rewards; new directions find the history in one pass at its end.

        Yields:
            The function point (d,) ↦ σ²(point), the paper's variance as it was when the batch began.
        """

    def observe_many_steps(self, points: FloatArray, rewards: FloatArray) -> Iterator[tuple[int, Steps]]:
        """Prepare :meth:`observe_many` part by part: how many observations each learns, and its steps.

        The next part may be asked for once the one before is carried out.
        """
        for point, reward in zip(points, rewards.tolist(), strict=True):
            yield 1, self.observe_steps(point, reward, self.evaluate_finite(point[None, :]))

    @final
    def observe_many(self, points: FloatArray, rewards: FloatArray) -> None:
        """Learn valid observations one after the other, at the speed of matrix products where possible."""
        for _, steps in self.observe_many_steps(points, rewards):
            carry_out(steps)

    def learn_history(
        self, points: FloatArray, rewards: FloatArray, candidates: FloatArray, weights: FloatArray | None = None
    ) -> None:
        """Learn a whole history of points (t, d), rewards (t,) and weights (t,), 1 each if None, before anything else.

        Anchors may be chosen among the candidates (n, d), joint points that stand for the history.
        """
        del candidates  # a posterior without anchors has none to choose
        if weights is None:
            self.observe_many(points, rewards)
            return
        for point, reward, weight in zip(points, rewards.tolist(), weights.tolist(), strict=True):
            self.observe_weighted(point, reward, weight)

    @property
    def observed_weights(self) -> FloatArray | None:
        """The weights of the observations in order, shape (t,); None if all are 1."""
        return None

    @property
    def given_weights(self) -> FloatArray | None:
        """The weights that observations were learned with, before any of it was forgotten."""
        return self.observed_weights

    def counted(self, rewards: FloatArray) -> FloatArray:
        """Return what of rewards counts, shape (n,): all of it, unless their tails are heavy."""
        return rewards

    def require_finite(self, evaluation: E) -> None:
        """Raise if the kernel was not finite: a value that is not shows in the mean or std of its row."""
        require_finite_kernel(self.kernel, evaluation.mean + evaluation.std)

    def evaluate_finite(self, points: FloatArray) -> E:
        """Call :meth:`evaluate`, or an error if the kernel is not finite at the points."""
        with np.errstate(invalid="ignore", over="ignore"):
            evaluation = self.evaluate(points)
        self.require_finite(evaluation)
        return evaluation

    def predict(self, points: ArrayLike) -> Prediction:
        """Return mean and standard deviation of the expected reward at points (A, d).

        The standard deviation is the ordinary Gaussian-process one, with noise variance ``regularization``; the paper's
        σ is ``std / sqrt(regularization)``.
        """
        evaluation = self.evaluate_finite(self._checked(points))
        return Prediction(evaluation.mean, evaluation.std)

    def update(self, point: ArrayLike, reward: float) -> None:
        """Learn one observation.

        Args:
            point: the joint point that was played, shape (d,).
            reward: what came back.
        """
        point = as_vector("point", point, self.dimension)
        reward = as_reward(reward)
        self.observe(point, reward, self.evaluate_finite(self._checked(point[None, :])))

    def update_many(self, points: ArrayLike, rewards: ArrayLike) -> None:
        """Learn a log of observations in order; the posterior is that of :meth:`update` one by one.

        Args:
            points: shape (n, d).
            rewards: shape (n,).
        """
        points = self._checked(points)
        rewards = as_vector("rewards", rewards, len(points))
        require_finite("rewards", rewards)
        self.observe_many(points, rewards)

    def _checked(self, points: ArrayLike) -> FloatArray:
        """Return finite points of the right width; before the first one, of a width that the kernel takes."""
        checked = as_points("points", points, self.dimension)
        require_finite("points", checked)
        if self.dimension is None:
            require_columns(self.kernel, checked)
        return checked


class _JointBound(Bound):
    """The bound of any posterior, evaluated at joint points."""

    def __init__(self, posterior: Posterior[Any], context: FloatArray, bonus: float) -> None:
        self._posterior, self._context, self._bonus = posterior, context, bonus

    def values(self, actions: FloatArray) -> FloatArray:
        evaluation = self._posterior.evaluate_finite(join(self._context, actions))
        return evaluation.mean + self._bonus * evaluation.std

    def with_gradients(self, actions: FloatArray) -> tuple[FloatArray, FloatArray]:
        points = join(self._context, actions)
        evaluation = self._posterior.evaluate(points)
        gradients = self._posterior.gradient(points, evaluation, self._bonus, len(self._context))
        return evaluation.mean + self._bonus * evaluation.std, gradients

"""What every posterior offers and reports: predictions with standard deviations, updates by one observation, facts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.actions import Box, join
from kernel_bandits.arrays import FloatArray, as_points, as_positive, as_reward, as_vector, require_finite
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.kernels import KernelLike, as_kernel, require_columns
from kernel_bandits.learning.mixed import CURVED
from kernel_bandits.numerics.linalg import correlate
from kernel_bandits.posteriors.pending import Carrier

Approximation: TypeAlias = Literal["exact", "projected", "history-free", "random features"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected rewards and their posterior standard deviations, arrays of length A in the units of the reward."""

    mean: FloatArray
    std: FloatArray


@dataclass(slots=True)
class Evaluation:
    """A prediction at A points together with what the posterior computed on the way, for an update to use.

    Attributes:
        round_index: how many observations the posterior held; an evaluation is good until the next one, or until a
            point is anticipated or abandoned.
        mean: expected rewards, shape (A,).
        std: posterior standard deviations, shape (A,).
    """

    round_index: int
    mean: FloatArray
    std: FloatArray


class Fulfilled(NamedTuple):
    """Rewards that are learned together.

    Attributes:
        steps: learn them.
        means: what was expected of each after those before it, shape (n,).
        stds: the standard deviations of these expectations, shape (n,).
    """

    steps: Steps
    means: FloatArray
    stds: FloatArray


@dataclass(frozen=True)
class KernelChange:
    """A change of kernel.

    Attributes:
        round_index: t, after how many observations.
        kernel: from then on, output variance included.
        regularization: λ from then on, the noise variance.
        prior_mean: the expected reward where nothing is known, from then on.
        evidence_gained: log evidence of the kernel less that of the one before on the same sample, in nats; infinite
            for the first if none was given.
        relative_lengthscales: of each column, context columns first, over the spread of what was played in it (√12
            standard deviations, the width of an interval of uniform values). A column at 10 or more hardly matters to
            the reward; infinite if it never varied.
        shares: of the variance of the rewards, by part: noise, constant, linear, smooth, and of single actions if they
            return; empty unless they are learned.
        arm_correlation: of what two named arms earn in one context; 0 where arms share nothing.
    """

    round_index: int
    kernel: KernelLike
    regularization: float
    prior_mean: float
    evidence_gained: float
    relative_lengthscales: tuple[float, ...]
    shares: tuple[tuple[str, float], ...] = ()
    arm_correlation: float = 0.0


@dataclass(slots=True)
class Facts:
    """What a posterior counts, in one place; a posterior around another shows the facts of the one within.

    Attributes:
        kernel: the covariance function, ours or scikit-learn's.
        regularization: λ.
        approximation: of the kernel's feature space.
        dimension: d, or None before the first point.
        round_index: t.
        residual_trace: ρ.
        prior_mean: what is taken off rewards before the regression learns them.
        kernel_changes: how the kernel came to be.
        bonus: how many standard deviations an upper bound should lie above the mean.
        unit: that of rewards which the kernel, λ and covariances are in; 1 unless their squares would underflow.
        shape: what rewards in a box show of the settings, as of :mod:`kernel_bandits.learning.mixed`.
        is_provisional: whether rewards are still too few to learn more of them than their level and spread.
        trusted_since: observations before this one count for nothing, since rewards fell below what was predicted.
        failed_refits: how often a kernel could not be learned.
        failed_round: in which round the last time.
        failure: why, the last time.
    """

    kernel: KernelLike
    regularization: float
    approximation: Approximation
    dimension: int | None = None
    round_index: int = 0
    residual_trace: float = 0.0
    prior_mean: float = 0.0
    kernel_changes: tuple[KernelChange, ...] = ()
    bonus: float = 1.0
    unit: float = 1.0
    shape: int = CURVED
    is_provisional: bool = False
    trusted_since: int = 0
    failed_refits: int = 0
    failed_round: int = 0
    failure: str = ""

    def __post_init__(self) -> None:
        self.kernel = as_kernel(self.kernel)
        self.regularization = as_positive("regularization", self.regularization)

    def count_steps(self, dimension: int, observations: int = 1) -> Steps:
        """Return the steps that count observations of points with this number of columns."""
        return [(self.store, self.residual_trace, dimension, self.round_index + observations)]

    def store(self, residual_trace: float, dimension: int, round_index: int) -> None:
        """Write what an observation changes; may be repeated."""
        self.residual_trace, self.dimension, self.round_index = residual_trace, dimension, round_index

    def count_failure(self, round_index: int, reason: Exception) -> None:
        """Take note of a kernel that could not be learned, in facts that nobody else holds."""
        self.failed_refits, self.failed_round, self.failure = self.failed_refits + 1, round_index, str(reason)

    def take_failures(self, other: Self) -> None:
        """Go on with the failures of a posterior that this one replaces."""
        self.failed_refits, self.failed_round, self.failure = other.failed_refits, other.failed_round, other.failure


def require_finite_kernel(kernel: KernelLike, values: FloatArray) -> None:
    """Raise unless what was computed from a kernel is finite."""
    if not np.isfinite(values).all():
        raise InputError(
            f"kernel: {kernel!r} returned values that are not finite at the given points; "
            "check the kernel and the scale of the data."
        )


class Bound(ABC):
    """mean + bonus·std in one context, up to a constant and in a unit that suits the posterior."""

    @abstractmethod
    def values(self, actions: FloatArray) -> FloatArray:
        """Return the bound at actions (n, d_a), shape (n,); raise if the kernel is not finite there."""

    @abstractmethod
    def with_gradients(self, actions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the bound (n,) and its gradients (n, d_a) at actions (n, d_a), finite where the kernel is."""


E = TypeVar("E", bound=Evaluation)


def _fact(path: str) -> Any:
    """Return a read-only attribute, looked up in C.

    A Python function for each would cost some percent of a short round.
    """
    return property(attrgetter(path))


class Posterior(ABC, Generic[E]):
    """Kernel ridge regression on joint points.

    A point may be played long before its reward comes. :meth:`anticipate` counts it into the standard deviations, which
    depend on points alone; :meth:`fulfil` brings the reward into the mean, in whatever order rewards come; and
    :meth:`abandon` takes the point out again. What comes out does not depend on the order: dictionary rules decide when
    a point is anticipated, and never look at rewards.

    Args:
        facts: what the posterior counts; it changes them in place.
        pending: the regression that carries it, with what is awaited.
    """

    kernel: KernelLike = _fact("_facts.kernel")
    """The covariance function."""
    regularization: float = _fact("_facts.regularization")
    """The λ of the ridge; the noise variance in the Gaussian-process view."""
    approximation: Approximation = _fact("_facts.approximation")
    """What the posterior replaces the kernel's feature space by; decides which radii are valid."""
    dimension: int | None = _fact("_facts.dimension")
    """d, the number of columns of a point; None before the first."""
    round_index: int = _fact("_facts.round_index")
    """t, how many observations were learned."""
    residual_trace: float = _fact("_facts.residual_trace")
    """ρ = Σ ‖(I − P)k(s_i, ·)‖², what the anchors leave unexplained of the past; 0 if exact."""
    prior_mean: float = _fact("_facts.prior_mean")
    """The expected reward where nothing is known; 0 unless it is learned."""
    kernel_changes: tuple[KernelChange, ...] = _fact("_facts.kernel_changes")
    """How the kernel has changed so far; empty unless it is learned."""
    trusted_since: int = _fact("_facts.trusted_since")
    """The first observation that still counts: a learned model drops what came before rewards fell short of it."""
    failed_refits: int = _fact("_facts.failed_refits")
    """How often a kernel could not be learned, so that the one before stayed."""
    dictionary_size: int = _fact("_pending.settled.size")
    """How many anchors, points or features carry the posterior: m."""
    log_determinant: float = _fact("_pending.settled.log_determinant")
    """The log det(I + K/λ) of the (projected) Gram matrix of the observed points."""
    effective_dimension: float = _fact("_pending.settled.effective_dimension")
    """Trace K(K + λI)⁻¹ of the (projected) Gram matrix of the observed points (Definition 3.1)."""
    drift: float = _fact("_pending.settled.drift")
    """How far the tracked inverse was from the true one when it was last checked, relative; 0 without one."""
    bonus: float = _fact("_facts.bonus")
    """How many standard deviations an upper bound should lie above the mean; 1 unless it is learned."""
    shape: int = _fact("_facts.shape")
    """What rewards in a box show of the settings: nothing, a plane or more (:mod:`kernel_bandits.learning.mixed`)."""
    unit: float = _fact("_facts.unit")
    """The unit of rewards which the kernel, λ and covariances are in; 1 unless their squares would underflow."""
    falls_back: bool = False
    """Whether rewards that stay below what was predicted of them end the trust in what was learned before."""
    learns_kernel: bool = False
    """Whether the kernel is learned from the rewards; radii with a guarantee do not hold then."""

    def __init__(self, facts: Facts, pending: Carrier) -> None:
        self._facts = facts
        self._pending = pending

    @property
    def information_gain(self) -> float:
        """½·log det(I + K/λ) of the (projected) Gram matrix."""
        return 0.5 * self.log_determinant

    def awaited_point(self, key: int) -> FloatArray:
        """The point (d,) whose reward is awaited under a key."""
        return self._pending.awaited[key].point

    @property
    def awaited_points(self) -> dict[int, FloatArray]:
        """The points (d,) whose reward is awaited, by key, oldest first."""
        return {key: awaited.point for key, awaited in self._pending.awaited.items()}

    @property
    def awaited_count(self) -> int:
        """The number of points whose reward is awaited."""
        return len(self._pending.awaited)

    @property
    def observed_points(self) -> FloatArray:
        """Every observed point in order, shape (t, d), where the history is kept."""
        return self._observations()[0]

    @property
    def observed_rewards(self) -> FloatArray:
        """Every observed reward in order, shape (t,), where the history is kept."""
        return self._observations()[1]

    @abstractmethod
    def _observations(self) -> tuple[FloatArray, FloatArray]:
        """Return every observed point (t, d) and reward (t,) in order, or an error where the history is not kept."""

    @property
    @abstractmethod
    def dictionary_points(self) -> FloatArray:
        """The anchors that carry the posterior, shape (m, d)."""

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


# Up to this many points are drawn jointly: a factorisation of that order takes about 20 ms.
JOINT_POINTS = 1000


def draw_deviations(
    posterior: Posterior[Any], points: FloatArray, evaluation: Evaluation, count: int, generator: np.random.Generator
) -> FloatArray:
    """Draw (expected reward − mean) at evaluated points (A, d), shape (count, A).

    Joint up to ``JOINT_POINTS`` points; more are drawn in blocks of that many, independent of each other.
    """
    normals = posterior.unit * generator.standard_normal((count, len(points)))
    if len(points) <= JOINT_POINTS:
        return correlate(normals, posterior.covariance(points, evaluation))
    for start in range(0, len(points), JOINT_POINTS):
        block = slice(start, start + JOINT_POINTS)
        covariance = posterior.covariance(points[block], posterior.evaluate(points[block]))
        normals[:, block] = correlate(normals[:, block], covariance)
    return normals

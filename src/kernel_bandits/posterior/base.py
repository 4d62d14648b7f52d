"""What every posterior offers: predictions with standard deviations, and the posterior after further observations."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_points, as_positive, as_vector, join, require_finite
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.kernels import KernelLike, require_columns
from kernel_bandits.numerics.linalg import correlate
from kernel_bandits.values import Pending, evolve, fact

Approximation: TypeAlias = Literal["exact", "projected", "history-free", "random features", "a sum over a log"]

# The exponential of more is not a finite number.
LARGEST_LOGARITHM = 700.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected rewards and their posterior standard deviations, arrays of length A in the units of the reward."""

    mean: FloatArray
    std: FloatArray


@dataclass(slots=True)
class Evaluation:
    """A prediction at A points, to which a posterior adds what it computed on the way, for an update to use.

    Attributes:
        mean: expected rewards, shape (A,).
        std: posterior standard deviations, shape (A,).
    """

    mean: FloatArray
    std: FloatArray


# What rewards show of the settings of a box: nothing, a plane, or more than that.
FLAT, PLANE, CURVED = range(3)
# A point as it was evaluated: the evaluation, and its row there.
Evaluated: TypeAlias = tuple[Any, int]
Seen: TypeAlias = Evaluated | None
# Of observations, shape (n,); None for 1.
Weights: TypeAlias = FloatArray | None


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


@dataclass(frozen=True, slots=True)
class Failures:
    """How often a kernel could not be learned, in which round the last time, and why."""

    count: int = 0
    round_index: int = 0
    reason: str = ""

    def after(self, round_index: int, reason: Exception) -> Failures:
        """Return them with one more."""
        return Failures(self.count + 1, round_index, str(reason))


def require_finite_kernel(kernel: KernelLike, values: FloatArray) -> None:
    """Raise unless what was computed from a kernel is finite."""
    if not np.isfinite(values).all():
        raise InputError(
            f"kernel: {kernel!r} returned values that are not finite at the given points; "
            "check the kernel and the scale of the data."
        )


class Bound(ABC):
    """mean + bonus·std in one context, up to a constant."""

    @abstractmethod
    def values(self, actions: FloatArray) -> FloatArray:
        """Return the bound at actions (n, d_a), shape (n,); raise if the kernel is not finite there."""

    @abstractmethod
    def with_gradients(self, actions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the bound (n,) and its gradients (n, d_a) at actions (n, d_a), finite where the kernel is."""


class Model(ABC):
    """What a policy learns, as a value: nothing changes a model, and its verbs return the next one.

    :meth:`learned` has observations in it. :meth:`awaiting` knows of points whose rewards are to come, which
    :meth:`settled` brings, in whatever order, or :meth:`abandoned` gives up. All take a block of n ≥ 1.

    Attributes:
        learns_in_order: whether rewards are to be learned in the order of their decisions, whenever they come.
    """

    __slots__ = ()

    learns_in_order: bool = False

    @abstractmethod
    def learned(self, points: FloatArray, rewards: FloatArray, weights: Weights = None, evaluated: Any = None) -> Self:
        """Return the model with finite rewards (n,) at points (n, d) in it, in order.

        Args:
            points: joint points, context columns first, shape (n, d), n ≥ 1.
            rewards: shape (n,).
            weights: an observation of noise variance λ/weight each, shape (n,); None for 1.
            evaluated: what the choice of the point left for the update (``Choice.computed``), where there is one point
                and this model chose it; for a posterior its :class:`Evaluation` and the row of the point there.
        """

    def awaiting(self, keys: Sequence[int], points: FloatArray, evaluated: Any = None) -> Self:
        """Return the model that knows of points (n, d) as played whose rewards are to come; keys name them."""
        del keys, points, evaluated  # by default they count once their rewards have come
        return self

    def settled(self, keys: Sequence[int], points: FloatArray, rewards: FloatArray, weights: Weights = None) -> Self:
        """Return the model with the rewards (n,) of awaited points (n, d)."""
        return self.learned(points, rewards, weights).abandoned(keys)

    def abandoned(self, keys: Collection[int]) -> Self:
        """Return the model without awaited points whose rewards never come."""
        del keys
        return self

    def described(self, context_columns: int, points: FloatArray, box: Box | None = None) -> Self:
        """Return the model that knows, before the first round, what the columns of joint points are.

        Args:
            context_columns: how many of the leading columns are the context.
            points: the joint points on offer, shape (A, d).
            box: the box that they are of, if it is one.
        """
        del context_columns, points, box
        return self

    def in_box(self, box: Box) -> Self:
        """Return the model that knows the box of actions; it predicts the same."""
        del box
        return self

    def reseeded(self, entropy: int) -> Self:
        """Return the model with fresh coins."""
        del entropy  # by default nothing is drawn
        return self

    @property
    def posteriors(self) -> Sequence[Posterior]:
        """The posteriors in the model: one, one per stage, or none."""
        return ()

    @property
    def dictionary_size(self) -> int:
        """The number of points or features that carry the model: m of a dictionary, t of an exact posterior."""
        return sum(posterior.dictionary_size for posterior in self.posteriors)


class Posterior(Model):
    """Kernel ridge regression on joint points: a value. Nothing changes a posterior; its verbs return the next one.

    - :meth:`learned` has observations in it;
    - :meth:`awaiting` counts points whose reward is to come in the standard deviations, which depend on points alone;
    - :meth:`settled` brings their rewards into the mean, in whatever order they come; :meth:`abandoned` takes points
      out again whose reward never comes.

    What comes out does not depend on the order: dictionary rules decide when a point is played, and never look at
    rewards. A posterior of your own has the five attributes below, :meth:`evaluate` and :meth:`learned`; it may improve
    on any other member.

    Attributes:
        kernel: the covariance function.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view.
        approximation: what it replaces the kernel's feature space by; decides which radii are valid.
        dimension: d, the number of columns of a point; None before the first.
        round_index: t, how many observations were learned.
        residual_trace: ρ = Σ ‖(I − P)k(s_i, ·)‖², what the anchors leave unexplained of the past; 0 if exact.
        dictionary_size: how many anchors, points or features carry the posterior: m.
        log_determinant: log det(I + K/λ) of the (projected) Gram matrix of the observed points.
        effective_dimension: trace K(K + λI)⁻¹ of that matrix (Definition 3.1).
        drift: how far the tracked inverse was from the true one when it was last checked, relative; 0 without one.
        prior_mean: the expected reward where nothing is known; 0 unless it is learned.
        bonus: how many standard deviations an upper bound should lie above the mean; 1 unless it is learned.
        shape: ``FLAT``, ``PLANE`` or ``CURVED``: what rewards in a box show of the settings, nothing, a plane or more.
        box: what actions are chosen from, as far as columns say, where the kernel is learned in one; None elsewhere.
        is_provisional: whether rewards are still too few to learn more of them than their level and spread.
        kernel_changes: how the kernel has changed so far; empty unless it is learned.
        failures: how often a kernel could not be learned, so that the one before stayed.
        may_be_due: whether :meth:`due` ever names a point.
        learns_kernel: whether the kernel is learned from the rewards; radii with a guarantee do not hold then.
        forgets: whether observations lose their weight as they age; nor do they then.
    """

    __slots__ = ()

    kernel: KernelLike
    regularization: float
    approximation: Approximation
    dimension: int | None
    round_index: int
    residual_trace: float = 0.0
    dictionary_size: int = 0
    log_determinant: float = 0.0
    effective_dimension: float = 0.0
    drift: float = 0.0
    prior_mean: float = 0.0
    bonus: float = 1.0
    shape: int = CURVED
    box: Box | None = None
    is_provisional: bool = False
    kernel_changes: tuple[KernelChange, ...] = ()
    failures: Failures = Failures()
    may_be_due: bool = False
    learns_kernel: bool = False
    forgets: bool = False

    @abstractmethod
    def evaluate(self, points: FloatArray) -> Any:
        """Return the :class:`Evaluation` of finite points (A, d) of the right width.

        Where the kernel is not finite the evaluation is not either; :meth:`require_finite` raises then.
        """

    def of_history(
        self, points: FloatArray, rewards: FloatArray, candidates: FloatArray, weights: FloatArray | None = None
    ) -> Self:
        """Return the posterior of a whole history (t, d), (t,), in one that has learned nothing yet.

        Anchors may be chosen among the candidates (n, d), joint points that stand for the history.
        """
        del candidates  # a posterior without anchors has none to choose
        return self.learned(points, rewards, weights)

    def counting(self, points: Mapping[int, FloatArray]) -> Self:
        """Return the posterior that awaits all these points by key, in one that awaits none; anchors stay."""
        posterior = self
        for key, point in points.items():
            posterior = posterior.awaiting([key], point[None, :])
        return posterior

    def shown(self, contexts: FloatArray) -> Self:
        """Return the posterior that has measured the columns of further contexts (n, d_x), without rewards."""
        del contexts  # a kernel that is given knows its columns
        return self

    def grouped(self, labels: NDArray[np.intp]) -> Self:
        """Return the posterior that knows, before the first round, which columns encode one variable, shape (d,)."""
        del labels  # a kernel that is given knows its columns
        return self

    @property
    def posteriors(self) -> Sequence[Posterior]:
        return (self,)

    @property
    def information_gain(self) -> float:
        """½·log det(I + K/λ) of the (projected) Gram matrix."""
        return 0.5 * self.log_determinant

    @property
    def log_determinant_with_pending(self) -> float:
        """The log det(I + K/λ) of the observed and the awaited points."""
        return self.log_determinant

    @property
    def pending_shrinkage(self) -> float:
        """By what awaited points divide the variance at any point at most; 1 while none is awaited."""
        # V_pending ⪯ V·det(V_pending)/det(V) for V_pending ⪰ V; a posterior that knows its features has a smaller one
        return math.exp(min(self.log_determinant_with_pending - self.log_determinant, LARGEST_LOGARITHM))

    @property
    def awaited_points(self) -> dict[int, FloatArray]:
        """The points (d,) whose reward is awaited, by key, oldest first."""
        return {}

    @property
    def awaited_count(self) -> int:
        """The number of points whose reward is awaited."""
        return len(self.awaited_points)

    @property
    def dictionary_points(self) -> FloatArray:
        """The anchors that carry the posterior, shape (m, d)."""
        return np.empty((0, self.dimension or 0))

    @property
    def observed_points(self) -> FloatArray:
        """Every observed point in order, shape (t, d), where the history is kept."""
        return self.observations[0]

    @property
    def observed_rewards(self) -> FloatArray:
        """Every observed reward in order, shape (t,), where the history is kept."""
        return self.observations[1]

    @property
    def observations(self) -> tuple[FloatArray, FloatArray]:
        """Every observed point (t, d) and reward (t,) in order."""
        raise UnavailableError(f"observed_points: {type(self).__name__} keeps no observations.")

    @property
    def observed_weights(self) -> FloatArray | None:
        """The weights of the observations in order, shape (t,); None if all are 1."""
        return None

    @property
    def given_weights(self) -> FloatArray | None:
        """The weights that observations were learned with, before any of it was forgotten."""
        return self.observed_weights

    def weight_of(self, noise_variance: float) -> float:
        """The weight λ/σ² of an observation with noise variance σ²."""
        return self.regularization / as_positive("noise_variance", noise_variance)

    def counted(self, rewards: FloatArray) -> FloatArray:
        """Return what of rewards counts, shape (n,): all of it, unless their tails are heavy."""
        return rewards

    def due(self, points: FloatArray, means: FloatArray, stds: FloatArray) -> int | None:
        """Return which of the points (A, d) of one context is to be tried all the same, if one is.

        The means (A,) and standard deviations (A,) are those of the points.
        """
        del points, means, stds  # what is to be expected is known where the kernel is given
        return None

    def means(self, points: FloatArray) -> FloatArray:
        """Return the expected rewards at finite points (A, d), shape (A,), without their standard deviations.

        Raise if the kernel is not finite at the points.
        """
        return self.evaluate_finite(points).mean

    def evaluate_awaited(self, keys: Sequence[int], points: FloatArray) -> Prediction:
        """Predict at awaited points (n, d) as if they were not awaited, where that is known at no cost."""
        del keys
        evaluation = self.evaluate_finite(points)
        return Prediction(evaluation.mean, evaluation.std)

    def contenders(self, points: FloatArray, bonus: float) -> tuple[NDArray[np.intp] | None, Any]:
        """Evaluate the points that may have the largest mean + bonus·std, and no more of the others than it takes.

        Returns:
            Their indices, or None for all, and their evaluation.
        """
        del bonus  # a posterior that has no cheap bounds looks at all
        return None, self.evaluate(points)

    def bound_in(self, context: FloatArray, bonus: float) -> Bound:
        """Return mean + bonus·std in one context (d_x,) as a function of the action, up to a constant."""
        return _JointBound(self, context, bonus)

    def gradient(self, points: FloatArray, evaluation: Any, bonus: float, first: int = 0) -> FloatArray:
        """Return the gradient of mean + bonus·std at evaluated points, shape (A, d − first).

        Where std is 0 it has none, and counts as constant.

        Args:
            points: shape (A, d).
            evaluation: of these points.
            bonus: of one standard deviation.
            first: the column to begin with: that of the first action column where the context is fixed.
        """
        del evaluation
        gradient = np.empty((len(points), points.shape[1] - first))
        for column in range(first, points.shape[1]):
            step = 1e-6 * np.maximum(np.abs(points[:, column]), 1.0)
            above, below = points.copy(), points.copy()
            above[:, column] += step
            below[:, column] -= step
            up, down = self.evaluate(above), self.evaluate(below)
            rise = up.mean - down.mean + bonus * (up.std - down.std)
            gradient[:, column - first] = rise / (2.0 * step)
        return gradient

    def covariance(self, points: FloatArray, evaluation: Any) -> FloatArray:
        """Return the posterior covariance of the expected rewards at evaluated points, shape (A, A)."""
        del points, evaluation  # a posterior need not have one
        raise UnavailableError(f"covariance: {type(self).__name__} has none, and joint draws need it.")

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Return what the mean at a point (d,) is the sum of.

        Returns:
            n points (n, d), what each contributes (n,), and the rewards observed at them (n,); or None in their place
                where the history is not kept and the points are anchors.
        """
        del point  # a posterior need not name any
        raise UnavailableError(f"contributions: {type(self).__name__} keeps no points to name.")

    def require_finite(self, evaluation: Any) -> None:
        """Raise if the kernel was not finite: a value that is not shows in the mean or std of its row."""
        require_finite_kernel(self.kernel, evaluation.mean + evaluation.std)

    def evaluate_finite(self, points: FloatArray) -> Any:
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

    def updated(self, points: ArrayLike, rewards: ArrayLike) -> Self:
        """Return the posterior with rewards (n,) at points (n, d) in it, or with one at a point (d,); both checked."""
        checked = self._checked(np.atleast_2d(np.asarray(points, dtype=float)))
        numbers = as_vector("rewards", np.atleast_1d(np.asarray(rewards, dtype=float)), len(checked))
        require_finite("rewards", numbers)
        return self.learned(checked, numbers)

    def _checked(self, points: ArrayLike) -> FloatArray:
        """Return finite points of the right width; before the first one, of a width that the kernel takes."""
        checked = as_points("points", points, self.dimension)
        require_finite("points", checked)
        if self.dimension is None:
            require_columns(self.kernel, checked)
        return checked


class RegressionPosterior(Posterior):
    """A posterior that keeps two regressions: on the rewards received, and on awaited points too. Abstract.

    Attributes:
        regression: on the rewards received; means are its.
        with_pending: counts awaited points too, with any rewards; standard deviations are its. The same object as
            ``regression`` while no reward is awaited.
        awaited: the points whose rewards are to come, by key.
    """

    __slots__ = ()

    regression: Any
    with_pending: Any
    awaited: Pending[Any]

    dictionary_size: int = fact("regression.size")
    log_determinant: float = fact("regression.log_determinant")
    log_determinant_with_pending: float = fact("with_pending.log_determinant")
    effective_dimension: float = fact("regression.effective_dimension")

    @property
    def awaited_points(self) -> dict[int, FloatArray]:
        return {key: awaited.point for key, awaited in self.awaited.items()}

    @property
    def awaited_count(self) -> int:
        return len(self.awaited)

    def _one_by_one(self, points: FloatArray, rewards: FloatArray, weights: FloatArray | None) -> Self:
        """Return the posterior with observations that are learned one after the other."""
        posterior = self
        for row in range(len(points)):
            one = slice(row, row + 1)
            posterior = posterior.learned(points[one], rewards[one], None if weights is None else weights[one])
        return posterior

    def settled(self, keys: Sequence[int], points: FloatArray, rewards: FloatArray, weights: Weights = None) -> Self:
        if weights is not None:
            # they were counted with weight 1
            return super().settled(keys, points, rewards, weights)
        after, awaited = self._with_rewards(keys, points, rewards), self.awaited.without(keys)
        return evolve(after, awaited=awaited, with_pending=self.with_pending if awaited else after.regression)

    @abstractmethod
    def _with_rewards(self, keys: Sequence[int], points: FloatArray, rewards: FloatArray) -> Self:
        """Return the posterior with rewards of weight 1 at awaited points in its ``regression``."""


class PosteriorAround(Posterior):
    """A posterior that passes on what another one knows. Abstract.

    Attributes:
        within: the other one.
    """

    __slots__ = ()

    within: Any

    regularization: float = fact("within.regularization")
    approximation: Approximation = fact("within.approximation")
    residual_trace: float = fact("within.residual_trace")
    dictionary_size: int = fact("within.dictionary_size")
    log_determinant: float = fact("within.log_determinant")
    log_determinant_with_pending: float = fact("within.log_determinant_with_pending")
    effective_dimension: float = fact("within.effective_dimension")
    drift: float = fact("within.drift")
    awaited_count: int = fact("within.awaited_count")


class _JointBound(Bound):
    """The bound of any posterior, evaluated at joint points."""

    def __init__(self, posterior: Posterior, context: FloatArray, bonus: float) -> None:
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
    posterior: Posterior, points: FloatArray, evaluation: Evaluation, count: int, generator: np.random.Generator
) -> FloatArray:
    """Draw (expected reward − mean) at evaluated points (A, d), shape (count, A).

    Joint up to ``JOINT_POINTS`` points; more are drawn in blocks of that many, independent of each other.
    """
    normals = generator.standard_normal((count, len(points)))
    if len(points) <= JOINT_POINTS:
        return correlate(normals, posterior.covariance(points, evaluation))
    for start in range(0, len(points), JOINT_POINTS):
        block = slice(start, start + JOINT_POINTS)
        covariance = posterior.covariance(points[block], posterior.evaluate(points[block]))
        normals[:, block] = correlate(normals[:, block], covariance)
    return normals

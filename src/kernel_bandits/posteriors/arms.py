"""Arms that share nothing: a posterior of its own for each, K times smaller than one for all."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import setitem
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import Kernel, KernelLike
from kernel_bandits.kernels.base import with_defaults
from kernel_bandits.posteriors.base import Evaluation, Facts, Posterior
from kernel_bandits.posteriors.pending import Awaited

# Builds the posterior of one arm on contexts, given how many there are already.
ArmFactory: TypeAlias = Callable[[KernelLike, float, int], Posterior[Any]]


@dataclass(slots=True)
class _SplitEvaluation(Evaluation):
    """Adds the evaluation of each point's arm, and the row of the point in it; None for an arm never played."""

    within: list[tuple[Evaluation, int] | None]


# The columns of the anchors are told apart from those that never vary if at most this share of them varies.
NARROW = 0.8


@dataclass(slots=True)
class _NarrowAnchors:
    """Anchors without the columns in which all of them agree: the unused levels of a category, for one.

    Attributes:
        columns: those in which they differ, shape (n,).
        fixed: the others.
        values: what all anchors hold in the others.
        anchors: shape (m, n).
        kernel: of the columns, for points that hold the same in the others.
    """

    columns: NDArray[np.intp]
    fixed: NDArray[np.intp]
    values: FloatArray
    anchors: FloatArray
    kernel: KernelLike


class _Arms:
    """The posteriors of the arms by the bytes of their action, counted together as one regression.

    Args:
        kernel: of contexts.
        context_columns: d_x.

    Attributes:
        members: the posteriors, in the order in which arms were first played.
        awaited: the joint points whose reward is to come.
        size: the anchors of all arms together.
        anchors: their contexts, arm by arm, shape (m, d_x).
        narrow: the same without the columns that do not vary; None where most do.
    """

    def __init__(self, kernel: KernelLike, context_columns: int) -> None:
        self.members: dict[bytes, Posterior[Any]] = {}
        self.awaited: dict[int, Awaited] = {}
        self.size = 0
        self.anchors = np.empty((0, context_columns))
        self.narrow: _NarrowAnchors | None = None
        self._kernel = kernel

    @property
    def settled(self) -> _Arms:
        """The regression of all arms together."""
        return self

    @property
    def log_determinant(self) -> float:
        """The sum over arms."""
        return math.fsum(member.log_determinant for member in self.members.values())

    @property
    def effective_dimension(self) -> float:
        """The sum over arms."""
        return math.fsum(member.effective_dimension for member in self.members.values())

    @property
    def drift(self) -> float:
        """The largest of any arm."""
        return max((member.drift for member in self.members.values()), default=0.0)

    def copy(self) -> _Arms:
        """Return arms that learn apart from these."""
        twin = copy.copy(self)
        twin.members = {arm: member.copy() for arm, member in self.members.items()}
        twin.awaited = dict(self.awaited)
        return twin

    def count(self) -> None:
        """Count the anchors again; may be repeated."""
        size = sum(member.dictionary_size for member in self.members.values())
        if size != self.size:
            columns = self.anchors.shape[1]
            blocks = [member.dictionary_points for member in self.members.values()]
            # an arm without anchors does not know its columns yet
            self.anchors = np.concatenate([block.reshape(len(block), columns) for block in blocks])
            self.narrow = self._narrowed()
            # last, so that a count that was interrupted is repeated
            self.size = size

    def _narrowed(self) -> _NarrowAnchors | None:
        varies = (self.anchors != self.anchors[0]).any(axis=0)
        columns, fixed = np.flatnonzero(varies), np.flatnonzero(~varies)
        if not 0 < len(columns) <= NARROW * len(varies):
            return None
        kernel = with_defaults(self._kernel).restricted(columns, self.anchors[0])
        if kernel is None:
            return None
        anchors = np.ascontiguousarray(self.anchors[:, columns])
        return _NarrowAnchors(columns, fixed, self.anchors[0, fixed], anchors, kernel)

    def gram(self, context: FloatArray) -> FloatArray:
        """Return the kernel between a context (1, d_x) and all anchors, shape (1, m)."""
        narrow = self.narrow
        if narrow is not None and (context[0, narrow.fixed] == narrow.values).all():
            return narrow.kernel(context[:, narrow.columns], narrow.anchors)
        return self._kernel(context, self.anchors)


class SplitPosterior(Posterior[_SplitEvaluation]):
    """One posterior per arm, on contexts alone; the posterior of a :class:`~kernel_bandits.PerArm` kernel.

    An arm is a distinct action. One that was never played has the prior mean and standard deviation.

    Args:
        kernel: the kernel of joint points, in which arms share nothing.
        regularization: λ.
        build: builds the posterior of an arm.
    """

    def __init__(self, kernel: Kernel, regularization: float, build: ArmFactory) -> None:
        of_each = kernel.of_each_arm()
        if of_each is None:
            raise InputError(f"kernel: expected one whose arms share nothing, such as PerArm, got {kernel!r}.")
        self._contexts, self._split = of_each
        self._arms = _Arms(self._contexts, self._split)
        is_free = build(self._contexts, regularization, 0).approximation == "history-free"
        super().__init__(Facts(kernel, regularization, "history-free" if is_free else "projected"), self._arms)
        self._build = build
        # which arm each observation belongs to, in the order in which they were learned
        self._order: list[int] = []
        self._numbers: dict[bytes, int] = {}

    @property
    def dictionary_points(self) -> FloatArray:
        blocks = [self._joint(member.dictionary_points, arm) for arm, member in self._arms.members.items()]
        return np.concatenate(blocks) if blocks else np.empty((0, self.dimension or 0))

    def _joint(self, contexts: FloatArray, arm: bytes) -> FloatArray:
        action = np.frombuffer(arm)
        contexts = contexts.reshape(len(contexts), self._split)
        return np.hstack([contexts, np.broadcast_to(action, (len(contexts), len(action)))])

    def _observations(self) -> tuple[FloatArray, FloatArray]:
        members = self._arms.members.items()
        if not members:
            return np.empty((0, self.dimension or 0)), np.empty(0)
        points = np.concatenate([self._joint(member.observed_points, arm) for arm, member in members])
        rewards = np.concatenate([member.observed_rewards for _, member in members])
        # the observations of one arm are in order; place them where the arm was played
        places = np.argsort(np.asarray(self._order), kind="stable")
        ordered, ordered_rewards = np.empty(points.shape), np.empty(len(rewards))
        ordered[places], ordered_rewards[places] = points, rewards
        return ordered, ordered_rewards

    def _rows_by_arm(self, points: FloatArray) -> dict[bytes, list[int]]:
        rows: dict[bytes, list[int]] = {}
        for row, action in enumerate(np.ascontiguousarray(points[:, self._split :])):
            rows.setdefault(action.tobytes(), []).append(row)
        return rows

    def evaluate(self, points: FloatArray) -> _SplitEvaluation:
        contexts = points[:, : self._split]
        mean, std = np.zeros(len(points)), np.empty(len(points))
        within: list[tuple[Evaluation, int] | None] = [None] * len(points)
        rows_by_arm = self._rows_by_arm(points)
        known = self._of_one_context(contexts, rows_by_arm)
        for arm, rows in rows_by_arm.items():
            member = self._arms.members.get(arm)
            if member is None:
                std[rows] = np.sqrt(self._contexts.diag(contexts[rows]))
                continue
            evaluation = known[arm] if arm in known else member.evaluate(contexts[rows])
            mean[rows], std[rows] = evaluation.mean, evaluation.std
            for place, row in enumerate(rows):
                within[row] = (evaluation, place)
        return _SplitEvaluation(self._facts.round_index, mean, std, within)

    def _of_one_context(self, contexts: FloatArray, rows_by_arm: dict[bytes, list[int]]) -> dict[bytes, Evaluation]:
        """Return the evaluations of the arms, by one call of the kernel, where all are offered in one context."""
        if len(contexts) < 2 or len(rows_by_arm) < len(contexts) or not (self._split and self._arms.size):
            return {}
        context = contexts[:1]
        if not (contexts == context).all():
            return {}
        arms = self._arms
        gram, prior = arms.gram(context), self._contexts.diag(context)
        evaluations, start = {}, 0
        for arm, member in arms.members.items():
            stop = start + member.dictionary_size
            if arm in rows_by_arm:
                evaluations[arm] = member.evaluate_gram(context, gram[:, start:stop].copy(), prior)
            start = stop
        return evaluations

    def _member(self, point: FloatArray) -> tuple[bytes, Posterior[Any]]:
        """Return the posterior of a point's arm, a fresh one if the arm was never played; writes nothing."""
        arm = point[self._split :].tobytes()
        member = self._arms.members.get(arm)
        if member is None:
            member = self._build(self._contexts, self.regularization, len(self._arms.members))
        return arm, member

    def _evaluated(self, point: FloatArray, evaluation: _SplitEvaluation, row: int) -> tuple[bytes, Any, Any, int]:
        arm, member = self._member(point)
        known = evaluation.within[row] or (member.evaluate_finite(point[None, : self._split]), 0)
        return arm, member, *known

    def _admit_steps(self, arm: bytes, member: Posterior[Any], dimension: int, observations: int) -> Steps:
        """Return the steps that keep the posterior of an arm, which has learned that many observations."""
        return [
            (self._arms.members.setdefault, arm, member),
            (self._numbers.setdefault, arm, len(self._numbers)),
            (self._count, dimension, self._facts.round_index + observations),
        ]

    def _count(self, dimension: int, round_index: int) -> None:
        """Count all arms again; may be repeated."""
        self._arms.count()
        trace = math.fsum(each.residual_trace for each in self._arms.members.values())
        self._facts.store(trace, dimension, round_index)

    def observe_steps(self, point: FloatArray, reward: float, evaluation: _SplitEvaluation, row: int = 0) -> Steps:
        arm, member, known, place = self._evaluated(point, evaluation, row)
        return [
            *member.observe_steps(point[: self._split], reward, known, place),
            (self._order.append, self._numbers.get(arm, len(self._numbers))),
            *self._admit_steps(arm, member, len(point), 1),
        ]

    def predict_awaited(self, key: int) -> tuple[float, float]:
        return self._member(self._arms.awaited[key].point)[1].predict_awaited(key)

    def observe_weighted_steps(self, point: FloatArray, reward: float, weight: float) -> Steps:
        arm, member = self._member(point)
        return [
            *member.observe_weighted_steps(point[: self._split], reward, weight),
            (self._order.append, self._numbers.get(arm, len(self._numbers))),
            *self._admit_steps(arm, member, len(point), 1),
        ]

    @property
    def observed_weights(self) -> FloatArray | None:
        members = [(member.observed_weights, member.round_index) for member in self._arms.members.values()]
        if all(weights is None for weights, _ in members):
            return None
        given = np.concatenate([np.ones(count) if weights is None else weights for weights, count in members])
        ordered = np.empty(len(given))
        ordered[np.argsort(np.asarray(self._order), kind="stable")] = given
        return ordered

    def observe_many_steps(self, points: FloatArray, rewards: FloatArray) -> Iterator[tuple[int, Steps]]:
        twin = self.copy()
        twin._learn_groups(points, lambda member, rows: member.observe_many(points[rows, : self._split], rewards[rows]))
        own = {"_order": twin._order, "_numbers": twin._numbers}
        shared = [replace_state(self._facts, twin._facts), replace_state(self._arms, twin._arms)]
        yield len(points), [*shared, (vars(self).update, own)]

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin._facts, twin._arms = copy.copy(self._facts), self._arms.copy()
        twin._pending, twin._order, twin._numbers = twin._arms, list(self._order), dict(self._numbers)
        return twin

    def learn_history(
        self, points: FloatArray, rewards: FloatArray, candidates: FloatArray, weights: FloatArray | None = None
    ) -> None:
        chosen = self._rows_by_arm(candidates)

        def learn(member: Posterior[Any], rows: list[int]) -> None:
            arm = points[rows[0], self._split :].tobytes()
            contexts = points[rows, : self._split]
            own = candidates[chosen[arm], : self._split] if arm in chosen else contexts[:1]
            member.learn_history(contexts, rewards[rows], own, None if weights is None else weights[rows])

        self._learn_groups(points, learn)

    def _learn_groups(self, points: FloatArray, learn: Callable[[Posterior[Any], list[int]], None]) -> None:
        groups = self._rows_by_arm(points)
        numbers = np.empty(len(points), dtype=np.intp)
        for rows in groups.values():
            arm, member = self._member(points[rows[0]])
            learn(member, rows)
            carry_out(self._admit_steps(arm, member, points.shape[1], len(rows)))
            numbers[rows] = self._numbers[arm]
        self._order.extend(numbers.tolist())

    def anticipate_steps(self, key: int, point: FloatArray, evaluation: _SplitEvaluation, row: int = 0) -> Steps:
        arm, member, known, place = self._evaluated(point, evaluation, row)
        return [
            *member.anticipate_steps(key, point[: self._split], known, place),
            (setitem, self._arms.awaited, key, Awaited(point, point)),
            *self._admit_steps(arm, member, len(point), 0),
        ]

    def anticipate_all(self, points: Mapping[int, FloatArray]) -> None:
        keys, joint = list(points), np.array(list(points.values()))
        for rows in self._rows_by_arm(joint).values():
            arm, member = self._member(joint[rows[0]])
            member.anticipate_all({keys[row]: joint[row, : self._split] for row in rows})
            carry_out(self._admit_steps(arm, member, joint.shape[1], 0))
        self._arms.awaited.update({key: Awaited(point, point) for key, point in points.items()})

    def fulfil_steps(self, key: int, reward: float) -> Steps:
        point = self._arms.awaited[key].point
        arm, member = self._member(point)
        return [
            *member.fulfil_steps(key, reward),
            (self._order.append, self._numbers[arm]),
            (self._arms.awaited.pop, key, None),
            *self._admit_steps(arm, member, len(point), 1),
        ]

    def abandon_steps(self, keys: Collection[int]) -> Steps:
        keys_by_arm: dict[bytes, list[int]] = {}
        for key in keys:
            keys_by_arm.setdefault(self._arms.awaited[key].point[self._split :].tobytes(), []).append(key)
        steps: Steps = [(self._arms.awaited.pop, key, None) for key in keys]
        for arm, some in keys_by_arm.items():
            steps += self._arms.members[arm].abandon_steps(some)
        return steps

    def gradient(self, points: FloatArray, evaluation: _SplitEvaluation, bonus: float, first: int = 0) -> FloatArray:
        del evaluation  # of arms in other contexts too
        gradient = np.zeros(points.shape)
        for arm, rows in self._rows_by_arm(points).items():
            member = self._arms.members.get(arm)
            if member is not None:
                contexts = points[rows, : self._split]
                gradient[rows, : self._split] = member.gradient(contexts, member.evaluate(contexts), bonus)
        return gradient[:, first:]

    def covariance(self, points: FloatArray, evaluation: _SplitEvaluation) -> FloatArray:
        del evaluation  # of arms in other contexts too
        covariance = np.zeros((len(points), len(points)))
        for arm, rows in self._rows_by_arm(points).items():
            contexts = points[rows, : self._split]
            member = self._arms.members.get(arm)
            block = (
                self._contexts(contexts, contexts.copy())
                if member is None
                else member.covariance(contexts, member.evaluate(contexts))
            )
            covariance[np.ix_(rows, rows)] = block
        return covariance

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        arm, member = self._member(point)
        if arm not in self._arms.members:
            return np.empty((0, len(point))), np.empty(0), np.empty(0)
        contexts, values, rewards = member.contributions(point[: self._split])
        return self._joint(contexts, arm), values, rewards

    @contextmanager
    def batch(self) -> Iterator[Callable[[FloatArray], float]]:
        with ExitStack() as stack:
            variances = {arm: stack.enter_context(member.batch()) for arm, member in self._arms.members.items()}

            def variance(point: FloatArray) -> float:
                context = point[: self._split]
                known = variances.get(point[self._split :].tobytes())
                if known is not None:
                    return known(context)
                return self._contexts.diag(context[None, :]).item(0) / self.regularization

            yield variance

    def __repr__(self) -> str:
        return (
            f"SplitPosterior({self.kernel!r}, regularization={self.regularization:g}, arms={len(self._arms.members)}, "
            f"round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )

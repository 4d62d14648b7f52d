"""Arms that share nothing: a posterior of its own for each, K times smaller than one for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import Kernel, KernelLike
from kernel_bandits.kernels.base import with_defaults
from kernel_bandits.posterior.base import Evaluated, Evaluation, Posterior, Seen, Weights
from kernel_bandits.posterior.nystrom import NystromPosterior
from kernel_bandits.values import Pending, Rows, evolve, fact

# Builds the posterior of one arm on contexts, given how many there are already.
ArmFactory: TypeAlias = Callable[[KernelLike, float, int], Posterior]
# The columns of the anchors are told apart from those that never vary if at most this share of them varies.
NARROW = 0.8


@dataclass(slots=True)
class _SplitEvaluation(Evaluation):
    """Adds each point as its arm has evaluated it; None for an arm never played."""

    within: list[Evaluated | None]


class _Anchors:
    """The anchors of all arms, arm by arm: the kernel between a context and all of them takes one call.

    Where anchors agree in many columns, the unused levels of a category for one, these are left out for contexts that
    agree too.

    Args:
        kernel: of contexts.
        anchors: shape (m, d_x).

    Attributes:
        size: m.
    """

    __slots__ = ("_anchors", "_columns", "_fixed", "_kernel", "_narrow", "_narrow_anchors", "size")

    def __init__(self, kernel: KernelLike, anchors: FloatArray) -> None:
        self._kernel, self._anchors, self.size = kernel, anchors, len(anchors)
        varies = (anchors != anchors[:1]).any(axis=0)
        self._columns, self._fixed = np.flatnonzero(varies), np.flatnonzero(~varies)
        self._narrow: KernelLike | None = None
        self._narrow_anchors = anchors[:, self._columns]
        if 0 < len(self._columns) <= NARROW * len(varies):
            self._narrow = with_defaults(kernel).restricted(self._columns, anchors[0])
            self._narrow_anchors = np.ascontiguousarray(self._narrow_anchors)

    def gram(self, context: FloatArray) -> FloatArray:
        """Return the kernel between a context (1, d_x) and all anchors, shape (1, m)."""
        if self._narrow is not None and (context[0, self._fixed] == self._anchors[0, self._fixed]).all():
            return self._narrow(context[:, self._columns], self._narrow_anchors)
        return self._kernel(context, self._anchors)


def _total(name: str) -> Any:
    """Return an attribute that is the sum of that of all arms."""
    return property(lambda self: math.fsum(getattr(member, name) for member in self.members.values()))


class SplitPosterior(Posterior):
    """One posterior per arm, on contexts alone; the posterior of a :class:`~kernel_bandits.PerArm` kernel.

    An arm is a distinct action. One that was never played has the prior mean and standard deviation.

    Args:
        kernel: the kernel of joint points, in which arms share nothing.
        regularization: λ.
        build: builds the posterior of an arm.

    Attributes:
        members: the posteriors by the bytes of their action, in the order in which arms were first played.
        awaited: the joint points whose rewards are to come, by key.
    """

    __slots__ = (
        "_anchors",
        "_build",
        "_contexts",
        "_numbers",
        "_order",
        "_split",
        "approximation",
        "awaited",
        "dimension",
        "kernel",
        "members",
        "regularization",
    )

    def __init__(self, kernel: Kernel, regularization: float, build: ArmFactory) -> None:
        of_each = kernel.of_each_arm()
        if of_each is None:
            raise InputError(f"kernel: expected one whose arms share nothing, such as PerArm, got {kernel!r}.")
        self.kernel: Kernel = kernel
        self.regularization: float = regularization
        self._contexts, self._split = of_each
        self._build = build
        is_free = build(self._contexts, regularization, 0).approximation == "history-free"
        self.approximation = "history-free" if is_free else "projected"
        self.members: dict[bytes, Posterior] = {}
        self._numbers: dict[bytes, int] = {}
        # the number of the arm of each observation, in the order in which they were learned
        self._order = Rows()
        self._anchors = _Anchors(self._contexts, np.empty((0, self._split)))
        self.awaited: Pending[FloatArray] = Pending[FloatArray]()
        self.dimension: int | None = None

    round_index: int = fact("_order.size")
    dictionary_size: int = fact("_anchors.size")

    log_determinant: float = _total("log_determinant")
    log_determinant_with_pending: float = _total("log_determinant_with_pending")
    effective_dimension: float = _total("effective_dimension")
    residual_trace: float = _total("residual_trace")

    @property
    def pending_shrinkage(self) -> float:
        return max((member.pending_shrinkage for member in self.members.values()), default=1.0)

    @property
    def drift(self) -> float:  # type: ignore[override] # computed here, kept elsewhere
        return max((member.drift for member in self.members.values()), default=0.0)

    @property
    def dictionary_points(self) -> FloatArray:
        blocks = [self._joint(member.dictionary_points, arm) for arm, member in self.members.items()]
        return np.concatenate(blocks) if blocks else np.empty((0, self.dimension or 0))

    @property
    def awaited_points(self) -> dict[int, FloatArray]:
        return dict(self.awaited)

    @property
    def awaited_count(self) -> int:
        return len(self.awaited)

    @property
    def observations(self) -> tuple[FloatArray, FloatArray]:
        if not self.members:
            return np.empty((0, self.dimension or 0)), np.empty(0)
        points = np.concatenate([self._joint(member.observed_points, arm) for arm, member in self.members.items()])
        rewards = np.concatenate([member.observed_rewards for member in self.members.values()])
        return self._in_order(points), self._in_order(rewards)

    @property
    def observed_weights(self) -> FloatArray | None:
        members = [(member.observed_weights, member.round_index) for member in self.members.values()]
        if all(weights is None for weights, _ in members):
            return None
        given = [np.ones(count) if weights is None else weights for weights, count in members]
        return self._in_order(np.concatenate(given))

    def _in_order(self, by_arm: FloatArray) -> FloatArray:
        """Return what is in order for each arm, arm by arm, in the order of all observations."""
        ordered = np.empty(by_arm.shape)
        ordered[np.argsort(self._order.array, kind="stable")] = by_arm
        return ordered

    def _joint(self, contexts: FloatArray, arm: bytes) -> FloatArray:
        action = np.frombuffer(arm)
        contexts = contexts.reshape(len(contexts), self._split)
        return np.hstack([contexts, np.broadcast_to(action, (len(contexts), len(action)))])

    def _rows_by_arm(self, points: FloatArray) -> dict[bytes, list[int]]:
        rows: dict[bytes, list[int]] = {}
        for row, action in enumerate(np.ascontiguousarray(points[:, self._split :])):
            rows.setdefault(action.tobytes(), []).append(row)
        return rows

    def _member(self, arm: bytes) -> Posterior:
        """Return the posterior of an arm, a fresh one if the arm was never played."""
        member = self.members.get(arm)
        return self._build(self._contexts, self.regularization, len(self.members)) if member is None else member

    def evaluate(self, points: FloatArray) -> _SplitEvaluation:
        contexts = points[:, : self._split]
        mean, std = np.zeros(len(points)), np.empty(len(points))
        within: list[Evaluated | None] = [None] * len(points)
        rows_by_arm = self._rows_by_arm(points)
        known = self._of_one_context(contexts, rows_by_arm)
        for arm, rows in rows_by_arm.items():
            member = self.members.get(arm)
            if member is None:
                std[rows] = np.sqrt(self._contexts.diag(contexts[rows]))
                continue
            evaluation = known[arm] if arm in known else member.evaluate(contexts[rows])
            mean[rows], std[rows] = evaluation.mean, evaluation.std
            for place, row in enumerate(rows):
                within[row] = (evaluation, place)
        return _SplitEvaluation(mean, std, within)

    def _of_one_context(self, contexts: FloatArray, rows_by_arm: dict[bytes, list[int]]) -> dict[bytes, Any]:
        """Return the evaluations of arms with anchors, by one call of the kernel, where all have one context."""
        if len(contexts) < 2 or len(rows_by_arm) < len(contexts) or not (self._split and self.dictionary_size):
            return {}
        context = contexts[:1]
        if not (contexts == context).all():
            return {}
        gram, prior = self._anchors.gram(context), self._contexts.diag(context)
        evaluations, start = {}, 0
        for arm, member in self.members.items():
            stop = start + member.dictionary_size
            if arm in rows_by_arm and isinstance(member, NystromPosterior):
                evaluations[arm] = member.evaluate_gram(gram[:, start:stop].copy(), prior)
            start = stop
        return evaluations

    def gradient(self, points: FloatArray, evaluation: _SplitEvaluation, bonus: float, first: int = 0) -> FloatArray:
        del evaluation  # of arms in other contexts too
        gradient = np.zeros(points.shape)
        for arm, rows in self._rows_by_arm(points).items():
            member = self.members.get(arm)
            if member is not None:
                contexts = points[rows, : self._split]
                gradient[rows, : self._split] = member.gradient(contexts, member.evaluate(contexts), bonus)
        return gradient[:, first:]

    def covariance(self, points: FloatArray, evaluation: _SplitEvaluation) -> FloatArray:
        del evaluation  # of arms in other contexts too
        covariance = np.zeros((len(points), len(points)))
        for arm, rows in self._rows_by_arm(points).items():
            contexts = points[rows, : self._split]
            member = self.members.get(arm)
            if member is None:
                block = self._contexts(contexts, contexts.copy())
            else:
                block = member.covariance(contexts, member.evaluate(contexts))
            covariance[np.ix_(rows, rows)] = block
        return covariance

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        arm = point[self._split :].tobytes()
        if arm not in self.members:
            return np.empty((0, len(point))), np.empty(0), np.empty(0)
        contexts, values, rewards = self.members[arm].contributions(point[: self._split])
        return self._joint(contexts, arm), values, rewards

    def learned(self, points: FloatArray, rewards: FloatArray, weights: Weights = None, evaluated: Seen = None) -> Self:
        if len(points) == 1:
            arm, known = points[0, self._split :].tobytes(), self._known(evaluated)
            member = self._member(arm).learned(points[:, : self._split], rewards, weights, known)
            return self._with({arm: member}, points, [arm])

        def learn(member: Posterior, rows: list[int]) -> Posterior:
            own = None if weights is None else weights[rows]
            return member.learned(points[rows, : self._split], rewards[rows], own)

        return self._learned_by_arm(points, learn)

    def of_history(
        self, points: FloatArray, rewards: FloatArray, candidates: FloatArray, weights: FloatArray | None = None
    ) -> Self:
        chosen = self._rows_by_arm(candidates)

        def learn(member: Posterior, rows: list[int]) -> Posterior:
            arm, contexts = points[rows[0], self._split :].tobytes(), points[rows, : self._split]
            own = candidates[chosen[arm], : self._split] if arm in chosen else contexts[:1]
            return member.of_history(contexts, rewards[rows], own, None if weights is None else weights[rows])

        return self._learned_by_arm(points, learn)

    def _learned_by_arm(self, points: FloatArray, learn: Callable[[Posterior, list[int]], Posterior]) -> Self:
        posterior, arms = self, [b""] * len(points)
        for arm, rows in self._rows_by_arm(points).items():
            posterior = posterior._with({arm: learn(posterior._member(arm), rows)}, points, ())
            for row in rows:
                arms[row] = arm
        return posterior._with({}, points, arms)

    def _known(self, evaluated: Seen) -> Evaluated | None:
        return None if evaluated is None else evaluated[0].within[evaluated[1]]

    def _with(self, members: Mapping[bytes, Posterior], points: FloatArray, observed: Sequence[bytes]) -> Self:
        """Return it with other posteriors of some arms, and the arms of further observations."""
        grown = any(_has_other_anchors(self.members.get(arm), member) for arm, member in members.items())
        known = self._numbers
        numbers = known | {arm: len(known) for arm in members if arm not in known} if members.keys() - known else known
        after = evolve(self, members={**self.members, **members}, _numbers=numbers, dimension=points.shape[1])
        if grown:
            blocks = [member.dictionary_points for member in after.members.values()]
            # an arm without anchors does not know its columns yet
            anchors = np.concatenate([block.reshape(len(block), self._split) for block in blocks])
            after._anchors = _Anchors(self._contexts, anchors)
        if observed:
            after._order = self._order.extended(np.array([numbers[arm] for arm in observed]))
        return after

    def awaiting(self, keys: Sequence[int], points: FloatArray, evaluated: Seen = None) -> Self:
        posterior = self
        for row, key in enumerate(keys):
            arm, known = points[row, self._split :].tobytes(), self._known(evaluated) if row == 0 else None
            member = posterior._member(arm).awaiting([key], points[row : row + 1, : self._split], known)
            posterior = posterior._with({arm: member}, points, ())
        awaited = {key: point.copy() for key, point in zip(keys, points, strict=True)}
        return evolve(posterior, awaited=self.awaited.with_items(awaited))

    def counting(self, points: Mapping[int, FloatArray]) -> Self:
        keys, joint = list(points), np.array(list(points.values()))
        posterior = self
        for arm, rows in self._rows_by_arm(joint).items() if keys else ():
            contexts = {keys[row]: joint[row, : self._split] for row in rows}
            posterior = posterior._with({arm: posterior._member(arm).counting(contexts)}, joint, ())
        return evolve(posterior, awaited=Pending(points))

    def settled(self, keys: Sequence[int], points: FloatArray, rewards: FloatArray, weights: Weights = None) -> Self:
        posterior = self
        for arm, rows in self._rows_by_arm(points).items():
            own, contexts = None if weights is None else weights[rows], points[rows, : self._split]
            member = posterior.members[arm].settled([keys[row] for row in rows], contexts, rewards[rows], own)
            posterior = posterior._with({arm: member}, points, ())
        arms = [action.tobytes() for action in np.ascontiguousarray(points[:, self._split :])]
        return evolve(posterior._with({}, points, arms), awaited=self.awaited.without(keys))

    def evaluate_awaited(self, keys: Sequence[int], points: FloatArray) -> Any:
        if len(keys) == 1:
            return self.members[points[0, self._split :].tobytes()].evaluate_awaited(keys, points[:, : self._split])
        return super().evaluate_awaited(keys, points)

    def abandoned(self, keys: Collection[int]) -> Self:
        by_arm: dict[bytes, list[int]] = {}
        for key in keys:
            by_arm.setdefault(self.awaited[key][self._split :].tobytes(), []).append(key)
        members = {arm: self.members[arm].abandoned(some) for arm, some in by_arm.items()}
        return evolve(self, members={**self.members, **members}, awaited=self.awaited.without(keys))

    def reseeded(self, entropy: int) -> Self:
        members = {arm: member.reseeded(entropy) for arm, member in self.members.items()}
        return evolve(self, members=members, _build=reseeded_factory(self._build, entropy))

    def __repr__(self) -> str:
        return (
            f"SplitPosterior({self.kernel!r}, regularization={self.regularization:g}, arms={len(self.members)}, "
            f"round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )


def _has_other_anchors(before: Posterior | None, after: Posterior) -> bool:
    """Return whether an arm that was updated is carried by other anchors."""
    if before is None or before.dictionary_size != after.dictionary_size:
        return True
    return getattr(before, "basis", None) is not getattr(after, "basis", None)


def reseeded_factory(build: Any, entropy: int) -> Any:
    """Return what builds posteriors with coins of another seed, where it has coins."""
    return build.reseeded(entropy) if hasattr(build, "reseeded") else build

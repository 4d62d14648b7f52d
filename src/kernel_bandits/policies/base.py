"""What every policy offers."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits import persistence
from kernel_bandits.actions import Box, available_rows, join
from kernel_bandits.arrays import FloatArray, as_floats, as_points, as_reward, as_vector, require_finite
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import require_columns
from kernel_bandits.numerics.blas_threads import threads_for
from kernel_bandits.policies.diagnostics import Diagnostics, diagnose
from kernel_bandits.policies.ledger import Ledger
from kernel_bandits.posteriors.base import Posterior

# Rows that a product of the many-at-once methods has at least, as far as threads are concerned.
MANY = 256
# Values this close to the largest, relative, count as equal to it.
TIE_TOLERANCE = 1e-12


@dataclass(slots=True)
class Decision:
    """The action to play and what the policy believed of it.

    Attributes:
        index: its row among the offered actions; −1 where a box was offered, which has no rows.
        action: the action itself, shape (d_a,).
        mean: its expected reward.
        std: the posterior standard deviation of its expected reward.
        upper_bound: its upper confidence bound; under a UCB rule the largest of all offered actions. Under Thompson
            sampling the value that was drawn for it.
        context: the context it was chosen for, shape (d_x,).
        propensity: the probability with which it was chosen, where the policy chooses at random among finitely many
            actions; else None.
        id: what :meth:`Policy.tell` names it by; None unless it comes from :meth:`Policy.ask`.
    """

    index: int
    action: FloatArray
    mean: float
    std: float
    upper_bound: float
    context: FloatArray
    propensity: float | None = None
    id: int | None = None

    def to_dict(self) -> dict[str, int | float | list[float] | None]:
        """Every attribute as plain numbers and lists, for a log: ``json.dumps(decision.to_dict())``."""
        return {**asdict(self), "action": self.action.tolist(), "context": self.context.tolist()}


# A Decision before its action is looked up: the row chosen, its mean, std and upper bound, and its propensity.
Choice: TypeAlias = tuple[int, float, float, float, float | None]


def require_action_columns(actions: FloatArray) -> None:
    """Raise if actions are described by nothing."""
    if not actions.shape[-1]:
        raise InputError("actions: expected at least one column, got none; describe an action by a number at least.")


class Policy(ABC):
    """Plays one of the offered actions and learns from its reward. Rewards are maximised.

    The dimensions of contexts and actions are those of the first observation; the actions, and how many there are, may
    change from round to round.

    Args:
        ties: the generator that breaks ties.
    """

    def __init__(self, ties: np.random.Generator) -> None:
        self._ties = ties
        self._dimensions: tuple[int | None, int | None] = (None, None)
        # The point select chose last and its bytes: its update needs no second check, and computes nothing twice. The
        # bytes are None while what a policy keeps of its last choice is of no use.
        self._chosen_point = np.empty(0)
        self._chosen_bytes: bytes | None = None
        self._ledger = Ledger()

    @property
    @abstractmethod
    def posteriors(self) -> Sequence[Posterior[Any]]:
        """The models the policy plays by: one, one per stage, or none."""

    @property
    @abstractmethod
    def round_index(self) -> int:
        """How many rewards came in: t."""

    @property
    @abstractmethod
    def dictionary_size(self) -> int:
        """How many points or features carry the model: m of a dictionary, t of an exact posterior, 0 without one."""

    @abstractmethod
    def _select(self, points: FloatArray) -> Choice:
        """Choose among valid joint points (A, d); the model stays as it is."""

    @abstractmethod
    def _select_many(self, points: FloatArray) -> list[Choice]:
        """Choose among valid joint points (n, A, d) in each of n rounds; the model stays as it is.

        What is kept of the last ``_select`` for its update stays too.
        """

    @abstractmethod
    def _update(self, point: FloatArray, reward: float, chosen: bool) -> None:
        """Learn from a valid joint point; either succeeds or changes nothing.

        Args:
            point: shape (d,).
            reward: finite.
            chosen: whether it is the point that the last ``_select`` chose.
        """

    @abstractmethod
    def _update_many(self, points: FloatArray, rewards: FloatArray) -> None:
        """Learn from valid joint points (n, d) in order."""

    @abstractmethod
    def _anticipate(self, key: int, point: FloatArray) -> None:
        """Count the point that the last ``_select`` chose as played; its reward comes under ``key``, or never."""

    @abstractmethod
    def _fulfil(self, key: int, reward: float) -> None:
        """Learn the reward of an anticipated point; either succeeds or changes nothing."""

    @abstractmethod
    def _abandon(self, key: int) -> None:
        """Forget an anticipated point whose reward never comes."""

    # What a bad kernel or a huge number makes of the arithmetic is reported as an error, not as a warning on the way.
    @np.errstate(invalid="ignore", over="ignore")
    def select(self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None = None) -> Decision:
        """Choose an action for a context.

        Does not change the model; randomness is consumed only to break ties, to search a box, and by policies that
        choose at random.

        Args:
            context: shape (d_x,); empty for a problem without contexts.
            actions: one offered action per row, shape (A, d_a), A ≥ 1; or a box, any point of which may be played.
            mask: True for the rows that may be played, shape (A,); all of them unless given. What stands in the other
                rows does not matter.
        """
        if isinstance(actions, Box):
            return self._select_in_box(context, actions, mask)
        indices: NDArray[np.intp] | None = None
        actions = as_points("actions", actions, self._dimensions[1])
        if mask is not None:
            indices = available_rows(mask, len(actions))
            actions = actions[indices]
        context = as_vector("context", context, self._dimensions[0])
        require_action_columns(actions)
        points = join(context, actions)
        if self._dimensions[0] is None:
            self._check_first(points, len(context))
        threads = threads_for(self.dictionary_size, len(points))
        if threads is None:
            row, mean, std, upper_bound, propensity = self._select(points)
        else:
            with threads:
                row, mean, std, upper_bound, propensity = self._select(points)
        self._chosen_point = point = points[row]
        self._chosen_bytes = point.tobytes()
        split, own = len(context), point.copy()
        if indices is not None:
            row = int(indices[row])
        return Decision(row, own[split:], mean, std, upper_bound, own[:split], propensity)

    def _select_in_box(self, context: ArrayLike, box: Box, mask: ArrayLike | None) -> Decision:
        """Reduce a box to a few points and choose among them; an error leaves the generator as it was."""
        if not isinstance(self, BoxPolicy):
            raise InputError(
                f"actions: {type(self).__name__} chooses among finitely many actions and was offered a Box; "
                "offer rows, for instance box.sample(generator, 100)."
            )
        if mask is not None:
            raise InputError("mask: a box has no rows to leave out; offer a smaller box.")
        if self._dimensions[1] not in (None, box.dimension):
            raise InputError(f"actions: expected a box of {self._dimensions[1]} dimensions, got {box.dimension}.")
        context = as_vector("context", context, self._dimensions[0])
        if self._dimensions[0] is None:
            self._check_first(join(context, box.low[None, :]), len(context))
        require_finite("context", context)
        state = self._ties.bit_generator.state
        try:
            return replace(self.select(context, self._finalists(context, box)), index=-1, propensity=None)
        except BaseException:
            self._ties.bit_generator.state = state
            raise

    def update(self, context: ArrayLike, action: ArrayLike, reward: float) -> None:
        """Learn the reward of an action that was played in a context.

        Args:
            context: shape (d_x,).
            action: shape (d_a,), for instance ``decision.action``.
            reward: a finite number; larger is better.
        """
        context = as_vector("context", context, self._dimensions[0])
        action = as_vector("action", action, self._dimensions[1])
        chosen = context.tobytes() + action.tobytes() == self._chosen_bytes
        if chosen:
            point = self._chosen_point
        else:
            require_finite("context", context)
            require_finite("action", action)
            point = np.concatenate((context, action))
            if self._dimensions[0] is None:
                require_action_columns(action)
                self._check_first(point[None, :], len(context))
        threads = threads_for(self.dictionary_size)
        if threads is None:
            self._update(point, as_reward(reward), chosen)
        else:
            with threads:
                self._update(point, as_reward(reward), chosen)
        self._dimensions = (len(context), len(action))

    def select_many(self, contexts: ArrayLike, actions: ArrayLike | Box) -> list[Decision]:
        """Choose an action for each of many contexts with the model as it stands, at the speed of matrix products.

        Args:
            contexts: one per row, shape (n, d_x).
            actions: offered in every round, shape (A, d_a), or round by round, shape (n, A, d_a); or a box, which is
                searched for one context after the other.
        """
        if isinstance(actions, Box):
            contexts = as_points("contexts", contexts, self._dimensions[0])
            require_finite("contexts", contexts)
            return [self.select(context, actions) for context in contexts]
        contexts, actions = self._rounds(contexts, actions)
        repeated = np.broadcast_to(contexts[:, None, :], (*actions.shape[:2], contexts.shape[1]))
        with threads_for(self.dictionary_size, MANY) or nullcontext():
            choices = self._select_many(np.concatenate([repeated, actions], axis=2))
        return [
            Decision(row, offered[row].copy(), mean, std, upper_bound, context.copy(), propensity)
            for (row, mean, std, upper_bound, propensity), offered, context in zip(
                choices, actions, contexts, strict=True
            )
        ]

    def _rounds(self, contexts: ArrayLike, actions: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Contexts (n, d_x) and the actions offered with each, shape (n, A, d_a), checked."""
        contexts = as_points("contexts", contexts, self._dimensions[0])
        actions = as_floats("actions", actions)
        if actions.ndim == 2:
            actions = np.broadcast_to(actions, (len(contexts), *actions.shape))
        if actions.ndim != 3 or len(actions) != len(contexts) or not actions.size:
            raise InputError(
                f"actions: expected shape (A, d_a), or (n, A, d_a) with n = {len(contexts)} as many as contexts, "
                f"and A at least 1, got {actions.shape}."
            )
        if self._dimensions[1] not in (None, actions.shape[2]):
            raise InputError(f"actions: expected {self._dimensions[1]} columns, got {actions.shape[2]}.")
        require_finite("contexts", contexts)
        require_finite("actions", actions)
        if self._dimensions[0] is None:
            self._check_first(np.concatenate((contexts[0], actions[0, 0]))[None, :], contexts.shape[1])
        return contexts, actions

    def update_many(self, contexts: ArrayLike, actions: ArrayLike, rewards: ArrayLike) -> None:
        """Learn a log of rounds in order; the model is that of :meth:`update` one by one, reached faster.

        Bad input changes nothing. If the kernel fails in the middle, the rounds before that stay learned.

        Args:
            contexts: shape (n, d_x).
            actions: the action that was played in each, shape (n, d_a).
            rewards: shape (n,).
        """
        contexts = as_points("contexts", contexts, self._dimensions[0])
        actions = as_points("actions", actions, self._dimensions[1])
        rewards = as_vector("rewards", rewards)
        if not len(contexts) == len(actions) == len(rewards):
            raise InputError(
                f"contexts, actions and rewards: expected as many of each, "
                f"got {len(contexts)}, {len(actions)} and {len(rewards)}."
            )
        require_finite("contexts", contexts)
        require_finite("actions", actions)
        require_finite("rewards", rewards)
        as_reward(np.abs(rewards).max())
        points = np.hstack([contexts, actions])
        if self._dimensions[0] is None:
            require_action_columns(actions)
            self._check_first(points, contexts.shape[1])
        with threads_for(self.dictionary_size, MANY) or nullcontext():
            self._update_many(points, rewards)
        self._dimensions = (contexts.shape[1], actions.shape[1])

    def ask(self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None = None) -> Decision:
        """Choose an action whose reward comes later; the decision's ``id`` names it until then.

        The standard deviations count the chosen point from now on, so that a burst of asks explores different actions;
        the means wait for :meth:`tell`.

        Args:
            context: shape (d_x,).
            actions: shape (A, d_a), A ≥ 1; or a box.
            mask: True for the rows that may be played, shape (A,); all of them unless given.
        """
        decision = self.select(context, actions, mask)
        point = np.concatenate((decision.context, decision.action))
        with threads_for(self.dictionary_size) or nullcontext():
            self._anticipate(self._ledger.issued, point)
        self._chosen_bytes = None
        self._dimensions = (len(decision.context), len(decision.action))
        return replace(decision, id=self._ledger.issue())

    def tell(self, id: int, reward: float) -> None:  # noqa: A002 (the public name of a decision's id)
        """Learn the reward of a decision of :meth:`ask`; in any order, once each.

        Args:
            id: ``decision.id``.
            reward: a finite number; larger is better.
        """
        self.tell_many([id], [reward])

    def tell_many(self, ids: Sequence[int], rewards: ArrayLike) -> None:
        """Learn the rewards of decisions of :meth:`ask`.

        A bad id or reward changes nothing. If the kernel fails in the middle, the rewards before that stay learned.

        Args:
            ids: of n decisions.
            rewards: shape (n,).
        """
        keys = [self._ledger.require_open("tell", key) for key in ids]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"tell: decision {twice} stands twice among the ids; a reward counts once.")
        numbers = [as_reward(reward) for reward in as_vector("rewards", rewards, len(keys)).tolist()]
        with threads_for(self.dictionary_size) or nullcontext():
            for key, reward in zip(keys, numbers, strict=True):
                self._fulfil(key, reward)
                self._ledger.settle(key, f"was told already, with reward {reward!r}")

    def expire(self, id: int) -> None:  # noqa: A002 (as in tell)
        """Give up on a decision of :meth:`ask` whose reward will never come; it no longer narrows the bounds.

        Args:
            id: ``decision.id``.
        """
        key = self._ledger.require_open("expire", id)
        with threads_for(self.dictionary_size) or nullcontext():
            self._abandon(key)
        self._ledger.settle(key, "has expired (a reward that comes after all is learned by update)")

    def expire_before(self, id: int) -> tuple[int, ...]:  # noqa: A002 (as in tell)
        """Give up on all pending decisions that were asked for before a certain one.

        A bad id changes nothing. If the kernel fails in the middle, the decisions before that stay expired.

        Args:
            id: of a decision of :meth:`ask`, pending or not, which stays as it is.

        Returns:
            The ids that expired.
        """
        limit = self._ledger.require_issued("expire_before", id)
        expired = tuple(key for key in self.pending if key < limit)
        for key in expired:
            self.expire(key)
        return expired

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the decisions of :meth:`ask` that were neither told nor expired, oldest first."""
        return self._ledger.open

    def diagnostics(self) -> Diagnostics:
        """What the policy has become: sizes, dimensions, drift, memory."""
        return diagnose(self, self.round_index, self.posteriors, len(self.pending))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to one file, atomically; :func:`kernel_bandits.load` brings it back to go on bit for bit.

        Args:
            path: of the file, replaced if it exists.
        """
        persistence.save(self, path)

    def _check_first(self, points: FloatArray, context_columns: int) -> None:
        """Before the first observation, whether dictionary and kernel take points of this width."""
        for posterior in self.posteriors[:1]:
            if posterior.dimension not in (None, points.shape[1]):
                raise InputError(
                    f"dictionary: its points have {posterior.dimension} columns, but context and action together have "
                    f"{points.shape[1]}."
                )
            posterior.describe(context_columns, points[:, context_columns:])
            require_columns(posterior.kernel, points, context_columns)

    def _argmax(self, values: FloatArray) -> int:
        """The index of the largest value; among equals, up to rounding, one at random."""
        best = int(values.argmax())
        # Far from all data the bounds of different actions agree but for the order of rounding, which must not decide.
        peak = values.item(best)
        tied = values >= peak - TIE_TOLERANCE * abs(peak)
        if np.count_nonzero(tied) <= 1:
            return best
        indices = np.flatnonzero(tied)
        return int(indices[self._ties.integers(len(indices))])

    @staticmethod
    def _count_tied(values: FloatArray) -> int:
        """How many values count as the largest."""
        peak = float(values.max())
        return int(np.count_nonzero(values >= peak - TIE_TOLERANCE * abs(peak)))


class BoxPolicy(Policy):
    """A policy that can choose in a box, too: it reduces the box to a few points, then chooses among those."""

    @abstractmethod
    def _finalists(self, context: FloatArray, box: Box) -> FloatArray:
        """Actions of the box, shape (n, d_a), of which ``_select`` chooses one; the model stays as it is.

        Args:
            context: finite, shape (d_x,).
            box: of the dimension of the actions seen so far.
        """

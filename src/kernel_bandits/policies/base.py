"""What every policy offers to its callers."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import repeat
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits import persistence
from kernel_bandits.actions import Box, as_log, as_rounds, available_rows, join, require_action_columns
from kernel_bandits.arrays import FloatArray, as_points, as_positive, as_reward, as_vector, require_finite
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import require_columns
from kernel_bandits.numerics.blas_threads import threads_for
from kernel_bandits.policies.decision import Decision, LastChoice
from kernel_bandits.policies.diagnostics import Diagnostics, diagnose
from kernel_bandits.policies.hooks import Hooks
from kernel_bandits.policies.ledger import Ledger

# The least number of rows in a product of the many-at-once methods; it decides the number of BLAS threads.
MANY_ROWS = 256


class Policy(Hooks):
    """Plays one of the offered actions and learns from its reward. Rewards are maximised.

    The dimensions of contexts and actions are those of the first observation; the actions, and how many there are, may
    change from round to round.

    To write a policy, implement the hooks :meth:`choose` and :meth:`learn`, and any other of :class:`Hooks` whose
    default can be bettered. The methods of this class are final.

    Args:
        generator: breaks ties, and draws whatever else the policy leaves to chance.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(generator)
        self._dimensions: tuple[int | None, int | None] = (None, None)
        self._last = LastChoice()
        self._ledger = Ledger()

    # A bad kernel or a huge number is reported by an error, so NumPy need not warn of the arithmetic on the way to it.
    @final
    @np.errstate(invalid="ignore", over="ignore")
    def select(self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None = None) -> Decision:
        """Choose an action for a context.

        Does not change the model; randomness is consumed only to break ties, to search a box, and by policies that
        choose at random.

        Args:
            context: shape (d_x,); empty for a problem without contexts.
            actions: one offered action per row, shape (A, d_a), A ≥ 1; or a box, any point of which may be played.
            mask: True for the rows that may be played, shape (A,); by default all of them. The other rows may hold
                anything.
        """
        if isinstance(actions, Box):
            return self._select_in_box(context, actions, mask)
        indices: NDArray[np.intp] | None = None
        actions = as_points("actions", actions, self._dimensions[1])
        if mask is not None:
            indices = available_rows(mask, len(actions))
            actions = actions[indices]
        context = as_vector("context", context, self._dimensions[0])
        points = join(context, actions)
        if self._dimensions[0] is None:
            require_action_columns(actions)
            self._check_first(points, len(context))
        threads = threads_for(self.dictionary_size, len(points))
        if threads is None:
            choice = self.choose(points)
        else:
            with threads:
                choice = self.choose(points)
        row = choice.index
        point = points[row]
        self._last.keep(choice, point, self.round_index)
        split, own = len(context), point.copy()
        if indices is not None:
            row = int(indices[row])
        return Decision(
            row,
            own[split:],
            choice.mean,
            choice.std,
            choice.upper_bound,
            own[:split],
            choice.propensity,
            safe=choice.safe,
        )

    def _select_in_box(self, context: ArrayLike, box: Box, mask: ArrayLike | None) -> Decision:
        """Choose from the shortlist of a box; an error leaves the generator as it was."""
        if mask is not None:
            raise InputError("mask: a box has no rows to leave out; offer a smaller box.")
        if self._dimensions[1] not in (None, box.dimension):
            raise InputError(f"actions: expected a box of {self._dimensions[1]} dimensions, got {box.dimension}.")
        context = as_vector("context", context, self._dimensions[0])
        if self._dimensions[0] is None:
            self._check_first(join(context, box.low[None, :]), len(context))
        require_finite("context", context)
        state = self.generator.bit_generator.state
        try:
            return replace(self.select(context, self.shortlist(context, box)), index=-1, propensity=None)
        except NotImplementedError as reason:
            raise InputError(
                f"actions: {type(self).__name__} chooses among finitely many actions and was offered a Box; "
                "offer rows, for instance box.sample(generator, 100)."
            ) from reason
        except BaseException:
            self.generator.bit_generator.state = state
            raise

    @final
    def update(
        self,
        context: ArrayLike,
        action: ArrayLike,
        reward: float,
        *,
        weight: float | None = None,
        noise_variance: float | None = None,
        outputs: Mapping[str, float] | None = None,
    ) -> None:
        """Learn the reward of an action that was played in a context.

        Args:
            context: shape (d_x,).
            action: shape (d_a,), for instance ``decision.action``.
            reward: a finite number; larger is better.
            weight: how many ordinary rewards this one is worth: its noise variance is λ/weight. 1 unless given.
            noise_variance: of this reward, in squared reward units; instead of ``weight``.
            outputs: what was measured besides, by the names of the policy's constraints.
        """
        weight = self._as_weight(weight, noise_variance)
        context = as_vector("context", context, self._dimensions[0])
        action = as_vector("action", action, self._dimensions[1])
        choice = self._last.choice_of(context, action, self.round_index)
        if choice is not None:
            point = self._last.point
        else:
            require_finite("context", context)
            require_finite("action", action)
            point = np.concatenate((context, action))
            if self._dimensions[0] is None:
                require_action_columns(action)
                self._check_first(point[None, :], len(context))
        reward = as_reward(reward)
        learn_outputs = self.prepare_outputs(point, outputs)
        if weight == 1.0:
            self._change_model(self.learn, point, reward, choice)
        else:
            self._change_model(self.learn_weighted, point, reward, weight)
        if learn_outputs is not None:
            learn_outputs()
        self._rewards_learned += 1
        if self._dimensions[0] is None:
            self._dimensions = (len(context), len(action))

    def _as_weight(self, weight: float | None, noise_variance: float | None) -> float:
        if noise_variance is None:
            return 1.0 if weight is None else as_positive("weight", weight)
        if weight is not None:
            raise InputError("weight and noise_variance: expected one of the two, got both.")
        return self.weight_of(as_positive("noise_variance", noise_variance))

    @final
    def select_many(self, contexts: ArrayLike, actions: ArrayLike | Box) -> list[Decision]:
        """Choose an action for each of many contexts with the model as it is, at the speed of matrix products.

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
        with threads_for(self.dictionary_size, MANY_ROWS) or nullcontext():
            choices = self.choose_many(np.concatenate([repeated, actions], axis=2))
        decisions = []
        for choice, offered, context in zip(choices, actions, contexts, strict=True):
            row, bound, propensity = choice.index, choice.upper_bound, choice.propensity
            action = offered[row].copy()
            decisions.append(
                Decision(row, action, choice.mean, choice.std, bound, context.copy(), propensity, safe=choice.safe)
            )
        return decisions

    def _rounds(self, contexts: ArrayLike, actions: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return contexts (n, d_x) and the actions offered with each, shape (n, A, d_a), checked."""
        contexts, actions = as_rounds(contexts, actions, *self._dimensions)
        if self._dimensions[0] is None:
            self._check_first(np.concatenate((contexts[0], actions[0, 0]))[None, :], contexts.shape[1])
        return contexts, actions

    @final
    def update_many(self, contexts: ArrayLike, actions: ArrayLike, rewards: ArrayLike) -> None:
        """Learn a log of rounds in order; the model is that of :meth:`update` one by one, reached faster.

        The contexts (n, d_x), the action played in each (n, d_a) and its reward (n,) are checked first: bad input
        changes nothing. If the kernel fails in the middle, the rounds before that stay learned.
        """
        contexts, actions, rewards = as_log(contexts, actions, rewards, *self._dimensions)
        points = np.hstack([contexts, actions])
        if self._dimensions[0] is None:
            require_action_columns(actions)
            self._check_first(points, contexts.shape[1])
        learned = self._rewards_learned
        self._change_model(self.learn_many, points, rewards, rows=MANY_ROWS)
        self._rewards_learned = learned + len(rewards)
        self._dimensions = (contexts.shape[1], actions.shape[1])

    @final
    def ask(self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None = None) -> Decision:
        """Choose an action whose reward arrives later; the decision's ``id`` names it until then.

        The standard deviations count the chosen point from now on, so that a burst of asks explores different actions;
        the means wait for :meth:`tell`. The arguments are those of :meth:`select`.
        """
        decision = self.select(context, actions, mask)
        self._change_model(self.anticipate, self._ledger.issued, self._last.point.copy(), self._last.choice)
        self._dimensions = (len(decision.context), len(decision.action))
        return replace(decision, id=self._ledger.issue())

    @final
    def ask_many(self, contexts: ArrayLike, actions: ArrayLike | Box) -> list[Decision]:
        """Choose one action for each of many contexts, whose rewards arrive later: exactly n decisions of :meth:`ask`.

        Each decision counts in the standard deviations of the next, so a batch in one context explores different
        actions. If one of them fails, those before it expire.

        Args:
            contexts: one per row, shape (n, d_x); repeat a context to play several actions in it.
            actions: offered in every round, shape (A, d_a), or round by round, shape (n, A, d_a); or a box.
        """
        contexts = as_points("contexts", contexts, self._dimensions[0])
        require_finite("contexts", contexts)
        offers = repeat(actions) if isinstance(actions, Box) else self._rounds(contexts, actions)[1]
        decisions: list[Decision] = []
        try:
            for context, offered in zip(contexts, offers, strict=False):
                decisions.append(self.ask(context, offered))
        except BaseException:
            for decision in decisions:
                self.expire(self._ledger.require_issued("ask_many", decision.id or 0))
            raise
        return decisions

    @final
    def tell(
        self,
        id: int,
        reward: float,
        *,
        weight: float | None = None,
        noise_variance: float | None = None,
        outputs: Mapping[str, float] | None = None,
    ) -> None:
        """Learn the reward of the decision of :meth:`ask` with this ``id``; in any order, once each.

        The other arguments are those of :meth:`update`.
        """
        weight = self._as_weight(weight, noise_variance)
        key, number = self._ledger.require_open("tell", id), as_reward(reward)
        learn_outputs = self.prepare_outputs(self.awaited_point(key), outputs)
        if weight == 1.0:
            self.tell_many([key], [number])
        else:
            self._change_model(self.fulfil_weighted, key, number, weight)
            self._rewards_learned += 1
            self._ledger.settle(key, f"was told already, with reward {number!r}")
        if learn_outputs is not None:
            learn_outputs()

    @final
    def tell_many(self, ids: Sequence[int], rewards: ArrayLike) -> None:
        """Learn the rewards of decisions of :meth:`ask`.

        A bad id or reward changes nothing. If the kernel fails in the middle, the rewards before that stay learned.
        """
        keys = self._ledger.require_all_open("tell", ids)
        numbers = [as_reward(reward) for reward in as_vector("rewards", rewards, len(keys)).tolist()]
        self._change_model(self._fulfil_all, keys, numbers)

    def _fulfil_all(self, keys: Sequence[int], rewards: Sequence[float]) -> None:
        for key, reward in zip(keys, rewards, strict=True):
            self.fulfil(key, reward)
            self._rewards_learned += 1
            self._ledger.settle(key, f"was told already, with reward {reward!r}")

    @final
    def expire(self, id: int) -> None:
        """Give up on a decision of :meth:`ask` whose reward will never arrive; it no longer narrows the bounds."""
        key = self._ledger.require_open("expire", id)
        self._change_model(self.abandon, key)
        self._ledger.settle(key, "has expired (a reward that arrives after all is learned by update)")

    @final
    def expire_before(self, id: int) -> tuple[int, ...]:
        """Give up on all pending decisions asked for before this one, pending or not; return the ids that expired.

        A bad id changes nothing. If the kernel fails in the middle, the decisions before that stay expired.
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

    @final
    def diagnostics(self) -> Diagnostics:
        """Return the state of the policy in numbers: sizes, dimensions, drift, memory."""
        return diagnose(self, self.round_index, self.posteriors, len(self.pending))

    @final
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to one file, atomically; :func:`kernel_bandits.load` reads it back to go on bit for bit.

        A file of this name is replaced.
        """
        persistence.save(self, path)

    def _change_model(self, hook: Callable[..., None], *arguments: Any, rows: int = 1) -> None:
        """Call a hook that changes the model, with the BLAS threads that pay; the last choice is then out of date."""
        threads = threads_for(self.dictionary_size, rows)
        if threads is None:
            hook(*arguments)
        else:
            with threads:
                hook(*arguments)
        self._last.forget()

    def _check_first(self, points: FloatArray, context_columns: int) -> None:
        """Raise if, before the first observation, dictionary or kernel do not take points of this width."""
        for posterior in self.posteriors[:1]:
            if posterior.dimension not in (None, points.shape[1]):
                raise InputError(
                    f"dictionary: its points have {posterior.dimension} columns, but context and action together have "
                    f"{points.shape[1]}."
                )
            posterior.describe(context_columns, points[:, context_columns:])
            require_columns(posterior.kernel, points, context_columns)


def load(path: str | os.PathLike[str]) -> Policy:
    """Read a policy that :meth:`Policy.save` wrote; it goes on as if it had never been stopped.

    A file that is truncated, damaged, foreign, or of another format is an :class:`InputError`.
    """
    policy = persistence.load(path)
    if not isinstance(policy, Policy):
        raise InputError(f"load: {path} holds {type(policy).__name__}, not a policy; restore an intact copy.")
    return policy

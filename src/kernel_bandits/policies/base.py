"""What every policy offers to its callers."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits import persistence
from kernel_bandits.actions import Box, as_log, as_rounds, available_rows, join, require_action_columns
from kernel_bandits.arrays import FloatArray, as_points, as_reward, as_vector, require_finite
from kernel_bandits.commit import Step, Steps, carry_out
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.kernels import require_columns
from kernel_bandits.numerics.blas_threads import threads_for
from kernel_bandits.policies.decision import NOTHING_CHOSEN, Choice, Decision, LastChoice, scattered
from kernel_bandits.policies.diagnostics import Diagnostics, diagnose
from kernel_bandits.policies.hooks import Hooks
from kernel_bandits.policies.ledger import Ledger
from kernel_bandits.rng import Seed

# The least number of rows in a product of the many-at-once methods; it decides the number of BLAS threads.
MANY_ROWS = 256


class Policy(Hooks):
    """Plays one of the offered actions and learns from its reward. Rewards are maximised.

    The dimensions of contexts and actions are those of the first observation; the actions, and how many there are, may
    change from round to round.

    To write a policy, implement the hooks :meth:`choose` and :meth:`learn`, and any other of :class:`Hooks` whose
    default can be bettered. The methods of this class are final.

    A call that fails or is interrupted leaves the policy as it was, or as it is after the call. A policy serves one
    thread at a time: of two threads that change it at once, one gets an :class:`UnavailableError` and changes nothing.
    Hold a lock around a round, from ``select`` to ``update``, where several threads share one.

    Args:
        generator: breaks ties, and draws whatever else the policy leaves to chance.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(generator)
        self._dimensions: tuple[int | None, int | None] = (None, None)
        self._last = LastChoice()
        self._ledger = Ledger()
        # The version of the model, alone in a list: a commit takes it out first and puts the next one in last, so that
        # of two threads that change the model at once one is refused.
        self._versions = [0]

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
        moment = self._version(), self.round_index
        try:
            decision, choice, point = self._decide(context, actions, mask)
            last = LastChoice(choice, point, moment)
            if self._drawn_from:
                carry_out([(setattr, self, "_last", last), (self._drawn_from.clear,)])
            else:
                self._last = last
        except BaseException:
            self._take_back_draws()
            raise
        return decision

    def _decide(
        self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None
    ) -> tuple[Decision, Choice, FloatArray]:
        """Return a decision, the choice behind it and the chosen joint point; only generators change."""
        indices: NDArray[np.intp] | None = None
        is_box, density = isinstance(actions, Box), None
        if isinstance(actions, Box):
            context, actions, density = self._rows_of_box(context, actions, mask)
        else:
            actions = as_points("actions", actions, self._dimensions[1])
            offered = len(actions)
            if mask is not None:
                indices = available_rows(mask, offered)
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
        row, propensity = choice.index, choice.propensity
        point = points[row]
        split, own = len(context), point.copy()
        table = choice.probabilities
        if indices is not None:
            row = int(indices[row])
            table = None if table is None else scattered(table, indices, offered)
        elif is_box:
            row, propensity, table = -1, None, None
        decision = Decision(row, own[split:], choice.mean, choice.std, choice.upper_bound, own[:split], propensity)
        decision.probabilities, decision.density = table, density
        return decision, choice, point

    def _rows_of_box(
        self, context: ArrayLike, box: Box, mask: ArrayLike | None
    ) -> tuple[FloatArray, FloatArray, float | None]:
        """Return the context, checked, the actions of a box to choose from, and the density of one that was drawn."""
        if mask is not None:
            raise InputError("mask: a box has no rows to leave out; offer a smaller box.")
        if self._dimensions[1] not in (None, box.dimension):
            raise InputError(f"actions: expected a box of {self._dimensions[1]} dimensions, got {box.dimension}.")
        context = as_vector("context", context, self._dimensions[0])
        if self._dimensions[0] is None:
            self._check_first(join(context, box.low[None, :]), len(context))
        require_finite("context", context)
        self.will_draw(self.generator)
        try:
            drawn = self.draw_in_box(context, box)
            rows, density = (self.shortlist(context, box), None) if drawn is None else (drawn[0][None, :], drawn[1])
            return context, as_points("actions", rows, self._dimensions[1]), density
        except NotImplementedError as reason:
            raise InputError(
                f"actions: {type(self).__name__} chooses among finitely many actions and was offered a Box; "
                "offer rows, for instance box.sample(generator, 100)."
            ) from reason

    def _take_back_draws(self) -> None:
        """Give the generators the states they had before a choice that came to nothing."""
        restored = [(setattr, generator.bit_generator, "state", state) for generator, state in self._drawn_from]
        carry_out([*restored, (self._drawn_from.clear,)])

    @final
    def update(self, context: ArrayLike, action: ArrayLike, reward: float) -> None:
        """Learn the reward of an action that was played in a context.

        Args:
            context: shape (d_x,).
            action: shape (d_a,), for instance ``decision.action``.
            reward: a finite number; larger is better.
        """
        self._update(context, action, reward)

    def _update(self, context: ArrayLike, action: ArrayLike, reward: float, also: Sequence[Step] = ()) -> None:
        """:meth:`update`, with steps of a policy around this one."""
        version, last = self._version(), self._last
        context = as_vector("context", context, self._dimensions[0])
        action = as_vector("action", action, self._dimensions[1])
        choice = last.choice_of(context, action, (version, self.round_index))
        if choice is not None:
            point = last.point
        else:
            require_finite("context", context)
            require_finite("action", action)
            point = np.concatenate((context, action))
            if self._dimensions[0] is None:
                require_action_columns(action)
                self._check_first(point[None, :], len(context))
        counted = (self._store, self._rewards_learned + 1, (len(context), len(action)))
        self._change_model(version, [counted, *also], self.learn, point, as_reward(reward), choice)

    def _store(self, rewards_learned: int, dimensions: tuple[int | None, int | None]) -> None:
        """Write what every change of the model changes in the policy; may be repeated."""
        self._rewards_learned, self._dimensions, self._last = rewards_learned, dimensions, NOTHING_CHOSEN

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
        try:
            with threads_for(self.dictionary_size, MANY_ROWS) or nullcontext():
                choices = self.choose_many(np.concatenate([repeated, actions], axis=2))
            self._drawn_from.clear()
        except BaseException:
            self._take_back_draws()
            raise
        decisions = []
        for choice, offered, context in zip(choices, actions, contexts, strict=True):
            row, bound, propensity = choice.index, choice.upper_bound, choice.propensity
            decision = Decision(row, offered[row].copy(), choice.mean, choice.std, bound, context.copy(), propensity)
            decision.probabilities = choice.probabilities
            decisions.append(decision)
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
        self._update_many(contexts, actions, rewards)

    def _update_many(
        self, contexts: ArrayLike, actions: ArrayLike, rewards: ArrayLike, also: Sequence[Step] = ()
    ) -> None:
        """:meth:`update_many`, with steps of a policy around this one."""
        contexts, actions, rewards = as_log(contexts, actions, rewards, *self._dimensions)
        points = np.hstack([contexts, actions])
        if self._dimensions[0] is None:
            require_action_columns(actions)
            self._check_first(points, contexts.shape[1])
        dimensions = (contexts.shape[1], actions.shape[1])
        with threads_for(self.dictionary_size, MANY_ROWS) or nullcontext():
            version = self._version()
            for count, steps in self.learn_many(points, rewards) or [(len(points), None)]:
                counted = (self._store, self._rewards_learned + count, dimensions)
                self._commit(version, steps, [counted, *also])
                version += 1

    @final
    def ask(self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None = None) -> Decision:
        """Choose an action whose reward arrives later; the decision's ``id`` names it until then.

        The standard deviations count the chosen point from now on, so that a burst of asks explores different actions;
        the means wait for :meth:`tell`. The arguments are those of :meth:`select`.
        """
        return self._ask(context, actions, mask)

    def _ask(
        self,
        context: ArrayLike,
        actions: ArrayLike | Box,
        mask: ArrayLike | None,
        also: Callable[[Decision], Steps] | None = None,
    ) -> Decision:
        """:meth:`ask`, with steps of a policy around this one."""
        version = self._version()
        try:
            decision, choice, point = self._decide(context, actions, mask)
            decision = replace(decision, id=self._ledger.issued)
            dimensions = (len(decision.context), len(decision.action))
            steps: Steps = [(self._store, self._rewards_learned, dimensions), *self._ledger.issue_steps()]
            steps.append((self._drawn_from.clear,))
            if also is not None:
                steps += also(decision)
            self._change_model(version, steps, self.anticipate, decision.id, point.copy(), choice)
        except BaseException:
            self._take_back_draws()
            raise
        return decision

    @final
    def tell(self, id: int, reward: float) -> None:
        """Learn the reward of the decision of :meth:`ask` with this ``id``; in any order, once each."""
        self.tell_many([id], [reward])

    @final
    def tell_many(self, ids: Sequence[int], rewards: ArrayLike) -> None:
        """Learn the rewards of decisions of :meth:`ask`.

        A bad id or reward changes nothing. If the kernel fails in the middle, the rewards before that stay learned.
        """
        keys = self._ledger.require_all_open("tell", ids)
        numbers = [as_reward(reward) for reward in as_vector("rewards", rewards, len(keys)).tolist()]
        for key, reward in zip(keys, numbers, strict=True):
            fate = f"was told already, with reward {reward!r}"
            counted = (self._store, self._rewards_learned + 1, self._dimensions)
            self._change_model(
                self._version(), [counted, *self._ledger.settle_steps([key], fate)], self.fulfil, key, reward
            )

    @final
    def expire(self, id: int) -> None:
        """Give up on a decision of :meth:`ask` whose reward will never arrive; it no longer narrows the bounds."""
        key = self._ledger.require_open("expire", id)
        self._change_model(self._version(), self._expire_steps([key]), self.abandon, key)

    @final
    def expire_before(self, id: int) -> tuple[int, ...]:
        """Give up on all pending decisions asked for before this one, pending or not; return the ids that expired.

        A bad id changes nothing. If the kernel fails in the middle, the decisions before that stay expired.
        """
        limit = self._ledger.require_issued("expire_before", id)
        expired = tuple(key for key in self.pending if key < limit)
        if expired:
            start, version = 0, self._version()
            with threads_for(self.dictionary_size, MANY_ROWS) or nullcontext():
                for count, steps in self.abandon_many(expired):
                    self._commit(version, steps, self._expire_steps(expired[start : start + count]))
                    start, version = start + count, version + 1
        return expired

    def _expire_steps(self, keys: Sequence[int]) -> Steps:
        """The steps that close decisions whose points the model has forgotten."""
        fate = "has expired (a reward that arrives after all is learned by update)"
        counted = (self._store, self._rewards_learned, self._dimensions)
        return [counted, *self._ledger.settle_steps(keys, fate)]

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

    @final
    def reseed(self, seed: Seed) -> None:
        """Start every random stream of the policy anew; what it has learned stays.

        Give each process that plays a copy of one saved policy a seed of its own: otherwise all of them break ties,
        draw anchors and explore alike. ``None`` takes fresh entropy. A policy that has drawn nothing yet is afterwards
        the one that its preset builds with this seed.
        """
        persistence.reseed(self, seed)

    def _change_model(
        self, version: int, steps: Sequence[Step], hook: Callable[..., Steps | None], *arguments: Any
    ) -> None:
        """Prepare a change of the model by a hook, with the BLAS threads that pay; carry it out with other steps."""
        threads = threads_for(self.dictionary_size)
        if threads is None:
            self._commit(version, hook(*arguments), steps)
        else:
            with threads:
                self._commit(version, hook(*arguments), steps)

    def _version(self) -> int:
        """Return the version of the model."""
        try:
            return self._versions[0]
        except IndexError:
            raise _changed_meanwhile() from None

    def _commit(self, version: int, planned: Steps | None, steps: Sequence[Step]) -> None:
        """Carry out the steps of the model and of the policy, from one version of the model to the next."""
        versions = self._versions
        every: Steps = [(versions.remove, version)]
        if planned:
            every += planned
        every += steps
        every.append((versions.append, version + 1))
        try:
            carry_out(every)
        except ValueError:
            if version in versions or version + 1 in versions:
                raise
            raise _changed_meanwhile() from None

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


def _changed_meanwhile() -> UnavailableError:
    return UnavailableError(
        "The policy was changed meanwhile by another thread, and this call has changed nothing. A policy serves one "
        "thread at a time: hold a threading.Lock around its calls, or let one thread or a service own it."
    )

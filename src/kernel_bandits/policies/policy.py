"""The policy: what every policy offers to its callers, and the hooks in which one says how it chooses and learns."""

import copy
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import islice, repeat
from operator import setitem
from typing import Any, Self, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits import persistence
from kernel_bandits.actions import Box, as_log, as_rounds, available_rows, join, require_action_columns
from kernel_bandits.arrays import FloatArray, as_points, as_positive, as_reward, as_rewards, as_vector, require_finite
from kernel_bandits.commit import Step, Steps, attributes, carry_out, drop_step
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.kernels import require_columns
from kernel_bandits.numerics.blas_threads import one_thread, threads_for
from kernel_bandits.policies import ties
from kernel_bandits.policies.decision import NOTHING_CHOSEN, Choice, Decision, scattered
from kernel_bandits.policies.diagnostics import Diagnostics, diagnose
from kernel_bandits.posteriors.base import Posterior
from kernel_bandits.rng import Seed

T = TypeVar("T")
# Beyond this, or below one over it, sums of weights leave nothing of the others.
LARGEST_WEIGHT = 1e12
# The least number of rows in a product of the many-at-once methods; it decides the number of BLAS threads.
MANY_ROWS = 256
# A few are counted and learned faster one by one.
FEWEST = 8
# Actions that are counted by one matrix product, and rewards that are learned in one change of the model.
MOST, MOST_REWARDS = 128, 1024
# The number of settled decisions remembered with what happened to them; older ones are only known to be settled.
REMEMBERED = 10_000
# What happened to a decision whose reward was given up; it completes the sentence "decision 7 …".
EXPIRED = "has expired (a reward that arrives after all is learned by update)"


class Policy(ABC):
    """Plays one of the offered actions and learns from its reward. Rewards are maximised.

    The dimensions of contexts and actions are those of the first observation; the actions, and how many there are, may
    change from round to round.

    A call that fails or is interrupted leaves the policy as it was, or as it is after the call. A policy serves one
    thread at a time: a call under which another thread changes the model, or a kernel that calls the policy, raises an
    :class:`UnavailableError` and changes nothing.
    Hold a lock around a round, from ``select`` to ``update``, where several threads share one.

    To write a policy, implement the hooks :meth:`choose` and :meth:`learn`, and any other whose default you can improve
    on; the methods for callers are final. Hooks are given joint points, context columns first, that are checked
    already. One that changes the model either does so and returns None, or prepares the change, writes nothing and
    returns its steps. Steps are carried out together with the policy's own, so that an interrupt cannot part them.

    Args:
        generator: breaks ties, and draws whatever else the policy leaves to chance.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self._rewards_learned = 0
        # Points that wait for their reward, if the policy keeps the default hooks for late rewards.
        self._waiting: dict[int, FloatArray] = {}
        # Generators that a choice draws from, with their states before it.
        self._drawn_from: list[tuple[np.random.Generator, Any]] = []
        # The version of the model, alone in a dict: a commit takes it out first and puts the next one in last, so that
        # of two threads that change the model at once one is refused.
        self._versions: dict[int, None] = {0: None}
        self._dimensions: tuple[int | None, int | None] = (None, None)
        self._last = NOTHING_CHOSEN
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
        version = self._version()
        try:
            decision, choice, point = self._decide(context, actions, mask)
            last = (choice, point, version)
            if self._drawn_from:
                noted = self.box_steps(actions) if isinstance(actions, Box) else ()
                carry_out([(setattr, self, "_last", last), *noted, (self._drawn_from.clear,)])
            else:
                self._last = last
        except BaseException as reason:
            self._take_back_draws()
            self._blame_others(version, reason)
            raise
        return decision

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
        number = 1.0 if weight is noise_variance is None else self._as_weight(weight, noise_variance)
        self._update(context, action, reward, (), number, outputs)

    @final
    def ask(self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None = None) -> Decision:
        """Choose an action whose reward arrives later; the decision's ``id`` names it until then.

        The standard deviations count the chosen point from now on, so that a burst of asks explores different actions;
        the means wait for :meth:`tell`. The arguments are those of :meth:`select`.
        """
        return self._ask(context, actions, mask)

    @final
    def tell(
        self,
        id: int | Decision,
        reward: float,
        *,
        weight: float | None = None,
        noise_variance: float | None = None,
        outputs: Mapping[str, float] | None = None,
    ) -> None:
        """Learn the reward of a decision of :meth:`ask`, given by its ``id``; in any order, once each.

        Every policy numbers its decisions from 0, so ids alone do not show which policy made them. Pass the decision
        itself where there are several: that of another policy is refused. The other arguments are those of
        :meth:`update`.
        """
        number = self._as_weight(weight, noise_variance)
        self._tell(self._open_key("tell", id), as_reward(reward), number, outputs)

    @final
    def expire(self, id: int | Decision) -> None:
        """Give up on a decision of :meth:`ask` whose reward will never arrive; it no longer narrows the bounds."""
        version = self._version()
        key = self._open_key("expire", id)
        self._change_model(version, self._expire_steps(version, [key]), self.abandon, key)

    @final
    @np.errstate(invalid="ignore", over="ignore")
    def preview(self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None = None) -> Decision:
        """Return what :meth:`select` would return now; changes nothing, random streams included."""
        version = self._version()
        try:
            return self._decide(context, actions, mask)[0]
        except Exception as reason:
            self._blame_others(version, reason)
            raise
        finally:
            self._take_back_draws()

    @final
    def select_many(self, contexts: ArrayLike, actions: ArrayLike | Box) -> list[Decision]:
        """Choose an action for each of many contexts with the current model, at the speed of matrix products.

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
        decisions = []
        for choice, offered, context in zip(self._choices(contexts, actions), actions, contexts, strict=True):
            row, bound, propensity = choice.index, choice.upper_bound, choice.propensity
            decision = Decision(row, offered[row].copy(), choice.mean, choice.std, bound, context.copy(), propensity)
            decision.probabilities, decision.safe = choice.probabilities, choice.safe
            decisions.append(decision)
        return decisions

    @final
    def choices(self, contexts: ArrayLike, actions: ArrayLike) -> list[Choice]:
        """Return what :meth:`select_many` chooses, as rows among the actions, without copies of what was offered."""
        return self._choices(*self._rounds(contexts, actions))

    @final
    def update_many(
        self,
        contexts: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        *,
        outputs: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Learn a log of rounds in order; the model is that of :meth:`update` one by one, reached faster.

        The contexts (n, d_x), the action played in each (n, d_a) and its reward (n,) are checked first: bad input
        changes nothing. If the kernel fails in the middle, the rounds before that stay learned. The outputs (n,) are
        those of constraints by name, NaN where one was not measured; without them rewards alone are learned.
        """
        if outputs is None:
            self._update_many(contexts, actions, rewards)
            return
        contexts, actions, rewards = as_log(contexts, actions, rewards, *self._dimensions)
        measured = _by_reward(outputs, len(rewards))
        for context, action, reward, own in zip(contexts, actions, rewards.tolist(), measured, strict=True):
            self._update(context, action, reward, (), 1.0, own)

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
        before = self._ledger.issued
        try:
            return [self.ask(context, offered) for context, offered in zip(contexts, offers, strict=False)]
        except BaseException:
            for key in [key for key in self.pending if key >= before]:
                self.expire(key)
            raise

    @final
    def await_many(self, contexts: ArrayLike, actions: ArrayLike) -> list[int]:
        """Await the rewards of actions that were played already; return the ids that :meth:`tell` knows them by.

        The model is that of :meth:`ask` with these actions alone on offer, up to rounding. Bad input changes nothing.
        If the kernel fails in the middle, the actions before that stay awaited.

        Args:
            contexts: one per row, shape (n, d_x).
            actions: the action that was played in each, shape (n, d_a).
        """
        return self._await_many(contexts, actions)

    @final
    def tell_many(
        self,
        ids: Sequence[int | Decision],
        rewards: ArrayLike,
        *,
        outputs: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Learn the rewards of decisions of :meth:`ask`, as :meth:`tell`.

        A bad id or reward changes nothing. If the kernel fails in the middle, the rewards before that stay learned. The
        outputs (n,) are those of constraints by name, NaN where one was not measured. Many rewards are learned at the
        speed of matrix products where the policy can; the model is that of :meth:`tell` one by one, up to rounding.
        """
        if not isinstance(ids, Iterable):
            raise InputError(f"ids: expected those of several decisions, got {ids!r}.")
        plain = [id if type(id) is int else self._open_key("tell", id) for id in ids]
        keys = self._ledger.require_all_open("tell", plain)
        numbers = as_rewards(as_vector("rewards", rewards, len(keys)))
        done = self._tell_together(keys, numbers) if outputs is None else 0
        keys, numbers = keys[done:], numbers[done:]
        for key, reward, measured in zip(keys, numbers, _by_reward(outputs, len(keys)), strict=True):
            self._tell(key, reward, 1.0, measured)

    @final
    def expire_before(self, id: int) -> tuple[int, ...]:
        """Give up on all pending decisions asked for before this one, pending or not; return the ids that expired.

        A bad id changes nothing. If the kernel fails in the middle, the decisions before that stay expired.
        """
        limit = self._ledger.require_issued("expire_before", id)
        expired = tuple(key for key in self.pending if key < limit)
        if expired:
            start, version = 0, self._version()
            try:
                with threads_for(self.dictionary_size, MANY_ROWS) or nullcontext():
                    for count, steps in self.abandon_many(expired):
                        self._commit(version, steps, self._expire_steps(version, expired[start : start + count]))
                        start, version = start + count, version + 1
            except Exception as reason:
                self._blame_others(version, reason)
                raise
        return expired

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the decisions of :meth:`ask` that were neither told nor expired, oldest first."""
        return self._ledger.open

    @property
    def issued(self) -> int:
        """The number of decisions of ``ask`` and ``await_many`` so far; the next one has this id."""
        return self._ledger.issued

    @final
    def forget_choice(self) -> None:
        """Drop what the last :meth:`select` computed, which :meth:`update` uses again if that action was played.

        What was computed for many actions at once is rounded otherwise than for one: without it the model depends on
        what it was told and on nothing else.
        """
        self._last = NOTHING_CHOSEN

    @final
    def diagnostics(self) -> Diagnostics:
        """Return the state of the policy in numbers: sizes, dimensions, drift, memory."""
        with self._reading():
            return diagnose(self, self.round_index, self.posteriors, len(self.pending))

    @final
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to one file, atomically; :func:`kernel_bandits.load` reads it back bit for bit.

        A file of this name is replaced.
        """
        with self._reading() as require_unchanged:
            persistence.save(self, path, require_unchanged)

    @final
    def reseed(self, seed: Seed) -> None:
        """Restart every random stream of the policy; what it has learned stays.

        Give each process that plays a copy of one saved policy a seed of its own: otherwise all of them break ties,
        draw anchors and explore identically. ``None`` takes fresh entropy. A policy that has drawn nothing yet is
        then the one that its preset builds with this seed.
        """
        persistence.reseed(self, seed)

    @abstractmethod
    def choose(self, points: FloatArray) -> Choice:
        """Choose one of the points (A, d); the model stays as it is."""

    @abstractmethod
    def learn(self, point: FloatArray, reward: float, choice: Choice | None) -> Steps | None:
        """Learn the finite reward of the point (d,) that was played; either succeeds or changes nothing.

        The choice is what :meth:`choose` returned, if it chose this point last and the model is still the same;
        otherwise None.
        """

    @property
    def posteriors(self) -> Sequence[Posterior[Any]]:
        """The models the policy uses: one, one per stage, or none."""
        return ()

    @property
    def round_index(self) -> int:
        """The number of rewards learned: t."""
        return self._rewards_learned

    @property
    def dictionary_size(self) -> int:
        """The number of points or features that carry the models: m of a dictionary, t of an exact posterior."""
        return sum(posterior.dictionary_size for posterior in self.posteriors)

    def choose_many(self, points: FloatArray) -> list[Choice]:
        """Choose one of the points (n, A, d) in each of n rounds; the model stays as it is."""
        return [self.choose(offered) for offered in points]

    def learn_many(self, points: FloatArray, rewards: FloatArray) -> Iterable[tuple[int, Steps | None]] | None:
        """Learn the rewards (n,) of points (n, d) in order.

        Return None if that is done, or parts of it to carry out one after the other: the number of rewards of each
        part and its steps.
        """
        return ((1, self.learn(point, reward, None)) for point, reward in zip(points, rewards.tolist(), strict=True))

    def learn_weighted(self, point: FloatArray, reward: float, weight: float) -> Steps | None:
        """Learn a reward with 1/weight of the noise variance of others; by default a policy takes no weights."""
        del point, reward, weight
        raise InputError(f"weight: {type(self).__name__} takes no weights; leave weight= and noise_variance= out.")

    def weight_of(self, noise_variance: float) -> float:
        """Return the weight of a reward with this noise variance; 1 where a policy has no model to learn it."""
        return self.posteriors[0].weight_of(noise_variance) if len(self.posteriors) == 1 else 1.0

    def shortlist(self, context: FloatArray, box: Box) -> FloatArray:
        """Return actions of the box, shape (n, d_a), for :meth:`choose` to choose from; the model stays as it is.

        By default a policy does not choose in a box. The context is finite, and the box has the dimension of the
        actions seen so far.
        """
        raise NotImplementedError

    def draw_in_box(self, context: FloatArray, box: Box) -> tuple[FloatArray, float] | None:
        """Draw an action (d_a,) of the box, and return it with its density; None to choose from :meth:`shortlist`.

        The draws come from :attr:`generator`, which is restored if the call fails. The model stays as it is.
        """
        del context, box  # by default nothing is drawn
        return None

    def box_steps(self, box: Box) -> Steps:
        """Return the steps that take note of a box from which an action was chosen; by default none."""
        del box  # what is learned need not depend on it
        return []

    def anticipate(self, key: int, point: FloatArray, choice: Choice | None) -> Steps | None:
        """Take note of a point that is played now and whose reward arrives later; succeed or change nothing.

        By default the point (d,) is kept under its key, and learned when its reward arrives. The choice is as for
        :meth:`learn`.
        """
        del choice  # for models
        return [(self._waiting.__setitem__, key, point)]

    def anticipate_many(self, keys: Sequence[int], points: FloatArray) -> tuple[int, Steps]:
        """Prepare :meth:`anticipate` of the leading of n points (n, d) together: how many, and the steps.

        By default 0: they are anticipated one by one.
        """
        del keys, points  # for models
        return 0, []

    def awaited_point(self, key: int) -> FloatArray | None:
        """Return the anticipated point (d,) of a key."""
        return self._waiting.get(key)

    def fulfil(self, key: int, reward: float) -> Steps | None:
        """Learn the reward of an anticipated point; either succeeds or changes nothing."""
        return [*(self.learn(self._waiting[key], reward, None) or ()), (self._waiting.pop, key, None)]

    def fulfil_weighted(self, key: int, reward: float, weight: float) -> Steps | None:
        """Learn the reward of an anticipated point, as :meth:`learn_weighted`."""
        return [*(self.learn_weighted(self._waiting[key], reward, weight) or ()), (self._waiting.pop, key, None)]

    def fulfil_many(self, keys: Sequence[int], rewards: FloatArray) -> Steps | None:
        """Prepare :meth:`fulfil` of several points together; by default None: they are fulfilled one by one."""
        del keys, rewards  # for models
        return None

    def abandon(self, key: int) -> Steps | None:
        """Forget an anticipated point whose reward never arrives."""
        return [(self._waiting.pop, key, None)]

    def abandon_many(self, keys: Sequence[int]) -> Iterable[tuple[int, Steps | None]]:
        """Forget several anticipated points, part by part as :meth:`learn_many`."""
        return ((1, self.abandon(key)) for key in keys)

    def output_steps(self, point: FloatArray | None, outputs: Mapping[str, float] | None) -> Steps:
        """Check what was measured at a point (d,) and return what learns it; by default there are no constraints."""
        del point  # for constraints
        if outputs is not None:
            raise InputError(f"outputs: {type(self).__name__} has no constraints; leave outputs= out.")
        return []

    @property
    def learns_outputs(self) -> bool:
        """Whether measured outputs are learned beside rewards."""
        return False

    @final
    def argmax(self, values: FloatArray, level: float = 0.0) -> int:
        """Return the index of the largest value; of values that are equal up to rounding, one at random.

        The level is what all values share, such as a prior mean: it does not count in how close they are.
        """
        best, tied = ties.contenders(values, level)
        if tied is None:
            return best
        self.will_draw(self.generator)
        return int(tied[self.generator.integers(len(tied))])

    @final
    def will_draw(self, *generators: np.random.Generator) -> None:
        """Call this before a choice draws at random: one that fails or is interrupted then leaves them as they were."""
        for generator in generators:
            if not any(generator is known for known, _ in self._drawn_from):
                self._drawn_from.append((generator, generator.bit_generator.state))

    def _decide(
        self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None
    ) -> tuple[Decision, Choice, FloatArray]:
        """Return a decision, the choice behind it and the chosen joint point; only generators change."""
        indices: NDArray[np.intp] | None = None
        context_columns, action_columns = self._dimensions
        box, density = None, None
        if isinstance(actions, Box):
            box = actions
            context, actions, density = self._rows_of_box(context, actions, mask)
        else:
            actions = as_points("actions", actions, action_columns)
            if mask is not None:
                offered, indices = len(actions), available_rows(mask, len(actions))
                actions = actions[indices]
            context = as_vector("context", context, context_columns)
        points = join(context, actions)
        if context_columns is None:
            require_action_columns(actions)
            self._check_first(points, len(context), box)
        threads = threads_for(self.dictionary_size, len(points)) if one_thread.libraries else None
        if threads is None:
            choice = self.choose(points)
        else:
            with threads:
                choice = self.choose(points)
        row, propensity, table = choice.index, choice.propensity, choice.probabilities
        point = points[row]
        split, own = len(context), point.copy()
        if indices is not None:
            row = int(indices[row])
            table = None if table is None else scattered(table, indices, offered)
        elif box is not None:
            row, propensity, table = -1, None, None
        mean, std, bound, safe = choice.mean, choice.std, choice.upper_bound, choice.safe
        action, own_context = own[split:], own[:split]
        decision = Decision(row, action, mean, std, bound, own_context, propensity, None, table, density, safe)
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
            self._check_first(join(context, box.low[None, :]), len(context), box)
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
        """Restore the states that the generators had before a choice that failed."""
        restored = [(setattr, generator.bit_generator, "state", state) for generator, state in self._drawn_from]
        carry_out([*restored, (self._drawn_from.clear,)])

    def _rounds(self, contexts: ArrayLike, actions: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return contexts (n, d_x) and the actions offered with each, shape (n, A, d_a), checked."""
        contexts, actions = as_rounds(contexts, actions, *self._dimensions)
        if self._dimensions[0] is None:
            self._check_first(np.concatenate((contexts[0], actions[0, 0]))[None, :], contexts.shape[1])
        return contexts, actions

    def _choices(self, contexts: FloatArray, actions: FloatArray) -> list[Choice]:
        """Return what :meth:`select_many` chooses in rounds that :meth:`_rounds` has checked."""
        split = contexts.shape[1]
        points = np.empty((*actions.shape[:2], split + actions.shape[2]))
        points[:, :, :split], points[:, :, split:] = contexts[:, None, :], actions
        version = self._version()
        try:
            with threads_for(self.dictionary_size, MANY_ROWS) or nullcontext():
                choices = self.choose_many(points)
            self._drawn_from.clear()
        except BaseException as reason:
            self._take_back_draws()
            self._blame_others(version, reason)
            raise
        return choices

    def _as_weight(self, weight: float | None, noise_variance: float | None) -> float:
        if noise_variance is None:
            number = 1.0 if weight is None else as_positive("weight", weight)
        elif weight is not None:
            raise InputError("weight and noise_variance: expected one of the two, got both.")
        else:
            number = self.weight_of(as_positive("noise_variance", noise_variance))
        if not 1.0 / LARGEST_WEIGHT <= number <= LARGEST_WEIGHT:
            raise InputError(
                f"weight: expected {1.0 / LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g}, got {number:.3g}; leave out a "
                "reward that is worth nothing, and give one without noise a weight of 1e6."
            )
        return number

    def _update(
        self,
        context: ArrayLike,
        action: ArrayLike,
        reward: float,
        also: Sequence[Step],
        weight: float,
        outputs: Mapping[str, float] | None,
    ) -> None:
        """Call :meth:`update`, with steps of a policy around this one."""
        version, dimensions = self._version(), self._dimensions
        context = as_vector("context", context, dimensions[0])
        action = as_vector("action", action, dimensions[1])
        reward = as_reward(reward)
        choice, point, chosen_by = self._last
        if version != chosen_by or context.tobytes() + action.tobytes() != point.tobytes():
            choice = None
            require_finite("context", context)
            require_finite("action", action)
            point = np.concatenate((context, action))
            if dimensions[0] is None:
                require_action_columns(action)
                self._check_first(point[None, :], len(context))
        if dimensions[0] is None:
            dimensions = len(context), len(action)
        stored = (self._store, version + 1, self._rewards_learned + 1, dimensions)
        try:
            steps = [*also, *self.output_steps(point, outputs), stored]
            if weight != 1.0:
                self._change_model(version, steps, self.learn_weighted, point, reward, weight)
            elif one_thread.libraries:
                self._change_model(version, steps, self.learn, point, reward, choice)
            else:
                self._commit(version, self.learn(point, reward, choice), steps)
        except Exception as reason:
            self._blame_others(version, reason)
            raise

    def _update_many(
        self, contexts: ArrayLike, actions: ArrayLike, rewards: ArrayLike, also: Sequence[Step] = ()
    ) -> None:
        """Call :meth:`update_many`, with steps of a policy around this one."""
        contexts, actions, rewards = as_log(contexts, actions, rewards, *self._dimensions)
        points = np.hstack([contexts, actions])
        if self._dimensions[0] is None:
            require_action_columns(actions)
            self._check_first(points, contexts.shape[1])
        dimensions = (contexts.shape[1], actions.shape[1])
        version = self._version()
        try:
            with threads_for(self.dictionary_size, MANY_ROWS) or nullcontext():
                for count, steps in self.learn_many(points, rewards) or [(len(points), None)]:
                    stored = (self._store, version + 1, self._rewards_learned + count, dimensions)
                    self._commit(version, steps, [*also, stored])
                    version += 1
        except Exception as reason:
            self._blame_others(version, reason)
            raise

    def _ask(
        self,
        context: ArrayLike,
        actions: ArrayLike | Box,
        mask: ArrayLike | None,
        also: Callable[[Decision], Steps] | None = None,
    ) -> Decision:
        """Call :meth:`ask`, with steps of a policy around this one."""
        version = self._version()
        try:
            decision, choice, point = self._decide(context, actions, mask)
            decision = replace(decision, id=self._ledger.issued)
            dimensions = (len(decision.context), len(decision.action))
            steps: Steps = [*self._ledger.issue_steps(), (self._drawn_from.clear,)]
            if isinstance(actions, Box):
                steps += self.box_steps(actions)
            if also is not None:
                steps += also(decision)
            steps.append((self._store, version + 1, self._rewards_learned, dimensions))
            self._change_model(version, steps, self.anticipate, decision.id, point.copy(), choice)
        except BaseException as reason:
            self._take_back_draws()
            self._blame_others(version, reason)
            raise
        return decision

    def _await_many(self, contexts: ArrayLike, actions: ArrayLike, also: Sequence[Step] = ()) -> list[int]:
        """Call :meth:`await_many`, with steps of a policy around this one."""
        contexts, actions, _ = as_log(contexts, actions, np.zeros(len(np.atleast_1d(contexts))), *self._dimensions)
        points = np.hstack([contexts, actions])
        if self._dimensions[0] is None:
            require_action_columns(actions)
            self._check_first(points, contexts.shape[1])
        dimensions = (contexts.shape[1], actions.shape[1])
        keys = list(range(self._ledger.issued, self._ledger.issued + len(points)))
        start, window = 0, len(points)
        while start < len(points):
            some = slice(start, start + min(window, MOST))
            done = self._await_together(keys[some], points[some], dimensions, also)
            start += done
            if done < len(keys[some]):
                # this one changes the dictionary, or there are few
                version = self._version()
                stored = (self._store, version + 1, self._rewards_learned, dimensions)
                steps = [*self._ledger.issue_steps(), *also, stored]
                self._change_model(version, steps, self.anticipate, keys[start], points[start].copy(), None)
                start += 1
            # points behind one that changes the dictionary are evaluated in vain: aim at the gap between two
            window = max(2 * (done + 1), FEWEST)
        return keys

    def _await_together(
        self, keys: Sequence[int], points: FloatArray, dimensions: tuple[int, int], also: Sequence[Step]
    ) -> int:
        """Await as many of the leading points as are counted together; return how many."""
        if len(keys) < FEWEST:
            return 0
        version = self._version()
        try:
            with threads_for(self.dictionary_size, len(keys)) or nullcontext():
                done, planned = self.anticipate_many(keys, points)
            if done:
                stored = (self._store, version + 1, self._rewards_learned, dimensions)
                self._commit(version, planned, [*self._ledger.issue_steps(done), *also, stored])
        except Exception as reason:
            self._require_one_by_one(version, reason)
            return 0
        return done

    def _open_key(self, verb: str, id: int | Decision) -> int:
        """Return the id of an open decision, which is of this policy as far as can be seen."""
        if not isinstance(id, Decision):
            return self._ledger.require_open(verb, id)
        if id.id is None:
            raise InputError(f"{verb}: expected a decision of ask, got one of select; pass its reward to update.")
        key = self._ledger.require_open(verb, id.id)
        point = self.awaited_point(key)
        if point is not None and not np.array_equal(point, np.concatenate((id.context, id.action))):
            raise InputError(
                f"{verb}: decision {key} of this policy is another one; pass it to the policy that made it."
            )
        return key

    def _tell(self, key: int, reward: float, weight: float, outputs: Mapping[str, float] | None) -> None:
        version, learned = self._version(), self._rewards_learned + 1
        # once more, since another thread may have settled it before the version was read
        self._ledger.require_open("tell", key)
        try:
            measured = self.output_steps(self.awaited_point(key), outputs)
        except Exception as reason:
            self._blame_others(version, reason)
            raise
        steps = [*self._ledger.settle_steps({key: reward}), *measured]
        steps.append((self._store, version + 1, learned, self._dimensions))
        if weight == 1.0:
            self._change_model(version, steps, self.fulfil, key, reward)
        else:
            self._change_model(version, steps, self.fulfil_weighted, key, reward, weight)

    def _tell_together(self, keys: Sequence[int], rewards: Sequence[float]) -> int:
        """Learn the rewards of as many of the leading open decisions as are learned together; return how many."""
        done = 0
        while len(keys) - done >= FEWEST and not self.learns_outputs:
            version, some = self._version(), keys[done : done + MOST_REWARDS]
            # once more, since another thread may have settled one before the version was read
            self._ledger.require_all_open("tell", some)
            numbers = rewards[done : done + MOST_REWARDS]
            try:
                # the rows of one product
                with threads_for(self.dictionary_size, min(len(some), MOST)) or nullcontext():
                    planned = self.fulfil_many(some, np.array(numbers))
                if planned is None:
                    break
                learned = self._rewards_learned + len(some)
                steps = self._ledger.settle_steps(dict(zip(some, numbers, strict=True)))
                self._commit(version, planned, [*steps, (self._store, version + 1, learned, self._dimensions)])
            except Exception as reason:
                self._require_one_by_one(version, reason)
                break
            done += len(some)
        return done

    def _require_one_by_one(self, version: int, reason: Exception) -> None:
        """Raise unless a joint step failed by itself: one by one, what comes before the failure is kept."""
        self._blame_others(version, reason)
        if isinstance(reason, (MemoryError, UnavailableError)):
            raise reason

    def _expire_steps(self, version: int, keys: Sequence[int]) -> Steps:
        """Return the steps that close decisions whose points the model has forgotten."""
        stored = (self._store, version + 1, self._rewards_learned, self._dimensions)
        return [*self._ledger.settle_steps(dict.fromkeys(keys, EXPIRED)), stored]

    def _check_first(self, points: FloatArray, context_columns: int, box: Box | None = None) -> None:
        """Raise if, before the first observation, dictionary or kernel do not take points of this width."""
        for posterior in self.posteriors[:1]:
            if posterior.dimension not in (None, points.shape[1]):
                raise InputError(
                    f"dictionary: its points have {posterior.dimension} columns, but context and action together have "
                    f"{points.shape[1]}."
                )
            self._describe(posterior, context_columns, points, box)
            require_columns(posterior.kernel, points, context_columns)

    def _describe(self, posterior: Posterior[Any], context_columns: int, points: FloatArray, box: Box | None) -> None:
        """Let a posterior see the first points, while no other thread can change it."""
        version, failures = self._version(), list[Exception]()

        def describe() -> None:
            try:
                posterior.describe(context_columns, points, box)
            except Exception as reason:
                failures.append(reason)

        try:
            # what was evaluated before the posterior saw these points is not used again
            forgotten = (setattr, self, "_last", NOTHING_CHOSEN)
            carry_out([(self._versions.pop, version), (describe,), forgotten, (setitem, self._versions, version, None)])
        except KeyError:
            raise changed_meanwhile() from None
        if failures:
            raise failures[-1]

    def _change_model(
        self, version: int, steps: Sequence[Step], hook: Callable[..., Steps | None], *arguments: Any
    ) -> None:
        """Prepare a change of the model by a hook, with the BLAS threads that pay; carry it out with other steps."""
        threads = threads_for(self.dictionary_size) if one_thread.libraries else None
        try:
            if threads is None:
                self._commit(version, hook(*arguments), steps)
            else:
                with threads:
                    self._commit(version, hook(*arguments), steps)
        except Exception as reason:
            self._blame_others(version, reason)
            raise

    def _store(self, version: int, rewards_learned: int, dimensions: tuple[int | None, int | None]) -> None:
        """Write what every change of the model changes in the policy, as its last step; may be repeated."""
        self._rewards_learned, self._dimensions, self._last = rewards_learned, dimensions, NOTHING_CHOSEN
        self._versions[version] = None

    def _version(self) -> int:
        """Return the version of the model."""
        for version in self._versions:
            return version
        raise changed_meanwhile()

    @contextmanager
    def _reading(self) -> Iterator[Callable[[], None]]:
        """Raise if another thread changes the model meanwhile; yields what raises if it has been changed so far."""
        version = self._version()

        def require_unchanged() -> None:
            if version not in self._versions:
                raise changed_meanwhile()

        try:
            yield require_unchanged
        except Exception as reason:
            self._blame_others(version, reason)
            raise
        require_unchanged()

    def _blame_others(self, version: int, reason: BaseException) -> None:
        """Raise if a call failed while another changed the model under it: it may have seen half of the change."""
        is_own = isinstance(reason, (MemoryError, UnavailableError)) or not isinstance(reason, Exception)
        if not is_own and version not in self._versions:
            raise changed_meanwhile() from reason

    def _commit(self, version: int, planned: Steps | None, steps: Sequence[Step]) -> None:
        """Carry out the steps of the model, then those of the policy, the last of which stores the next version."""
        try:
            carry_out([(self._versions.pop, version), *(planned or ()), *steps])
        except KeyError as reason:
            if reason.args != (version,):
                raise
            raise changed_meanwhile() from None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with self._reading():
            return deep_copy(self, memo)

    def __getstate__(self) -> object:
        # for pickle and copy.copy, neither of which can look at the version after it has read the last part
        return object.__getstate__(copy.deepcopy(self))


class Ledger:
    """Numbers decisions from 0 and keeps track of those that are open; its memory is bounded but for these."""

    def __init__(self) -> None:
        self.issued = 0
        self._open: dict[int, None] = {}
        # the reward that was told, or what else happened
        self._settled: dict[int, float | str] = {}

    @property
    def open(self) -> tuple[int, ...]:
        """The ids of the decisions that await their reward, oldest first."""
        return tuple(self._open)

    def issue_steps(self, count: int = 1) -> Steps:
        """Return the steps that open decisions, whose ids are ``issued`` and the next ones."""
        keys = range(self.issued, self.issued + count)
        return [(self._open.update, dict.fromkeys(keys)), (setattr, self, "issued", self.issued + count)]

    def require_issued(self, verb: str, key: int) -> int:
        """Return the id of a decision, open or settled, as a plain integer."""
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise InputError(
                f"{verb}: expected the id of a decision, got {key!r}; pass decision.id as ask returned it."
            )
        key = int(key)
        if not 0 <= key < self.issued:
            raise InputError(f"{verb}: decision {key} was never asked for; ask has issued {self.issued} ids so far.")
        return key

    def require_open(self, verb: str, key: int) -> int:
        """Return the id as a plain integer, or raise an error that says what happened to the decision."""
        key = self.require_issued(verb, key)
        if key in self._open:
            return key
        raise InputError(
            f"{verb}: decision {key} {self._fate(key)}; a decision is settled once, and nothing was changed."
        )

    def require_unlearned(self, verb: str, key: int | None) -> None:
        """Raise if the reward of a decision was told, or is still to be told; one that has expired may be learned."""
        if key is None or key >= self.issued:
            return
        if key in self._open:
            raise InputError(f"{verb}: decision {key} came from ask; write tell(decision, reward).")
        fate = self._fate(key)
        if fate != EXPIRED:
            raise InputError(
                f"{verb}: decision {key} {fate}; a reward counts once, and nothing was changed. To learn another "
                "reward of the same action, pass its row and action: update(decision.context, decision.action, reward)."
            )

    def _fate(self, key: int) -> str:
        fate = self._settled.get(key, f"was settled more than {REMEMBERED:,} decisions ago")
        return fate if isinstance(fate, str) else f"was told already, with reward {fate!r}"

    def require_all_open(self, verb: str, keys: Sequence[int]) -> list[int]:
        """Return ids as plain integers, or raise an error if one is not open or appears twice."""
        # sets compare in C; True and False are no ids
        if set(map(type, keys)) <= {int} and self._open.keys() >= set(keys):
            plain = list(keys)
        else:
            plain = [self.require_open(verb, key) for key in keys]
        if len(set(plain)) < len(plain):
            twice = next(key for key in plain if plain.count(key) > 1)
            raise InputError(f"{verb}: decision {twice} appears twice among the ids; a reward counts once.")
        return plain

    def settle_steps(self, fates: Mapping[int, float | str]) -> Steps:
        """Return the steps that close open decisions: each with its reward, or words as :data:`EXPIRED`."""
        excess = max(len(self._settled) + len(fates) - REMEMBERED, 0)
        oldest = [*islice(self._settled, excess), *islice(fates, max(excess - len(self._settled), 0))]
        return [drop_step(self._open, fates), (self._settled.update, fates), drop_step(self._settled, oldest)]


def deep_copy(thing: T, memo: dict[int, Any]) -> T:
    """Return a copy of an object, all of its attributes copied, as ``copy.deepcopy`` makes it by default."""
    twin = object.__new__(type(thing))
    memo[id(thing)] = twin
    for name, value in attributes(thing).items():
        setattr(twin, name, copy.deepcopy(value, memo))
    return twin


def changed_meanwhile() -> UnavailableError:
    """Return the error of a call under which another thread changed the model."""
    return UnavailableError(
        "The policy was changed meanwhile by another thread, and this call has changed nothing. A policy serves one "
        "thread at a time: hold a threading.Lock around its calls, or let one thread or a service own it."
    )


def _by_reward(outputs: Mapping[str, ArrayLike] | None, count: int) -> list[dict[str, float] | None]:
    """Return what was measured with each reward, by name, of outputs (n,) with NaN where there was nothing."""
    if outputs is None:
        return [None] * count
    if not isinstance(outputs, Mapping):
        raise InputError(f"outputs: expected arrays by name, {{'pressure': [7.1, 6.9, …]}}, got {outputs!r}.")
    columns = {name: as_vector(f"outputs[{name!r}]", values, count).tolist() for name, values in outputs.items()}
    for name, values in columns.items():
        if any(math.isinf(value) for value in values):
            raise InputError(f"outputs[{name!r}]: expected finite numbers, or NaN where nothing was measured.")
    rows = zip(*columns.values(), strict=True) if columns else [()] * count
    return [{name: value for name, value in zip(columns, row, strict=True) if value == value} for row in rows]

"""What every policy offers to its callers."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import repeat
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits import persistence
from kernel_bandits.actions import Box, as_log, as_rounds, require_action_columns
from kernel_bandits.arrays import FloatArray, as_points, as_reward, as_rewards, as_vector, require_finite
from kernel_bandits.commit import Step, Steps
from kernel_bandits.errors import InputError
from kernel_bandits.numerics.blas_threads import threads_for
from kernel_bandits.policies.decision import Choice, Decision
from kernel_bandits.policies.diagnostics import Diagnostics, diagnose
from kernel_bandits.policies.ledger import EXPIRED
from kernel_bandits.policies.together import Together
from kernel_bandits.rng import Seed

# The least number of rows in a product of the many-at-once methods; it decides the number of BLAS threads.
MANY_ROWS = 256


class Policy(Together):
    """Plays one of the offered actions and learns from its reward. Rewards are maximised.

    The dimensions of contexts and actions are those of the first observation; the actions, and how many there are, may
    change from round to round.

    To write a policy, implement the hooks :meth:`choose` and :meth:`learn`, and any other of :class:`Hooks` whose
    default you can improve on. The methods of this class are final.

    A call that fails or is interrupted leaves the policy as it was, or as it is after the call. A policy serves one
    thread at a time: a call under which another thread changes the model, or a kernel that calls the policy, raises an
    :class:`UnavailableError` and changes nothing.
    Hold a lock around a round, from ``select`` to ``update``, where several threads share one.

    Args:
        generator: breaks ties, and draws whatever else the policy leaves to chance.
    """

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

    def _rounds(self, contexts: ArrayLike, actions: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return contexts (n, d_x) and the actions offered with each, shape (n, A, d_a), checked."""
        contexts, actions = as_rounds(contexts, actions, *self._dimensions)
        if self._dimensions[0] is None:
            self._check_first(np.concatenate((contexts[0], actions[0, 0]))[None, :], contexts.shape[1])
        return contexts, actions

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
        steps = [*self._ledger.tell_steps({key: reward}), *self._measured_steps(version, key, outputs)]
        steps.append((self._store, version + 1, learned, self._dimensions))
        if weight == 1.0:
            self._change_model(version, steps, self.fulfil, key, reward)
        else:
            self._change_model(version, steps, self.fulfil_weighted, key, reward, weight)

    def _measured_steps(self, version: int, key: int, outputs: Mapping[str, float] | None) -> Steps:
        try:
            return self.output_steps(self.awaited_point(key), outputs)
        except Exception as reason:
            self._blame_others(version, reason)
            raise

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
    def expire(self, id: int | Decision) -> None:
        """Give up on a decision of :meth:`ask` whose reward will never arrive; it no longer narrows the bounds."""
        version = self._version()
        key = self._open_key("expire", id)
        self._change_model(version, self._expire_steps(version, [key]), self.abandon, key)

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

    def _expire_steps(self, version: int, keys: Sequence[int]) -> Steps:
        """Return the steps that close decisions whose points the model has forgotten."""
        stored = (self._store, version + 1, self._rewards_learned, self._dimensions)
        return [*self._ledger.settle_steps(keys, EXPIRED), stored]

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the decisions of :meth:`ask` that were neither told nor expired, oldest first."""
        return self._ledger.open

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

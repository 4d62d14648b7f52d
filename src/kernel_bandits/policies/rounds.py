"""A round of a policy: choosing an action, and learning its reward."""

from collections.abc import Callable, Mapping, Sequence
from operator import setitem
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.actions import Box, available_rows, join, require_action_columns
from kernel_bandits.arrays import FloatArray, as_points, as_positive, as_reward, as_vector, require_finite
from kernel_bandits.commit import Step, Steps, carry_out
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import require_columns
from kernel_bandits.numerics.blas_threads import one_thread, threads_for
from kernel_bandits.policies.decision import NOTHING_CHOSEN, Choice, Decision, scattered
from kernel_bandits.policies.ledger import Ledger
from kernel_bandits.policies.versions import Versioned, changed_meanwhile
from kernel_bandits.posteriors.base import Posterior

# Beyond this, or below one over it, sums of weights leave nothing of the others.
LARGEST_WEIGHT = 1e12


class Rounds(Versioned):
    """Choosing and learning, one round at a time; every change of state is prepared first, then committed.

    Args:
        generator: breaks ties, and draws whatever else the policy leaves to chance.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(generator)
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

    def _store(self, version: int, rewards_learned: int, dimensions: tuple[int | None, int | None]) -> None:
        """Write what every change of the model changes in the policy, as its last step; may be repeated."""
        self._rewards_learned, self._dimensions, self._last = rewards_learned, dimensions, NOTHING_CHOSEN
        self._versions[version] = None

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

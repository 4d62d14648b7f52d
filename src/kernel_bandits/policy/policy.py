"""The policy: what every policy offers to its callers, and the hooks in which one says how it chooses."""

from __future__ import annotations

import copy
import functools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice, repeat
from threading import RLock
from typing import Any, ClassVar, Concatenate, NamedTuple, ParamSpec, Self, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits import persistence
from kernel_bandits.actions import Box, as_log, as_rounds, available_rows, pair, require_action_columns
from kernel_bandits.arrays import (
    FloatArray,
    as_count,
    as_points,
    as_positive,
    as_reward,
    as_rewards,
    as_vector,
    join,
    require_finite,
)
from kernel_bandits.boxes.constraints import Guards
from kernel_bandits.boxes.search import around, candidates, finalists
from kernel_bandits.confidence import GuaranteedRadius
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.kernels import require_columns
from kernel_bandits.learning.defaults import FIRST_SETTLED, MOST, RECENT_WAITS
from kernel_bandits.numerics.linalg import threads_for
from kernel_bandits.policy.diagnostics import TOGETHER, Diagnostics, Predicted, Residuals, diagnose
from kernel_bandits.policy.export import export
from kernel_bandits.policy.outlook import Outlook, outlook
from kernel_bandits.posterior.base import Evaluated, Model, Posterior, Prediction
from kernel_bandits.posterior.basis import AnchorBasis
from kernel_bandits.posterior.nystrom import NystromPosterior
from kernel_bandits.posterior.sums import Sums, of_sums
from kernel_bandits.rng import Seed, entropy_of, reseeded
from kernel_bandits.values import Pending, copied, evolve

# Beyond this, or below one over it, sums of weights leave nothing of the others.
LARGEST_WEIGHT = 1e12
# The least number of rows in a product of the many-at-once methods; it decides the number of BLAS threads.
MANY_ROWS = 256
# The number of settled decisions remembered with what happened to them; older ones are only known to be settled.
REMEMBERED = 10_000
# What happened to a decision whose reward was given up; it completes the sentence "decision 7 …".
EXPIRED = "has expired (a reward that arrives after all is learned by update)"
# Values tie with the largest if they fall short of it by no more than this share of its distance from the level that
# all values share.
TIE_TOLERANCE = 1e-12
ROUNDING = float(np.finfo(float).eps)
# What stands for a box in an outlook: the largest bounds of so many standard deviations, and actions about them within
# so many widths of the box.
OUTLOOK, NEAR_BEST = 6.0, 0.1
# Vectors of more numbers are left out of explanations.
LONGEST = 12
V = TypeVar("V", float, FloatArray)
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class Choice:
    """What :meth:`Policy.choose` returns: one of the offered points.

    Attributes:
        index: its row.
        mean: its expected reward.
        std: the posterior standard deviation of its expected reward.
        upper_bound: the value it was chosen for.
        propensity: the probability with which it was chosen; None if nothing was drawn.
        computed: what :meth:`Model.learned` can use again if this point is played; None if there is nothing.
        probabilities: of every offered point, shape (A,); None if nothing was drawn.
        safe: whether it is known to keep all constraints; None without constraints.
    """

    index: int
    mean: float = 0.0
    std: float = 0.0
    upper_bound: float = 0.0
    propensity: float | None = None
    computed: Any = None
    probabilities: FloatArray | None = None
    safe: bool | None = None


@dataclass(slots=True, eq=False)
class Decision:
    """The action to play and what the policy believed about it.

    Attributes:
        index: its row among the offered actions; −1 if a box was offered, which has no rows.
        action: the action itself, shape (d_a,).
        mean: its expected reward.
        std: the posterior standard deviation of its expected reward.
        upper_bound: its upper confidence bound; under a UCB rule the largest of all offered actions, unless it was
            drawn by an exploration floor or played because it was played too rarely. Under Thompson sampling the value
            that was drawn for it.
        context: the context it was chosen for, shape (d_x,).
        propensity: the probability with which it was chosen, if the policy chooses at random among finitely many
            actions; otherwise None.
        id: the number by which :meth:`Policy.tell` knows it; None unless it comes from :meth:`Policy.ask`.
        probabilities: the probability of every offered action, shape (A,), 0 where a mask left it out; None like the
            propensity, which is the entry at ``index``.
        density: the density with which the action was drawn, if the policy chooses at random in a box; per unit of the
            action's coordinates. Otherwise None.
        safe: whether it is known to keep all constraints; None without constraints.
    """

    index: int
    action: FloatArray
    mean: float
    std: float
    upper_bound: float
    context: FloatArray
    propensity: float | None = None
    id: int | None = None
    probabilities: FloatArray | None = None
    density: float | None = None
    safe: bool | None = None

    def __eq__(self, other: object) -> bool:
        """Return whether all attributes are equal; arrays as a whole."""
        if not isinstance(other, Decision):
            return NotImplemented
        return all(np.array_equal(getattr(self, each.name), getattr(other, each.name)) for each in fields(self))

    def to_dict(self) -> dict[str, int | float | list[float] | None]:
        """Return every attribute as plain numbers and lists, for a log: ``json.dumps(decision.to_dict())``."""
        lists = {"action": self.action.tolist(), "context": self.context.tolist()}
        if self.probabilities is not None:
            lists["probabilities"] = self.probabilities.tolist()
        return {**asdict(self), **lists}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an action looked good: the terms of its mean, and the exploration bonus.

    Attributes:
        mean: the expected reward of the decision's action as the policy sees it now.
        exploration: the decision's bound less its mean when it was made. Under Thompson sampling, the draw less the
            mean, of either sign.
        points: the n past points with the largest contributions, shape (n, d), context columns first, largest first.
        contributions: what each of them adds to the mean, shape (n,).
        rewards: the rewards observed at them, shape (n,); None if the history is not kept and ``points`` are anchors,
            which stand for all observations around them.
        rest: what all other points add to the mean together.
        prior_mean: the expected reward far from all data, 0 unless it is learned. The contributions are of rewards less
            the prior mean.
        context_columns: how many of the leading columns of points are the context.
        box: by which actions are named; None for plain numbers.
    """

    mean: float
    exploration: float
    points: FloatArray
    contributions: FloatArray
    rewards: FloatArray | None
    rest: float
    prior_mean: float
    context_columns: int = 0
    box: Box | None = None

    def __str__(self) -> str:
        """Return one line for each part of the mean."""
        split, past = self.context_columns, []
        for row, point in enumerate(self.points):
            action: Any = point[split:] if self.box is None else self.box.named(point[split:])
            reward = None if self.rewards is None else self.rewards.item(row)
            past.append((self.contributions.item(row), action, point[:split], reward))
        return explained(self, "", past)


def explained(found: Any, name: str, past: Iterable[tuple[float, Any, Any, float | None]]) -> str:
    """Return an explanation in words: a line for each part of the mean.

    Args:
        found: what has mean, exploration, prior mean and rest.
        name: of what was chosen; empty for none.
        past: contribution, action, context and reward of the past rounds that count most.
    """
    lines = [
        f"expected reward {found.mean:.4g}" + (f" of {name}" if name else ""),
        f"exploration {found.exploration:+.4g}",
        f"{found.prior_mean:+.4g} before any reward",
    ]
    for share, action, context, reward in past:
        given = in_words(context)
        earned = "" if reward is None else f", which earned {reward:.4g}"
        lines.append(f"{share:+.4g} from {in_words(action)}{f' for {given}' if given else ''}{earned}")
    return "\n".join([*lines, f"{found.rest:+.4g} from all other rounds"])


def in_words(value: Any) -> str:
    """Return a row, an action or one of their values, for people to read."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(item)}" for key, item in value.items())
    if isinstance(value, np.ndarray):
        # vectors of embeddings are long
        return ", ".join(f"{number:.4g}" for number in value.tolist()) if value.size <= LONGEST else "…"
    if isinstance(value, (float, np.floating)):
        return "missing" if math.isnan(value) else f"{value:.4g}"
    return "missing" if value is None else "…" if isinstance(value, list) else str(value)


class Told(NamedTuple):
    """A reward that was told and not learned yet: the joint point (d,), the reward and its weight."""

    point: FloatArray
    reward: float
    weight: float


@dataclass(frozen=True, slots=True)
class Waits:
    """How long rewards take, counted in decisions that are asked for until one is told, itself included.

    At first nobody knows. Successes may be told early and silences late: all are waited for while rewards are all the
    same, which say nothing but their level, and while they are few and most decisions are still to be told.

    Attributes:
        recent: the longest of the last rewards.
        before: the longest of ``RECENT_WAITS`` rewards before those.
        count: how many the last rewards are.
        newest: the last decision of which the reward was told.
        low: the least of the rewards.
        high: the largest.
    """

    recent: int = 0
    before: int = 0
    count: int = 0
    newest: int = -1
    low: float = math.inf
    high: float = -math.inf

    @property
    def longest(self) -> int:
        """The longest wait of late; one reward that came a month late is not the rule."""
        return max(self.recent, self.before)

    def after(self, issued: int, keys: Sequence[int], rewards: Sequence[float]) -> Waits:
        """Return these with the rewards of further decisions, once this many were asked for."""
        recent, before, count = self.recent, self.before, self.count
        if count >= RECENT_WAITS:
            recent, before, count = 0, recent, 0
        newest, low, high = max(self.newest, *keys), min(self.low, *rewards), max(self.high, *rewards)
        return Waits(max(recent, issued - min(keys)), before, count + len(keys), newest, low, high)

    def are_too_few(self, settled: int) -> bool:
        """Return whether so many settled decisions do not show yet how long rewards take."""
        return self.low >= self.high or settled < min(FIRST_SETTLED, MOST * (self.newest + 1))


class State:
    """All that a policy knows, as a value: a call ends by putting another one in its place.

    Attributes:
        model: what was learned.
        rewards_learned: how many rewards.
        dimensions: the columns of contexts and of actions; None before the first round.
        issued: how many decisions of ``ask`` there were; the next one has this number.
        pending: the joint points (d,) of the decisions that await their reward, by number, oldest first.
        fates: what happened to the last decisions that no longer do: the reward, or words.
        told: rewards that wait for those of earlier decisions, by number, where the model learns in order.
        waits: how long rewards have taken so far.
        guards: the constraints with what was measured; None for none.
        residuals: how far rewards were from their predictions, all but the last ones.
        predicted: the last ones with their predictions, which enter the residuals a few at a time.
    """

    __slots__ = (
        "dimensions",
        "fates",
        "guards",
        "issued",
        "model",
        "pending",
        "predicted",
        "residuals",
        "rewards_learned",
        "told",
        "waits",
    )

    def __init__(self, model: Model) -> None:
        self.model: Any = model
        self.told: Pending[Told] = Pending()
        self.waits: Waits = Waits()
        self.rewards_learned: int = 0
        self.issued: int = 0
        self.dimensions: tuple[int | None, int | None] = (None, None)
        self.pending: Pending[FloatArray] = Pending()
        self.fates: Pending[float | str] = Pending()
        self.guards: Guards | None = None
        self.residuals: Residuals = Residuals()
        self.predicted: tuple[Predicted, ...] = ()

    @property
    def barrier(self) -> int:
        """The first decision that is still to be told; one that waits longer than any did lately is not waited for."""
        waits = self.waits
        are_too_few = waits.are_too_few(self.issued - len(self.pending))
        return next(self.pending.since(0 if are_too_few else self.issued - waits.longest + 1), self.issued)

    def settling(self, fates: Mapping[int, float | str]) -> dict[str, Any]:
        """Return what changes by decisions that are settled, each with its reward or words as :data:`EXPIRED`."""
        known = self.fates.with_items(fates)
        excess = len(known) - REMEMBERED
        if excess > 0:
            known = known.without(list(islice(known, excess)))
        return {"pending": self.pending.without(fates), "fates": known}

    def fate(self, key: int) -> str:
        """Return in words what happened to a decision that is no longer pending."""
        fate = self.fates.get(key, f"was settled more than {REMEMBERED:,} decisions ago")
        return fate if isinstance(fate, str) else f"was told already, with reward {fate!r}"


# The last choice of ``select``, with the state it was made in and the chosen point: of use while the state is the same,
# so that its update computes nothing twice.
LastChoice: TypeAlias = tuple[State | None, Choice | None, FloatArray]
_NOTHING_CHOSEN: LastChoice = (None, None, np.empty(0))


def _all_or_nothing(call: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a method that may draw leave state and generators as they were where it fails or is interrupted."""

    # Not a context manager of our own: a signal that comes before its __exit__ would hold the lock.
    @functools.wraps(call)
    def guarded(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        with self._lock:
            # what an earlier call has drawn is drawn for good
            self._drawn_from.clear()
            before = self._state
            try:
                return call(self, *arguments, **options)
            except BaseException:
                self._take_back(before)
                raise

    return guarded


class Policy(ABC):
    """Plays one of the offered actions and learns from its reward. Rewards are maximised.

    The dimensions of contexts and actions are those of the first observation; the actions, and how many there are, may
    change from round to round.

    A call that fails or is interrupted leaves the policy as it was: it computes the next state and ends with one
    assignment. A lock makes calls from several threads follow each other; hold one of your own around a round, from
    ``select`` to ``update``, where several threads share a policy.

    To write a policy, give it a :class:`Model`, such as a posterior, and implement :meth:`choose`. The hooks
    :meth:`choose_many`, :meth:`shortlist` and :meth:`draw_in_box` have defaults to improve on; the methods for callers
    are final. Hooks are given joint points, context columns first, that are checked already.

    Args:
        model: learns the rewards.
        generator: breaks ties, and draws whatever else the policy leaves to chance.
    """

    # The attributes that a saved file holds.
    saved: ClassVar[tuple[str, ...]] = ("generator", "_state")
    # The first actions in a box; None for a policy that has no such design.
    design: Any = None

    def __init__(self, model: Model, generator: np.random.Generator) -> None:
        self.generator: np.random.Generator = generator
        self._state = State(model)
        self._last = _NOTHING_CHOSEN
        # Generators that a choice draws from, with their states before it.
        self._drawn_from: list[tuple[np.random.Generator, Any]] = []
        self._lock = RLock()

    @abstractmethod
    def choose(self, points: FloatArray) -> Choice:
        """Choose one of the points (A, d) by what :attr:`model` knows."""

    def choose_many(self, points: FloatArray) -> list[Choice]:
        """Choose one of the points (n, A, d) in each of n rounds."""
        return [self.choose(offered) for offered in points]

    def shortlist(self, context: FloatArray, box: Box) -> FloatArray:
        """Return actions of the box, shape (n, d_a), for :meth:`choose` to choose from.

        By default a policy does not choose in a box. The context is finite, and the box has the dimension of the
        actions seen so far.
        """
        raise NotImplementedError

    def box_of(self, actions: FloatArray) -> Box | None:
        """Return the box that the first rows on offer (A, d_a) stand for; None for rows and nothing else."""
        del actions  # by default rows are rows
        return None

    def due_row(self, context: FloatArray, actions: FloatArray) -> int | None:
        """Return the row of actions (A, d_a) that the design plays next; None to choose."""
        raise NotImplementedError

    def draw_in_box(self, context: FloatArray, box: Box) -> tuple[FloatArray, float] | None:
        """Draw an action (d_a,) of the box, and return it with its density; None to choose from :meth:`shortlist`.

        The draws come from :attr:`generator`, which is restored if the call fails.
        """
        del context, box  # by default nothing is drawn
        return None

    def on_reseed(self, entropy: int) -> None:
        """Restart the random streams besides :attr:`generator` and those of the model."""
        del entropy  # by default there are none

    @final
    def argmax(self, values: FloatArray, level: float = 0.0) -> int:
        """Return the index of the largest value; of values that are equal up to rounding, one at random.

        The level is what all values share, such as a prior mean: it does not count in how close they are.
        """
        best = int(values.argmax())
        (tied,) = (values >= tie_threshold(values.item(best), level)).nonzero()
        if len(tied) <= 1:
            return best
        self.will_draw(self.generator)
        return int(tied[self.generator.integers(len(tied))])

    @final
    def will_draw(self, *generators: np.random.Generator) -> None:
        """Call this before a choice draws at random: one that fails or is interrupted then leaves them as they were."""
        for generator in generators:
            if not any(generator is known for known, _ in self._drawn_from):
                self._drawn_from.append((generator, generator.bit_generator.state))

    @property
    def model(self) -> Any:
        """What the policy has learned, a value."""
        return self._state.model

    @property
    def posterior(self) -> Posterior:
        """The posterior of a policy that has one."""
        model = self._state.model
        if isinstance(model, Posterior):
            return model
        raise UnavailableError(f"posterior: {type(self).__name__} has {len(model.posteriors)}; see policy.posteriors.")

    @property
    def posteriors(self) -> Sequence[Posterior]:
        """The posteriors the policy uses: one, one per stage, or none."""
        return self._state.model.posteriors

    @property
    def guards(self) -> Guards | None:
        """The constraints of the policy with what was measured; None for none."""
        return self._state.guards

    @property
    def round_index(self) -> int:
        """The number of rewards learned: t."""
        return self._state.rewards_learned

    @property
    def dictionary_size(self) -> int:
        """The number of points or features that carry the models: m of a dictionary, t of an exact posterior."""
        return self._state.model.dictionary_size

    @property
    def dictionary_points(self) -> FloatArray:
        """The anchors, shape (m, d): context columns first."""
        return self.posterior.dictionary_points

    @property
    def observed_points(self) -> FloatArray:
        """Every point learned so far, shape (t, d), if the history is kept."""
        return self.posterior.observed_points

    @property
    def dimensions(self) -> tuple[int | None, int | None]:
        """The numbers of columns of contexts and of actions; None before the first round."""
        return self._state.dimensions

    @property
    def residuals(self) -> Residuals:
        """The rewards so far against what was predicted of them."""
        return self._state.residuals.after(self._state.predicted)

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the decisions of :meth:`ask` that were neither told nor expired, oldest first."""
        return tuple(self._state.pending)

    @property
    def awaited(self) -> dict[int, tuple[FloatArray, FloatArray]]:
        """Context (d_x,) and action (d_a,) of each decision in :attr:`pending`, by its id."""
        split = self._state.dimensions[0] or 0
        return {key: (point[:split].copy(), point[split:].copy()) for key, point in self._state.pending.items()}

    @property
    def issued(self) -> int:
        """The number of decisions of ``ask`` and ``await_many`` so far; the next one has this id."""
        return self._state.issued

    # A bad kernel or a huge number is reported by an error, so NumPy need not warn of the arithmetic on the way to it.
    @final
    @np.errstate(invalid="ignore", over="ignore")
    @_all_or_nothing
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
        decision, choice, point = self._decide(context, actions, mask)
        self._last = (self._state, choice, point)
        return decision

    @final
    @np.errstate(invalid="ignore", over="ignore")
    @_all_or_nothing
    def preview(self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None = None) -> Decision:
        """Return what :meth:`select` would return now; changes nothing, random streams included."""
        before = self._state
        decision = self._decide(context, actions, mask)[0]
        self._take_back(before)
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
        with self._lock:
            before = state = self._state
            chosen_in, choice, point = self._last
            number = 1.0 if weight is noise_variance is None else self._as_weight(weight, noise_variance)
            context = as_vector("context", context, state.dimensions[0])
            action = as_vector("action", action, state.dimensions[1])
            reward = as_reward(reward)
            evaluated, guards = None, state.guards
            if choice is not None and chosen_in is state and context.tobytes() + action.tobytes() == point.tobytes():
                evaluated = choice.computed
            else:
                require_finite("context", context)
                require_finite("action", action)
                point = np.concatenate((context, action))
                if state.dimensions[0] is None:
                    require_action_columns(action)
                    state = self._described(state, point[None, :], len(context), None)
            if guards is not None or outputs is not None:
                guards = self._measured(guards, point, outputs)
            with threads_for(state.model.dictionary_size):
                after = _learning(state, point[None, :], [reward], number, evaluated=evaluated)
            after.guards, after.dimensions = guards, (len(context), len(action))
            after.rewards_learned = state.rewards_learned + 1
            self._commit(before, after)

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

        The contexts (n, d_x), the action played in each (n, d_a) and its reward (n,) are checked first. All of them are
        learned, or none if the kernel fails. The outputs (n,) are those of constraints by name, NaN where one was not
        measured; without them rewards alone are learned.
        """
        with self._lock:
            before = self._state
            state, points, rewards = self._log(contexts, actions, rewards)
            count = state.rewards_learned + len(points)
            if outputs is None:
                with threads_for(state.model.dictionary_size, MANY_ROWS):
                    model = state.model.learned(points, rewards)
                self._commit(before, evolve(state, model=model, rewards_learned=count))
                return
            for point, reward, own in zip(points, rewards.tolist(), _by_reward(outputs, len(rewards)), strict=True):
                guards = self._measured(state.guards, point, own)
                state = _learning(state, point[None, :], [reward], 1.0)
                state.guards = guards
            self._commit(before, evolve(state, rewards_learned=count))

    @final
    @_all_or_nothing
    def ask(self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None = None) -> Decision:
        """Choose an action whose reward arrives later; the decision's ``id`` names it until then.

        The standard deviations count the chosen point from now on, so that a burst of asks explores different actions;
        the means wait for :meth:`tell`. The arguments are those of :meth:`select`.
        """
        return self._ask(context, actions, mask)

    @final
    @_all_or_nothing
    def ask_many(self, contexts: ArrayLike, actions: ArrayLike | Box) -> list[Decision]:
        """Choose one action for each of many contexts, whose rewards arrive later: exactly n decisions of :meth:`ask`.

        Each decision counts in the standard deviations of the next, so a batch in one context explores different
        actions. If one of them fails, none was asked for.

        Args:
            contexts: one per row, shape (n, d_x); repeat a context to play several actions in it.
            actions: offered in every round, shape (A, d_a), or round by round, shape (n, A, d_a); or a box.
        """
        contexts = as_points("contexts", contexts, self._state.dimensions[0])
        require_finite("contexts", contexts)
        offers = repeat(actions) if isinstance(actions, Box) else self._rounds(contexts, actions)[1]
        return [self._ask(context, each, None) for context, each in zip(contexts, offers, strict=False)]

    @np.errstate(invalid="ignore", over="ignore")
    def _ask(self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None) -> Decision:
        decision, choice, point = self._decide(context, actions, mask)
        state = self._state
        decision = replace(decision, id=state.issued)
        with threads_for(state.model.dictionary_size):
            model = state.model.awaiting([state.issued], point[None, :], choice.computed)
        after = evolve(
            state,
            model=model,
            dimensions=(len(decision.context), len(decision.action)),
            issued=state.issued + 1,
            pending=state.pending.with_items({state.issued: point.copy()}),
        )
        # a decision that is late by now is no longer waited for
        self._commit(state, _caught_up(after) if after.told else after)
        return decision

    @final
    def await_many(self, contexts: ArrayLike, actions: ArrayLike) -> list[int]:
        """Await the rewards of actions that were played already; return the ids that :meth:`tell` knows them by.

        The model is that of :meth:`ask` with these actions alone on offer, up to rounding.

        Args:
            contexts: one per row, shape (n, d_x).
            actions: the action that was played in each, shape (n, d_a).
        """
        with self._lock:
            before = self._state
            state, points, _ = self._log(contexts, actions, np.zeros(len(np.atleast_1d(contexts))))
            keys = list(range(state.issued, state.issued + len(points)))
            with threads_for(state.model.dictionary_size, min(len(keys), MANY_ROWS)):
                while state.issued <= keys[-1]:
                    first = state.issued - keys[0]
                    # rewards that were told may be learned between two of them
                    some = slice(first, first + 1 if state.told else None)
                    model = state.model.awaiting(keys[some], points[some])
                    pending = state.pending.with_items(dict(zip(keys[some], points[some].copy(), strict=True)))
                    state = evolve(state, model=model, issued=keys[some][-1] + 1, pending=pending)
                    state = _caught_up(state) if state.told else state
            self._commit(before, state)
        return keys

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
        with self._lock:
            number = 1.0 if weight is noise_variance is None else self._as_weight(weight, noise_variance)
            key, before = self._open_key("tell", id), self._state
            with threads_for(before.model.dictionary_size):
                after = self._after_telling(before, [key], [as_reward(reward)], number, outputs)
            self._commit(before, after)

    @final
    def tell_many(
        self,
        ids: Sequence[int | Decision],
        rewards: ArrayLike,
        *,
        outputs: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Learn the rewards of decisions of :meth:`ask`, as :meth:`tell`: all of them, or none.

        The outputs (n,) are those of constraints by name, NaN where one was not measured. Many rewards are learned at
        the speed of matrix products where the policy can; the model is that of :meth:`tell` one by one, up to rounding,
        in the order of decisions where it learns in that order.
        """
        if not isinstance(ids, Iterable):
            raise InputError(f"ids: expected those of several decisions, got {ids!r}.")
        with self._lock:
            before = state = self._state
            keys = [self._open_key("tell", id) for id in ids]
            if len(set(keys)) < len(keys):
                twice = next(key for key in keys if keys.count(key) > 1)
                raise InputError(f"tell: decision {twice} appears twice among the ids; a reward counts once.")
            numbers = as_rewards(as_vector("rewards", rewards, len(keys)))
            if not keys:
                return
            with threads_for(state.model.dictionary_size, min(len(keys), MANY_ROWS)):
                if outputs is None and state.guards is None:
                    state = self._after_telling(state, keys, numbers, 1.0, None)
                else:
                    for key, reward, own in zip(keys, numbers, _by_reward(outputs, len(keys)), strict=True):
                        state = self._after_telling(state, [key], [reward], 1.0, own)
            self._commit(before, state)

    def _after_telling(
        self,
        state: State,
        keys: list[int],
        rewards: list[float],
        weight: float,
        outputs: Mapping[str, float] | None,
    ) -> State:
        """Return the state with the rewards of open decisions; outputs are those of a single one."""
        points = np.array([state.pending[key] for key in keys])
        guards = self._measured(state.guards, points[0], outputs)
        counted = state.rewards_learned + len(keys)
        settled = state.settling(dict(zip(keys, rewards, strict=True)))
        if not state.model.learns_in_order:
            return evolve(
                _learning(state, points, rewards, weight, keys), guards=guards, rewards_learned=counted, **settled
            )
        told = zip(keys, map(Told, points, rewards, repeat(weight)), strict=False)
        waits = state.waits.after(state.issued, keys, rewards)
        after = evolve(state, guards=guards, rewards_learned=counted, waits=waits, **settled)
        return _caught_up(evolve(after, told=state.told.with_items(dict(told))))

    @final
    def expire(self, id: int | Decision) -> None:
        """Give up on a decision of :meth:`ask` whose reward will never arrive; it no longer narrows the bounds."""
        with self._lock:
            self._expire([self._open_key("expire", id)])

    @final
    def expire_before(self, id: int) -> tuple[int, ...]:
        """Give up on all pending decisions asked for before this one, pending or not; return the ids that expired."""
        with self._lock:
            limit = self._issued_key("expire_before", id)
            expired = tuple(key for key in self._state.pending if key < limit)
            if expired:
                self._expire(expired)
        return expired

    def _expire(self, keys: Sequence[int]) -> None:
        state = self._state
        with threads_for(state.model.dictionary_size, min(len(keys), MANY_ROWS)):
            model = state.model.abandoned(keys)
        after = evolve(state, model=model, **state.settling(dict.fromkeys(keys, EXPIRED)))
        self._commit(state, _caught_up(after) if after.told else after)

    @final
    @np.errstate(invalid="ignore", over="ignore")
    @_all_or_nothing
    def select_many(self, contexts: ArrayLike, actions: ArrayLike | Box) -> list[Decision]:
        """Choose an action for each of many contexts with the current model, at the speed of matrix products.

        Args:
            contexts: one per row, shape (n, d_x).
            actions: offered in every round, shape (A, d_a), or round by round, shape (n, A, d_a); or a box, which is
                searched for one context after the other.
        """
        if isinstance(actions, Box):
            contexts = as_points("contexts", contexts, self._state.dimensions[0])
            require_finite("contexts", contexts)
            return [self._decide(context, actions, None)[0] for context in contexts]
        contexts, actions = self._rounds(contexts, actions)
        split = contexts.shape[1]
        points = np.empty((*actions.shape[:2], split + actions.shape[2]))
        points[:, :, :split], points[:, :, split:] = contexts[:, None, :], actions
        with threads_for(self._state.model.dictionary_size, MANY_ROWS):
            choices = self.choose_many(points)
        decisions = []
        for choice, offered, context in zip(choices, actions, contexts, strict=True):
            row, bound, propensity = choice.index, choice.upper_bound, choice.propensity
            decision = Decision(row, offered[row].copy(), choice.mean, choice.std, bound, context.copy(), propensity)
            decision.probabilities, decision.safe = choice.probabilities, choice.safe
            decisions.append(decision)
        return decisions

    @final
    @np.errstate(over="ignore")
    def predict(self, context: ArrayLike, actions: ArrayLike) -> Prediction:
        """Return mean and standard deviation of the expected reward of each action, shape (A,)."""
        if isinstance(actions, Box):
            raise InputError(
                "actions: predict takes rows and was given a Box; pass rows, for instance "
                "box.sample(generator, 100), or decision.action[None, :] for the one that select chose."
            )
        return self.posterior.predict(pair(context, actions, *self._state.dimensions))

    @final
    @np.errstate(invalid="ignore", over="ignore")
    def best(self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None = None) -> Decision:
        """Return the action to use now: the largest expected reward of those known to keep all constraints.

        Changes nothing, random streams included. The arguments are those of :meth:`select`.
        """
        with self._lock:
            return self._best_of(context, actions, mask)[0]

    @final
    @np.errstate(invalid="ignore", over="ignore")
    def outlook(
        self,
        context: ArrayLike,
        actions: ArrayLike | Box,
        mask: ArrayLike | None = None,
        *,
        experiments: int = 10,
        more_than: float = 0.0,
    ) -> Outlook:
        """Return what more experiments are worth in a context, in the units of the reward; changes nothing.

        It is drawn from the posterior, and holds as far as the model does.

        Args:
            context: shape (d_x,).
            actions: rows, shape (A, d_a), or a box.
            mask: True for the rows that may be played.
            experiments: how many more there may be.
            more_than: x of the probability that more than x is left.
        """
        count = as_count("experiments", experiments)
        if not math.isfinite(more_than):
            raise InputError(f"more_than: expected a finite number, got {more_than!r}.")
        with self._lock:
            best, points = self._best_of(context, actions, mask)
            bonus = getattr(self, "bonus", 1.0)
            return outlook(self.posterior, points, best, bonus, count, float(more_than))

    def _best_of(
        self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None
    ) -> tuple[Decision, FloatArray]:
        """Return the decision with the largest mean, and the joint points (n, d) that may be played."""
        state, posterior, rows = self._state, self.posterior, None
        if isinstance(actions, Box):
            if mask is not None:
                raise InputError("mask: a box has no rows to leave out; offer a smaller box.")
            context, generator = as_vector("context", context, state.dimensions[0]), np.random.default_rng(0)
            require_finite("context", context)
            if state.guards is None:
                found = [finalists(posterior, bonus, context, actions, generator) for bonus in (0.0, OUTLOOK)]
                near = around(actions.fractions(np.concatenate(found)), NEAR_BEST, generator)
                found += [actions.at(near), candidates(posterior, context, actions, generator)]
            else:
                safe = state.guards.shortlist
                found = [safe(posterior, bonus, context, actions, generator) for bonus in (0.0, OUTLOOK)]
            offered = np.concatenate(found)
        else:
            offered = as_points("actions", actions, state.dimensions[1])
            rows = np.arange(len(offered)) if mask is None else available_rows(mask, len(offered))
            offered = offered[rows]
        points, safe_now = pair(context, offered, *state.dimensions), None
        if state.guards is not None:
            allowed = state.guards.allowed(points)[0]
            safe_now = bool(allowed.any())
            if not safe_now:
                state.guards.require_flag()
            elif rows is not None:
                rows = rows[allowed]
            points = points[allowed] if safe_now else points
        evaluation = posterior.evaluate_finite(points)
        row = int(evaluation.mean.argmax())
        split = points.shape[1] - offered.shape[1]
        mean, std = evaluation.mean.item(row), evaluation.std.item(row)
        bound, place = mean + getattr(self, "bonus", 1.0) * std, -1 if rows is None else int(rows[row])
        own = points[row].copy()
        return Decision(place, own[split:], mean, std, bound, own[:split], safe=safe_now), points

    @final
    def predict_outputs(self, context: ArrayLike, actions: ArrayLike) -> dict[str, Prediction]:
        """Return mean and standard deviation of each constrained output, by name, for each action."""
        state = self._state
        points = pair(context, actions, *state.dimensions)
        return {} if state.guards is None else state.guards.predict(points)

    @final
    def explain(self, decision: Decision, count: int = 5, box: Box | None = None) -> Explanation:
        """Return the past points that contribute most to a decision's mean, and the exploration in its bound.

        The decision is one of :meth:`select` or :meth:`ask`; at most ``count`` points are returned. Printed, the
        explanation has a line for each of them, with settings by name if their box is given.
        """
        if not isinstance(decision, Decision):
            raise InputError(f"decision: expected what select or ask returned, got {type(decision).__name__}.")
        posterior = self.posterior
        point = pair(decision.context, decision.action[None, :], *self._state.dimensions)[0]
        points, contributions, rewards = posterior.contributions(point)
        total, prior_mean = float(contributions.sum()), posterior.prior_mean
        strongest = np.argsort(-np.abs(contributions), kind="stable")[: as_count("count", count)]
        return Explanation(
            mean=prior_mean + total,
            exploration=decision.upper_bound - decision.mean,
            points=points[strongest],
            contributions=contributions[strongest],
            rewards=None if rewards is None else rewards[strongest],
            rest=total - float(contributions[strongest].sum()),
            prior_mean=prior_mean,
            context_columns=len(decision.context),
            box=box,
        )

    @final
    def export(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        variables: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Write mean and standard deviation as a function of context and action to a JSON file.

        Those of constrained outputs too, with their limits. A few lines of NumPy or JavaScript evaluate it, without
        this library. A file of this name is replaced.

        Args:
            path: of the file.
            columns: names of the columns, context columns first; ``column 0`` and so on unless given.
            variables: how the variables of a table become these columns, where there is one; written as they are.
        """
        export(self.posterior, path, columns, variables, self._state.guards)

    @final
    def learn_sums(self, basis: AnchorBasis, sums: Sums, context_columns: int) -> None:
        """Learn a whole log from its sums in the coordinates of anchors, before anything else."""
        with self._lock:
            state = self._state
            if not isinstance(state.model, NystromPosterior):
                raise InputError(f"learn_sums: {type(state.model).__name__} has no anchors; use ek_ucb.")
            model = of_sums(state.model, basis, sums)
            dimensions = context_columns, basis.anchors.shape[1] - context_columns
            self._commit(state, evolve(state, model=model, rewards_learned=sums.count, dimensions=dimensions))

    @final
    def require_unlearned(self, verb: str, id: int | None) -> None:
        """Raise if the reward of a decision was told, or is still to be told; one that has expired may be learned."""
        state = self._state
        if id is None or id >= state.issued:
            return
        if id in state.pending:
            raise InputError(f"{verb}: decision {id} came from ask; write tell(decision, reward).")
        fate = state.fate(id)
        if fate != EXPIRED:
            raise InputError(
                f"{verb}: decision {id} {fate}; a reward counts once, and nothing was changed. To learn another "
                "reward of the same action, pass its row and action: update(decision.context, decision.action, reward)."
            )

    @final
    def describe(self, contexts: ArrayLike) -> None:
        """Show the policy contexts (n, d_x) whose rewards are not known, such as those of last month's visitors.

        Where nothing else is set it measures the columns on them: their spread, tails and categories. The first
        decisions then need no fit to know in what units contexts differ.
        """
        with self._lock:
            state = self._state
            seen = as_points("contexts", contexts, state.dimensions[0])
            require_finite("contexts", seen)
            if isinstance(state.model, Posterior) and len(seen):
                self._commit(state, evolve(state, model=state.model.shown(seen)))

    @final
    def group_columns(self, labels: NDArray[np.intp]) -> None:
        """Say, before the first round, which columns of joint points encode one variable, shape (d,)."""
        with self._lock:
            if isinstance(self._state.model, Posterior):
                self._commit(self._state, evolve(self._state, model=self._state.model.grouped(labels)))

    @final
    def diagnostics(self) -> Diagnostics:
        """Return the state of the policy in numbers: sizes, dimensions, drift, memory."""
        state = self._state
        memory, posteriors = persistence.memory_of(state), state.model.posteriors
        return diagnose(state.rewards_learned, len(state.pending), posteriors, self.residuals, memory)

    @final
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to one file, atomically; :func:`kernel_bandits.load` reads it back bit for bit.

        A file of this name is replaced.
        """
        with self._lock:
            content = persistence.to_bytes(self)
        persistence.write(content, path)

    @final
    def reseed(self, seed: Seed) -> None:
        """Restart every random stream of the policy; what it has learned stays.

        Give each process that plays a copy of one saved policy a seed of its own: otherwise all of them break ties,
        draw anchors and explore identically. ``None`` takes fresh entropy. A policy that has drawn nothing yet is
        then the one that its preset builds with this seed.
        """
        entropy = entropy_of(seed)
        with self._lock:
            state = self._state
            guards = None if state.guards is None else state.guards.reseeded(entropy)
            after = evolve(state, model=state.model.reseeded(entropy), guards=guards)
            self._reseed_choices(entropy)
            self._commit(state, after)

    @final
    def reseed_choices(self, seed: Seed) -> None:
        """Restart the random streams that choices draw from: ties, exploration, searches of a box.

        Those of the model go on. Copies that are told the same rewards then learn the same bits, whatever each of them
        has drawn for its own choices in between.
        """
        entropy = entropy_of(seed)
        with self._lock:
            self._reseed_choices(entropy)

    def _reseed_choices(self, entropy: int) -> None:
        self.generator.bit_generator.state = reseeded(self.generator, entropy).bit_generator.state
        self.on_reseed(entropy)

    def _decide(
        self, context: ArrayLike, actions: ArrayLike | Box, mask: ArrayLike | None
    ) -> tuple[Decision, Choice, FloatArray]:
        """Return a decision, the choice behind it and the chosen joint point.

        The state may come to know of columns and boxes, and generators change; the caller takes that back on failure.
        """
        state, indices = self._state, None
        box, density = None, None
        if isinstance(actions, Box):
            box = actions
            context, actions, density = self._rows_of_box(context, actions, mask)
        else:
            actions = as_points("actions", actions, state.dimensions[1])
            if mask is not None:
                offered, indices = len(actions), available_rows(mask, len(actions))
                actions = actions[indices]
            context = as_vector("context", context, state.dimensions[0])
            if state.dimensions[0] is None:
                require_action_columns(actions)
                points = join(context, actions)
                self._commit(state, self._described(state, points, len(context), self.box_of(actions)))
            due = None if self.design is None else self.due_row(context, actions)
            if due is not None:
                offered = len(actions) if indices is None else offered
                indices = np.array([due]) if indices is None else indices[[due]]
                actions = actions[[due]]
        points = join(context, actions)
        chosen_in = self._state
        with threads_for(chosen_in.model.dictionary_size, len(points)):
            choice = self.choose(points)
        # what was computed is of this state and of no other
        self._commit(chosen_in, chosen_in)
        row, propensity, table = choice.index, choice.propensity, choice.probabilities
        point = points[row]
        split, own = len(context), point.copy()
        if indices is not None:
            row = int(indices[row])
            table = None if table is None else scattered(table, indices, offered)
        elif box is not None:
            row, propensity, table = -1, None, None
            state = self._state
            self._commit(state, evolve(state, model=state.model.in_box(box)))
        mean, std, bound, safe = choice.mean, choice.std, choice.upper_bound, choice.safe
        action, own_context = own[split:], own[:split]
        decision = Decision(row, action, mean, std, bound, own_context, propensity, None, table, density, safe)
        return decision, choice, point

    def _rows_of_box(
        self, context: ArrayLike, box: Box, mask: ArrayLike | None
    ) -> tuple[FloatArray, FloatArray, float | None]:
        """Return the context, checked, the actions of a box to choose from, and the density of one that was drawn."""
        state = self._state
        columns, action_columns = state.dimensions
        if mask is not None:
            raise InputError("mask: a box has no rows to leave out; offer a smaller box.")
        if action_columns not in (None, box.dimension):
            raise InputError(f"actions: expected a box of {action_columns} dimensions, got {box.dimension}.")
        context = as_vector("context", context, columns)
        if columns is None:
            self._commit(state, self._described(state, join(context, box.low[None, :]), len(context), box))
        require_finite("context", context)
        self.will_draw(self.generator)
        try:
            drawn = self.draw_in_box(context, box)
            rows, density = (self.shortlist(context, box), None) if drawn is None else (drawn[0][None, :], drawn[1])
            return context, as_points("actions", rows, action_columns), density
        except NotImplementedError as reason:
            raise InputError(
                f"actions: {type(self).__name__} chooses among finitely many actions and was offered a Box; "
                "offer rows, for instance box.sample(generator, 100)."
            ) from reason

    def _rounds(self, contexts: ArrayLike, actions: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return contexts (n, d_x) and the actions offered with each, shape (n, A, d_a), checked."""
        state = self._state
        contexts, actions = as_rounds(contexts, actions, *state.dimensions)
        if state.dimensions[0] is None:
            first = np.concatenate((contexts[0], actions[0, 0]))[None, :]
            self._commit(state, self._described(state, first, contexts.shape[1], None))
        return contexts, actions

    def _log(self, contexts: ArrayLike, actions: ArrayLike, rewards: ArrayLike) -> tuple[State, FloatArray, FloatArray]:
        """Return the state that knows the columns of a log, its joint points (n, d) and rewards (n,), checked."""
        state = self._state
        contexts, actions, rewards = as_log(contexts, actions, rewards, *state.dimensions)
        points = np.hstack([contexts, actions])
        if state.dimensions[0] is None:
            require_action_columns(actions)
            state = self._described(state, points, contexts.shape[1], None)
        return evolve(state, dimensions=(contexts.shape[1], actions.shape[1])), points, rewards

    def _described(self, state: State, points: FloatArray, context_columns: int, box: Box | None) -> State:
        """Return the state that knows what the columns are, or raise if dictionary or kernel do not take them."""
        for posterior in state.model.posteriors[:1]:
            if posterior.dimension not in (None, points.shape[1]):
                raise InputError(
                    f"dictionary: its points have {posterior.dimension} columns, but context and action together have "
                    f"{points.shape[1]}."
                )
        if state.guards is not None:
            state.guards.require_columns(points.shape[1] - context_columns)
        described = evolve(state, model=state.model.described(context_columns, points, box))
        for posterior in described.model.posteriors[:1]:
            require_columns(posterior.kernel, points, context_columns)
        return described

    def _as_weight(self, weight: float | None, noise_variance: float | None) -> float:
        if noise_variance is None:
            number = 1.0 if weight is None else as_positive("weight", weight)
        elif weight is not None:
            raise InputError("weight and noise_variance: expected one of the two, got both.")
        else:
            variance, posteriors = as_positive("noise_variance", noise_variance), self.posteriors
            number = posteriors[0].weight_of(variance) if len(posteriors) == 1 else 1.0
            confidence = getattr(self, "confidence", None)
            if isinstance(confidence, GuaranteedRadius):
                confidence.require_covers_noise(posteriors[0].regularization)
        if not 1.0 / LARGEST_WEIGHT <= number <= LARGEST_WEIGHT:
            raise InputError(
                f"weight: expected {1.0 / LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g}, got {number:.3g}; leave out a "
                "reward that is worth nothing, and give one without noise a weight of 1e6."
            )
        return number

    def _issued_key(self, verb: str, key: int) -> int:
        """Return the id of a decision, open or settled, as a plain integer."""
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise InputError(
                f"{verb}: expected the id of a decision, got {key!r}; pass decision.id as ask returned it."
            )
        key, issued = int(key), self._state.issued
        if not 0 <= key < issued:
            raise InputError(f"{verb}: decision {key} was never asked for; ask has issued {issued} ids so far.")
        return key

    def _open_key(self, verb: str, id: int | Decision) -> int:
        """Return the id of an open decision, which is of this policy as far as can be seen."""
        state = self._state
        if isinstance(id, Decision):
            if id.id is None:
                raise InputError(f"{verb}: expected a decision of ask, got one of select; pass its reward to update.")
            key = self._issued_key(verb, id.id)
            point = state.pending.get(key)
            if point is not None and not np.array_equal(point, np.concatenate((id.context, id.action))):
                raise InputError(
                    f"{verb}: decision {key} of this policy is another one; pass it to the policy that made it."
                )
        else:
            key = id if type(id) is int and id in state.pending else self._issued_key(verb, id)
        if key not in state.pending:
            raise InputError(
                f"{verb}: decision {key} {state.fate(key)}; a decision is settled once, and nothing was changed."
            )
        return key

    def _measured(self, guards: Guards | None, point: FloatArray, outputs: Mapping[str, float] | None) -> Guards | None:
        """Return the constraints with what was measured at a point (d,)."""
        if guards is not None:
            return guards.learned(point, guards.checked(outputs))
        if outputs is not None:
            raise InputError(f"outputs: {type(self).__name__} has no constraints; leave outputs= out.")
        return None

    def _commit(self, before: State, after: State) -> None:
        """Go on with another state: the one assignment."""
        if self._state is not before:
            raise UnavailableError(
                "The policy was changed while it computed: a kernel, a rule or a signal handler has called it. Nothing "
                "of this call is kept; do not call a policy from within its own parts."
            )
        self._state = after

    def _take_back(self, state: State) -> None:
        """Return to the state before a call, and the generators to theirs."""
        self._state = state
        for generator, before in self._drawn_from:
            generator.bit_generator.state = before
        self._drawn_from.clear()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in vars(self).items() if name not in ("_lock", "_last", "_drawn_from")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._last, self._drawn_from, self._lock = _NOTHING_CHOSEN, [], RLock()

    restore_saved = __setstate__

    def __copy__(self) -> Self:
        return copy.deepcopy(self)


def _learning(
    state: State,
    points: FloatArray,
    rewards: list[float],
    weight: float,
    keys: list[int] | None = None,
    evaluated: Evaluated | None = None,
) -> State:
    """Return a copy of the state whose model has rewards at points (n, d) in it, all of one weight.

    With keys the points were awaited; without, there is one, as it was evaluated if it was.
    """
    model, residuals, predicted = state.model, state.residuals, state.predicted
    if weight == 1.0 and isinstance(model, Posterior) and not model.is_provisional:
        if keys is None:
            evaluation, row = evaluated = evaluated or (model.evaluate_finite(points), 0)
            means, stds = [evaluation.mean.item(row)], [evaluation.std.item(row)]
        else:
            prediction = model.evaluate_awaited(keys, points)
            means, stds = prediction.mean.tolist(), prediction.std.tolist()
        changes = len(model.kernel_changes)
        for offset, told in enumerate(zip(rewards, means, stds, strict=True)):
            predicted = (*predicted, (*told, model.regularization, model.round_index + offset, changes))
            # a few are compared at once, which is faster
            if len(predicted) == TOGETHER:
                residuals, predicted = residuals.after(predicted), ()
    weights, numbers = None if weight == 1.0 else np.full(len(points), weight), np.array(rewards)
    if keys is None:
        model = model.learned(points, numbers, weights, evaluated)
    else:
        model = model.settled(keys, points, numbers, weights)
    after = copied(state)
    after.model, after.residuals, after.predicted = model, residuals, predicted
    return after


def _caught_up(state: State) -> State:
    """Return the state whose model has learned the rewards of all decisions before the first that is still to be told.

    Purchases are told early and silences late: rewards as they come are better than those of their decisions. In the
    order of decisions they are not.
    """
    barrier = state.barrier
    keys = sorted(state.told.before(barrier))
    first = 0
    while first < len(keys):
        weight, last = state.told[keys[first]].weight, first
        while last < len(keys) and state.told[keys[last]].weight == weight:
            last += 1
        some = [state.told[key] for key in keys[first:last]]
        points, rewards = np.array([one.point for one in some]), [one.reward for one in some]
        state, first = _learning(state, points, rewards, weight, keys[first:last]), last
    return evolve(state, told=state.told.without(keys)) if keys else state


def tie_threshold(largest: V, level: float = 0.0) -> V:
    """Return the value from which on others count as equal to the largest, or those of several largest ones.

    Far from all data the bounds of different actions agree up to the order of rounding, which must not decide. Values
    are sums of a level that all share, which only the sum is rounded for, and of what was computed.
    """
    return largest - (TIE_TOLERANCE * abs(largest - level) + ROUNDING * abs(level))


def are_tied(values: FloatArray, level: float = 0.0) -> NDArray[np.bool_]:
    """Return which values of each row (…, A) count as its largest."""
    return values >= tie_threshold(values.max(axis=-1, keepdims=True), level)


def tie_shares(values: FloatArray, level: float = 0.0) -> FloatArray:
    """Return the probabilities (…, A) of a choice at random among the values of each row that count as the largest."""
    tied = are_tied(values, level)
    return tied / tied.sum(axis=-1, keepdims=True)


def scattered(probabilities: FloatArray, rows: NDArray[np.intp], count: int) -> FloatArray:
    """Return the probabilities of ``count`` offered actions, of which only some rows may be played."""
    table = np.zeros(count)
    table[rows] = probabilities
    return table


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

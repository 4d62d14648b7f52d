"""A policy over a table: rows and names in, names out; a policy over arrays does the rest."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from operator import attrgetter
from threading import RLock
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits import persistence
from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.boxes.constraints import Constraint, Guards
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.policy.diagnostics import Diagnostics, Residuals
from kernel_bandits.policy.outlook import Outlook
from kernel_bandits.policy.policy import Decision, Explanation, Policy, explained
from kernel_bandits.policy.ucb import UpperConfidenceBound
from kernel_bandits.posterior.base import Posterior, Prediction
from kernel_bandits.tables.arms import Action, Offer
from kernel_bandits.tables.columns import Layout
from kernel_bandits.tables.features import Features, Mask
from kernel_bandits.tables.rows import FrameLike, Row, RowLike, Transformer, as_row, as_rows
from kernel_bandits.tables.values import Level, as_plain, shown
from kernel_bandits.values import fact

P = ParamSpec("P")
T = TypeVar("T")
# Points at which the relevance of variables is estimated, at most: enough for two digits.
SAMPLE = 256
# Pairs of points at which it is measured how unsure it is.
PAIRS = 64


@dataclass(slots=True)
class NamedDecision:
    """The action to play, by name, and what the policy believed of it.

    Attributes:
        arm: the name of the arm; None where actions are described by features alone.
        action: as it was offered: the name of an arm, or a row of features.
        context: the row that it was chosen for.
        encoded: the decision over arrays that it stands for.
        index: its place among the offered actions; −1 where a box was offered.
        mean: its expected reward.
        std: the posterior standard deviation of its expected reward.
        upper_bound: its upper confidence bound, or the value that was drawn for it.
        propensity: the probability with which it was chosen, where the policy chooses at random; else None.
        id: what ``tell`` names it by; None unless it comes from ``ask``.
        probabilities: of every offered action, in their order, shape (A,); None like the propensity.
        density: with which the action was drawn from a box, in encoded units; otherwise None.
        safe: whether it is known to keep all constraints; None without constraints.
    """

    arm: Level | None
    action: Action
    context: Row
    encoded: Decision = field(repr=False)
    index: ClassVar[int] = fact("encoded.index")
    mean: ClassVar[float] = fact("encoded.mean")
    std: ClassVar[float] = fact("encoded.std")
    upper_bound: ClassVar[float] = fact("encoded.upper_bound")
    propensity: ClassVar[float | None] = fact("encoded.propensity")
    id: ClassVar[int | None] = fact("encoded.id")
    probabilities: ClassVar[FloatArray | None] = fact("encoded.probabilities")
    density: ClassVar[float | None] = fact("encoded.density")
    safe: ClassVar[bool | None] = fact("encoded.safe")

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the encoding as plain data, for a log: ``json.dumps(decision.to_dict())``."""
        numbers = ("mean", "std", "upper_bound", "propensity", "id", "probabilities", "density", "safe")
        names = ("index", "arm", "action", "context", *numbers)
        return {name: as_plain(getattr(self, name)) for name in names}


@dataclass(frozen=True, slots=True)
class PastRound:
    """A past round, or an anchor, that speaks for a decision.

    Attributes:
        context: its row, as far as it can be told from its encoding.
        action: the arm or the row that was played, as far as it can be told.
        contribution: what it adds to the mean.
        reward: what was earned; None for an anchor, which speaks for all rounds around it.
    """

    context: Row
    action: Action | None
    contribution: float
    reward: float | None


@dataclass(frozen=True, slots=True)
class NamedExplanation:
    """Why an action looked good, in the words of the table.

    Attributes:
        arm: the name of the arm that was chosen; None where actions are described by features alone.
        mean: the expected reward of the decision's action as the policy sees it now.
        exploration: what the decision's bound lay above its mean when it was made: the part that was curiosity.
        rounds: the past rounds that moved the mean most, strongest first.
        rest: what all other rounds add to the mean together.
        prior_mean: what the mean starts from.
    """

    arm: Level | None
    mean: float
    exploration: float
    rounds: tuple[PastRound, ...]
    rest: float
    prior_mean: float

    def __str__(self) -> str:
        """Return one line for each part of the mean."""
        past = [(one.contribution, one.action, one.context, one.reward) for one in self.rounds]
        return explained(self, "" if self.arm is None else repr(self.arm), past)


@dataclass(frozen=True, slots=True)
class NamedDiagnostics:
    """The state of a policy over a table. What :class:`Diagnostics` has can be asked of it directly.

    Attributes:
        model: the diagnostics of the policy over arrays.
        relevance: for each variable, most relevant first, by how much the expected reward changes if the variable is
            taken from another past round and all else stays: the root mean square over √2, in units of the reward. 0
            for a variable that does not matter.
        uncertainty: of the relevance of each variable, in the same units: one that is below it may be chance.
        levels: the arms that are known, and the levels that were found of each column that looks for them.
    """

    model: Diagnostics
    relevance: Mapping[str, float]
    uncertainty: Mapping[str, float]
    levels: Mapping[str, tuple[Level, ...]]

    def __getattr__(self, name: str) -> Any:
        # while an object is being copied it has no model yet
        if name == "model" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.model, name)

    def __str__(self) -> str:
        # what the lengthscales say of columns, the relevance says of variables
        lines = [line for line in str(self.model).split("\n") if not line.startswith("lengthscales")]
        known = [(name, value, self.uncertainty[name]) for name, value in self.relevance.items()]
        if known:
            clear = ", ".join(f"{name} {value:.2g} ± {unsure:.1g}" for name, value, unsure in known if value > unsure)
            lines.append(f"relevance: {clear or 'of no variable so far'}")
            rest = [f"{name} {value:.2g} ± {unsure:.1g}" for name, value, unsure in known if value <= unsure]
            if clear and rest:
                lines.append(f"no more than chance: {', '.join(rest)}")
        lines += [f"levels of {name}: {len(levels)}" for name, levels in self.levels.items()]
        return "\n".join(lines)


def relevance(points: FloatArray, layout: Layout, posterior: Posterior) -> dict[str, tuple[float, float]]:
    """Return how much a prediction changes where one variable comes from another point, and how unsure that is.

    √(½·mean (f(s) − f(s′))²), where s′ is s with the columns of the variable from another point: the square root of the
    total index of Sobol's, as Jansen (1999) estimates it. The same with the posterior variance of f(s) − f(s′) in place
    of the square is how unsure it is: a variable without effect moves the mean about as much as that. Variables
    come by the difference of the two squares, what is left of the effect without chance, largest first. The same
    points give the same numbers.
    """
    generator = np.random.default_rng(0)
    sample = points if len(points) <= SAMPLE else generator.choice(points, SAMPLE, replace=False)
    order = generator.permutation(len(sample))
    # each point takes the variable from the next one in a random order, so that none takes it from itself
    partners = np.empty_like(order)
    partners[order] = np.roll(order, 1)
    before = posterior.predict(sample).mean
    found: dict[str, tuple[float, float]] = {}
    names = [name for _, name in layout.variables]
    for side, name in layout.variables:
        columns = layout.columns_of(side, name)
        mixed = sample.copy()
        mixed[:, columns] = sample[np.ix_(partners, columns)]
        changes = before - posterior.predict(mixed).mean
        few = min(len(sample), PAIRS)
        pairs = np.concatenate([sample[:few], mixed[:few]])
        covariance = posterior.covariance(pairs, posterior.evaluate_finite(pairs))
        own = covariance.diagonal()
        # Var(f(s) − f(s′)), 0 up to rounding where the variable is constant
        variances = np.maximum(own[:few] + own[few:] - 2.0 * covariance[:few, few:].diagonal(), 0.0)
        both = math.sqrt(0.5 * float(np.mean(changes**2))), math.sqrt(0.5 * float(variances.mean()))
        is_constant = (mixed[:, columns] == sample[:, columns]).all()
        found[name if names.count(name) == 1 else f"{name} ({side})"] = (0.0, 0.0) if is_constant else both
    return dict(sorted(found.items(), key=lambda item: item[1][1] ** 2 - item[1][0] ** 2))


def _attribute(name: str) -> Any:
    """Return a read-only attribute that is the one of the policy over arrays, documented as there."""
    return property(attrgetter(f"inner.{name}"), doc=getattr(Policy, name).__doc__)


def _method(method: Callable[Concatenate[Policy, P], T]) -> Callable[Concatenate[TablePolicy, P], T]:
    """Return a method that is the one of the policy over arrays, documented as there."""

    @wraps(method)
    def of_table(self: TablePolicy, /, *arguments: P.args, **options: P.kwargs) -> T:
        return method(self.inner, *arguments, **options)

    return of_table


@final
class TablePolicy:
    """Chooses among arms or rows for a row of a table, and learns from rewards.

    It encodes rows of ``features`` for a fresh ``policy`` over arrays, and puts the names back. Unknown levels and arms
    are added with their first reward. It has every method of a :class:`Policy` that is meant for callers.

    Attributes:
        inner: the policy over arrays.
        features: what the table is.
        codec: the same with the levels and arms that were learned so far; encodes rows and actions.
    """

    __slots__ = ("codec", "features", "inner")
    inner: Policy
    features: Features
    codec: Features

    # What knows of no rows and no names is as the policy over arrays has it.
    model: Any = _attribute("model")
    posterior: Posterior = _attribute("posterior")
    posteriors: Sequence[Posterior] = _attribute("posteriors")
    guards: Guards | None = _attribute("guards")
    residuals: Residuals = _attribute("residuals")
    round_index: int = _attribute("round_index")
    dimensions: tuple[int | None, int | None] = _attribute("dimensions")
    dictionary_size: int = _attribute("dictionary_size")
    dictionary_points: FloatArray = _attribute("dictionary_points")
    observed_points: FloatArray = _attribute("observed_points")
    pending: tuple[int, ...] = _attribute("pending")
    issued: int = _attribute("issued")
    reseed = _method(Policy.reseed)
    reseed_choices = _method(Policy.reseed_choices)

    @property
    def awaited(self) -> dict[int, tuple[Row, Action | None]]:
        """Row and action of each decision in :attr:`pending`, by its id, as far as they can be told."""
        points = {key: np.concatenate(parts) for key, parts in self.inner.awaited.items()}
        return {key: self.codec.decode(point[None, :])[0] for key, point in points.items()}

    def __init__(self, policy: Policy, features: Features) -> None:
        if not isinstance(features, Features):
            raise InputError(f"features: expected kb.Features(context=…, actions=…), got {shown(features)}.")
        if policy.round_index or policy.pending:
            raise InputError("policy: expected one that has learned nothing yet; build it with features= at once.")
        self.inner, self.features, self.codec = policy, features, features

    def describe(self, contexts: FrameLike) -> None:
        """Show the policy rows whose rewards are not known, such as last month's visitors, before its first decision.

        It learns their levels, and measures the columns on them: spread, tails, and how common each level is.

        Args:
            contexts: a frame or a sequence of rows, as they will come.
        """
        with self._lock:
            vectors, codec = self.codec.described(as_rows("contexts", contexts))
            self._change(codec, lambda: self.inner.describe(vectors))

    def select(self, context: RowLike, actions: Offer | None = None, mask: Mask | None = None) -> NamedDecision:
        """Choose an action for a row. Changes neither the model nor what is known of levels.

        Args:
            context: a dict, a row of a pandas or polars frame, or a NumPy record, with the columns that were described.
            actions: the names of the arms on offer, all that are known unless given; or rows of features, or a mapping
                from names to rows; or a box, where actions are described by columns.
            mask: which of them may be played: a mapping from names to booleans, where names that are left out may be;
                or one boolean for each.
        """
        return self._by_name(self.inner.select, context, actions, mask)

    def preview(self, context: RowLike, actions: Offer | None = None, mask: Mask | None = None) -> NamedDecision:
        """Return what :meth:`select` would return now; changes nothing, random streams included."""
        return self._by_name(self.inner.preview, context, actions, mask)

    def best(self, context: RowLike, actions: Offer | None = None, mask: Mask | None = None) -> NamedDecision:
        """Return the action to use now: the largest expected reward of those known to keep all constraints."""
        return self._by_name(self.inner.best, context, actions, mask)

    def outlook(
        self,
        context: RowLike,
        actions: Offer | None = None,
        mask: Mask | None = None,
        *,
        experiments: int = 10,
        more_than: float = 0.0,
    ) -> Outlook:
        """Return what more experiments are worth for a row, in the units of the reward; changes nothing."""
        vector, choices, rows, offered = self._offer(context, actions, mask)
        found = self.inner.outlook(vector, choices, rows, experiments=experiments, more_than=more_than)
        return replace(found, best=self._named(found.best, context, offered))

    def ask(self, context: RowLike, actions: Offer | None = None, mask: Mask | None = None) -> NamedDecision:
        """Choose an action whose reward arrives later; :meth:`tell` learns it. The arguments are those of select."""
        with self._lock:
            vector, choices, allowed, offered = self._offer(context, actions, mask)
            codec = self.codec
            if not codec.knows(context, () if isinstance(offered, Box) else offered):
                # the model counts the chosen point from now on, so its encoding must stay
                chosen = self._named(self.inner.preview(vector, choices, allowed), context, offered)
                codec = codec.learned(chosen.context, chosen.action)
            decision = self._change(codec, lambda: self.inner.ask(vector, choices, allowed))
        return self._named(decision, context, offered)

    def update(
        self,
        context: RowLike | NamedDecision,
        action: Action | None = None,
        reward: float | None = None,
        *,
        weight: float | None = None,
        noise_variance: float | None = None,
        outputs: Mapping[str, float] | None = None,
    ) -> None:
        """Learn the reward of an action: ``update(decision, reward=1.0)``, or ``update(row, action, 1.0)``.

        Either succeeds or changes nothing. A decision of :meth:`ask` is learned by :meth:`tell`, and here only once it
        has expired.

        Args:
            context: a decision, or the row of a context.
            action: the arm or the row that was played; left out for a decision.
            reward: a finite number; larger is better.
            weight: how many ordinary rewards this one is worth: its noise variance is λ/weight. 1 unless given.
            noise_variance: of this reward, in squared reward units; instead of ``weight``.
            outputs: what was measured besides, by the names of the policy's constraints.
        """
        measured: dict[str, Any] = {"weight": weight, "noise_variance": noise_variance, "outputs": outputs}
        if isinstance(context, NamedDecision):
            decision: NamedDecision = context
            if action is not None:
                raise InputError("update: a decision knows its action; write update(decision, reward=…).")
            self.inner.require_unlearned("update", decision.id)
            if reward is None:
                raise InputError("reward: expected a number, got none; write update(decision, reward=…).")
            context, action = decision.context, decision.action
        elif action is not None:
            self.codec.require_played([action])
        if action is None or reward is None:
            raise InputError("update: expected a row, an action and a reward, or a decision and reward=….")
        with self._lock:
            # what was never met is learned with its first reward
            codec = self.codec.learned(context, action)
            vector = codec.rows.encode([context], "context", numbered=False)[0]
            played = codec.choices.encode([action], "actions")[0]
            self._change(codec, lambda: self.inner.update(vector, played, reward, **measured))

    def tell(
        self,
        id: int | NamedDecision,
        reward: float,
        *,
        weight: float | None = None,
        noise_variance: float | None = None,
        outputs: Mapping[str, float] | None = None,
    ) -> None:
        """Learn the reward of a decision of :meth:`ask`, given by itself or its ``id``; in any order, once each.

        The other arguments are those of :meth:`update`.
        """
        options: dict[str, Any] = {"weight": weight, "noise_variance": noise_variance, "outputs": outputs}
        self.inner.tell(_encoded(id), reward, **options)

    def expire(self, id: int | NamedDecision) -> None:
        """Give up on a decision of :meth:`ask`, given by itself or its ``id``, whose reward will never arrive."""
        self.inner.expire(_encoded(id))

    def select_many(
        self, contexts: FrameLike, actions: Offer | None = None, mask: Mask | None = None
    ) -> list[NamedDecision]:
        """Choose an action for each of many rows with the current model, at the speed of matrix products.

        Args:
            contexts: a frame, a list of dicts, or a NumPy structured array.
            actions: offered in every round, as for :meth:`select`.
            mask: which of them may be played in every round, as for :meth:`select`; rows then come one by one.
        """
        rows = as_rows("contexts", contexts)
        if mask is not None:
            return [self.select(row, actions, mask) for row in rows]
        vectors, (choices, _, offered) = self.codec.rows.encode(rows, "contexts"), self._choices(actions, None)
        decisions = self.inner.select_many(vectors, choices)
        return [self._named(decision, row, offered) for decision, row in zip(decisions, rows, strict=True)]

    def ask_many(
        self, contexts: FrameLike, actions: Offer | None = None, mask: Mask | None = None
    ) -> list[NamedDecision]:
        """Choose one action for each of many rows, whose rewards arrive later: exactly n decisions of :meth:`ask`.

        Each decision counts in the standard deviations of the next. If one of them fails, those before it expire. The
        arguments are those of :meth:`select_many`.
        """
        rows = as_rows("contexts", contexts)
        if not len(rows):
            raise InputError("contexts: expected at least one row, got none.")
        # a bad row far down is refused before the first decision is made
        self.codec.rows.encode(rows, "contexts")
        with self._lock:
            before = self.issued
            try:
                return [self.ask(row, actions, mask) for row in rows]
            except BaseException:
                for key in [key for key in self.pending if key >= before]:
                    self.expire(key)
                raise

    def update_many(
        self,
        contexts: FrameLike | Sequence[NamedDecision],
        actions: Offer | None = None,
        rewards: ArrayLike | None = None,
        *,
        outputs: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Learn a log of rounds in order, all of it or nothing; the model is that of :meth:`update`, reached faster.

        Args:
            contexts: a frame, or rows; or decisions, which know their actions.
            actions: the arm or the row that was played in each; left out for decisions.
            rewards: shape (n,).
            outputs: of constraints by name, shape (n,), NaN where one was not measured.
        """
        if rewards is None:
            raise InputError("rewards: expected one number for each round, got none; write rewards=….")
        if isinstance(contexts, (list, tuple)) and contexts and isinstance(contexts[0], NamedDecision):
            if actions is not None:
                raise InputError("update_many: decisions know their actions; leave actions out.")
            for one in contexts:
                self.inner.require_unlearned("update_many", one.id)
            contexts, actions = [one.context for one in contexts], [one.action for one in contexts]
        else:
            self.codec.require_played(self.codec.choices.offered(actions))
        with self._lock:
            vectors, encoded, codec = self._log(contexts, actions)
            self._change(codec, lambda: self.inner.update_many(vectors, encoded, rewards, outputs=outputs))

    def await_many(self, contexts: FrameLike, actions: Sequence[Action]) -> list[int]:
        """Await the rewards of the arm or row that was played in each row; return the ids that :meth:`tell` takes."""
        self.codec.require_played(self.codec.choices.offered(actions))
        with self._lock:
            vectors, encoded, codec = self._log(contexts, actions)
            return self._change(codec, lambda: self.inner.await_many(vectors, encoded))

    def tell_many(
        self,
        ids: Sequence[int | NamedDecision],
        rewards: ArrayLike,
        *,
        outputs: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Learn the rewards (n,) of several decisions of :meth:`ask`; outputs are those of :meth:`update_many`."""
        if not isinstance(ids, Iterable):
            raise InputError(f"ids: expected those of several decisions, got {shown(ids)}.")
        self.inner.tell_many([one if type(one) is int else _encoded(one) for one in ids], rewards, outputs=outputs)

    def expire_before(self, id: int | NamedDecision) -> tuple[int, ...]:
        """Give up on all pending decisions that were asked for before one, or its ``id``; return their ids."""
        return self.inner.expire_before(id.id if isinstance(id, NamedDecision) else id)  # type: ignore[arg-type]

    def predict(self, context: RowLike, actions: Offer | None = None) -> Prediction:
        """Return mean and standard deviation of the expected reward of each action, shape (A,); writes nothing.

        Where the kernel is learned, means stay within the range of the rewards so far: no rate is negative.
        """
        found = self._model("predict").predict(*self.encode(context, actions))
        return Prediction(found.mean.clip(*self.reward_range), found.std)

    @property
    def reward_range(self) -> tuple[float, float]:
        """The least and the largest reward so far; without bounds where the kernel is given, in a box, or none is kept.

        In a box the best settings may be better than any that was tried.
        """
        model = self.inner.model
        if not isinstance(model, Posterior) or not model.learns_kernel or model.box is not None or not self.round_index:
            return -math.inf, math.inf
        try:
            rewards = model.observed_rewards
        except UnavailableError:
            return -math.inf, math.inf
        return (float(rewards.min()), float(rewards.max())) if len(rewards) else (-math.inf, math.inf)

    def constrained(
        self, constraints: Mapping[str, Constraint], *, safe_actions: Offer | None = None, **options: Any
    ) -> Self:
        """Keep measured outputs within limits from the first round on, and return the policy.

        :meth:`update` and :meth:`tell` take the outputs from then on.

        Args:
            constraints: limits by the name of an output: ``{"pressure": Below(8.0, kernel)}``; the kernel compares
                encoded joint points.
            safe_actions: arms or rows known to be safe in every context, to begin with, as for :meth:`select`.
            options: as for :meth:`UpperConfidenceBound.constrained`.
        """
        if not isinstance(self.inner, UpperConfidenceBound):
            raise InputError(f"constrained: {type(self.inner).__name__} takes no constraints; use ek_ucb or k_ucb.")
        vectors = None
        if safe_actions is not None:
            choices = self.codec.choices
            offered = choices.offered(safe_actions)
            vectors = choices.encode(offered, "actions")
            if not all(choices.learned(action) is choices for action in offered):
                raise InputError(
                    "safe_actions: expected arms and levels that are described, got one that is not known yet; name it "
                    "in kb.Arms([…]) or kb.Categorical([…])."
                )
        self.inner.constrained(constraints, safe_actions=vectors, **options)
        return self

    def predict_outputs(self, context: RowLike, actions: Offer | None = None) -> dict[str, Prediction]:
        """Return mean and standard deviation of each constrained output, by name, for each action; writes nothing."""
        return self.inner.predict_outputs(*self.encode(context, actions))

    def explain(self, decision: NamedDecision, count: int = 5) -> NamedExplanation:
        """Explain a decision of :meth:`select` or :meth:`ask`: the ``count`` past rounds that moved its mean most."""
        if not isinstance(decision, NamedDecision):
            raise InputError(f"decision: expected what select or ask returned, got {type(decision).__name__}.")
        found: Explanation = self._model("explain").explain(decision.encoded, count)
        rewards = [None] * len(found.points) if found.rewards is None else found.rewards.tolist()
        past = zip(self.codec.decode(found.points), found.contributions.tolist(), rewards, strict=True)
        rounds = tuple(PastRound(row, action, share, reward) for (row, action), share, reward in past)
        return NamedExplanation(decision.arm, found.mean, found.exploration, rounds, found.rest, found.prior_mean)

    def diagnostics(self) -> NamedDiagnostics:
        """Describe the policy: sizes, dimensions, memory, and how much each variable matters."""
        found = self._relevance()
        effects, unsure = ({name: both[place] for name, both in found.items()} for place in (0, 1))
        return NamedDiagnostics(self.inner.diagnostics(), effects, unsure, self.codec.levels)

    def relevance(self) -> dict[str, float]:
        """Return how much the expected reward depends on each variable, as in :class:`NamedDiagnostics`.

        Empty where no points are kept to vary them at, as of ``lin_ucb``.
        """
        return {name: effect for name, (effect, _) in self._relevance().items()}

    def _relevance(self) -> dict[str, tuple[float, float]]:
        """Return the relevance of each variable, and how unsure it is."""
        if not isinstance(self.inner.model, Posterior) or not self.round_index:
            return {}
        try:
            return relevance(self.points, self.features.layout, self.inner.posterior)
        except UnavailableError:
            return {}

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write mean and standard deviation to a JSON file, as :meth:`Policy.export` does.

        Under ``variables`` the file says how rows become the points it is a function of, with the levels and arms
        known now. An error where a transformer encodes rows.
        """
        self._model("export").export(path, self.features.layout.names, self.codec.portable())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to one file, atomically; :func:`kernel_bandits.load` reads it back with levels and arms."""
        for side, value in (("context is", self.features.context), ("actions are", self.features.actions)):
            if isinstance(value, Transformer):
                raise InputError(
                    f"save: the {side} encoded by {type(value).__name__}, and a saved policy holds data and no "
                    "code, so a transformer cannot be saved; describe the columns by kb.Features, or keep the "
                    "transformer in your own pipeline and save a policy over arrays (policy.inner)."
                )
        # a copy is of one moment, whatever other threads do
        persistence.save(copy.deepcopy(self), path)

    def encode(self, context: RowLike, actions: Offer | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the arrays of a row and the actions, shapes (d_x,) and (A, d_a), with the levels known now."""
        rows, choices = self.codec.rows, self.codec.choices
        vector = rows.encode([context], "context", numbered=False)[0]
        return vector, choices.encode(choices.offered(actions), "actions")

    @property
    def arms(self) -> tuple[Level, ...]:
        """Every arm that was described or learned."""
        return self.codec.choices.arms

    @property
    def points(self) -> FloatArray:
        """The joint points that were observed, shape (t, d); the anchors where the history is not kept."""
        posterior = self._model("points").posterior
        if posterior.approximation == "history-free":
            return posterior.dictionary_points
        return posterior.observed_points

    def _offer(
        self, context: RowLike, actions: Offer | None, mask: Mask | None
    ) -> tuple[FloatArray, FloatArray | Box, ArrayLike | None, Sequence[Action] | Box]:
        """Return context, actions and mask for the policy over arrays, and the actions by name."""
        vector = self.codec.rows.encode([context], "context", numbered=False)[0]
        return vector, *self._choices(actions, mask)

    def _choices(
        self, actions: Offer | None, mask: Mask | None
    ) -> tuple[FloatArray | Box, ArrayLike | None, Sequence[Action] | Box]:
        actions = self.codec.offer if actions is None and self.codec.offer is not None else actions
        if isinstance(actions, Box):
            if mask is not None:
                raise InputError("mask: a box has no rows to leave out; offer a smaller box.")
            box = self.codec.box(actions)
            return box, None, box
        offered = self.codec.choices.offered(actions)
        vectors = self.codec.choices.encode(offered, "actions")
        return vectors, None if mask is None else self.codec.mask(mask, offered), offered

    def _by_name(
        self, choose: Callable[..., Decision], context: RowLike, actions: Offer | None, mask: Mask | None
    ) -> NamedDecision:
        vector, choices, allowed, offered = self._offer(context, actions, mask)
        return self._named(choose(vector, choices, allowed), context, offered)

    def _named(self, decision: Decision, context: RowLike, offered: Sequence[Action] | Box) -> NamedDecision:
        """Return a decision over arrays by name, among the actions on offer or in an encoded box."""
        action: Any
        if isinstance(offered, Box):
            # a plain one has no names
            action = (self.codec.choices.read if offered.is_plain else offered.named)(decision.action)
        else:
            action = offered[decision.index]
            if type(action) is not str and not np.isscalar(action):
                action = dict(as_row("actions", action))
        return NamedDecision(self.codec.choices.name_of(action), action, dict(as_row("context", context)), decision)

    def _log(self, contexts: FrameLike, actions: Offer | None) -> tuple[FloatArray, FloatArray, Features]:
        """Return the vectors of rounds that were played, and the codec that has learned them."""
        rows, played = as_rows("contexts", contexts), self.codec.choices.offered(actions)
        if len(rows) != len(played):
            raise InputError(
                f"contexts and actions: expected as many of each, got {len(rows)} and {len(played)}; actions are those "
                "that were played, one for each row."
            )
        return self.codec.log(rows, played)

    def _change(self, codec: Features, change: Callable[[], T]) -> T:
        """Change the policy over arrays; its new points are encoded by a codec that has learned them.

        The codec comes first, and is taken back if the policy over arrays is as before: an error or an interrupt finds
        both before the change, or both after.
        """
        before, rounds = self.codec, (self.round_index, self.issued)
        try:
            self.codec = codec
            return change()
        except BaseException:
            if (self.round_index, self.issued) == rounds:
                self.codec = before
            raise

    @property
    def _lock(self) -> RLock:
        """The lock of the policy over arrays: two threads must not give one vector to two new levels."""
        return self.inner._lock

    def _model(self, verb: str) -> Policy:
        if not isinstance(self.inner.model, Posterior):
            raise InputError(f"{verb}: {type(self.inner).__name__} has no posterior; use ek_ucb or k_ucb.")
        return self.inner

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        # a copy knows the levels that its model has learned, whatever other threads do
        with self._lock:
            return None, {**persistence.state_of(self), "inner": copy.deepcopy(self.inner)}

    def __copy__(self) -> Self:
        # two policies must not share one model
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        described = ", ".join(name for _, name in self.features.layout.variables)
        return f"TablePolicy({self.inner!r}, {described})"


def _encoded(id: int | NamedDecision) -> int | Decision:
    return id.encoded if isinstance(id, NamedDecision) else id


# It has the verbs of a policy; files and type checks at run time take it for one.
Policy.register(TablePolicy)

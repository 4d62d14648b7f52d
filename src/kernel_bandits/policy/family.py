"""UCB over a finite family of kernels: the guarantee of a radius where the right kernel is not known."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.actions import pair
from kernel_bandits.arrays import FloatArray
from kernel_bandits.confidence import GuaranteedRadius, require_radius
from kernel_bandits.errors import InputError
from kernel_bandits.policy.policy import Choice, Policy
from kernel_bandits.posterior.base import Evaluation, Model, Posterior
from kernel_bandits.values import Pending, evolve, fact

# The misfit of a projected kernel takes a pass over the history: made each time the history has grown by this factor.
GROWTH = 1.1
# The s of the second bound on Σ(r − f(s))², each with an equal part of its failure probability.
SIZES = 0.25 / 2.0 ** np.arange(6)


@dataclass(frozen=True, slots=True)
class Member:
    """A kernel of the family.

    Attributes:
        posterior: of the kernel, which learns every observation.
        evidence: Σ log of its predictive densities over those of the noise at 0, in nats.
        misfit: at most min Σ(r − θ(s))² over all θ of its space with ‖θ‖ ≤ B, plus λB².
        is_refuted: whether its space has been shown not to hold the truth.
        is_dropped: whether it has earned too little to play on.
        widths: Σ min(2βσ, 2B√k) over the rounds in which it played, the most that it may have lost in them.
        rewards: Σ r over these rounds.
        plays: how many of them have their reward.
    """

    posterior: Posterior
    evidence: float = 0.0
    misfit: float = 0.0
    is_refuted: bool = False
    is_dropped: bool = False
    widths: float = 0.0
    rewards: float = 0.0
    plays: int = 0


@dataclass(frozen=True, slots=True)
class Played:
    """Who chose a point, and what an update can use again."""

    place: int
    width: float
    evaluations: list[Evaluation]
    row: int


class Family(Model):
    """The kernels of a family with what each has learned, and which of them are left.

    Args:
        posteriors: one for each kernel, exact or projected.
        confidence: a radius with a guarantee; its B and R hold for the right kernel, δ for the family.
        weights: w, of the kernels, before anything is seen; they sum to 1.

    Attributes:
        members: the kernels.
        learned_count: t.
        players: who chose a point that awaits its reward, by key.
    """

    __slots__ = ("_next_pass", "_squares", "confidence", "learned_count", "members", "players", "weights")

    def __init__(self, posteriors: Sequence[Posterior], confidence: GuaranteedRadius, weights: FloatArray) -> None:
        self.confidence: GuaranteedRadius = confidence
        self.weights: FloatArray = weights
        self.members: tuple[Member, ...] = tuple(Member(posterior) for posterior in posteriors)
        self._squares = 0.0  # Σ r²
        self.learned_count: int = 0
        self.players: Pending[int] = Pending[int]()
        self._next_pass = 1

    @property
    def posteriors(self) -> Sequence[Posterior]:
        return [member.posterior for member in self.members]

    @property
    def own_radius(self) -> GuaranteedRadius:
        """The radius of a kernel alone, which half of δ is spent on."""
        return replace(self.confidence, failure_probability=self.confidence.failure_probability / 2)

    @property
    def active(self) -> list[int]:
        """The kernels that are played, by their place in the family."""
        left = [place for place, member in enumerate(self.members) if not member.is_refuted]
        return left or [int(np.argmax([member.evidence for member in self.members]))]

    @property
    def allowance(self) -> float:
        """Q, the most that Σ(r − f(s))² may be; the truth exceeds it with probability δ/2 at most."""
        evidence = np.array([member.evidence for member in self.members]) + np.log(self.weights)
        mixed = float(evidence.max() + np.log(np.exp(evidence - evidence.max()).sum()))
        certainty = math.log(4.0 / self.confidence.failure_probability)
        # E exp(s·ε²/R²) ≤ (1 − 2s)^{−½} for noise that is R-sub-Gaussian
        sizes = (certainty + math.log(len(SIZES)) - 0.5 * self.learned_count * np.log1p(-2.0 * SIZES)) / SIZES
        return self.confidence.noise_bound**2 * min(2.0 * (certainty - mixed), float(sizes.min()))

    def radius(self, place: int) -> float:
        """Return β of a kernel: that of the given radius at δ/2, or less where another kernel explains more."""
        member = self.members[place]
        radius = self.own_radius.radius(member.posterior)
        if member.posterior.approximation != "exact" or member.is_refuted:
            return radius
        # ‖θ* − θ̂‖²_V = Σ(r − f(s))² + λ‖θ*‖² − min over θ ≤ Q + λB² − misfit
        return min(radius, math.sqrt(max(self.allowance + self._bias(member) - member.misfit, 0.0)))

    @property
    def bonuses(self) -> list[float]:
        """How many standard deviations the bounds of the active kernels lie above their means."""
        # βσ = β·std/√λ
        return [self.radius(place) / math.sqrt(self.members[place].posterior.regularization) for place in self.active]

    def _bias(self, member: Member) -> float:
        return member.posterior.regularization * self.confidence.norm_bound**2

    def _largest(self, posterior: Posterior, point: FloatArray) -> float:
        """Return B·√k(s, s), which no |θ(s)| of norm at most B exceeds."""
        return self.confidence.norm_bound * math.sqrt(float(posterior.kernel.diag(point)[0]))

    def learned(
        self,
        points: FloatArray,
        rewards: FloatArray,
        weights: FloatArray | None = None,
        evaluated: Played | None = None,
    ) -> Self:
        _refuse_weights(weights)
        family = self
        for row in range(len(points)):
            one, known = points[row : row + 1], evaluated if row == 0 else None
            family = family._observed(one, rewards[row : row + 1], known)
            if known is not None:
                family = family._with_width(one, known)._with_reward(known.place, one, rewards.item(row))
        return family

    def awaiting(self, keys: Sequence[int], points: FloatArray, evaluated: Played | None = None) -> Self:
        if evaluated is None:
            return self
        players = self.players.with_items({keys[0]: evaluated.place})
        return evolve(self._with_width(points[:1], evaluated), players=players)

    def settled(
        self, keys: Sequence[int], points: FloatArray, rewards: FloatArray, weights: FloatArray | None = None
    ) -> Self:
        _refuse_weights(weights)
        family = self
        for row, key in enumerate(keys):
            one = points[row : row + 1]
            family = family._observed(one, rewards[row : row + 1], None)
            if key in family.players:
                family = family._with_reward(family.players[key], one, rewards.item(row))
        return family.abandoned(keys)

    def abandoned(self, keys: Collection[int]) -> Self:
        return evolve(self, players=self.players.without([key for key in keys if key in self.players]))

    def reseeded(self, entropy: int) -> Self:
        members = tuple(replace(each, posterior=each.posterior.reseeded(entropy)) for each in self.members)
        return evolve(self, members=members)

    def _observed(self, point: FloatArray, reward: FloatArray, played: Played | None) -> Self:
        """Return the family with a reward (1,) at a point (1, d), those refuted that it refutes."""
        if played is None:
            played = Played(0, 0.0, [member.posterior.evaluate_finite(point) for member in self.members], 0)
        members = []
        for member, evaluation in zip(self.members, played.evaluations, strict=True):
            posterior = member.posterior.learned(point, reward, None, (evaluation, played.row))
            mean, std = evaluation.mean.item(played.row), evaluation.std.item(played.row)
            members.append(self._scored(replace(member, posterior=posterior), reward.item(0), mean, std))
        number = reward.item(0)
        family = evolve(
            self,
            members=tuple(members),
            _squares=self._squares + number * number,
            learned_count=self.learned_count + 1,
        )
        return family._refuted()

    def _scored(self, member: Member, reward: float, mean: float, std: float) -> Member:
        """Return it with the predictive score of a reward, and what it adds to the misfit of an exact kernel."""
        ridge, noise = member.posterior.regularization, self.confidence.noise_bound
        # N(r; mean, R²(1 + std²/λ)) over N(r; 0, R²) without its reward: the prior of θ is N(0, (R²/λ)I)
        spread = 1.0 + std * std / ridge
        error = (reward - mean) ** 2 / spread
        evidence = member.evidence - 0.5 * (error / noise**2 + math.log(spread))
        # min Σ(r − θ(s))² + λ‖θ‖² = λ·rᵀ(K + λI)⁻¹r, by the chain rule of a Gaussian density
        misfit = member.misfit + error if member.posterior.approximation == "exact" else member.misfit
        return replace(member, evidence=evidence, misfit=misfit)

    def _refuted(self) -> Self:
        """Return the family without the kernels that no longer fit."""
        due, next_pass = self.learned_count >= self._next_pass, self._next_pass
        if due:
            next_pass = max(self.learned_count + 1, math.ceil(GROWTH * self.learned_count))
        allowance, members = self.allowance, []
        for member in self.members:
            misfit = member.misfit
            if due and member.posterior.approximation == "projected" and not member.is_refuted:
                misfit = self._projected_misfit(member)
            is_refuted = member.is_refuted or misfit - self._bias(member) > allowance
            members.append(replace(member, misfit=misfit, is_refuted=is_refuted))
        return evolve(self, members=tuple(members), _next_pass=next_pass)

    def _projected_misfit(self, member: Member) -> float:
        """Return what the best θ of a projected kernel misses at least, plus λB²."""
        posterior, bias = member.posterior, self._bias(member)
        mean = posterior.evaluate_finite(posterior.observed_points).mean
        # min over θ in the span of the anchors: Σr² − Σ r·mean(s)
        inside = max(self._squares - float(posterior.observed_rewards @ mean) - bias, 0.0)
        # ‖r − Φθ‖ ≥ ‖r − ΦPθ‖ − ‖Φ(I − P)θ‖, and the last is at most √ρ·B
        outside = math.sqrt(posterior.residual_trace) * self.confidence.norm_bound
        return max(math.sqrt(inside) - outside, 0.0) ** 2 + bias

    def _with_width(self, point: FloatArray, played: Played) -> Self:
        """Return the family with what the kernel that chose a point (1, d) may have lost by it."""
        member = self.members[played.place]
        width = min(played.width, 2.0 * self._largest(member.posterior, point))
        return self._with({played.place: replace(member, widths=member.widths + width)})

    def _with(self, members: dict[int, Member]) -> Self:
        changed = tuple(members.get(place, member) for place, member in enumerate(self.members))
        return evolve(self, members=changed)

    def _with_reward(self, place: int, point: FloatArray, reward: float) -> Self:
        """Return the family with what a kernel earned, those dropped that another has beaten for certain."""
        member = self.members[place]
        family = self._with({place: replace(member, rewards=member.rewards + reward, plays=member.plays + 1)})
        tried = [(number, member) for number, member in enumerate(family.members) if member.plays]
        means, slacks = [], []
        for _, member in tried:
            # Hoeffding for the noise, R, and for the value of the best action, |f| ≤ B√k, for all n at once
            spread = self.confidence.noise_bound + self._largest(member.posterior, point)
            certainty = math.log(4.0 * len(tried) * (member.plays + 1) ** 2 / self.confidence.failure_probability)
            means.append(member.rewards / member.plays)
            slacks.append(spread * math.sqrt(2.0 * certainty / member.plays))
        floor = max(mean - slack for mean, slack in zip(means, slacks, strict=True))
        changed = {}
        for (number, member), mean, slack in zip(tried, means, slacks, strict=True):
            if mean + slack + member.widths / member.plays < floor:
                changed[number] = replace(member, is_dropped=True)
        family = family._with(changed)
        if all(member.is_dropped or member.is_refuted for member in family.members):
            return family._with({at: replace(family.members[at], is_dropped=False) for at in family.active})
        return family


def _refuse_weights(weights: FloatArray | None) -> None:
    if weights is not None:
        raise InputError("weight: a family of kernels takes no weights; leave weight= and noise_variance= out.")


@final
class FamilyUpperConfidenceBound(Policy):
    """Play the upper bounds of the kernels of a family that are not refuted yet.

    If the expected reward lies in the space of at least one of the kernels, with norm at most B, the bounds hold with
    probability 1 − δ for all rounds at once, whatever the contexts are. Half of δ is spent on the confidence set of
    that kernel, half on not refuting it: rewards r = f(s) + noise satisfy, for all rounds at once, Σ(r − f(s))² ≤ Q,

        Q = min{ 2R²(log(4/δ) − log Σ_j w_j·exp(evidence_j)),
                 R²·min_s (log(24/δ) − ½t·log(1 − 2s))/s }.

    The first bound says that no predictions made before the rewards explain them much better than the truth; the
    second, over six values of s, that the noise has the size it has. A kernel is refuted once no function of its space
    with norm at most B fits as closely (``docs/theory.md``). If all are refuted the guarantee is void:
    the kernel with the largest evidence plays on alone, and ``is_misspecified`` is true.

    Of the kernels that are left, the one whose widths sum to least plays next, by its own bounds, so that none costs
    more than the others (regret balancing: Pacchiano et al. 2020, Ziomek et al. 2024). One that earned less than
    another, by more than its widths and chance explain, no longer plays; that comparison takes contexts for independent
    draws. With ``is_balanced`` false the largest bound over all kernels is played, whose regret is at most the sum of
    the largest widths, for any contexts.

    Args:
        posteriors: one for each kernel, exact or projected.
        confidence: a radius with a guarantee; its B and R hold for the right kernel, δ for the family.
        weights: w, of the kernels, before anything is seen; they sum to 1.
        is_balanced: whether kernels take turns; otherwise the largest of their bounds is played.
        generator: breaks ties.

    Attributes:
        members: the kernels of the family.
        active: the kernels that are played, by their place in the family.
    """

    saved: ClassVar[tuple[str, ...]] = (*Policy.saved, "is_balanced")

    def __init__(
        self,
        posteriors: Sequence[Posterior],
        confidence: GuaranteedRadius,
        weights: FloatArray,
        is_balanced: bool,
        generator: np.random.Generator,
    ) -> None:
        family = Family(posteriors, confidence, weights)
        super().__init__(family, generator)
        self.is_balanced: bool = is_balanced
        for posterior in posteriors:
            require_radius(family.own_radius, posterior)

    members: Sequence[Member] = fact("model.members")
    active: list[int] = fact("model.active")

    @property
    def is_misspecified(self) -> bool:
        """Whether every kernel is refuted, so that nothing is guaranteed."""
        return all(member.is_refuted for member in self.members)

    def interval(self, context: ArrayLike, actions: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper bounds on the expected reward of each action, shape (A,)."""
        points, family = pair(context, actions, *self.dimensions), self.model
        evaluations = [family.members[place].posterior.evaluate_finite(points) for place in family.active]
        bonuses = family.bonuses
        lower = [one.mean - bonus * one.std for one, bonus in zip(evaluations, bonuses, strict=True)]
        upper = [one.mean + bonus * one.std for one, bonus in zip(evaluations, bonuses, strict=True)]
        return np.min(lower, axis=0), np.max(upper, axis=0)

    def choose(self, points: FloatArray) -> Choice:
        family: Any = self.model
        evaluations = [member.posterior.evaluate_finite(points) for member in family.members]
        active, bonuses = family.active, family.bonuses
        if self.is_balanced:
            playing = [at for at, place in enumerate(active) if not family.members[place].is_dropped]
            turn = min(playing, key=lambda at: family.members[active[at]].widths)
            active, bonuses = [active[turn]], [bonuses[turn]]
        shown = [evaluations[place] for place in active]
        bounds = [one.mean + bonus * one.std for one, bonus in zip(shown, bonuses, strict=True)]
        row = self.argmax(np.max(bounds, axis=0))
        best = int(np.argmax([bound[row] for bound in bounds]))
        mean, std = shown[best].mean.item(row), shown[best].std.item(row)
        played = Played(active[best], 2.0 * bonuses[best] * std, evaluations, row)
        return Choice(row, mean, std, bounds[best].item(row), None, played)

    def __repr__(self) -> str:
        kernels = ", ".join(f"{member.posterior.kernel!r}{' (refuted)' * member.is_refuted}" for member in self.members)
        confidence = self.model.confidence
        return f"FamilyUpperConfidenceBound([{kernels}], {confidence!r}, round_index={self.round_index})"

"""UCB over a finite family of kernels: the guarantee of a radius where the right kernel is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.actions import pair
from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.confidence import GuaranteedRadius, require_radius
from kernel_bandits.policies.decision import Choice
from kernel_bandits.policies.policy import Policy
from kernel_bandits.posteriors.base import Evaluation, Posterior

# The misfit of a projected kernel takes a pass over the history: made each time the history has grown by this factor.
GROWTH = 1.1
# The s of the second bound on Σ(r − f(s))², each with an equal part of its failure probability.
SIZES = 0.25 / 2.0 ** np.arange(6)


@dataclass(slots=True)
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

    posterior: Posterior[Any]
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
    with norm at most B fits as closely (``docs/theory/kernel-families.md``). If all are refuted the guarantee is void:
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
    """

    def __init__(
        self,
        posteriors: Sequence[Posterior[Any]],
        confidence: GuaranteedRadius,
        weights: FloatArray,
        is_balanced: bool,
        generator: np.random.Generator,
    ) -> None:
        super().__init__(generator)
        self.is_balanced = is_balanced
        self.confidence = confidence
        self.weights = weights
        self.members = [Member(posterior) for posterior in posteriors]
        self._own = replace(confidence, failure_probability=confidence.failure_probability / 2)
        for posterior in posteriors:
            require_radius(self._own, posterior)
        self._squares = 0.0  # Σ r²
        self._learned = 0
        self._players: dict[int, int] = {}  # who chose a point that awaits its reward
        self._next_pass = 1

    @property
    def posteriors(self) -> Sequence[Posterior[Any]]:
        return [member.posterior for member in self.members]

    @property
    def is_misspecified(self) -> bool:
        """Whether every kernel is refuted, so that nothing is guaranteed."""
        return all(member.is_refuted for member in self.members)

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
        sizes = (certainty + math.log(len(SIZES)) - 0.5 * self._learned * np.log1p(-2.0 * SIZES)) / SIZES
        return self.confidence.noise_bound**2 * min(2.0 * (certainty - mixed), float(sizes.min()))

    def radius(self, place: int) -> float:
        """Return β of a kernel: that of the given radius at δ/2, or less where another kernel explains more."""
        member = self.members[place]
        radius = self._own.radius(member.posterior)
        if member.posterior.approximation != "exact" or member.is_refuted:
            return radius
        # ‖θ* − θ̂‖²_V = Σ(r − f(s))² + λ‖θ*‖² − min over θ ≤ Q + λB² − misfit
        return min(radius, math.sqrt(max(self.allowance + self._bias(member) - member.misfit, 0.0)))

    def _bias(self, member: Member) -> float:
        return member.posterior.regularization * self.confidence.norm_bound**2

    def interval(self, context: ArrayLike, actions: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper bounds on the expected reward of each action, shape (A,); writes nothing."""
        points = pair(context, actions, *self._dimensions)
        evaluations = [self.members[place].posterior.evaluate_finite(points) for place in self.active]
        bonuses = self._bonuses()
        lower = [one.mean - bonus * one.std for one, bonus in zip(evaluations, bonuses, strict=True)]
        upper = [one.mean + bonus * one.std for one, bonus in zip(evaluations, bonuses, strict=True)]
        return np.min(lower, axis=0), np.max(upper, axis=0)

    def _bonuses(self) -> list[float]:
        # βσ = β·std/√λ
        return [self.radius(place) / math.sqrt(self.members[place].posterior.regularization) for place in self.active]

    def choose(self, points: FloatArray) -> Choice:
        evaluations = [member.posterior.evaluate_finite(points) for member in self.members]
        active, bonuses = self.active, self._bonuses()
        if self.is_balanced:
            playing = [at for at, place in enumerate(active) if not self.members[place].is_dropped]
            turn = min(playing, key=lambda at: self.members[active[at]].widths)
            active, bonuses = [active[turn]], [bonuses[turn]]
        shown = [evaluations[place] for place in active]
        bounds = [one.mean + bonus * one.std for one, bonus in zip(shown, bonuses, strict=True)]
        row = self.argmax(np.max(bounds, axis=0))
        best = int(np.argmax([bound[row] for bound in bounds]))
        mean, std = shown[best].mean.item(row), shown[best].std.item(row)
        played = Played(active[best], 2.0 * bonuses[best] * std, evaluations, row)
        return Choice(row, mean, std, bounds[best].item(row), None, played)

    def learn(self, point: FloatArray, reward: float, choice: Choice | None) -> Steps:
        played, twin = self._played(point, choice), self._apart()
        twin._observe(point, reward, played)
        if choice is not None:
            twin._count_width(point, played)
            twin._count_reward(played.place, point, reward)
        return self._take_over(twin)

    def _observe(self, point: FloatArray, reward: float, played: Played) -> None:
        for member, evaluation in zip(self.members, played.evaluations, strict=True):
            member.posterior.observe(point, reward, evaluation, played.row)
            self._score(member, reward, evaluation.mean.item(played.row), evaluation.std.item(played.row))
        self._squares += reward * reward
        self._learned += 1
        self._refute()

    def _apart(self) -> Self:
        """Return a copy to prepare a change in."""
        twin = object.__new__(type(self))
        carry_out([replace_state(twin, self)])
        twin.members = [replace(member, posterior=member.posterior.copy()) for member in self.members]
        return twin

    def _take_over(self, twin: Self) -> Steps:
        """Return the steps that make the change of a copy one's own."""
        return [
            (setattr, self, name, getattr(twin, name)) for name in ("members", "_squares", "_learned", "_next_pass")
        ]

    def _played(self, point: FloatArray, choice: Choice | None) -> Played:
        if choice is not None:
            played: Played = choice.computed
            return played
        return Played(0, 0.0, [member.posterior.evaluate_finite(point[None, :]) for member in self.members], 0)

    def anticipate(self, key: int, point: FloatArray, choice: Choice | None) -> Steps:
        steps = list(super().anticipate(key, point, choice) or ())
        if choice is not None:
            twin = self._apart()
            twin._count_width(point, choice.computed)
            steps += [*self._take_over(twin), (self._players.__setitem__, key, choice.computed.place)]
        return steps

    def fulfil(self, key: int, reward: float) -> Steps:
        point, twin = self._waiting[key], self._apart()
        twin._observe(point, reward, self._played(point, None))
        if key in self._players:
            twin._count_reward(self._players[key], point, reward)
        return [*self._take_over(twin), (self._waiting.pop, key, None), (self._players.pop, key, None)]

    def abandon(self, key: int) -> Steps:
        return [*(super().abandon(key) or ()), (self._players.pop, key, None)]

    def _count_width(self, point: FloatArray, played: Played) -> None:
        member = self.members[played.place]
        member.widths += min(played.width, 2.0 * self._largest(member.posterior, point))

    def _largest(self, posterior: Posterior[Any], point: FloatArray) -> float:
        """Return B·√k(s, s), which no |θ(s)| of norm at most B exceeds."""
        return self.confidence.norm_bound * math.sqrt(float(posterior.kernel.diag(point[None, :])[0]))

    def _count_reward(self, place: int, point: FloatArray, reward: float) -> None:
        """Count what a kernel earned, and drop the kernels that another has beaten for certain."""
        self.members[place].rewards += reward
        self.members[place].plays += 1
        tried = [member for member in self.members if member.plays]
        means, slacks = [], []
        for member in tried:
            # Hoeffding for the noise, R, and for the value of the best action, |f| ≤ B√k, for all n at once
            spread = self.confidence.noise_bound + self._largest(member.posterior, point)
            certainty = math.log(4.0 * len(tried) * (member.plays + 1) ** 2 / self.confidence.failure_probability)
            means.append(member.rewards / member.plays)
            slacks.append(spread * math.sqrt(2.0 * certainty / member.plays))
        floor = max(mean - slack for mean, slack in zip(means, slacks, strict=True))
        for member, mean, slack in zip(tried, means, slacks, strict=True):
            member.is_dropped |= mean + slack + member.widths / member.plays < floor
        if all(member.is_dropped or member.is_refuted for member in self.members):
            for place in self.active:
                self.members[place].is_dropped = False

    def _score(self, member: Member, reward: float, mean: float, std: float) -> None:
        """Add the predictive score of a reward, and what it adds to the misfit of an exact kernel."""
        ridge, noise = member.posterior.regularization, self.confidence.noise_bound
        # N(r; mean, R²(1 + std²/λ)) over N(r; 0, R²) without its reward: the prior of θ is N(0, (R²/λ)I)
        spread = 1.0 + std * std / ridge
        error = (reward - mean) ** 2 / spread
        member.evidence -= 0.5 * (error / noise**2 + math.log(spread))
        if member.posterior.approximation == "exact":
            # min Σ(r − θ(s))² + λ‖θ‖² = λ·rᵀ(K + λI)⁻¹r, by the chain rule of a Gaussian density
            member.misfit += error

    def _refute(self) -> None:
        due = self._learned >= self._next_pass
        if due:
            self._next_pass = max(self._learned + 1, math.ceil(GROWTH * self._learned))
        allowance = self.allowance
        for member in self.members:
            if due and member.posterior.approximation == "projected" and not member.is_refuted:
                member.misfit = self._projected_misfit(member)
            member.is_refuted |= member.misfit - self._bias(member) > allowance

    def _projected_misfit(self, member: Member) -> float:
        """Return what the best θ of a projected kernel misses at least, plus λB²."""
        posterior, bias = member.posterior, self._bias(member)
        mean = posterior.evaluate_finite(posterior.observed_points).mean
        # min over θ in the span of the anchors: Σr² − Σ r·mean(s)
        inside = max(self._squares - float(posterior.observed_rewards @ mean) - bias, 0.0)
        # ‖r − Φθ‖ ≥ ‖r − ΦPθ‖ − ‖Φ(I − P)θ‖, and the last is at most √ρ·B
        outside = math.sqrt(posterior.residual_trace) * self.confidence.norm_bound
        return max(math.sqrt(inside) - outside, 0.0) ** 2 + bias

    def __repr__(self) -> str:
        kernels = ", ".join(f"{member.posterior.kernel!r}{' (refuted)' * member.is_refuted}" for member in self.members)
        return f"FamilyUpperConfidenceBound([{kernels}], {self.confidence!r}, round_index={self.round_index})"

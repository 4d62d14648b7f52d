"""EK-UCB of many replicas at once: the posterior projected on dictionaries that grow by KORS.

The formulas are those of :mod:`kernel_bandits.posterior` and :mod:`kernel_bandits.dictionaries.kors`.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kernel_bandits.dictionaries.kors import leverage_score
from kernel_bandits.posterior.basis import DIRECTION_TOLERANCE, NOISE_TOLERANCE, ROUNDING_TOLERANCE
from kernel_bandits.posterior.ridge import DRIFT_TOLERANCE
from kernel_bandits_lab.accelerated.arrays import bucket, downdated, downdated_product, pick, product, put_row, unit
from kernel_bandits_lab.accelerated.covariance import Family, gram
from kernel_bandits_lab.accelerated.models import Batch, Capacity, Demand, Growth, Model, Observation, Step, Upkeep
from kernel_bandits_lab.accelerated.nystrom_history import extend_with_history
from kernel_bandits_lab.accelerated.nystrom_state import Candidate, NystromSettings, NystromState, empty_state, enlarged

# ‖APx − x‖/‖x‖ above which P has drifted; float32 is never better than the condition of A times 1e-7.
DRIFT_TOLERANCES = {"float64": DRIFT_TOLERANCE, "float32": 1e-3}
# The share of k(s, s) below which a residual is noise and adds no direction.
DIRECTION_TOLERANCES = {"float64": DIRECTION_TOLERANCE, "float32": 1e-4}
ROUNDING_TOLERANCES = {"float64": ROUNDING_TOLERANCE, "float32": 1e-4}
# Room for anchors at first: matrices small enough for a GPU. And for rounds, while nearly every round adds an anchor
# in some replica; after that for all rounds.
FIRST_ANCHORS, FIRST_ROUNDS = 136, 256


class NystromBeliefs(NamedTuple):
    """What the model believes about the offered points."""

    mean: jax.Array  # shape (R, A)
    std: jax.Array  # shape (R, A)
    features: jax.Array  # φ, shape (R, A, m)
    solved: jax.Array  # Pφ without the latest downdates of P, shape (R, A, m)


class _Draw(NamedTuple):
    """The decision of KORS about the point of each replica."""

    appended: jax.Array  # whether the point becomes an anchor, shape (R,)
    pivot: jax.Array  # l, the length that it adds to the span, 1 where it is not appended; shape (R,)
    # the v in Q ← Q − vvᵀ, in the coordinates with the new anchor; zeros if not drawn, shape (R, m)
    downdate: jax.Array
    full: jax.Array  # whether a replica has no place for its anchor, in which case nothing is drawn anywhere. A scalar.


@dataclass(frozen=True)
class NystromGrowth(Growth[NystromState]):
    """More anchors when a replica runs out of them; room for all rounds once the first ones are over."""

    history: bool

    @property
    def first(self) -> Capacity:
        return Capacity(FIRST_ANCHORS, FIRST_ROUNDS if self.history else 0)

    def next(self, capacity: Capacity, demand: Demand) -> Capacity:
        anchors, rounds = capacity
        if demand.full:
            # never less than there is, where every replica is capped below the first room
            anchors = max(anchors, int(min(more_anchors(anchors), demand.max_anchors)))
        if self.history and demand.rounds > rounds:
            rounds = bucket(demand.horizon)
        return Capacity(anchors, rounds)

    def enlarge(self, state: NystromState, capacity: Capacity) -> NystromState:
        return enlarged(state, capacity, self.history)


@dataclass(frozen=True)
class NystromUpkeep(Upkeep[NystromState]):
    """Apply downdates to P and Q block by block, and refine P and w against A and b."""

    history: bool

    def width(self, state: NystromState) -> int:
        return state.weights.shape[1]

    def settle(self, state: NystromState) -> NystromState:
        return state._replace(
            covariance=downdated(state.covariance, state.downdates),
            downdates=jnp.zeros_like(state.downdates),
            leverage=downdated(state.leverage, state.leverage_downdates),
            leverage_downdates=jnp.zeros_like(state.leverage_downdates),
        )

    def refine(self, state: NystromState, features: jax.Array, rewards: jax.Array) -> NystromState:
        # A ← A + Σ φφᵀ and b ← b + Σ rφ
        precision = state.precision + product("brm,brn->rmn", features, features)
        moment = state.moment + product("brm,br->rm", features, rewards)
        probe = features.sum(axis=0)
        error = product("rmn,rn->rm", precision, product("rmn,rn->rm", state.covariance, probe)) - probe
        length = jnp.linalg.norm(probe, axis=1)
        drifted = jnp.any(jnp.linalg.norm(error, axis=1) > DRIFT_TOLERANCES[probe.dtype.name] * length)
        invert = partial(_invert, state.sizes, self.history)
        covariance = lax.cond(drifted, invert, lambda _: state.covariance, precision)
        # w ← w + P(b − Aw)
        missing = moment - product("rmn,rn->rm", precision, state.weights)
        weights = state.weights + product("rmn,rn->rm", covariance, missing)
        return state._replace(precision=precision, moment=moment, covariance=covariance, weights=weights)


@dataclass(frozen=True)
class NystromModel(Model[NystromSettings[jax.Array], NystromState, NystromBeliefs]):
    """EK-UCB with KORS; ``history`` says whether the past is projected onto a new anchor."""

    family: Family
    history: bool

    @property
    def growth(self) -> NystromGrowth:
        return NystromGrowth(self.history)

    @property
    def upkeep(self) -> NystromUpkeep:
        return NystromUpkeep(self.history)

    def start(self, batch: Batch[NystromSettings[jax.Array]]) -> NystromState:
        return empty_state(batch)

    def sizes(self, state: NystromState) -> jax.Array:
        return state.sizes

    def bounds(self, state: NystromState, points: jax.Array) -> tuple[jax.Array, NystromBeliefs]:
        settings = state.settings
        kernel = gram(self.family, settings.factor, points, state.anchors)
        # φ = J k_Z(s): a coordinate without an anchor has no row in J and no column
        features = product("ram,rnm->ran", kernel, state.factor)
        solved = product("ram,rmn->ran", features, state.covariance)
        mean = jnp.sum(features * state.weights[:, None, :], axis=2)
        residual = jnp.maximum(1.0 - jnp.sum(features * features, axis=2), 0.0)
        # φᵀ(P − Σ ggᵀ)φ ; the barrier keeps XLA from joining P and the g's in a copy for one product
        apart = lax.optimization_barrier(features)  # type: ignore[no-untyped-call]  # JAX leaves it without types
        collected = product("ram,rbm->rab", apart, state.downdates)
        explained = jnp.sum(features * solved, axis=2) - jnp.sum(collected * collected, axis=2)
        # std² = λσ² = residual + λ·φᵀPφ
        variance = residual + settings.regularization[:, None] * explained
        std = jnp.sqrt(jnp.maximum(variance, 0.0))
        return mean + settings.bonus[:, None] * std, NystromBeliefs(mean, std, features, solved)

    def observe(self, state: NystromState, observation: Observation[NystromBeliefs]) -> Step[NystromState]:
        features = pick(observation.beliefs.features, observation.row)
        solved = downdated_product(pick(observation.beliefs.solved, observation.row), state.downdates, features)
        draw = _draw(state, observation, features)
        live = observation.live & ~draw.full
        candidate = Candidate(observation.point, features, solved, draw.appended, draw.pivot)
        extended, solved = self._extend(state, candidate)
        features = jnp.where(live, candidate.extended_features(state.sizes), 0.0)
        # P ← P − hhᵀ/c and w ← w + h(r − φᵀw)/c with c = 1 + φᵀh (Sherman–Morrison)
        scale = jnp.sqrt(1.0 + jnp.maximum(jnp.sum(features * solved, axis=1), 0.0))
        downdate = jnp.where(live, solved / scale[:, None], 0.0)
        error = (observation.reward - jnp.sum(features * extended.weights, axis=1)) / scale
        put = partial(lax.dynamic_update_slice_in_dim, axis=1)
        points, rewards = state.points, state.rewards
        if self.history:
            # the next round overwrites one that does not count
            points = put(points, observation.point[:, None], state.rounds)
            rewards = put(rewards, observation.reward[:, None], state.rounds)
        learned = extended._replace(
            sizes=state.sizes + draw.appended,
            anchors=put_row(state.anchors, state.sizes, draw.appended, observation.point),
            downdates=put(state.downdates, downdate[:, None], observation.slot),
            weights=extended.weights + downdate * error[:, None],
            leverage_downdates=put(state.leverage_downdates, draw.downdate[:, None], observation.slot),
            points=points,
            rewards=rewards,
            rounds=state.rounds + live,
        )
        return Step(learned, features, draw.full)

    def _extend(self, state: NystromState, candidate: Candidate) -> tuple[NystromState, jax.Array]:
        """Add the anchors; return the state, and Pφ with φ ← [φ, l]."""
        if self.history:
            return extend_with_history(self.family, state, candidate)
        # the past has no mass on the new coordinate, which stays in A and P as it is
        new = candidate.unit(state.sizes)
        # J ← [[J, 0], [−φᵀJ/l, 1/l]]
        rows = (new - product("rm,rmn->rn", candidate.features, state.factor)) / candidate.pivot[:, None]
        factor = put_row(state.factor, state.sizes, candidate.appended, rows)
        solved = candidate.solved + new * (candidate.pivot / state.settings.regularization)[:, None]
        return state._replace(factor=factor), solved


def more_anchors(number: int) -> int:
    """Return the next number of anchors to have room for: twice the memory and traffic, which follow its square."""
    return math.ceil(math.sqrt(2) * number / 8) * 8


def _draw(state: NystromState, observation: Observation[NystromBeliefs], features: jax.Array) -> _Draw:
    """Score the point of each replica and flip its coin."""
    settings, mu = state.settings, state.settings.leverage_regularization
    scored = downdated_product(product("rmn,rn->rm", state.leverage, features), state.leverage_downdates, features)
    # φᵀQφ, negative only by rounding, of which float32 has enough
    measure = jnp.maximum(jnp.sum(features * scored, axis=1), 0.0)
    direction = 1.0 - jnp.sum(features * features, axis=1)
    # k − u = residual + μ·φᵀQφ
    score = leverage_score(jnp.maximum(direction, 0.0) + mu * measure, mu, settings.leverage_accuracy)
    probability = jnp.minimum(1.0, settings.oversampling * score)
    drawn = (observation.coin < probability) & (state.sizes < state.max_anchors)
    precision = features.dtype.name
    least = jnp.minimum(DIRECTION_TOLERANCES[precision], NOISE_TOLERANCE * settings.regularization)
    appended = drawn & (direction > jnp.maximum(least, ROUNDING_TOLERANCES[precision]))
    full = jnp.any(appended & (state.sizes >= state.weights.shape[1]))
    drawn &= observation.live & ~full
    appended &= drawn
    pivot = jnp.sqrt(jnp.where(appended, direction, 1.0))
    # v = Qφ/√(p + φᵀQφ), where φ ← [φ, l] and the new coordinate has 1/μ in Q
    scored = scored + unit(state.sizes, features, appended) * (pivot / mu)[:, None]
    weight = probability + measure + jnp.where(appended, direction, 0.0) / mu
    downdate = jnp.where(drawn[:, None], scored / jnp.sqrt(weight)[:, None], 0.0)
    return _Draw(appended, pivot, downdate, full)


def _invert(sizes: jax.Array, history: bool, precision: jax.Array) -> jax.Array:
    """Return P from A; a coordinate without an anchor gets 1/λ, or 0 with the history."""
    capacity = precision.shape[1]
    factor = jnp.linalg.cholesky(precision)
    identity = jnp.broadcast_to(jnp.eye(capacity, dtype=precision.dtype), precision.shape)
    inverse = lax.linalg.triangular_solve(factor, identity, left_side=True, lower=True)
    covariance = product("rkm,rkn->rmn", inverse, inverse)
    if not history:
        return covariance
    used = jnp.arange(capacity) < sizes[:, None]
    return jnp.where(used[:, :, None] & used[:, None, :], covariance, 0.0)

"""EK-UCB of many replicas at once: the posterior projected on dictionaries that grow by KORS.

The formulas are those of :mod:`kernel_bandits.posterior` and :mod:`kernel_bandits.dictionaries.kors`.

Matrices have room for more anchors than there are: a coordinate without an anchor is zero in φ, J and w. On the
diagonals of A and Q it has λ and 1/μ, as a direction has before the first observation in it. On that of P it has 1/λ
without the history; with it, 0, and bordering adds the rest.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from kernel_bandits.dictionaries.kors import leverage_score
from kernel_bandits.posterior.basis import DIRECTION_TOLERANCE, NOISE_TOLERANCE, ROUNDING_TOLERANCE
from kernel_bandits.posterior.ridge import DRIFT_TOLERANCE
from kernel_bandits_lab.accelerated.arrays import (
    Family,
    bucket,
    downdated,
    downdated_product,
    gram,
    outer,
    pad,
    pick,
    product,
    put,
    put_row,
    unit,
)
from kernel_bandits_lab.accelerated.models import (
    BLOCK,
    Batch,
    Capacity,
    Demand,
    Model,
    Observation,
    Step,
)

T = TypeVar("T")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, order=True)
class NystromSettings(Generic[T]):
    """The numbers of one replica, or arrays of shape (R,)."""

    regularization: T  # λ
    bonus: T  # β/√λ, the factor of the standard deviation
    leverage_regularization: T  # the μ of KORS
    leverage_accuracy: T  # the ε of KORS
    oversampling: T  # the γ of KORS
    factor: T  # the factor of squared distances in the kernel


class NystromState(NamedTuple):
    """R replicas with room for m anchors and, if the history is kept, t rounds.

    P and Q lag behind by the rounds since they were last settled: each such round is a downdate in a row of its own.
    """

    settings: NystromSettings[jax.Array]  # each of shape (R,)
    max_anchors: jax.Array  # caps on the number of anchors, shape (R,)
    sizes: jax.Array  # the number of anchors, shape (R,)
    anchors: jax.Array  # shape (R, m, d)
    factor: jax.Array  # J, shape (R, m, m)
    covariance: jax.Array  # P without the latest downdates, shape (R, m, m)
    downdates: jax.Array  # the g in P − Σ ggᵀ, shape (R, b, m)
    weights: jax.Array  # w, shape (R, m)
    precision: jax.Array  # A as of the last refinement, but with all anchors, shape (R, m, m)
    moment: jax.Array  # b as of the last refinement, but with all anchors, shape (R, m)
    leverage: jax.Array  # Q of KORS without the latest downdates, shape (R, m, m)
    leverage_downdates: jax.Array  # the v in Q − Σ vvᵀ, shape (R, b, m)
    points: jax.Array  # the history, shape (R, t, d), or (R, 0, d)
    rewards: jax.Array  # the history, shape (R, t), or (R, 0)
    rounds: jax.Array  # the number of observed rounds, a scalar


class Candidate(NamedTuple):
    """The observed point of each replica, and whether it becomes an anchor."""

    point: jax.Array  # shape (R, d)
    features: jax.Array  # φ, shape (R, m)
    solved: jax.Array  # Pφ, shape (R, m)
    appended: jax.Array  # whether the point becomes an anchor, shape (R,)
    pivot: jax.Array  # l, the length that it adds to the span, 1 where it is not appended; shape (R,)

    def unit(self, sizes: jax.Array) -> jax.Array:
        """Return 1 in the coordinate of an appended anchor and 0 elsewhere, shape (R, m)."""
        return unit(sizes, self.features, self.appended)

    def extended_features(self, sizes: jax.Array) -> jax.Array:
        """Return [φ, l] where an anchor is appended, else φ."""
        return self.features + self.unit(sizes) * self.pivot[:, None]


def empty_state(batch: Batch[NystromSettings[jax.Array]]) -> NystromState:
    """Return the state before the first round, without room for anchors or rounds."""
    replicas, dimension = batch.lengthscales.shape
    zeros = partial(jnp.zeros, dtype=batch.lengthscales.dtype)
    return NystromState(
        settings=batch.settings,
        max_anchors=batch.max_anchors,
        sizes=jnp.zeros(replicas, jnp.int32),
        anchors=zeros((replicas, 0, dimension)),
        factor=zeros((replicas, 0, 0)),
        covariance=zeros((replicas, 0, 0)),
        downdates=zeros((replicas, BLOCK, 0)),
        weights=zeros((replicas, 0)),
        precision=zeros((replicas, 0, 0)),
        moment=zeros((replicas, 0)),
        leverage=zeros((replicas, 0, 0)),
        leverage_downdates=zeros((replicas, BLOCK, 0)),
        points=zeros((replicas, 0, dimension)),
        rewards=zeros((replicas, 0)),
        rounds=jnp.int32(0),
    )


@partial(jax.jit, static_argnums=(1, 2))
def enlarged(state: NystromState, capacity: Capacity, history: bool) -> NystromState:
    """Return the same state with more room."""
    number = capacity.anchors
    added = jnp.diag((jnp.arange(number) >= state.weights.shape[1]).astype(state.weights.dtype))

    def square(matrices: jax.Array, diagonal: jax.Array | float) -> jax.Array:
        return pad(pad(matrices, 1, number), 2, number) + added * jnp.reshape(diagonal, (-1, 1, 1))

    ridge = state.settings.regularization
    return state._replace(
        anchors=pad(state.anchors, 1, number),
        factor=square(state.factor, 0.0),
        covariance=square(state.covariance, 0.0 if history else 1.0 / ridge),
        downdates=pad(state.downdates, 2, number),
        weights=pad(state.weights, 1, number),
        precision=square(state.precision, ridge),
        moment=pad(state.moment, 1, number),
        leverage=square(state.leverage, 1.0 / state.settings.leverage_regularization),
        leverage_downdates=pad(state.leverage_downdates, 2, number),
        points=pad(state.points, 1, capacity.rounds),
        rewards=pad(state.rewards, 1, capacity.rounds),
    )


# A pass over the history takes as many replicas at a time as have about this many kernel entries, and at least a few.
PASS_ENTRIES, SMALLEST_PASS = 5_000_000, 8


class _Extension(NamedTuple):
    """What new anchors change; the first fields are those of :class:`NystromState`."""

    factor: jax.Array
    covariance: jax.Array
    precision: jax.Array
    moment: jax.Array
    waiting: jax.Array  # replicas whose anchor is still to be added, shape (R,)
    border: jax.Array  # the u in P ← P + uuᵀ, shape (R, m)
    shift: jax.Array  # the κ in w ← w − κu, shape (R,)


class _Past(NamedTuple):
    """The history in the coordinate of the new anchor."""

    sums: jax.Array  # Σ k_Z(s_i)c_i, shape (G, m)
    square: jax.Array  # Σ c_i², shape (G,)
    moment: jax.Array  # Σ c_i r_i, shape (G,)


def extend_with_history(family: Family, state: NystromState, candidate: Candidate) -> tuple[NystromState, jax.Array]:
    """Visit the replicas that add an anchor, some at a time; return the state, and Pφ with φ ← [φ, l].

    Without such replicas this costs nothing.
    """
    replicas, capacity = candidate.features.shape
    count = min(replicas, max(SMALLEST_PASS, PASS_ENTRIES // (capacity * state.points.shape[1])))

    def visit(extension: _Extension) -> _Extension:
        rank = jnp.cumsum(extension.waiting, dtype=jnp.int32) - 1
        visited = extension.waiting & (rank < count)
        # surplus members are numbers beyond all replicas: read as the last one, never written
        numbers = jnp.arange(replicas, dtype=jnp.int32)
        members = jnp.arange(replicas, replicas + count, dtype=jnp.int32)
        members = put(members, jnp.where(visited, rank, count + numbers), numbers)
        extension = extension._replace(waiting=extension.waiting & ~visited)
        return _extend_members(family, state, candidate, extension, members)

    extension = _Extension(
        state.factor,
        state.covariance,
        state.precision,
        state.moment,
        waiting=candidate.appended,
        border=jnp.zeros_like(candidate.features),
        shift=jnp.zeros_like(state.settings.regularization),
    )
    extension = lax.while_loop(lambda extension: jnp.any(extension.waiting), visit, extension)
    extended = state._replace(
        factor=extension.factor,
        covariance=extension.covariance,
        precision=extension.precision,
        moment=extension.moment,
        weights=state.weights - extension.shift[:, None] * extension.border,
    )
    # P ← P + uuᵀ, and P had nothing in the new coordinate
    along = jnp.sum(extension.border * candidate.extended_features(state.sizes), axis=1, keepdims=True)
    return extended, candidate.solved + extension.border * along


def _extend_members(
    family: Family, state: NystromState, candidate: Candidate, extension: _Extension, members: jax.Array
) -> _Extension:
    """Add the anchors of some replicas."""
    take = partial(jnp.take, indices=members, axis=0, mode="clip")
    size, regularization = take(state.sizes), take(state.settings.regularization)
    features, pivot = take(candidate.features), take(candidate.pivot)
    new = unit(size, features, jnp.bool_(True))
    factor = take(extension.factor)
    coefficients = product("gm,gmn->gn", features, factor)
    past = _project_past(family, state, candidate, members, coefficients)
    # a = Σ φ(s_i)c_i ; s = λ + cc − aᵀPa ≥ λ ; u = [Pa, −1]/√s and κ = (cy − aᵀw)/√s
    cross = product("gmn,gn->gm", factor, past.sums)
    solved = downdated_product(product("gmn,gn->gm", take(extension.covariance), cross), take(state.downdates), cross)
    schur = jnp.maximum(regularization + past.square - jnp.sum(cross * solved, axis=1), regularization)
    border = (solved - new) / jnp.sqrt(schur)[:, None]
    shift = (past.moment - jnp.sum(cross * take(state.weights), axis=1)) / jnp.sqrt(schur)
    # A ← [[A, a], [aᵀ, λ + cc]], b ← [b, cy] and J ← [[J, 0], [−φᵀJ/l, 1/l]]
    precision_row = cross + new * (regularization + past.square)[:, None]
    factor_row = (new - coefficients) / pivot[:, None]
    precision = put(extension.precision, (members, size), precision_row)
    return _Extension(
        factor=put(extension.factor, (members, size), factor_row),
        covariance=extension.covariance.at[members].add(outer(border), mode="drop", unique_indices=True),
        precision=put(precision, (members, slice(None), size), precision_row),
        moment=put(extension.moment, (members, size), past.moment),
        waiting=extension.waiting,
        border=put(extension.border, members, border),
        shift=put(extension.shift, members, shift),
    )


def _project_past(
    family: Family, state: NystromState, candidate: Candidate, members: jax.Array, coefficients: jax.Array
) -> _Past:
    """Return sums over c_i = (k(s_i, z) − k_Z(s_i)ᵀJᵀφ(z))/l of every past state, given Jᵀφ(z)."""
    take = partial(jnp.take, indices=members, axis=0, mode="clip")
    points, rewards, kernel_factor = take(state.points), take(state.rewards), take(state.settings.factor)
    kernel = gram(family, kernel_factor, points, take(state.anchors))
    own = gram(family, kernel_factor, points, take(candidate.point)[:, None])[:, :, 0]
    # sums instead of matrix products, so that the compiler may compute the kernel on the way
    explained = jnp.sum(kernel * coefficients[:, None, :], axis=2)
    observed = jnp.arange(rewards.shape[1]) < state.rounds
    coordinate = jnp.where(observed, (own - explained) / take(candidate.pivot)[:, None], 0.0)
    return _Past(
        sums=jnp.sum(kernel * coordinate[:, :, None], axis=1),
        square=jnp.sum(coordinate * coordinate, axis=1),
        moment=jnp.sum(coordinate * rewards, axis=1),
    )


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
class NystromModel(Model[NystromSettings[jax.Array], NystromState, NystromBeliefs]):
    """EK-UCB with KORS; ``history`` says whether the past is projected onto a new anchor."""

    family: Family
    history: bool

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

    @property
    def first_capacity(self) -> Capacity:
        return Capacity(FIRST_ANCHORS, FIRST_ROUNDS if self.history else 0)

    def next_capacity(self, capacity: Capacity, demand: Demand) -> Capacity:
        """Return room for more anchors when a replica runs out of them, and for all rounds once the first are over."""
        anchors, rounds = capacity
        if demand.full:
            # never less than there is, where every replica is capped below the first room
            anchors = max(anchors, int(min(more_anchors(anchors), demand.max_anchors)))
        if self.history and demand.rounds > rounds:
            rounds = bucket(demand.horizon)
        return Capacity(anchors, rounds)

    def enlarge(self, state: NystromState, capacity: Capacity) -> NystromState:
        return enlarged(state, capacity, self.history)

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

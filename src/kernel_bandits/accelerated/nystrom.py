"""EK-UCB: the posterior projected on dictionaries that grow by KORS, of many replicas at once.

The formulas are those of :mod:`kernel_bandits.posteriors.nystrom`, :mod:`kernel_bandits.posteriors.regression` and
:mod:`kernel_bandits.dictionaries.leverage`, in matrices that have room for more anchors than there are. A coordinate
without an anchor is zero in φ, J and w. On the diagonals of A and Q it has λ and 1/μ, which is what a direction has
before the first observation in it; on that of P it has 1/λ without the history, and 0 with it, where bordering adds
what belongs there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kernel_bandits.accelerated.covariance import Family, gram
from kernel_bandits.accelerated.models import (
    BLOCK,
    Evaluation,
    Model,
    Observation,
    Room,
    Settings,
    bucket,
    pad,
    pick,
    product,
)
from kernel_bandits.dictionaries.leverage import leverage_score
from kernel_bandits.posteriors.nystrom import DIRECTION_TOLERANCE
from kernel_bandits.posteriors.regression import DRIFT_TOLERANCE

# ‖APx − x‖/‖x‖ at which P counts as drifted; float32 is never better than the condition of A times 1e-7.
DRIFT_TOLERANCES = {"float64": DRIFT_TOLERANCE, "float32": 1e-3}
# The share of k(s, s) below which a residual adds no direction but noise.
DIRECTION_TOLERANCES = {"float64": DIRECTION_TOLERANCE, "float32": 1e-4}
# Anchors there is room for at first: matrices that a GPU takes in its stride. And rounds that the history has room for,
# while nearly every round adds an anchor somewhere; then for all rounds.
FIRST_ROOM = Room(136, 256)
# A pass over the history takes as many replicas at a time as give it about so many kernel entries, and at least a few.
PASS_ENTRIES, SMALLEST_PASS = 5_000_000, 8


class NystromState(NamedTuple):
    """R replicas with room for m anchors and, where the history is kept, t rounds.

    Rounds since the last :meth:`NystromModel.settle` are not in P and Q yet: each waits in a row of its own.

    Attributes:
        sizes: anchors there are, shape (R,).
        anchors: shape (R, m, d).
        factor: J, shape (R, m, m).
        covariance: P but for the rounds that wait, shape (R, m, m).
        falls: the g that P still falls by, P − Σ ggᵀ, shape (R, b, m).
        weights: w, shape (R, m).
        precision: A as of the last refinement, but with all anchors, shape (R, m, m).
        moment: b, likewise, shape (R, m).
        leverage: Q of KORS but for the rounds that wait, shape (R, m, m).
        leverage_falls: the v that Q still falls by, Q − Σ vvᵀ, shape (R, b, m).
        points: the history, shape (R, t, d), or (R, 0, d).
        rewards: the history, shape (R, t), or (R, 0).
        rounds: how many rounds were observed, a scalar.
    """

    sizes: jax.Array
    anchors: jax.Array
    factor: jax.Array
    covariance: jax.Array
    falls: jax.Array
    weights: jax.Array
    precision: jax.Array
    moment: jax.Array
    leverage: jax.Array
    leverage_falls: jax.Array
    points: jax.Array
    rewards: jax.Array
    rounds: jax.Array


class _Draw(NamedTuple):
    """What KORS makes of the points of a round, one per replica; arrays of shape (R,) but for the last.

    Attributes:
        appended: whether the point becomes an anchor.
        pivot: l, the root of the squared length that it adds to the span; 1 where it is not appended.
        fall: v, by which Q falls by vvᵀ, in the coordinates with the new anchor; zeros where no point came up, (R, m).
    """

    appended: jax.Array
    pivot: jax.Array
    fall: jax.Array


class _Growth(NamedTuple):
    """What further anchors change where the history is kept; see :class:`NystromState`.

    Attributes:
        waiting: replicas whose anchor is still to be added, shape (R,).
        border: u with which P has become P + uuᵀ, shape (R, m).
        shift: κ with which w becomes w − κu, shape (R,).
    """

    waiting: jax.Array
    factor: jax.Array
    covariance: jax.Array
    precision: jax.Array
    moment: jax.Array
    border: jax.Array
    shift: jax.Array


@dataclass(frozen=True)
class NystromModel(Model[NystromState]):
    """EK-UCB with KORS; ``history`` says whether the past is projected onto a further anchor."""

    family: Family
    history: bool

    def first_room(self) -> Room:
        return Room(FIRST_ROOM.anchors, FIRST_ROOM.rounds if self.history else 0)

    def further_room(self, room: Room, rounds: int, horizon: int, full: bool, most: float) -> Room:
        anchors = int(min(more_anchors(room.anchors), most)) if full else room.anchors
        return Room(anchors, bucket(horizon) if self.history and rounds > room.rounds else room.rounds)

    def start(self, settings: Settings, room: Room) -> NystromState:
        return _start(settings, room, not self.history)

    def enlarge(self, state: NystromState, settings: Settings, room: Room) -> NystromState:
        return _enlarge(state, settings, room, not self.history)

    def width(self, state: NystromState) -> int:
        return state.weights.shape[1]

    def sizes(self, state: NystromState) -> jax.Array:
        return state.sizes

    def evaluate(self, state: NystromState, settings: Settings, points: jax.Array) -> Evaluation:
        kernel = gram(self.family, settings.factor, points, state.anchors)
        # φ = J k_Z(s): a coordinate without an anchor has no row in J and no column
        features = product("ram,rnm->ran", kernel, state.factor)
        solved = product("ram,rmn->ran", features, state.covariance)
        mean = jnp.sum(features * state.weights[:, None, :], axis=2)
        residual = jnp.maximum(1.0 - jnp.sum(features * features, axis=2), 0.0)
        # φᵀPφ where P still falls by Σ ggᵀ ; the barrier keeps XLA from joining P and the g's in a copy for one product
        apart = lax.optimization_barrier(features)  # type: ignore[no-untyped-call]  # JAX leaves it without types
        waiting = product("ram,rbm->rab", apart, state.falls)
        explained = jnp.sum(features * solved, axis=2) - jnp.sum(waiting * waiting, axis=2)
        # std² = λσ² = residual + λ·φᵀPφ
        variance = residual + settings.regularization[:, None] * explained
        return Evaluation(mean, jnp.sqrt(jnp.maximum(variance, 0.0)), features, solved)

    def observe(
        self, state: NystromState, settings: Settings, evaluation: Evaluation, observation: Observation
    ) -> tuple[NystromState, jax.Array, jax.Array]:
        features = pick(evaluation.features, observation.row)
        solved = _less(pick(evaluation.solved, observation.row), state.falls, features)
        draw, full = self._draw(state, settings, observation, features)
        live = observation.live & ~full
        extend = self._extend_with_history if self.history else self._extend
        extended, solved = extend(state, settings, observation.point, features, solved, draw)
        features = jnp.where(live, _appended(state, features, draw), 0.0)
        # P ← P − hhᵀ/c and w ← w + h(r − φᵀw)/c with c = 1 + φᵀh (Sherman–Morrison)
        scale = jnp.sqrt(1.0 + jnp.maximum(jnp.sum(features * solved, axis=1), 0.0))
        fall = jnp.where(live, solved / scale[:, None], 0.0)
        error = (observation.reward - jnp.sum(features * extended.weights, axis=1)) / scale
        put = partial(lax.dynamic_update_slice_in_dim, axis=1)
        points, rewards = state.points, state.rewards
        if self.history:
            # a round that does not count is written over by the one that does
            points = put(points, observation.point[:, None], state.rounds)
            rewards = put(rewards, observation.reward[:, None], state.rounds)
        return (
            extended._replace(
                sizes=state.sizes + draw.appended,
                anchors=_put_row(state.anchors, state.sizes, draw.appended, observation.point),
                falls=put(state.falls, fall[:, None], observation.slot),
                weights=extended.weights + fall * error[:, None],
                leverage_falls=put(state.leverage_falls, draw.fall[:, None], observation.slot),
                points=points,
                rewards=rewards,
                rounds=state.rounds + live,
            ),
            features,
            full,
        )

    def _draw(
        self, state: NystromState, settings: Settings, observation: Observation, features: jax.Array
    ) -> tuple[_Draw, jax.Array]:
        """Score and coin of each replica; and whether one of them has no room for its anchor, so that none is drawn."""
        mu = settings.leverage_regularization
        scored = _less(product("rmn,rn->rm", state.leverage, features), state.leverage_falls, features)
        # never negative but for rounding, which float32 has enough of
        measure = jnp.maximum(jnp.sum(features * scored, axis=1), 0.0)
        direction = 1.0 - jnp.sum(features * features, axis=1)
        # k − u = residual + μ·φᵀQφ
        score = leverage_score(jnp.maximum(direction, 0.0) + mu * measure, mu, settings.leverage_accuracy)
        probability = jnp.minimum(1.0, settings.oversampling * score)
        drawn = (observation.coin < probability) & (state.sizes < settings.max_dictionary_size)
        appended = drawn & (direction > DIRECTION_TOLERANCES[features.dtype.name])
        full = jnp.any(appended & (state.sizes >= state.weights.shape[1]))
        drawn &= observation.live & ~full
        appended &= drawn
        pivot = jnp.sqrt(jnp.where(appended, direction, 1.0))
        # v = Qφ/√(p + φᵀQφ), where φ ← [φ, l] and the further coordinate has 1/μ in Q
        scored = scored + _unit(state.sizes, features, appended) * (pivot / mu)[:, None]
        weight = probability + measure + jnp.where(appended, direction, 0.0) / mu
        fall = jnp.where(drawn[:, None], scored / jnp.sqrt(weight)[:, None], 0.0)
        return _Draw(appended, pivot, fall), full

    def _extend(
        self,
        state: NystromState,
        settings: Settings,
        point: jax.Array,  # noqa: ARG002 (as with the history)
        features: jax.Array,
        solved: jax.Array,
        draw: _Draw,
    ) -> tuple[NystromState, jax.Array]:
        """A further row of J; the past has no mass on the further coordinate, which is then as it stands in A and P.

        Returns:
            The state, and Pφ with φ ← [φ, l].
        """
        unit = _unit(state.sizes, features, draw.appended)
        # J ← [[J, 0], [−φᵀJ/l, 1/l]]
        rows = (unit - product("rm,rmn->rn", features, state.factor)) / draw.pivot[:, None]
        factor = _put_row(state.factor, state.sizes, draw.appended, rows)
        return state._replace(factor=factor), solved + unit * (draw.pivot / settings.regularization)[:, None]

    def _extend_with_history(
        self,
        state: NystromState,
        settings: Settings,
        point: jax.Array,
        features: jax.Array,
        solved: jax.Array,
        draw: _Draw,
    ) -> tuple[NystromState, jax.Array]:
        """Visit the replicas that add an anchor, some at a time; if there are none this costs nothing.

        Returns:
            The state, and Pφ with φ ← [φ, l].
        """
        replicas, room = features.shape
        count = min(replicas, max(SMALLEST_PASS, PASS_ENTRIES // (room * state.points.shape[1])))

        def visit(growth: _Growth) -> _Growth:
            rank = jnp.cumsum(growth.waiting, dtype=jnp.int32) - 1
            visited = growth.waiting & (rank < count)
            # where there are fewer the rest are numbers beyond all replicas: read as the last, never written
            numbers = jnp.arange(replicas, dtype=jnp.int32)
            members = jnp.arange(replicas, replicas + count, dtype=jnp.int32)
            members = _put(members, jnp.where(visited, rank, count + numbers), numbers)
            growth = growth._replace(waiting=growth.waiting & ~visited)
            return self._grow_members(state, settings, features, point, draw, growth, members)

        zeros = jnp.zeros_like(features), jnp.zeros_like(settings.regularization)
        growth = _Growth(draw.appended, state.factor, state.covariance, state.precision, state.moment, *zeros)
        growth = lax.while_loop(lambda growth: jnp.any(growth.waiting), visit, growth)
        extended = state._replace(
            factor=growth.factor,
            covariance=growth.covariance,
            precision=growth.precision,
            moment=growth.moment,
            weights=state.weights - growth.shift[:, None] * growth.border,
        )
        # P ← P + uuᵀ, and P had nothing in the further coordinate
        along = jnp.sum(growth.border * _appended(state, features, draw), axis=1, keepdims=True)
        return extended, solved + growth.border * along

    def _grow_members(
        self,
        state: NystromState,
        settings: Settings,
        features: jax.Array,
        point: jax.Array,
        draw: _Draw,
        growth: _Growth,
        members: jax.Array,
    ) -> _Growth:
        """Add the anchors of some replicas, and project their past onto them."""
        take = partial(jnp.take, indices=members, axis=0, mode="clip")
        size, features, pivot, anchor = map(take, (state.sizes, features, draw.pivot, point))
        regularization = take(settings.regularization)
        unit = _unit(size, features, jnp.bool_(True))
        factor = take(growth.factor)
        coefficients = product("gm,gmn->gn", features, factor)
        # c_i = (k(s_i, z) − k_Z(s_i)ᵀJᵀφ(z))/l of every past state ; Σ k_Z(s_i)c_i, cc = Σ c_i² and cy = Σ c_i r_i
        points, rewards, kernel_factor = take(state.points), take(state.rewards), take(settings.factor)
        kernel = gram(self.family, kernel_factor, points, take(state.anchors))
        own = gram(self.family, kernel_factor, points, anchor[:, None])[:, :, 0]
        # sums and not products of matrices, so that the compiler may compute the kernel on the way
        explained = jnp.sum(kernel * coefficients[:, None, :], axis=2)
        past = jnp.arange(rewards.shape[1]) < state.rounds
        coordinate = jnp.where(past, (own - explained) / pivot[:, None], 0.0)
        sums = jnp.sum(kernel * coordinate[:, :, None], axis=1)
        square, moment = jnp.sum(coordinate * coordinate, axis=1), jnp.sum(coordinate * rewards, axis=1)
        # a = Σ φ(s_i)c_i ; s = λ + cc − aᵀPa ≥ λ ; u = [Pa, −1]/√s and κ = (cy − aᵀw)/√s
        cross = product("gmn,gn->gm", factor, sums)
        solved = _less(product("gmn,gn->gm", take(growth.covariance), cross), take(state.falls), cross)
        schur = jnp.maximum(regularization + square - jnp.sum(cross * solved, axis=1), regularization)
        border = (solved - unit) / jnp.sqrt(schur)[:, None]
        shift = (moment - jnp.sum(cross * take(state.weights), axis=1)) / jnp.sqrt(schur)
        # A ← [[A, a], [aᵀ, λ + cc]], b ← [b, cy] and J ← [[J, 0], [−φᵀJ/l, 1/l]]
        row = cross + unit * (regularization + square)[:, None]
        rows = (unit - coefficients) / pivot[:, None]
        return _Growth(
            growth.waiting,
            _put(growth.factor, (members, size), rows),
            growth.covariance.at[members].add(_outer(border), mode="drop", unique_indices=True),
            _put(_put(growth.precision, (members, size), row), (members, slice(None), size), row),
            _put(growth.moment, (members, size), moment),
            _put(growth.border, members, border),
            _put(growth.shift, members, shift),
        )

    def settle(self, state: NystromState) -> NystromState:
        return state._replace(
            covariance=_fallen(state.covariance, state.falls),
            falls=jnp.zeros_like(state.falls),
            leverage=_fallen(state.leverage, state.leverage_falls),
            leverage_falls=jnp.zeros_like(state.leverage_falls),
        )

    def refine(self, state: NystromState, features: jax.Array, rewards: jax.Array) -> NystromState:
        # A ← A + Σ φφᵀ and b ← b + Σ rφ
        precision = state.precision + product("brm,brn->rmn", features, features)
        moment = state.moment + product("brm,br->rm", features, rewards)
        probe = features.sum(axis=0)
        error = product("rmn,rn->rm", precision, product("rmn,rn->rm", state.covariance, probe)) - probe
        length = jnp.linalg.norm(probe, axis=1)
        drifted = jnp.any(jnp.linalg.norm(error, axis=1) > DRIFT_TOLERANCES[probe.dtype.name] * length)
        invert = partial(_invert, state.sizes, not self.history)
        covariance = lax.cond(drifted, invert, lambda _: state.covariance, precision)
        # w ← w + P(b − Aw)
        missing = moment - product("rmn,rn->rm", precision, state.weights)
        weights = state.weights + product("rmn,rn->rm", covariance, missing)
        return state._replace(precision=precision, moment=moment, covariance=covariance, weights=weights)


def more_anchors(number: int) -> int:
    """The next number of anchors to have room for: twice the memory and traffic, which follow its square."""
    return math.ceil(math.sqrt(2) * number / 8) * 8


def _outer(vectors: jax.Array) -> jax.Array:
    return vectors[:, :, None] * vectors[:, None, :]


def _less(product_with_matrix: jax.Array, falls: jax.Array, vectors: jax.Array) -> jax.Array:
    """(M − Σ ggᵀ)x, given Mx."""
    lengths = jnp.sum(falls * vectors[:, None, :], axis=2)
    return product_with_matrix - jnp.sum(falls * lengths[:, :, None], axis=1)


def _unit(sizes: jax.Array, features: jax.Array, where: jax.Array) -> jax.Array:
    """1 in the coordinate that a further anchor would have, shape (R, m); zeros elsewhere and in other replicas."""
    further = jnp.arange(features.shape[1]) == sizes[:, None]
    return (further & jnp.broadcast_to(where, sizes.shape)[:, None]).astype(features.dtype)


def _appended(state: NystromState, features: jax.Array, draw: _Draw) -> jax.Array:
    """[φ, l] where an anchor is added, else φ."""
    return features + _unit(state.sizes, features, draw.appended) * draw.pivot[:, None]


def _put_row(matrices: jax.Array, sizes: jax.Array, where: jax.Array, rows: jax.Array) -> jax.Array:
    """Write the row of a further anchor in the replicas that add one; in the others it would be beyond the matrix."""
    return _put(matrices, (jnp.arange(len(sizes)), jnp.where(where, sizes, matrices.shape[1])), rows)


def _put(array: jax.Array, at: Any, values: jax.Array) -> jax.Array:
    """Write where the indices are within the array; no place is named twice."""
    return array.at[at].set(values, mode="drop", unique_indices=True)


def _fallen(matrices: jax.Array, falls: jax.Array) -> jax.Array:
    """M − Σ ggᵀ, term by term so that M is read and written once."""
    for slot in range(falls.shape[1]):
        matrices = matrices - _outer(falls[:, slot])
    return matrices


def _invert(sizes: jax.Array, filled: bool, precision: jax.Array) -> jax.Array:
    """P from A; a coordinate without an anchor gets 1/λ or 0."""
    room = precision.shape[1]
    factor = jnp.linalg.cholesky(precision)
    identity = jnp.broadcast_to(jnp.eye(room, dtype=precision.dtype), precision.shape)
    inverse = lax.linalg.triangular_solve(factor, identity, left_side=True, lower=True)
    covariance = product("rkm,rkn->rmn", inverse, inverse)
    if filled:
        return covariance
    there = jnp.arange(room) < sizes[:, None]
    return jnp.where(there[:, :, None] & there[:, None, :], covariance, 0.0)


@partial(jax.jit, static_argnums=(1, 2))
def _start(settings: Settings, room: Room, filled: bool) -> NystromState:
    replicas, dimension = settings.divisor.shape
    zeros = partial(jnp.zeros, dtype=settings.divisor.dtype)
    empty = NystromState(
        sizes=jnp.zeros(replicas, jnp.int32),
        anchors=zeros((replicas, 0, dimension)),
        factor=zeros((replicas, 0, 0)),
        covariance=zeros((replicas, 0, 0)),
        falls=zeros((replicas, BLOCK, 0)),
        weights=zeros((replicas, 0)),
        precision=zeros((replicas, 0, 0)),
        moment=zeros((replicas, 0)),
        leverage=zeros((replicas, 0, 0)),
        leverage_falls=zeros((replicas, BLOCK, 0)),
        points=zeros((replicas, 0, dimension)),
        rewards=zeros((replicas, 0)),
        rounds=jnp.int32(0),
    )
    return _enlarge(empty, settings, room, filled)


@partial(jax.jit, static_argnums=(2, 3))
def _enlarge(state: NystromState, settings: Settings, room: Room, filled: bool) -> NystromState:
    number = room.anchors
    further = jnp.diag((jnp.arange(number) >= state.weights.shape[1]).astype(state.weights.dtype))

    def square(matrices: jax.Array, diagonal: jax.Array | float) -> jax.Array:
        return pad(pad(matrices, 1, number), 2, number) + further * jnp.reshape(diagonal, (-1, 1, 1))

    ridge = settings.regularization
    return state._replace(
        anchors=pad(state.anchors, 1, number),
        factor=square(state.factor, 0.0),
        covariance=square(state.covariance, 1.0 / ridge if filled else 0.0),
        falls=pad(state.falls, 2, number),
        weights=pad(state.weights, 1, number),
        precision=square(state.precision, ridge),
        moment=pad(state.moment, 1, number),
        leverage=square(state.leverage, 1.0 / settings.leverage_regularization),
        leverage_falls=pad(state.leverage_falls, 2, number),
        points=pad(state.points, 1, room.rounds),
        rewards=pad(state.rewards, 1, room.rounds),
    )

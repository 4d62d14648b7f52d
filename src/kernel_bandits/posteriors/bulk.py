"""Many observations at once: logs, learned at the speed of matrix products, and whole histories, for chosen anchors."""

import math
from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from kernel_bandits.arrays import FloatArray, is_finite
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.dictionaries.base import Candidate, Dictionary
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.numerics.linalg import inverse_and_log_determinant, safe_sqrt, times
from kernel_bandits.posteriors.anchored import AnchoredRegression
from kernel_bandits.posteriors.base import Fulfilled
from kernel_bandits.posteriors.basis import least_direction, require_resolution
from kernel_bandits.posteriors.history import Blocks, History, Thinned
from kernel_bandits.posteriors.pending import Awaited
from kernel_bandits.posteriors.ridge import batch_rows, sequential_factor

# Anchors that are chosen from a whole history at once are enough if they leave no more of it unexplained than, in
# variance, this share of what the posterior leaves uncertain at its points, λ·trace K(K + λI)⁻¹ together;
UNEXPLAINED_SHARE = 0.2
# or if they are this many times trace K(K + λI)⁻¹: what KORS draws is 2 to 5 times that.
ANCHORS_PER_DIMENSION, NEARLY = 4.0, 0.95
# What they leave of a candidate on average, as a share of μ, before that is known.
FIRST_RESIDUAL = 0.1
# Anchors are chosen from at most this many candidates, whose Gram matrix has 32 MB, in at most this many passes over
# at most this many observations; one pass over all of them follows.
MOST_CANDIDATES, MOST_PASSES, MOST_OBSERVATIONS = 2048, 25, 4096
# Where nothing is known about how often the dictionary changes, a log is absorbed in blocks of this many rows first.
FIRST_BATCH_ROWS = 16


def _absorb(
    model: AnchoredRegression, dictionary: Dictionary, points: FloatArray
) -> tuple[FloatArray, FloatArray, int]:
    """Show points (n, d) to a dictionary; return φ (n, m), residuals (n,), and how many leave the anchors alone."""
    settled, facts = model.pending.settled, model.facts
    features, residual, prior = model.basis(points)
    if not is_finite(features) or not is_finite(residual):
        raise InputError(f"kernel: {facts.kernel!r} returned values that are not finite in the log.")
    require_resolution(facts.kernel, float(prior.max()), facts.regularization)
    variance = np.zeros(len(points))
    if dictionary.uses_variance:
        settled.settle()
        solved = times(features, settled.covariance)
        # φᵀPφ of each point after the ones before it; σ² = residual/λ + φᵀPφ
        explained = np.diagonal(sequential_factor(features, solved)) ** 2 - 1.0
        variance = residual / facts.regularization + explained
    block = Candidate(features, residual, prior, variance)
    return features, residual, dictionary.absorb(block, residual <= least_direction(prior, facts.regularization))


@np.errstate(invalid="ignore", over="ignore")
def learn_log(
    model: AnchoredRegression,
    points: FloatArray,
    rewards: FloatArray,
    one_by_one: Callable[[FloatArray, FloatArray], None],
) -> None:
    """Learn a log of points (n, d) and rewards (n,) in order, in a model that nobody else holds.

    ``one_by_one`` learns some of it the ordinary way. If the kernel fails, what came before that is learned.
    """
    if model.pending.awaited:
        one_by_one(points, rewards)
        return
    # A dictionary that does without P lets anchors come in without their past, which follows for all in one pass; P is
    # then computed anew, which a short log is not worth.
    needs_solutions = model.dictionary.uses_variance or model.dictionary.merges_repeats
    deferred = not needs_solutions and len(points) > len(model.basis)
    postponed_here = deferred and model.postpone()
    start, count = 0, FIRST_BATCH_ROWS
    try:
        while start < len(points):
            quiet = _learn_quiet(model, points[start : start + count], rewards[start : start + count])
            start += quiet
            if quiet < count and start < len(points):
                if not (deferred and _learn_deferred(model, points[start], float(rewards[start]))):
                    model.catch_up()
                    one_by_one(points[start : start + 1], rewards[start : start + 1])
                start += 1
            # Rows behind a point that changes the dictionary are evaluated in vain: aim at the gap between two.
            count = min(2 * (quiet + 1), batch_rows(len(model.basis)))
    except Exception:
        _settle(model, postponed_here)
        raise
    _settle(model, postponed_here)


def _settle(model: AnchoredRegression, postponed: bool) -> None:
    """Bring the regression up to date with all that was deferred, and with what was postponed."""
    try:
        if postponed:
            model.project_postponed()
    finally:
        model.pending.settled.settle()


def _learn_deferred(model: AnchoredRegression, point: FloatArray, reward: float) -> bool:
    """Learn a point that may become an anchor, without P; False, and nothing done, if the dictionary resamples."""
    features, residual, prior = model.basis(point[None, :])
    candidate = Candidate(features[0], residual.item(0), prior.item(0), 0.0)
    proposal = model.dictionary.propose(candidate)
    if proposal.resample:
        return False
    admitted = model.admit(point, candidate, proposal, deferred=True)
    model.pending.settled.defer(admitted.features[None, :], np.array([reward]))
    carry_out(admitted.steps)
    carry_out(model.dictionary.commit_steps(admitted.candidate, proposal, admitted.appended))
    carry_out(model.remember_steps(point, reward, admitted.residual_trace + admitted.residual))
    return True


def _learn_quiet(model: AnchoredRegression, points: FloatArray, rewards: FloatArray) -> int:
    """Learn the leading points that change nothing about the dictionary; how many they were."""
    settled, facts = model.pending.settled, model.facts
    features, residual, quiet = _absorb(model, model.dictionary, points)
    if quiet:
        settled.defer(features[:quiet], rewards[:quiet])
        facts.residual_trace += float(residual[:quiet].sum())
        if model.history is not None:
            model.history.extend(points[:quiet], rewards[:quiet])
        facts.dimension = points.shape[1]
        facts.round_index += quiet
    return quiet


def anticipate_quiet(model: AnchoredRegression, keys: Sequence[int], rows: FloatArray) -> tuple[int, Steps]:
    """Prepare to count the leading points (n, d) that change nothing about the dictionary; how many, and the steps."""
    facts, pending = model.facts, model.pending
    if not len(model.basis) or model.dictionary.uses_variance or model.dictionary.merges_repeats:
        return 0, []
    dictionary = model.dictionary.twin()
    features, residual, quiet = _absorb(model, dictionary, rows)
    if not quiet:
        return 0, []
    ahead = pending.ahead.copy()
    ahead.count_block(features[:quiet])
    # copies, since a row of an array keeps all of it
    kept = islice(zip(keys, rows, features, residual.tolist(), strict=True), quiet)
    awaited = {key: Awaited(row.copy(), own.copy(), left) for key, row, own, left in kept}
    return quiet, [
        (setattr, pending, "ahead", ahead),
        (pending.awaited.update, awaited),
        replace_state(model.dictionary, dictionary),
        (setattr, facts, "dimension", rows.shape[1]),
    ]


def fulfil_together(model: AnchoredRegression, keys: Sequence[int], rewards: FloatArray) -> Fulfilled | None:
    """Prepare to learn the rewards of awaited points by matrix products; None where repeats are merged."""
    facts, pending = model.facts, model.pending
    if model.dictionary.merges_repeats:
        return None
    size, found = len(model.basis), map(pending.awaited.__getitem__, keys)
    awaited = [
        one if len(one.coordinates) == size else model.current(key) for key, one in zip(keys, found, strict=True)
    ]
    features, residual = np.array([one.coordinates for one in awaited]), np.array([one.residual for one in awaited])
    settled = pending.settled.copy()
    scales, errors = settled.observe_many(features, rewards)
    means = rewards - scales * errors
    # scale² = 1 + φ_jᵀP_jφ_j
    stds = safe_sqrt(residual + facts.regularization * (scales**2 - 1.0))
    steps: Steps = [replace_state(pending.settled, settled)]
    if model.history is not None:
        history = model.history.copy()
        history.extend(np.array([one.point for one in awaited]), rewards)
        steps.append((setattr, model, "history", history))
    trace, count = facts.residual_trace + float(residual.sum()), facts.round_index + len(keys)
    steps += [(facts.store, trace, len(awaited[0].point), count), *pending.release_steps(keys)]
    return Fulfilled(steps, means, stds)


def learn_history(
    model: AnchoredRegression,
    points: FloatArray,
    rewards: FloatArray,
    candidates: FloatArray,
    weights: FloatArray | None = None,
) -> None:
    """Learn a whole history at once, before anything else, with anchors that stand for it.

    A dictionary that grows by leverage scores is not drawn along the history but chosen: by pivoted Cholesky each
    anchor is the candidate (n, d) that those before it explain least, until little is left unexplained. Two passes over
    the history are enough where the candidates stand for it; where they miss much of it, points of it join them.
    """
    facts, dictionary, settled = model.facts, model.dictionary, model.pending.settled
    if facts.round_index:
        raise UnavailableError(f"learn_history: {facts.round_index} observations were learned already.")
    history = History()
    history.extend(points, rewards, weights)
    level = dictionary.leverage_regularization or facts.regularization
    with np.errstate(invalid="ignore", over="ignore"):
        second_moment = _choose_anchors(model, points, history, candidates, level)
    model.history = None if model.history is None else history
    facts.dimension, facts.round_index = points.shape[1], len(points)
    # (μI + Σφφᵀ)⁻¹, which is P where μ = λ
    inverse = settled.covariance.copy()
    if level != facts.regularization:
        second_moment.flat[:: len(second_moment) + 1] += level
        inverse, _ = inverse_and_log_determinant(second_moment)
    dictionary.adopt(inverse)


def _choose_anchors(
    model: AnchoredRegression, points: FloatArray, history: History, candidates: FloatArray, level: float
) -> FloatArray:
    """Carry a history by as many anchors as it takes; returns Σφφᵀ."""
    seen: Blocks = history
    rows, count = points, len(points)
    if count > MOST_OBSERVATIONS:
        seen = thinned = Thinned(points, np.zeros(count), MOST_OBSERVATIONS)
        rows = thinned.points
    candidates = candidates[:: -(-len(candidates) // MOST_CANDIDATES)]
    candidates, mean_residual, limit, second_moment = _enough(model, rows, count, seen, candidates, level)
    if seen is not history:
        second_moment = model.rebuild(candidates, history, mean_residual, limit)[1]
    return second_moment


def _enough(
    model: AnchoredRegression, points: FloatArray, count: int, history: Blocks, candidates: FloatArray, level: float
) -> tuple[FloatArray, float, int, FloatArray]:
    """Return candidates, mean residual and most anchors that are enough for points (n, d) of a history, and Σφφᵀ."""
    largest = float(model.facts.kernel.diag(points).max())
    require_resolution(model.facts.kernel, largest, model.facts.regularization)
    least = float(least_direction(largest, model.facts.regularization))
    mean_residual, limit, known = FIRST_RESIDUAL * min(level, largest), len(points), 0
    for done in range(1, MOST_PASSES + 1):
        left, second_moment = model.rebuild(candidates, history, mean_residual, limit)
        dimension, size = model.pending.settled.effective_dimension, len(model.basis)
        allowed = max(UNEXPLAINED_SHARE * level * dimension / count, least)
        # the dimension grows a little with the anchors, so that a limit of the pass before may just be missed
        many = size >= NEARLY * ANCHORS_PER_DIMENSION * dimension or model.dictionary.is_full(size)
        if many or left.mean() <= allowed or done == MOST_PASSES:
            break
        # more, and with some of what the candidates miss of the history among them
        limit = math.ceil(ANCHORS_PER_DIMENSION * dimension)
        missed = np.flatnonzero(left > allowed)
        room = max(MOST_CANDIDATES - len(candidates), 0)
        more = points[missed[:: -(-len(missed) // len(candidates))]][:room]
        candidates = np.unique(np.concatenate([candidates, more]), axis=0)
        if len(candidates) > known:
            mean_residual = 0.5 * allowed
        elif mean_residual > 0.1 * least:
            # what is missed are repeats of a few candidates, which the mean over candidates makes little of
            mean_residual *= 0.5
        else:
            break
        known = len(candidates)
    return candidates, mean_residual, limit, second_moment

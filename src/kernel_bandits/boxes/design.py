"""The first actions of a policy that knows nothing yet: points that fill a box evenly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from kernel_bandits.actions import Box, Choice, Range, Setting, are_arms
from kernel_bandits.arrays import FloatArray, join
from kernel_bandits.boxes.search import CENTRES, around, sobol
from kernel_bandits.learning.columns import category_labels
from kernel_bandits.learning.mixed import NORMAL_MEDIAN
from kernel_bandits.posterior.base import FLAT, PLANE, Posterior

# Points of the design for each coordinate that is free, and besides.
PER_COORDINATE, BESIDES = 3, 3
# Points for each free coordinate while rewards show no more than a plane, the number that Loeppky, Sacks & Welch (2009)
# recommend for a function of unknown shape.
FOR_A_PLANE = 10
# So many too while this share of the variance of the rewards is noise to the model: a first reward on a narrow peak
# stands out without explaining anything, and the bounds of a model that explains nothing are largest at the walls.
# python benchmarks/mixed.py --plants dev
MOSTLY_NOISE = 0.5
# Once a design goes on because rewards show too little, one point in this many follows the strongest hint of a peak.
HINTS = 3
# Standard deviation of the peak that hints are weighed for, in widths of the box times √d: distances grow as √d.
HINT_WIDTH = 0.1
# Points of the box over which the median expected reward is the usual one.
USUAL = 32
# Points of design and later ones together, but at most twice the design: uniform points that all miss an eighth of the
# box have a probability of (7/8)ⁿ, 5 % for 23 of them.
IN_ALL = math.ceil(math.log(0.05) / math.log(7.0 / 8.0))
# From this many rows on they may stand for a box; of fewer each is soon tried.
FINE = 64
# Of more settings no list of rows is fine.
MOST_SETTINGS = 8
# Rows fill their box if its points are no farther from the nearest row, on average, than this many times as far as they
# are from random points of the box.
FILLED = 1.25
# Points that the later ones are chosen from, which also stand for the box.
CANDIDATES = 256
# Standard deviations within which all of them are at once with 95 %: P(z > c) ≤ exp(−c²/2).
AT_ONCE = math.sqrt(2.0 * math.log(CANDIDATES / 0.05))


@dataclass(frozen=True)
class BoxDesign:
    """A Sobol sequence, shifted at random, whose points are played one after the other before anything is chosen.

    A model that has seen nothing, or begins again after a fall, has its largest bounds at the walls, and would not look
    inside. A played point counts from the moment it is asked for, so that late rewards and batches spread over the same
    design.

    The design goes on for as long as rewards show nothing of the settings: there is nothing to gain from a choice then,
    and the next point may be the first on a peak. While they show a plane, there is something to gain, and the design
    ends sooner. Beyond its first points every third one follows the strongest hint of a peak: where noise is strong, a
    single reward on the slope of a peak does not stand out, but a second one next to it does.

    A model that was fitted to one peak is sure that there is no higher one: rewards on a plateau say nothing of peaks
    elsewhere, and the bounds of a Gaussian process do not allow for them. Therefore some points are played later, ever
    more rarely: of the experiments around the t-th a share e·n/t², with n points in the design and e later.

    With choices e = n, and later points are of other levels than the best setting has: where a peak as high as the best
    one is most likely, if all that is known of it are the rewards near it. Of numbers alone all points together are as
    many as find a peak that an eighth of the box feels in 95 % of all cases. Every other one has the largest of bounds
    that hold all over the box at once, which follows up hints that a single standard deviation gives up. The others
    would lower the variance over the box most, whatever the model expects there.

    Attributes:
        seed: of the shifts.
    """

    seed: np.random.SeedSequence

    def reseeded(self, entropy: int) -> BoxDesign:
        """Return the design with shifts of another seed."""
        return BoxDesign(np.random.SeedSequence(entropy, spawn_key=self.seed.spawn_key))

    def next_action(self, posterior: Posterior, context: FloatArray, box: Box) -> FloatArray | None:
        """Return the next point of the design, shape (d_a,); None where one is to be chosen."""
        awaited = posterior.awaited_points
        played = posterior.round_index + len(awaited)
        free = int(box.free.sum())
        # before the first fit, and where all rewards are equal, there is no shape yet
        shows_nothing = posterior.shape == FLAT or not posterior.kernel_changes
        size = self._size(posterior, free)
        if not free:
            return None
        if not shows_nothing and played >= size:
            has_choices = bool((box.is_choice & box.free).any())
            count = size if has_choices else max(0, min(size, IN_ALL - size))
            number = later(count, size, played + 1)
            if number == later(count, size, played):
                return None
            if has_choices:
                return self._other_peak(posterior, box, played)
            return self._later_action(posterior, context, box, number)
        if played >= self._first(free) and played % HINTS == 0 and _has_hints(posterior):
            return self._hint(posterior, box, played)
        waiting = {point[-box.dimension :].tobytes() for point in awaited.values()}
        # after one has expired, the count points at actions that are pending
        while True:
            action = self._action(played, box)
            if action.tobytes() not in waiting:
                return action
            played += 1

    def next_row(self, posterior: Posterior, context: FloatArray, actions: FloatArray) -> int | None:
        """Return which row of actions (A, d_a) that fill a box is next; None where one is to be chosen.

        It is the nearest to the next point that was not played yet, nor is awaited.
        """
        box = posterior.box
        point = None if box is None else self.next_action(posterior, context, box)
        if box is None or point is None:
            return None
        awaited = list(posterior.awaited_points.values())
        played = {row[-box.dimension :].tobytes() for row in [*posterior.observed_points, *awaited]}
        away = box.places(actions) - box.places(point[None, :])
        order = np.vecdot(away, away).argsort(kind="stable").tolist()
        return next((row for row in order if actions[row].tobytes() not in played), order[0])

    def _size(self, posterior: Posterior, free: int) -> int:
        shows_little = posterior.shape == PLANE or _noise_share(posterior) > MOSTLY_NOISE
        return FOR_A_PLANE * free if shows_little else self._first(free)

    def _first(self, free: int) -> int:
        return PER_COORDINATE * free + BESIDES

    def _hint(self, posterior: Posterior, box: Box, played: int) -> FloatArray:
        """Return where the rewards speak most for a peak, shape (d_a,), whatever the context."""
        surplus = _surplus(posterior.observed_rewards, posterior.observed_points[:, : -box.dimension])

        def strength(fractions: FloatArray) -> FloatArray:
            # z = Σ b_i·r_i/√(Σ b_i²), by which a bump b explains the rewards r better than noise does: by ½z² nats
            bumps = _bumps(posterior, box, fractions)
            return bumps[:, : len(surplus)] @ surplus / np.sqrt((bumps**2).sum(axis=1) + np.finfo(float).tiny)

        places, found = self._scored(box, strength, played)
        return box.at(places[[found.argmax()]])[0]

    def _other_peak(self, posterior: Posterior, box: Box, played: int) -> FloatArray | None:
        """Return where other levels may have a peak as high as the best one, shape (d_a,), if there is a best one.

        A bump at a place has the height h ~ N(0, H²), with H what the best setting earns above the usual one in its
        context, and a width that is known up to a factor of √e. Given rewards that are Σ b_i·r_i above the usual h is
        normal. A place counts by the chance of h > H, by how much of a bump there lies in the box, and by the chance
        that a peak stands there: in half of all cases where the best one does, and otherwise anywhere.
        """
        if posterior.approximation == "history-free":
            return None
        observed, noise = posterior.observed_points, posterior.regularization
        some = self._actions(0, box)[:USUAL]
        contexts = np.repeat(observed[:, : -box.dimension], len(some), axis=0)
        anywhere = posterior.means(np.hstack([contexts, np.tile(some, (len(observed), 1))]))
        usual = np.median(anywhere.reshape(len(observed), -1), axis=1)
        surplus, gains = posterior.observed_rewards - usual, posterior.means(observed) - usual
        highest = float(gains.max())
        if not highest > 2.0 * math.sqrt(noise):
            return None
        tried = box.fractions(observed[:, -box.dimension :])
        best, numbers, width = tried[[gains.argmax()]], box.free & ~box.is_choice, _width(box)

        everywhere = _played(posterior, box)

        def felt(fractions: FloatArray) -> FloatArray:
            # what other levels earn says nothing of these
            return _bumps(posterior, box, fractions) * _same_levels(box, fractions, everywhere)

        # rewards in one place count once: they err alike in the width
        crowds = felt(everywhere).sum(axis=1)

        def chance(fractions: FloatArray) -> FloatArray:
            bumps = felt(fractions)
            # with widths by e^±½ the height at h·b varies by h·b·log b
            shares = bumps / (crowds * (noise + (highest * scipy.special.xlogy(bumps, bumps)) ** 2))
            precision = (shares * bumps).sum(axis=1) + highest**-2.0
            expected = shares[:, : len(surplus)] @ surplus / precision
            found = scipy.special.log_ndtr((expected - highest) * np.sqrt(precision))
            at = fractions[:, numbers] / width
            found += np.log(scipy.special.ndtr(1.0 / width - at) - scipy.special.ndtr(-at)).sum(axis=1)
            away = at - best[:, numbers] / width
            found += np.log1p(np.exp(-0.5 * np.vecdot(away, away)) * (math.sqrt(2.0 * math.pi) * width) ** -at.shape[1])
            return np.where(_same_levels(box, fractions, best)[:, 0], -np.inf, found)

        # a reward above the usual one is a hint of a peak beside it
        hints = tried[np.argsort(np.where(_same_levels(box, tried, best)[:, 0], np.inf, -surplus))[:CENTRES]]
        places, chances = self._scored(box, chance, played, np.concatenate([box.neighbours(best)[1:], hints]))
        return box.at(places[[chances.argmax()]])[0]

    def _scored(
        self,
        box: Box,
        score: Callable[[FloatArray], FloatArray],
        played: int,
        others: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Return fractions (n, k) that cover the box, others, and neighbours of these and of the best; and scores."""
        own = np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, played))
        generator, width = np.random.default_rng(own), _width(box)

        def inside(centres: FloatArray) -> FloatArray:
            # neighbours beyond a wall were moved onto it, and bounds are large there anyway
            near = around(centres, width, generator)
            return near[((near > 0.0) & (near < 1.0))[:, box.free].all(axis=1)]

        places = box.fractions(self._actions(0, box)[:CANDIDATES])
        if others is not None:
            places = np.concatenate([places, others, inside(others)])
        places = np.concatenate([places, inside(places[np.argsort(-score(places))[:CENTRES]])])
        return places, score(places)

    def _action(self, number: int, box: Box) -> FloatArray:
        """Return a point of the design, shape (d_a,)."""
        count = len(sobol(len(box.settings)))
        return self._actions(number // count, box)[number % count]

    def _actions(self, shift: int, box: Box) -> FloatArray:
        """Return the Sobol sequence under one of its shifts, shape (n, d_a)."""
        # on the torus it stays as even as it was; when it ends, another shift begins
        settings = len(box.settings)
        shifts = np.random.default_rng(self.seed).random((shift + 1, settings))
        return box.at((sobol(settings) + shifts[-1]) % 1.0)

    def _later_action(self, posterior: Posterior, context: FloatArray, box: Box, number: int) -> FloatArray:
        """Return one of the later points, shape (d_a,); number 1 is the first of them."""
        actions = self._actions(0, box)[:CANDIDATES]
        points = join(context, actions)
        evaluation = posterior.evaluate_finite(points)
        if number % 2:
            return actions[(evaluation.mean + AT_ONCE * evaluation.std).argmax()]
        covariance = posterior.covariance(points, evaluation)
        # Σ_x cov(x, a)²/(var(a) + λ), the criterion of Cohn (1996)
        shares = covariance / np.sqrt(np.diagonal(covariance) + posterior.regularization)
        return actions[(shares**2).sum(axis=0).argmax()]


def box_of_rows(actions: FloatArray) -> Box | None:
    """Return the smallest box that holds rows of actions (A, d_a), if they fill it as random points would."""
    if len(actions) < FINE or are_arms(actions):
        return None
    labels, settings = category_labels(actions), dict[str, Setting]()
    for number in range(int(labels.max()) + 1):
        columns = actions[:, labels == number]
        is_choice = columns.shape[1] > 1
        low, high = float(columns.min()), float(columns.max())
        settings[f"action {number}"] = Choice(range(columns.shape[1])) if is_choice else Range(low, high)
    box = Box(settings)
    if not 1 <= int(box.free.sum()) <= MOST_SETTINGS:
        return None
    even = box.places(box.at(sobol(len(settings))[:CANDIDATES]))
    random = box.sample(np.random.default_rng(0), len(actions))
    gaps, usual = (
        scipy.spatial.distance.cdist(even, box.places(rows)).min(axis=1).mean() for rows in (actions, random)
    )
    return box if gaps <= FILLED * usual else None


def _noise_share(posterior: Posterior) -> float:
    """Return how much of the variance of the rewards the model takes for noise; 0 before the first fit."""
    changes = posterior.kernel_changes
    return dict(changes[-1].shares).get("noise", 0.0) if changes else 0.0


def _has_hints(posterior: Posterior) -> bool:
    """Return whether rewards are there, and differ."""
    if posterior.approximation == "history-free" or not posterior.round_index:
        return False
    return float(np.ptp(posterior.observed_rewards)) > 0.0


def _surplus(rewards: FloatArray, contexts: FloatArray) -> FloatArray:
    """Return rewards above their median, within bounds that hold for all of them at once if they are normal.

    What is linear in the contexts (n, d_x) is taken off before, if it earns ½·log n nats for each column. With fewer
    than two rewards for each slope it is left on: a fit can explain so few of them whatever they are.
    """
    count, offsets, centred = len(rewards), contexts - contexts.mean(axis=0), rewards - rewards.mean()
    largest = np.abs(offsets).max(axis=0, initial=0.0)
    columns = offsets[:, largest > 0.0] / largest[largest > 0.0]
    slopes = columns.shape[1]
    if 0 < 2 * slopes < count:
        rest = centred - columns @ np.linalg.lstsq(columns, centred, rcond=None)[0]
        # a fit gains ½n·log of the ratio of variances, in nats
        if float(rest @ rest) * count ** (slopes / count) < float(centred @ centred):
            rewards = rest
    surplus = rewards - np.median(rewards)
    usual = float(np.median(np.abs(surplus))) / NORMAL_MEDIAN
    return np.clip(surplus, -AT_ONCE * usual, AT_ONCE * usual) if usual else surplus


def _width(box: Box) -> float:
    """Return the standard deviation of a bump, in widths of the settings; fixed ones do not count."""
    return HINT_WIDTH * math.sqrt(box.free.sum())


def _played(posterior: Posterior, box: Box) -> FloatArray:
    """Return fractions of what was observed and is awaited, shape (n, k)."""
    awaited = list(posterior.awaited_points.values())
    points = np.concatenate([posterior.observed_points, awaited]) if awaited else posterior.observed_points
    return box.fractions(points[:, -box.dimension :])


def _bumps(posterior: Posterior, box: Box, fractions: FloatArray) -> FloatArray:
    """Return what is felt of bumps at fractions (m, k) where rewards were observed or are awaited, shape (m, n).

    Of those to come 0 is expected.
    """
    places = box.places(box.at(fractions)), box.places(box.at(_played(posterior, box)))
    found: FloatArray = np.exp(-0.5 / _width(box) ** 2 * scipy.spatial.distance.cdist(*places, "sqeuclidean"))
    return found


def _same_levels(box: Box, left: FloatArray, right: FloatArray) -> NDArray[np.bool_]:
    """Return whether fractions (m, k) and (n, k) are of the same levels of all choices, shape (m, n)."""
    levels = [box.alike(fractions)[0][:, box.is_choice] for fractions in (left, right)]
    same: NDArray[np.bool_] = scipy.spatial.distance.cdist(*levels, "sqeuclidean") == 0.0
    return same


def later(count: int, size: int, played: int) -> int:
    """Return how many of ``count`` later points are among the first that were played, at least the size of the design.

    ∫ e·n/t² dt from n to t = e·(1 − n/t), with e ≤ n: a share of the experiments is at most all of them.
    """
    return int(count * (1.0 - size / played))

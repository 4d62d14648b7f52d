"""Compare decisions of two versions of the code bit for bit: short runs of everything that decides, a digest of each.

A digest covers every decision (row, action, mean, std, bound, probabilities) and, at the end, predictions, dictionary
and log-determinant. Play all runs, or those whose name contains one of some words:

    python benchmarks/decisions.py > before.txt
    python benchmarks/decisions.py > after.txt; diff before.txt after.txt
    python benchmarks/decisions.py forgetting late
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

import numpy as np

import kernel_bandits as kb

DELAY = 7
LENGTHSCALES = {"Bump": 1.0, "Chessboard": 0.1, "StepDiagonal": 0.1, "MovingOptimum": 0.3}
RADIUS = kb.Tightened(norm_bound=1.0, noise_bound=0.1, failure_probability=0.1)


class Trace:
    """A digest of decisions and of what was learned from them."""

    def __init__(self) -> None:
        self._digest, self.total = hashlib.sha256(), 0.0

    def see(self, *values: Any) -> None:
        """Add numbers and arrays."""
        for value in values:
            self._digest.update(np.ascontiguousarray(np.nan if value is None else value, dtype=float).tobytes())

    def see_decision(self, decision: Any) -> None:
        """Add a decision."""
        self.see(decision.index, decision.action, decision.mean, decision.std, decision.upper_bound)
        self.see(decision.propensity, decision.probabilities)

    def see_model(self, policy: Any, points: Any = None) -> None:
        """Add what a policy has learned."""
        for posterior in policy.posteriors:
            self.see(posterior.dictionary_points, posterior.log_determinant, posterior.effective_dimension)
            self.see(posterior.residual_trace, posterior.prior_mean, posterior.regularization)
            if points is not None:
                prediction = posterior.predict(points)
                self.see(prediction.mean, prediction.std)

    @property
    def digest(self) -> str:
        """The digest so far."""
        return self._digest.hexdigest()[:16]


def play(policy: Any, name: str, seed: int, horizon: int = 400, *, late: bool = False, many: int = 0) -> Trace:
    """Play an environment of the paper, with rewards at once, late, or in blocks."""
    environment, trace = getattr(kb.environments, name)(), Trace()
    contexts, noise = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    waiting: list[tuple[Any, float]] = []
    shown = environment.next_round(contexts)
    for step in range(horizon):
        shown = environment.next_round(contexts)
        decision = (policy.ask if late else policy.select)(shown.context, shown.actions)
        trace.see_decision(decision)
        expected = float(environment.expected_rewards(shown.context, decision.action[None, :])[0])
        trace.total += expected
        reward = expected + environment.noise(noise)
        if not late:
            policy.update(shown.context, decision.action, reward)
            continue
        waiting.append((decision.id, reward))
        if many and len(waiting) == 2 * many:
            some, waiting = waiting[:many], waiting[many:]
            policy.tell_many([key for key, _ in some], [value for _, value in some])
        elif not many and step >= DELAY:
            key, value = waiting.pop(0)
            if step % 10:
                policy.tell(key, value)
            else:
                policy.expire(key)
    points = np.hstack([np.tile(shown.context, (len(shown.actions), 1)), shown.actions])
    trace.see_model(policy, None if isinstance(policy, type(kb.uniform())) else points)
    return trace


def play_table(features: np.ndarray, classes: np.ndarray, policy: Any, horizon: int = 200) -> Trace:
    """Play a table with classes as arms, 0/1 rewards."""
    trace, arms = Trace(), np.eye(int(classes.max()) + 1)
    order = np.random.default_rng(0).permutation(len(features))[:horizon]
    for row in order:
        decision = policy.select(features[row], arms)
        trace.see_decision(decision)
        reward = float(decision.index == classes[row])
        trace.total += reward
        policy.update(features[row], decision.action, reward)
    trace.see_model(policy, np.hstack([np.tile(features[order[0]], (len(arms), 1)), arms]))
    return trace


def play_box(policy: Any, seed: int, horizon: int = 60, *, batch: int = 1, outputs: bool = False) -> Trace:
    """Play a box of three settings with two sensors."""
    trace, generator = Trace(), np.random.default_rng(seed)
    box = kb.Box([0.0, 0.0, 0.0], [1.0, 2.0, 4.0])
    for _ in range(horizon // batch):
        contexts = generator.normal(size=(batch, 2))
        decisions = [policy.ask(context, box) for context in contexts]
        for context, decision in zip(contexts, decisions, strict=True):
            trace.see(decision.action, decision.mean, decision.std, decision.upper_bound, decision.density)
            z = decision.action / [1.0, 2.0, 4.0] - 0.5 - 0.05 * context[0]
            reward = 10.0 * np.exp(-8.0 * float(z @ z)) + 0.1 * generator.normal()
            measured = {"outputs": {"pressure": float(decision.action.sum())}} if outputs else {}
            trace.total += reward
            policy.tell(decision, reward, **measured)
    trace.see_model(policy)
    return trace


def mixed_table(seed: int, rows: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Return a table of numbers, counts with a long tail and categories, with four classes."""
    generator = np.random.default_rng(seed)
    numbers, tail = generator.normal(size=(rows, 4)), generator.lognormal(sigma=1.5, size=(rows, 2))
    levels = generator.integers(5, size=rows)
    score = np.stack([numbers[:, 0], np.log(tail[:, 0]), levels - 2.0, numbers[:, 1] * numbers[:, 2]], axis=1)
    return np.hstack([numbers, tail, np.eye(5)[levels]]), score.argmax(axis=1)


def bulk(policy: Any, seed: int) -> Trace:
    """Learn a log at once, with weights in between, and choose for many contexts."""
    generator, trace = np.random.default_rng(seed), Trace()
    contexts, actions = generator.random((600, 2)), generator.random((600, 1))
    rewards = np.sin(5 * contexts[:, 0]) * actions[:, 0] + 0.1 * generator.normal(size=600)
    policy.update_many(contexts[:300], actions[:300], rewards[:300])
    for row in range(300, 320):
        policy.update(contexts[row], actions[row], rewards[row], weight=1.0 + row % 3)
    policy.update_many(contexts[320:], actions[320:], rewards[320:])
    for decision in policy.select_many(contexts[:50], np.linspace(0, 1, 11)[:, None]):
        trace.see_decision(decision)
    keys = policy.await_many(contexts[:40], actions[:40])
    policy.tell_many(keys[:30], rewards[:30])
    policy.expire_before(keys[35])
    trace.see_model(policy, np.hstack([contexts[:20], actions[:20]]))
    return trace


def started(game: Callable[..., Trace], build: Callable[[], Any], *rest: Any, **options: Any) -> Callable[[], Trace]:
    """Return a run that builds its policy when it starts."""
    return lambda: game(build(), *rest, **options)


def play_mixed(number: int) -> Trace:
    """Play a table of numbers, counts and categories."""
    return play_table(*mixed_table(number), kb.ek_ucb(seed=number))


def play_dataset(load: Callable[[], Any]) -> Trace:
    """Play a table of scikit-learn."""
    table = load()
    return play_table(table.data.astype(float), table.target, kb.ek_ucb(seed=0))


def runs() -> Iterator[tuple[str, Callable[[], Trace]]]:
    """Yield all runs by name."""
    for name, lengthscale in LENGTHSCALES.items():
        kernel = kb.Gaussian(lengthscale)
        presets: dict[str, Callable[..., Any]] = {
            "k_ucb": partial(kb.k_ucb, kernel),
            "ek_ucb": partial(kb.ek_ucb, kernel),
            "learned": kb.ek_ucb,
            "cbbkb": partial(kb.cbbkb, kernel),
        }
        for label, build in presets.items():
            for seed in (0, 1):
                yield f"{name} {label} {seed}", started(play, partial(build, seed=seed), name, seed)
        weak = partial(kb.ek_ucb, kernel, regularization=0.01, seed=0)
        yield f"{name} late 0", started(play, weak, name, 0, late=True)
    kernel = kb.Gaussian(0.1)
    others: dict[str, Callable[[], Any]] = {
        "cbkb": lambda: kb.cbkb(kernel, seed=0),
        "cgp_ucb": lambda: kb.cgp_ucb(kernel, seed=0),
        "lin_ucb": lambda: kb.lin_ucb(seed=0),
        "random_features_ucb": lambda: kb.random_features_ucb(kernel, seed=0),
        "sup_kernel_ucb": lambda: kb.sup_kernel_ucb(kernel, horizon=400, seed=0),
        "sup efficient": lambda: kb.sup_kernel_ucb(kernel, horizon=400, dictionary=kb.Kors(), seed=0),
        "family_ucb": lambda: kb.family_ucb([kernel, kb.Gaussian(0.5)], confidence=RADIUS, seed=0),
        "thompson_sampling": lambda: kb.thompson_sampling(kernel, seed=0),
        "inverse_gap_weighting": lambda: kb.inverse_gap_weighting(kernel, seed=0),
        "uniform": lambda: kb.uniform(seed=0),
        "floor": lambda: kb.ek_ucb(kernel, exploration_floor=0.1, seed=0),
        "posterior variance": lambda: kb.ek_ucb(kernel, dictionary=kb.PosteriorVariance(), seed=0),
        "fixed": lambda: kb.ek_ucb(kernel, dictionary=kb.Fixed(np.random.default_rng(0).random((40, 2))), seed=0),
        "resampling": lambda: kb.ek_ucb(kernel, dictionary=kb.Resampling(keeps_first=True), seed=0),
        "history none": lambda: kb.ek_ucb(kernel, dictionary=kb.Kors(history="none"), seed=0),
        "capped": lambda: kb.ek_ucb(kernel, dictionary=kb.Kors(max_size=20, leverage_regularization=2.0), seed=0),
        "tightened": lambda: kb.ek_ucb(kernel, confidence=RADIUS, seed=0),
        "learned given": lambda: kb.ek_ucb(kb.Gaussian(0.5), learn_kernel=True, seed=0),
        "learned exact": lambda: kb.k_ucb(seed=0),
        "learned thompson": lambda: kb.thompson_sampling(seed=0),
        "forgetting discount": lambda: kb.ek_ucb(kernel, forgetting=kb.Discount(100), seed=0),
        "forgetting window": lambda: kb.ek_ucb(kernel, forgetting=kb.Window(100), seed=0),
        "forgetting wander": lambda: kb.ek_ucb(kernel, forgetting=kb.Wander(100), seed=0),
        "forgetting restart": lambda: kb.ek_ucb(forgetting=kb.Restart(), seed=0),
        "forgetting learned": lambda: kb.ek_ucb(forgetting=kb.Discount(100), seed=0),
    }
    late_too = ["cbkb", "lin_ucb", "sup_kernel_ucb", "sup efficient", "family_ucb", "history none", "resampling"]
    late_too += ["learned given", "learned exact", "forgetting discount", "forgetting wander", "forgetting restart"]
    for label, make in others.items():
        horizon = 150 if label in ("cbkb", "family_ucb") else 300
        yield label, started(play, make, "Chessboard", 0, horizon)
        if label in late_too:
            yield f"{label} late", started(play, make, "Chessboard", 0, horizon, late=True)
    yield "k_ucb late", lambda: play(kb.k_ucb(kernel, seed=0), "Bump", 0, 200, late=True)
    yield "learned late", lambda: play(kb.ek_ucb(seed=0), "Chessboard", 0, 300, late=True)
    yield "many late", lambda: play(kb.ek_ucb(kernel, seed=0), "Chessboard", 0, 400, late=True, many=20)
    for label, bulky in {
        "ek_ucb": lambda: kb.ek_ucb(kb.Gaussian(0.3), seed=0),
        "k_ucb": lambda: kb.k_ucb(kb.Gaussian(0.3), seed=0),
        "learned": lambda: kb.ek_ucb(seed=0),
        "lin_ucb": lambda: kb.lin_ucb(seed=0),
        "history none": lambda: kb.ek_ucb(kb.Gaussian(0.3), dictionary=kb.Kors(history="none"), seed=0),
        "resampling": lambda: kb.ek_ucb(kb.Gaussian(0.3), dictionary=kb.Resampling(), seed=0),
        "variance": lambda: kb.ek_ucb(kb.Gaussian(0.3), dictionary=kb.PosteriorVariance(), seed=0),
    }.items():
        yield f"bulk {label}", started(bulk, bulky, 0)
    yield "box given", lambda: play_box(kb.ek_ucb(kb.Matern(0.5), seed=0), 0)
    yield "box learned", lambda: play_box(kb.ek_ucb(seed=0), 0)
    yield "box batches", lambda: play_box(kb.ek_ucb(seed=1), 1, batch=4)
    yield "box floor", lambda: play_box(kb.ek_ucb(kb.Matern(0.5), exploration_floor=0.1, seed=0), 0)
    yield "box thompson", lambda: play_box(kb.thompson_sampling(kb.Matern(0.5), seed=0), 0)
    yield "box inverse gap", lambda: play_box(kb.inverse_gap_weighting(kb.Matern(0.5), seed=0), 0)
    limit = {"pressure": kb.Below(6.0, 4.0 * kb.Matern(2.0), 0.01)}
    yield (
        "box limit",
        lambda: play_box(
            kb.ek_ucb(kb.Matern(0.5), seed=0).constrained(limit, safe_actions=[[0.2, 0.2, 0.2]]), 0, outputs=True
        ),
    )
    for number in range(5):
        yield f"table mixed {number}", partial(play_mixed, number)
    from sklearn import datasets

    for load in (datasets.load_digits, datasets.load_wine, datasets.load_breast_cancer, datasets.load_iris):
        yield f"table {load.__name__}", partial(play_dataset, load)
    table = datasets.load_iris()
    yield "table lin_ucb", lambda: play_table(table.data.astype(float), table.target, kb.lin_ucb(seed=0))
    yield "table per arm", lambda: play_table(*mixed_table(9), kb.ek_ucb(kb.PerArm(kb.Gaussian(3.0), 11), seed=0))


def main() -> None:
    wanted = sys.argv[1:]
    warnings.simplefilter("ignore")
    for name, run in runs():
        if not wanted or any(word in name for word in wanted):
            try:
                trace = run()
                print(f"{name:32s} {trace.total:20.14g}  {trace.digest}", flush=True)
            except kb.KernelBanditsError as reason:
                print(f"{name:32s} {type(reason).__name__}: {str(reason)[:60]}", flush=True)


if __name__ == "__main__":
    main()

"""Shops: what the default earns of purchases, beside a linear bandit and a kernel chosen by hand.

    python benchmarks/default/shops.py --seeds 20 [--shop offers] [--visitors 3000]

Every visitor is shown one offer and buys it or does not. Four shops: five named offers with a signal of 2 % or 10 % of
the variance of the rewards, five prices with 6 %, and eight described offers for visitors of 25 columns whose purchases
are reported 100 visitors late. Earnings are expected purchases, as a share of the way from uniform play to the best
offer for each visitor. A run is *low* if it earns less than 95 % of what the best single offer would.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import kernel_bandits as kb

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Shop:
    """Visitors (T, d), offers (A, a), their chances (T, A), and how many visitors later a purchase is reported."""

    visitors: Array
    offers: Array
    chances: Array
    delay: int = 0


def _with_signal(logits: Array, level: float, signal: float) -> Array:
    """Return chances whose variance is this share of that of the purchases, by bisection on the scale of the logits."""
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        chances = 1.0 / (1.0 + np.exp(-(level + middle * logits)))
        rate = chances.mean()
        low, high = (middle, high) if chances.var() / (rate * (1.0 - rate)) < signal else (low, middle)
    return chances


def named(generator: np.random.Generator, count: int, signal: float) -> Shop:
    """Return five named offers; six columns, two of which mean nothing."""
    visitors = generator.normal(size=(count, 6))
    linear = visitors[:, :4] @ generator.normal(size=(4, 5))
    smooth = np.sin(2.0 * visitors[:, :1]) * generator.normal(size=5)
    logits = linear + smooth + generator.normal(size=5)
    return Shop(visitors, np.eye(5), _with_signal(logits / logits.std(), -1.2, signal))


def prices(generator: np.random.Generator, count: int) -> Shop:
    """Return five prices, of which every visitor has one that is right."""
    visitors, offers = generator.normal(size=(count, 6)), np.linspace(0.2, 1.0, 5)[:, None]
    taste = visitors[:, :4] @ generator.normal(size=4) / 2.0
    logits = -((offers[:, 0] - (0.6 + 0.3 * np.tanh(taste))[:, None]) ** 2)
    return Shop(visitors, offers, _with_signal(logits / logits.std(), -0.5, 0.06))


def described(generator: np.random.Generator, count: int) -> Shop:
    """Return eight offers of three features, sold at 8 %, to visitors of numbers and flags; purchases come late."""
    visitors = np.hstack([generator.normal(size=(count, 10)), (generator.random((count, 15)) < 0.2).astype(float)])
    offers = generator.normal(size=(8, 3))
    logits = (visitors - visitors.mean(axis=0)) @ generator.normal(size=(25, 3)) @ offers.T
    logits = 1.2 * logits / logits.std() + 0.3 * generator.normal(size=8)
    level = float(np.log(0.08 / 0.92)) - 0.5
    return Shop(visitors, offers, 1.0 / (1.0 + np.exp(-(level + logits))), 100)


SHOPS: dict[str, Callable[[np.random.Generator, int], Shop]] = {
    "faint": lambda generator, count: named(generator, count, 0.02),
    "named": lambda generator, count: named(generator, count, 0.1),
    "prices": prices,
    "offers": described,
}


def _by_hand(shop: Shop, seed: int) -> kb.Policy:
    """Return a policy with a kernel that somebody who knows the shop might choose, and its noise."""
    columns, rate = shop.visitors.shape[1], float(shop.chances.mean())
    contexts = kb.Mixed(0.3, 0.5, 0.2, 1.0, centre=shop.visitors.mean(axis=0), scale=shop.visitors.std(axis=0))
    centre, scale = shop.offers.mean(axis=0), shop.offers.std(axis=0)
    actions = kb.Mixed(0.2, 0.4, 0.4, 1.0, centre=centre, scale=scale)
    if np.array_equal(shop.offers, np.eye(len(shop.offers))):
        actions = kb.Mixed(0.0, 1.0, 0.0, metric=np.eye(len(shop.offers)))
    variance = rate * (1.0 - rate)
    kernel = kb.Constant(rate**2) + 0.1 * variance * kb.TensorProduct(contexts, actions, columns)
    return kb.ek_ucb(kernel, regularization=variance, dictionary=kb.Kors(max_size=300), seed=seed)


POLICIES: dict[str, Callable[[Shop, int], kb.Policy]] = {
    "nothing set": lambda _shop, seed: kb.ek_ucb(seed=seed),
    "lin_ucb": lambda _shop, _seed: kb.lin_ucb(),
    "by hand": _by_hand,
}


def earned(policy: kb.Policy, shop: Shop, seed: int) -> float:
    """Return the expected purchases of a policy."""
    bought = np.random.default_rng([seed, 1]).random(shop.chances.shape) < shop.chances
    total, waiting = 0.0, list[tuple[int, float]]()
    for visitor, chances, paid in zip(shop.visitors, shop.chances, bought, strict=True):
        decision = policy.ask(visitor, shop.offers)
        total += chances[decision.index]
        assert decision.id is not None  # as always from ask
        waiting.append((decision.id, float(paid[decision.index])))
        if len(waiting) > shop.delay:
            policy.tell(*waiting.pop(0))
    return total


def played(task: tuple[str, str, int, int]) -> tuple[float, float]:
    """Return how far a run came from uniform play to the best, and its earnings over those of the best single offer."""
    name, policy, seed, count = task
    shop = SHOPS[name](np.random.default_rng([20261116, seed]), count)
    uniform, best = shop.chances.mean() * count, shop.chances.max(axis=1).sum()
    total = earned(POLICIES[policy](shop, seed), shop, seed)
    return (total - uniform) / (best - uniform), total / (shop.chances.mean(axis=0).max() * count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--visitors", type=int, default=3000)
    parser.add_argument("--shop", action="append", choices=SHOPS, help="only this shop; may be repeated")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only this policy; may be repeated")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    with multiprocessing.Pool(options.jobs) as pool:
        for name in options.shop or SHOPS:
            reference = None
            for policy in options.policy or POLICIES:
                tasks = [(name, policy, seed, options.visitors) for seed in seeds]
                shares, ratios = np.array(pool.map(played, tasks, chunksize=1)).T
                reference = shares if reference is None else reference
                difference = shares - reference
                half = 1.96 * difference.std(ddof=min(1, len(seeds) - 1)) / np.sqrt(len(seeds))
                print(
                    f"{name:8s} {policy:12s} share {shares.mean():.3f} (least {shares.min():.2f}), "
                    f"less the first {difference.mean():+.3f} ± {half:.3f}, "
                    f"low runs {(ratios < 0.95).sum()} of {len(seeds)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""Shops: what the default earns of purchases, beside a linear bandit and a kernel chosen by hand.

    python benchmarks/default/shops.py --seeds 20 [--shop offers] [--visitors 3000]
    python benchmarks/default/shops.py --shop late --seeds 20 [--visitors 3000]

Every visitor is shown one offer and buys it or does not. Four shops: five named offers with a signal of 2 % or 10 % of
the variance of the rewards, five prices with 6 %, and eight described offers for visitors of 25 columns whose purchases
are reported 100 visitors late. Earnings are expected purchases, as a share of the way from uniform play to the best
offer for each visitor. A run is *low* if it earns less than 95 % of what the best single offer would.

In the *late* shop about 60 visitors come an hour and a twentieth of them buys; a purchase is told after hours, and a
silence counts as 0 after twelve. What a policy earns is compared with what it earns when every reward is told after
twelve hours; and where it knows a log of 5,000 rows, what it earns in the last third with what it would earn had it
learned nothing since.
"""

from __future__ import annotations

import argparse
import heapq
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import kernel_bandits as kb

Array = NDArray[np.float64]
# Of the late shop: rows of the log, visitors an hour, and when a silence counts.
LOG, PER_HOUR, TWELVE_HOURS = 5000, 60, 12.0


@dataclass(frozen=True)
class Shop:
    """Visitors (T, d), offers (A, a), their chances (T, A), and how many visitors later a purchase is reported."""

    visitors: Array
    offers: Array
    chances: Array
    delay: float = 0


def _with_signal(logits: Array, level: float, signal: float) -> Array:
    """Return chances whose variance is this share of that of the purchases, by bisection on the scale of the logits."""
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        chances = 1.0 / (1.0 + np.exp(-(level + middle * logits)))
        rate = chances.mean()
        low, high = (middle, high) if chances.var() / (rate * (1.0 - rate)) < signal else (low, middle)
    return chances


def named(generator: np.random.Generator, count: int, signal: float, level: float = -1.2) -> Shop:
    """Return five named offers; six columns, two of which mean nothing."""
    visitors = generator.normal(size=(count, 6))
    linear = visitors[:, :4] @ generator.normal(size=(4, 5))
    smooth = np.sin(2.0 * visitors[:, :1]) * generator.normal(size=5)
    logits = linear + smooth + generator.normal(size=5)
    return Shop(visitors, np.eye(5), _with_signal(logits / logits.std(), level, signal))


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


def earned(policy: kb.Policy, shop: Shop, seed: int, arrives: Array | None = None, hurry: Array | None = None) -> Array:
    """Return the expected purchases of a policy, visitor by visitor.

    Args:
        policy: that plays.
        shop: where.
        seed: of what visitors buy.
        arrives: when visitors come, shape (T,); 0, 1, … by default.
        hurry: how long before the others purchases are reported, shape (T,).
    """
    bought = np.random.default_rng([seed, 1]).random(shop.chances.shape) < shop.chances
    found, waiting = np.empty(len(bought)), list[tuple[float, int, float]]()
    for t, visitor in enumerate(shop.visitors):
        now = float(t) if arrives is None else float(arrives[t])
        while waiting and waiting[0][0] < now:
            policy.tell(*heapq.heappop(waiting)[1:])
        decision = policy.ask(visitor, shop.offers)
        found[t] = shop.chances[t, decision.index]
        paid = bool(bought[t, decision.index])
        assert decision.id is not None  # as always from ask
        due = now + shop.delay - (float(hurry[t]) if paid and hurry is not None else 0.0)
        heapq.heappush(waiting, (due, decision.id, float(paid)))
    return found


def played(task: tuple[str, str, int, int]) -> tuple[float, float]:
    """Return how far a run came from uniform play to the best, and its earnings over those of the best single offer."""
    name, policy, seed, count = task
    shop = SHOPS[name](np.random.default_rng([20261116, seed]), count)
    uniform, best = shop.chances.mean() * count, shop.chances.max(axis=1).sum()
    total = float(earned(POLICIES[policy](shop, seed), shop, seed).sum())
    return (total - uniform) / (best - uniform), total / (shop.chances.mean(axis=0).max() * count)


@dataclass(frozen=True)
class Late:
    """What a policy earns in the late shop, as shares of the visitors who buy.

    Attributes:
        uniform: by uniform play.
        late: told as it happens.
        in_order: told after twelve hours each.
        warm: told as it happens, after a log, in the last third of the visitors.
        kept: the same visitors, had nothing been learned since the log.
    """

    uniform: float
    late: float
    in_order: float
    warm: float
    kept: float


def played_late(task: tuple[int, int]) -> Late:
    """Play the late shop in order, as it happens, and as it happens after a log of uniform play."""
    seed, count = task
    generator = np.random.default_rng([20261119, seed])
    both = named(generator, LOG + count, 0.02, level=-3.1)
    shop = Shop(both.visitors[LOG:], both.offers, both.chances[LOG:], delay=TWELVE_HOURS)
    # nights are quiet: at four in the morning comes a ninth of those at four in the afternoon
    hours = np.arange(0.0, count / PER_HOUR, 0.01)
    crowd = np.cumsum(1.0 - 0.8 * np.cos((hours - 4.0) * np.pi / 12.0))
    arrives = np.interp(np.arange(count) / count, crowd / crowd[-1], hours)
    hurry = TWELVE_HOURS - np.minimum(generator.gamma(2.0, 1.5, size=count), TWELVE_HOURS)
    late = earned(kb.ek_ucb(seed=seed), shop, seed, arrives, hurry)
    in_order = earned(kb.ek_ucb(seed=seed), shop, seed, arrives)
    arms = generator.integers(5, size=LOG)
    paid = generator.random(LOG) < both.chances[np.arange(LOG), arms]
    policy = kb.ek_ucb(seed=seed)
    policy.update_many(both.visitors[:LOG], both.offers[arms], paid)
    last = shop.visitors[-count // 3 :]
    kept = [
        shop.chances[row - len(last), policy.predict(one, shop.offers).mean.argmax()] for row, one in enumerate(last)
    ]
    warm = earned(policy, shop, seed, arrives, hurry)[-len(last) :]
    return Late(*(float(np.mean(values)) for values in (shop.chances, late, in_order, warm, kept)))


def print_late(runs: list[Late]) -> None:
    """Print what late rewards cost, and what a warm start is worth in the end."""
    late, in_order, warm, kept = (np.array([getattr(run, name) for run in runs]) for name in
                                  ("late", "in_order", "warm", "kept"))  # fmt: skip
    ratios, ends, uniform = late / in_order, warm / kept, np.mean([run.uniform for run in runs])
    print(
        f"late     nothing set  {late.mean():.2%} buy, uniform {uniform:.2%}; of what it earns told in order "
        f"{late.sum() / in_order.sum():.1%} (least {ratios.min():.1%})\n"
        f"late     after a log  {warm.mean():.2%} buy in the last third; of what the log alone earns "
        f"{warm.sum() / kept.sum():.1%} (least {ends.min():.1%})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--visitors", type=int, default=3000)
    parser.add_argument("--shop", action="append", choices=[*SHOPS, "late"], help="only this shop; may be repeated")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only this policy; may be repeated")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    with multiprocessing.Pool(options.jobs) as pool:
        for name in options.shop or [*SHOPS, "late"]:
            if name == "late":
                print_late(pool.map(played_late, [(seed, options.visitors) for seed in seeds], chunksize=1))
                continue
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

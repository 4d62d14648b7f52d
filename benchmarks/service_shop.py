"""A shop with late purchases: what the page says against what the simulator knows, at every hour.

Purchases are told 2.5 hours after the visit, and nothing is told of visits without one, which count as 0 after 12
hours. There are nights without traffic, an arm is retired and another added half-way, and the service is recovered from
its log in the middle. The loop runs as in the service, with a clock of the simulator's.

Run: python benchmarks/service_shop.py [--days 4] [--visits 150] [--seed 0] [--keep FILE]
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import tempfile
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from kernel_bandits_server import insight
from kernel_bandits_server.messages import DecisionRequest
from kernel_bandits_server.planning import Command, Decide, Query, RetireArm, Reward, SetArm
from kernel_bandits_server.settings import parse_settings
from kernel_bandits_server.store import Store
from kernel_bandits_server.worker import Worker, replay
from measure import markdown

LOOP = """
[loops.shop]
exploration_floor = 0.2
silence = { after = 43200, reward = 0.0 }
control = { share = 0.2, rule = "fixed", arm = "red" }
options = { kernel = { name = "Gaussian", lengthscale = 0.5 }, dictionary = { rule = "Kors", max_size = 60 } }
[loops.shop.context]
age = { kind = "Numeric", range = [18, 80] }
[loops.shop.arms]
names = ["red", "blue", "green"]
strict = true
"""
ARMS = ("red", "blue", "green", "gold")
HOUR = 3600.0
LATE = 2.5 * HOUR


def rate_of(arm: str, age: float) -> float:
    """Return the probability of a purchase."""
    young = age < 40
    return {"red": 0.15, "blue": 0.3 if young else 0.1, "green": 0.12, "gold": 0.2}[arm]


class Shop:
    """A loop whose commands are carried out one batch after the other, at the simulator's time."""

    def __init__(self, database: str) -> None:
        settings = parse_settings(LOOP)
        self.settings, self.store, self.now = settings.loops["shop"], Store(database), 1_767_222_000.0
        self.leader = self.store.leadership()
        self.worker = Worker(self.settings, settings.service, self.store, self.leader, self._finish)
        self.worker.clock = lambda: self.now  # type: ignore[assignment] # the simulator's clock
        self.worker.start()

    @staticmethod
    def _finish(commands: Any) -> None:
        for command in commands:
            command.done()

    def __call__(self, *commands: Command) -> list[Any]:
        """Carry commands out together."""
        events = [threading.Event() for _ in commands]
        for command, event in zip(commands, events, strict=True):
            command.done = event.set
            self.worker.submit(command)
        for command, event in zip(commands, events, strict=True):
            event.wait()
            if command.error is not None:
                raise command.error
        return [command.result for command in commands]


def main() -> None:
    """Print how far the page and the simulator are apart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=4)
    parser.add_argument("--visits", type=int, default=150, help="in an hour of the day")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="keep the database as this file")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)  # of an arm that is not there yet
    generator = np.random.default_rng(given.seed)
    with tempfile.TemporaryDirectory(prefix="kernel-bandits-") as folder:
        database = str(given.keep or Path(folder, "shop.db"))
        shop = Shop(database)
        start, told, counter = shop.now, list[tuple[float, int, str]](), itertools.count()
        truth: list[tuple[float, float, str]] = []  # of each visit: expected reward, reward, group
        would: list[list[float]] = []  # of each visit: expected reward of uniform play, and of each arm on offer
        misses, hours, naive, apart, width = Counter[str](), 0, 0.0, 0.0, 0.0
        for hour in range(24 * given.days):
            if hour == 12 * given.days:
                shop(SetArm("gold", None), RetireArm("green", expires=False))
            if hour == 18 * given.days - 3:
                # as after a kill: nothing but the log is left
                shop.worker.stop()
                digest = replay(shop.settings, shop.store).digest()
                shop.leader.release()
                shop.store.close()
                later, shop = shop.now, Shop(database)
                shop.now = later
                assert digest == shop(Query(lambda replica: replica.digest()))[0]
            for part in range(4):
                shop.now = start + hour * HOUR + part * 900.0
                due = []
                while told and told[0][0] <= shop.now:
                    due.append((heapq.heappop(told)[2], 1.0))
                if due:
                    shop(Reward(due))
                count = generator.poisson(given.visits / 4) if 7 <= hour % 24 < 23 else 0
                ages = generator.uniform(18, 80, count)
                visits = [
                    Decide(f"v{given.seed}-{next(counter)}", False, DecisionRequest({"age": float(age)}))
                    for age in ages
                ]
                for age, (event, _) in zip(ages, shop(*visits) if visits else [], strict=True):
                    arm, group = event.body["arm"], event.body["group"]
                    expected = rate_of(arm, float(age))
                    bought = generator.random() < expected
                    truth.append((expected, float(bought), group))
                    rates = [rate_of(one, float(age)) if one in event.body["actions"] else np.nan for one in ARMS]
                    would.append([float(np.nanmean(rates)), *rates])
                    if bought:
                        heapq.heappush(told, (shop.now + LATE, next(counter), event.decision))
            found = shop(Query(insight.summary))[0]
            settled = found["maturity"]["counted"]
            if settled < 200:
                continue
            hours += 1
            known = truth[:settled]
            mean, earned = np.mean([one[:2] for one in known], axis=0).tolist()
            reward = found["reward"]
            apart = max(apart, abs(reward["mean"] - earned))
            width = reward["high"] - reward["low"]
            shown = {one["arm"]: one for one in found["arms"]} | {"reward": reward, "uniform": found["uniform"]}
            rates = np.nanmean([[*one, mean] for one in would[:settled]], axis=0).tolist()
            for name, rate in zip(("uniform", *ARMS, "reward"), rates, strict=True):
                if name in shown and shown[name]["count"]:
                    misses[name] += not shown[name]["low"] <= rate <= shown[name]["high"]
            # what an average of all rewards that have come would say
            counts = found["counts"]
            naive = max(naive, abs(counts["rewards"] / (counts["rewards"] + counts["silent"]) - mean))
        found = shop(Query(insight.summary))[0]
        split = shop(Query(lambda replica: insight.segments(replica, "age")))[0]["segments"]
        known = truth[: found["maturity"]["counted"]]
        lift = np.mean([p for p, _, g in known if g != "control"]) - np.mean([p for p, _, g in known if g == "control"])
        verdict = found["verdict"]
        print(
            markdown(
                [
                    {
                        "hours looked at": hours,
                        "page less what visits earned, at most": f"{apart:.1e}",
                        "hours with the truth outside": ", ".join(f"{name} {n}" for name, n in misses.items()),
                        "interval of the reward at the end": round(width, 3),
                        "furthest an average of what was told would be": round(naive, 3),
                        "lift on the page": f"{verdict['low']:.3f} to {verdict['high']:.3f}",
                        "true lift": f"{lift:.3f}",
                        "verdict": verdict["verdict"],
                    }
                ]
            )
        )
        print(found["maturity"]["words"], found["warnings"])
        for one in split:
            shares = ", ".join(f"{arm['arm']} {arm['share']:.0%} ({arm['mean']:.2f})" for arm in one["arms"])
            print(f"age {one['segment']}: {shares}")
        shop.worker.stop()
        shop.store.close()


if __name__ == "__main__":
    main()

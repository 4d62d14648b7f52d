"""Vowpal Wabbit: the entries of the contextual-bandit bake-off (Bietti, Agarwal and Langford 2021).

Arms are described by their number, and by their features where they have some; models see the interactions of arm and
context (``ca``), and as a second entry those of arm and pairs of context columns (``cca``), with pairs of arm features
too where there are such. The learning rate is the best of nine in hindsight, as in the paper.
"""

from __future__ import annotations

import numpy as np

from bakeoff.game import Player, Shape
from bakeoff.libraries.base import Entry, Library, Settings, grid
from bakeoff.problem import FloatArray, Offer

RATES = (0.001, 0.0032, 0.01, 0.032, 0.1, 0.32, 1.0, 3.2, 10.0)
LINEAR, QUADRATIC, DESCRIBED = "ca", "ca cca", " aa caa"
# Pairs of more columns than this make examples of thousands of features.
WIDEST_PAIRS = 100


class Wabbit(Player):
    """A workspace with action-dependent features; arms are drawn from the distribution it returns.

    Args:
        options: of the exploration and the reduction.
        features: interactions of namespaces c (context) and a (arm).
        rate: the learning rate.
        lowest_cost: costs are from here to here + 1; the paper tries −1 and 0.
        seed: of the workspace and the draws.
    """

    def __init__(self, options: str, features: str, rate: float, lowest_cost: float, seed: int) -> None:
        from vowpalwabbit import pyvw

        interactions = " ".join(f"--interactions {one}" for one in features.split())
        self.model = pyvw.Workspace(
            f"--cb_explore_adf --quiet --random_seed {seed} -l {rate} {options} {interactions} --ignore_linear c "
            f"--cb_min_cost {lowest_cost:g} --cb_max_cost {lowest_cost + 1:g}"
        )
        self.generator = np.random.default_rng(seed)
        self.highest_cost = lowest_cost + 1
        self.probability = 1.0

    def choose(self, offer: Offer) -> int:
        shares = np.array(self.model.predict(self.example(offer)))
        shares /= shares.sum()
        arm = int(self.generator.choice(len(shares), p=shares))
        self.probability = float(shares[arm])
        return arm

    def learn(self, offer: Offer, arm: int, reward: float) -> None:
        lines = self.example(offer)
        lines[1 + arm] = f"0:{self.highest_cost - reward:.6g}:{self.probability:.6g} {lines[1 + arm]}"
        self.model.learn(lines)

    def example(self, offer: Offer) -> list[str]:
        shared = "shared |c " + numbers(offer.context)
        names = [f"|a arm{number}" for number in range(len(offer.actions))]
        if offer.described:
            names = [f"{name} {numbers(action)}" for name, action in zip(names, offer.actions, strict=True)]
        return [shared, *names]


def numbers(values: FloatArray) -> str:
    return " ".join(f"x{number}:{value:.6g}" for number, value in enumerate(values) if value)


def entry(name: str, options: str, features: str, costs: tuple[float, ...] = (-1.0,)) -> Entry:
    def build(settings: Settings, shape: Shape, seed: int) -> Player:
        with_pairs = features == QUADRATIC and shape.action_columns > 0
        interactions = features + DESCRIBED if with_pairs else features
        chosen = options.format(**settings)
        return Wabbit(chosen, interactions, float(settings["rate"]), float(settings["lowest_cost"]), seed)

    choices: dict[str, tuple[float | int | str, ...]] = {"rate": RATES, "lowest_cost": costs}
    if "{gamma}" in options:
        choices["gamma"] = (10, 500)
    if features == LINEAR:
        return Entry(name, build, grid(**choices))
    return Entry(f"{name}, pairs", build, grid(**choices), lambda shape: shape.context_columns <= WIDEST_PAIRS)


ENTRIES = tuple(
    one
    for features in (LINEAR, QUADRATIC)
    for one in (
        entry("greedy", "--epsilon 0 --cb_type mtr", features),
        entry("squarecb", "--squarecb --gamma_scale {gamma}", features),
        entry("cover-nu", "--cover 4 --psi 0.1 --nounif --cb_type dr", features),
        entry("regcb-opt", "--regcb --regcbopt --mellowness 0.001", features, (-1.0, 0.0)),
    )
)
LIBRARY = Library("Vowpal Wabbit", "vowpal_wabbit", ("vowpalwabbit==9.11.9", "numpy==2.4.6"), ENTRIES)

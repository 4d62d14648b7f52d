"""Your own kind of column: a colour such as "#1f77b4" becomes its red, green and blue."""

from dataclasses import dataclass

import numpy as np

import kernel_bandits as kb
from kernel_bandits.tables import Column


@dataclass(frozen=True)
class Colour(Column):
    missing: bool = False

    def encode(self, value):
        return [byte / 255 for byte in bytes.fromhex(value[1:])]

    def decode(self, numbers):
        return "#" + "".join(f"{round(255 * number):02x}" for number in numbers)

    def names(self, variable):
        return f"{variable}: red", f"{variable}: green", f"{variable}: blue"


policy = kb.ek_ucb(features=kb.Features({"background": Colour()}, kb.Arms(["dark text", "light text"])), seed=0)
for red, green, blue in np.random.default_rng(0).integers(256, size=(200, 3)):
    decision = policy.select({"background": f"#{red:02x}{green:02x}{blue:02x}"})
    policy.update(decision, reward=(decision.action == "dark text") == (red + green + blue > 382))
print({colour: policy.select({"background": colour}).action for colour in ("#ffffff", "#202040")})

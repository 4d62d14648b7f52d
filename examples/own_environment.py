"""Your own environment in a study: heating. Run it with `kernel-bandits sweep examples/own_environment.py`."""

import numpy as np

import kernel_bandits as kb


class Thermostat(kb.environments.Environment):
    """Choose a heating power (action) for an outside temperature (context)."""

    noise_std = 0.05  # of the reward
    lengthscale = 0.3  # of the kernel that a study gives to policies without one

    def __init__(self, comfort: float = 0.5) -> None:
        self.comfort = comfort

    def next_round(self, contexts: np.random.Generator) -> kb.environments.Round:
        return kb.environments.Round(contexts.uniform(-1, 1, size=1), np.linspace(0, 1, 11).reshape(-1, 1))

    def expected_rewards(self, context: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return 1.0 - np.abs(actions[:, 0] - self.comfort * (1 - context[0]))


study = {
    "environments": [{"name": Thermostat, "label": "comfort {comfort}", "grid": {"comfort": [0.3, 0.5]}}],
    "policies": [{"name": "ek_ucb"}, {"name": "lin_ucb"}, {"name": "uniform"}],
    "seeds": 5,
    "horizon": 200,
}

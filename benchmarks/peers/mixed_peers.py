"""Peers on the mixed plants of ``benchmarks/mixed.py``: BoTorch's UCB over candidates, and scikit-optimize.

Both begin with a design of 3·k + 3 points in k settings. BoTorch has a ``SingleTaskGP`` with its defaults over sensors,
fractions of the box and unit vectors of levels, fitted before each batch, and an upper bound with β = 4 over 2,048
random candidates and neighbours of the best; the decisions of a batch are conditioned on as they were predicted. With a
limit a second model of the pressure leaves out what may pass it by two standard deviations. scikit-optimize's
``Optimizer`` has its defaults (a Gaussian process and ``gp_hedge``), knows of no sensors, and learns a penalty for
what passes the limit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

LIMIT = 7.5
PENALTY = 20.0
CANDIDATES, NEAR = 2048, 512


class Botorch:
    """Asks for experiments by an upper bound over candidates."""

    def __init__(self, plant: Any, seed: int) -> None:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.plant, self.box = plant, plant.box
        self.generator = np.random.default_rng(seed)
        self.points: list[np.ndarray] = []
        self.rewards: list[float] = []
        self.pressures: list[float] = []
        size = 3 * len(self.box.settings) + 3
        self.design = list(torch.quasirandom.SobolEngine(len(self.box.settings), scramble=True, seed=seed).draw(size))

    def _encoded(self, fractions: np.ndarray) -> np.ndarray:
        """Return fractions of numbers, rounded where they are whole, and unit vectors of levels."""
        points = self.box.at(fractions)
        return np.where(self.box.high > self.box.low, (points - self.box.low) / (self.box.high - self.box.low), 0.0)

    def _model(self, values: list[float]) -> Any:
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Normalize
        from gpytorch.mlls import ExactMarginalLogLikelihood

        x = torch.tensor(np.array(self.points))
        model = SingleTaskGP(
            x, torch.tensor(values, dtype=torch.float64)[:, None], input_transform=Normalize(x.shape[1])
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    def ask(self, sensed: np.ndarray) -> tuple[Any, list[dict[str, Any]]]:
        import torch

        found: list[np.ndarray] = []
        models = None
        for row in sensed:
            if self.design:
                fractions = np.asarray(self.design.pop(0), dtype=float)
                if self.plant.is_limited and not self._keeps(fractions):
                    fractions = self.box.fractions(self.box.encode(self.plant.safe)[None, :])[0]
                    jitter = self.generator.normal(0.0, 0.05, len(fractions))
                    fractions = np.clip(np.where(self.box.is_counted, fractions, fractions + jitter), 0.0, 1.0)
            else:
                if models is None:
                    models = [self._model(self.rewards)]
                    models += [self._model(self.pressures)] if self.plant.is_limited else []
                fractions = self._best(models, row)
                point = torch.tensor(np.concatenate([row, self._encoded(fractions[None, :])[0]]))[None, :]
                with torch.no_grad():
                    models = [
                        model.condition_on_observations(point, model.posterior(point).mean, noise=_noise(model))
                        for model in models
                    ]
            found.append(fractions)
        settings = [self.box.named(self.box.at(one[None, :])[0]) for one in found]
        return (sensed, found), settings

    def _keeps(self, fractions: np.ndarray) -> bool:
        """Return whether a point of the design is likely to keep the limit: it may know half of the box."""
        return bool(fractions[: self.plant.count].mean() < 0.5)

    def _best(self, models: list[Any], sensed: np.ndarray) -> np.ndarray:
        import torch

        def bounds(fractions: np.ndarray) -> np.ndarray:
            encoded = self._encoded(fractions)
            rows = torch.tensor(np.hstack([np.tile(sensed, (len(encoded), 1)), encoded]))
            with torch.no_grad():
                posterior = models[0].posterior(rows)
                value = (posterior.mean + 2.0 * posterior.variance.sqrt()).numpy()[:, 0]
                if len(models) > 1:
                    pressure = models[1].posterior(rows)
                    most = (pressure.mean + 2.0 * pressure.variance.sqrt()).numpy()[:, 0]
                    value = np.where(most <= LIMIT, value, -1e6 - most)
            return value

        candidates = self.generator.random((CANDIDATES, len(self.box.settings)))
        best = candidates[np.argsort(-bounds(candidates))[:8]]
        near = np.repeat(best, NEAR // 8, axis=0)
        jitter = self.generator.normal(0.0, 0.05, near.shape)
        near = np.clip(np.where(self.box.is_counted, near, near + jitter), 0.0, 1.0)
        both = np.concatenate([best, near, self.box.neighbours(best)])
        return both[bounds(both).argmax()]

    def tell(self, asked: Any, rewards: list[float], pressures: list[float]) -> None:
        for row, fractions, reward, pressure in zip(*asked, rewards, pressures, strict=True):
            self.points.append(np.concatenate([row, self._encoded(fractions[None, :])[0]]))
            self.rewards.append(reward)
            self.pressures.append(pressure)


def _noise(model: Any) -> Any:
    return model.likelihood.noise.detach().reshape(1, 1)


class Skopt:
    """Asks scikit-optimize."""

    def __init__(self, plant: Any, seed: int) -> None:
        from skopt import Optimizer
        from skopt.space import Categorical, Integer, Real

        self.plant = plant
        kinds = {
            "whole": Integer(1, 9),
            "logarithm": Real(0.1, 10.0, prior="log-uniform"),
            "number": Real(20.0, 80.0),
        }
        space = [kinds[kind] for kind in plant.kinds]
        space += [Categorical([f"level {one}" for one in range(size)]) for size in plant.levels]
        self.optimizer = Optimizer(space, n_initial_points=3 * len(space) + 3, random_state=seed)

    def ask(self, sensed: np.ndarray) -> tuple[Any, list[dict[str, Any]]]:
        names = self.plant.box.names
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self.optimizer.ask(n_points=len(sensed))
        return found, [dict(zip(names, one, strict=True)) for one in found]

    def tell(self, asked: Any, rewards: list[float], pressures: list[float]) -> None:
        broken = [max(value - LIMIT, 0.0) if self.plant.is_limited else 0.0 for value in pressures]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            costs = [PENALTY * over - reward for reward, over in zip(rewards, broken, strict=True)]
            self.optimizer.tell(asked, costs)


def _installed() -> dict[str, Callable[[Any, int], Any]]:
    from importlib.util import find_spec

    found: dict[str, tuple[str, Callable[[Any, int], Any]]] = {
        "botorch": ("botorch", Botorch),
        "skopt": ("skopt", Skopt),
    }
    return {name: play for name, (module, play) in found.items() if find_spec(module)}


PEERS = _installed()

"""Peers on the test functions of ``benchmarks/functions.py``: Optuna and BoTorch, each imported where it plays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from functions import Remembers

import kernel_bandits as kb


class Optuna(Remembers):
    """Optuna's Gaussian-process sampler, or its tree-structured Parzen estimator with ``gp=False``."""

    def __init__(self, problem: Any, seed: int, gp: bool = True) -> None:
        import optuna

        super().__init__(problem)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore")
        samplers = optuna.samplers
        sampler = samplers.GPSampler(seed=seed) if gp else samplers.TPESampler(seed=seed)
        self.study = optuna.create_study(direction="maximize", sampler=sampler)

    def ask(self, context: np.ndarray) -> np.ndarray:
        self.context, self.trial = context, self.study.ask()
        for place, one in enumerate(context):
            self.trial.suggest_float(f"c{place}", float(one), float(one))
        found = []
        for name, one in zip(self.box.names, self.box.settings, strict=True):
            if isinstance(one, kb.Choice):
                number = one.levels.index(self.trial.suggest_categorical(name, list(one.levels)))
                found.append((number + 0.5) / len(one.levels))
            else:
                found.append(self.trial.suggest_float(name, 0.0, 1.0))
        return np.array(found)

    def tell(self, fractions: np.ndarray, value: float) -> None:
        super().tell(fractions, value)
        self.study.tell(self.trial, value)


class Botorch(Remembers):
    """A ``SingleTaskGP`` with its defaults and ``qLogNoisyExpectedImprovement``, or the largest mean in the end."""

    def __init__(self, problem: Any, seed: int) -> None:
        import torch

        super().__init__(problem)
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        settings = len(self.box.settings)
        self.design = torch.quasirandom.SobolEngine(settings, scramble=True, seed=seed).draw(2 * settings + 2)

    def _acquired(self, context: np.ndarray, largest_mean: bool) -> np.ndarray:
        import torch
        from botorch.acquisition import PosteriorMean, qLogNoisyExpectedImprovement
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.optim import optimize_acqf, optimize_acqf_mixed
        from gpytorch.mlls import ExactMarginalLogLikelihood

        warnings.simplefilter("ignore")
        x = torch.tensor(np.array(self.points))
        model = SingleTaskGP(x, torch.tensor(np.array(self.values))[:, None])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        acquisition = PosteriorMean(model) if largest_mean else qLogNoisyExpectedImprovement(model, x)
        bounds = torch.tensor([[0.0] * x.shape[1], [1.0] * x.shape[1]], dtype=torch.float64)
        given: dict[int, float] = dict(enumerate(context.tolist()))
        options: dict[str, Any] = {"q": 1, "num_restarts": 10, "raw_samples": 512}
        places = [place for place, one in enumerate(self.box.settings) if isinstance(one, kb.Choice)]
        if places:
            levels = product(*[np.arange(0.1, 1.0, 0.2).tolist() for _ in places])
            fixed = [given | dict(zip(places, one, strict=True)) for one in levels]
            options |= {"num_restarts": 2, "raw_samples": 64}
            found, _ = optimize_acqf_mixed(acquisition, bounds, fixed_features_list=fixed, **options)
        else:
            found, _ = optimize_acqf(acquisition, bounds, fixed_features=given or None, **options)
        return np.asarray(found[0].numpy()[self.contexts :])

    def ask(self, context: np.ndarray) -> np.ndarray:
        self.context = context
        if len(self.points) < len(self.design):
            return self.design[len(self.points)].double().numpy()
        return self._acquired(context, largest_mean=False)

    def best(self, context: np.ndarray) -> np.ndarray:
        return self._acquired(context, largest_mean=True)


PLAYERS: dict[str, Callable[[Any, int], Any]] = {
    "optuna": Optuna,
    "tpe": lambda problem, seed: Optuna(problem, seed, gp=False),
    "botorch": Botorch,
}

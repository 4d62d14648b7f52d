"""Kernelised contextual bandits that stay fast.

The map, in the order in which data flows through a round:

- :mod:`~kernel_bandits.environments` offer a context and actions (``Environment``),
- :mod:`~kernel_bandits.joint` pairs them into points, :mod:`~kernel_bandits.kernels` compares points (``Kernel``),
- :mod:`~kernel_bandits.posteriors` predict mean and standard deviation (``Posterior``), carried by
- :mod:`~kernel_bandits.dictionaries` of past points (``Dictionary``),
- :mod:`~kernel_bandits.confidence` says how far above the mean the bound lies,
- :mod:`~kernel_bandits.policies` choose (``Policy``): ``ek_ucb``, ``k_ucb``, ``uniform``,
- :mod:`~kernel_bandits.experiments` run them and keep the record (``RunResult``).

Four verbs: ``predict``, ``update``, ``select``, ``run``. Importing this package needs NumPy and SciPy only.
"""

from kernel_bandits import dictionaries, environments, posteriors
from kernel_bandits.arrays import InputError, KernelBanditsError, UnavailableError
from kernel_bandits.confidence import Confidence, ConstantRadius, StandardDeviations
from kernel_bandits.experiments.loop import run
from kernel_bandits.experiments.records import RunResult
from kernel_bandits.kernels import (
    Constant,
    Exponential,
    Gaussian,
    Kernel,
    Linear,
    Matern,
    Polynomial,
    TensorProduct,
    median_lengthscale,
)
from kernel_bandits.policies import Decision, Policy, ek_ucb, k_ucb, uniform
from kernel_bandits.posteriors import Prediction

__version__ = "0.1.0"

__all__ = [
    "Confidence",
    "Constant",
    "ConstantRadius",
    "Decision",
    "Exponential",
    "Gaussian",
    "InputError",
    "Kernel",
    "KernelBanditsError",
    "Linear",
    "Matern",
    "Policy",
    "Polynomial",
    "Prediction",
    "RunResult",
    "StandardDeviations",
    "TensorProduct",
    "UnavailableError",
    "__version__",
    "dictionaries",
    "ek_ucb",
    "environments",
    "k_ucb",
    "median_lengthscale",
    "posteriors",
    "run",
    "uniform",
]

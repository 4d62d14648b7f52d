"""Whole studies at once: thousands of replicas of EK-UCB, K-UCB and uniform play in one compiled program.

An optional leaf that needs JAX and that nothing else imports. :func:`ek_ucb`, :func:`k_ucb` and :func:`uniform`
describe policies, :func:`run_many` plays them, on a GPU where there is one, and answers the records that
``kernel_bandits.run`` would: same seed, same run. :class:`PureEnvironment` is an environment of your own as a function.
"""

from kernel_bandits.errors import missing

try:
    import jax  # noqa: F401
except ImportError as reason:
    raise missing("jax", "jax") from reason

from kernel_bandits.accelerated.problems import PureEnvironment
from kernel_bandits.accelerated.replicas import Replica, ek_ucb, k_ucb, run_many, uniform

__all__ = ["PureEnvironment", "Replica", "ek_ucb", "k_ucb", "run_many", "uniform"]

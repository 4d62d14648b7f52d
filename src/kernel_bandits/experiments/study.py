"""Studies as data: which policies play in which environments, with which seeds, for how long.

A study expands to runs. A run is known by its id, a function of what it does alone: labels, the order of options and
the file it came from do not enter, so that a finished run is found again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kernel_bandits.arrays import as_count
from kernel_bandits.environments.base import Environment
from kernel_bandits.errors import InputError
from kernel_bandits.experiments.parts import Part
from kernel_bandits.policies.base import Policy


@dataclass(frozen=True)
class Run:
    """One policy in one environment with one seed.

    Attributes:
        environment: a resolved part.
        policy: a resolved part; its kernel is among its options.
        seed: of contexts, noise, ties and coins, so that policies run with one seed meet the same contexts and noise.
        horizon: T, the number of rounds.
    """

    environment: Part
    policy: Part
    seed: int
    horizon: int

    @property
    def settings(self) -> dict[str, Any]:
        """What the run does, as plain data: equal settings, equal run."""
        return {
            "environment": self.environment.settings,
            "policy": self.policy.settings,
            "seed": self.seed,
            "horizon": self.horizon,
        }

    @cached_property
    def id(self) -> str:
        """A name for the run: readable in front, a digest of the settings behind."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:12]
        readable = f"{self.environment.name.split(':')[-1]}-{self.policy.name.split(':')[-1]}-{self.seed}"
        return re.sub(r"[^\w.-]", "_", f"{readable}-{digest}")

    @property
    def label(self) -> str:
        """The run in words."""
        return f"{self.environment.label}, {self.policy.label}, seed {self.seed}"

    def build(self) -> tuple[Policy, Environment]:
        """The policy, given ``seed`` and ``horizon`` where it takes them, and the environment."""
        environment = self.environment.build()
        if not isinstance(environment, Environment):
            raise InputError(f"{self.environment.name}: expected an Environment, got {environment!r}.")
        given = {"seed": self.seed, "horizon": self.horizon}
        policy = self.policy.build(
            **{
                key: value
                for key, value in given.items()
                if self.policy.accepts(key) and key not in self.policy.options
            }
        )
        if not isinstance(policy, Policy):
            raise InputError(f"{self.policy.name}: expected a Policy, got {policy!r}.")
        return policy, environment


@dataclass(frozen=True)
class Study:
    """Runs that belong together.

    Attributes:
        name: of the folder its records are kept in.
        title: one line for figures and reports.
        runs: every run once, seed by seed, so that a study stopped early has played the same seeds with every policy.
        quick: caps on ``horizon`` and ``seeds`` for a quick look; empty if the study has none.
    """

    name: str
    title: str
    runs: tuple[Run, ...]
    quick: Mapping[str, int] = field(default_factory=dict)

    def capped(self, horizon: int | None = None, seeds: int | None = None) -> Study:
        """The study with shorter and fewer runs.

        Args:
            horizon: the most rounds of a run.
            seeds: the most seeds of a policy in an environment; its first ones are kept.
        """
        kept: list[Run] = []
        played: dict[tuple[str, str], int] = {}
        for run in self.runs:
            cell = run.environment.label, run.policy.label
            played[cell] = played.get(cell, 0) + 1
            if seeds is None or played[cell] <= as_count("seeds", seeds):
                rounds = run.horizon if horizon is None else min(run.horizon, as_count("horizon", horizon))
                kept.append(replace(run, horizon=rounds))
        return replace(self, runs=tuple(kept))

    def shifted(self, by: int) -> Study:
        """The study with ``by`` added to every seed: other contexts, noise and coins."""
        return replace(self, runs=tuple(replace(run, seed=run.seed + by) for run in self.runs))

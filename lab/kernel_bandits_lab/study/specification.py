"""Studies as data: which policies meet which environments, with which seeds, for how many rounds.

A study expands to runs. The id of a run depends only on what the run does: labels, the order of options and the file
it comes from do not enter, so a finished run is found again.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from kernel_bandits.arrays import as_count
from kernel_bandits.environments import Environment, Table
from kernel_bandits.errors import InputError
from kernel_bandits.policy.policy import Policy
from kernel_bandits_lab.study.components import Component, Reference

# What a run passes to its policy, where the policy takes it.
ADDED_OPTIONS = ("seed", "horizon")


@dataclass(frozen=True)
class Run:
    """One policy in one environment with one seed.

    Attributes:
        environment: a component, or a reference if the run was read from a record.
        policy: the same; its kernel is one of its options.
        seed: of contexts, noise, ties and coins. Runs with the same seed share contexts and noise.
        horizon: T, the number of rounds.
    """

    environment: Component | Reference
    policy: Component | Reference
    seed: int
    horizon: int

    @property
    def settings(self) -> dict[str, Any]:
        """What the run does, as plain data."""
        return {
            "environment": self.environment.settings,
            "policy": self.policy.settings,
            "seed": self.seed,
            "horizon": self.horizon,
        }

    @cached_property
    def id(self) -> str:
        """A readable prefix and a digest of the settings."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:12]
        readable = f"{self.environment.name.split(':')[-1]}-{self.policy.name.split(':')[-1]}-{self.seed}"
        return re.sub(r"[^\w.-]", "_", f"{readable}-{digest}")

    @property
    def cell(self) -> tuple[str, str]:
        """The labels of environment and policy; the runs of a cell differ in their seeds."""
        return self.environment.label, self.policy.label

    @property
    def label(self) -> str:
        """The run in words."""
        return f"{self.environment.label}, {self.policy.label}, seed {self.seed}"

    def resolved(self) -> tuple[Component, Component]:
        """Return environment and policy as components, or raise :class:`InputError` if they are references."""
        if isinstance(self.environment, Reference) or isinstance(self.policy, Reference):
            raise InputError(f"{self.label}: a run read from a record cannot be built; load its study instead.")
        return self.environment, self.policy

    def build(self) -> tuple[Policy, Environment]:
        """Return the policy, with ``seed`` and ``horizon`` if it takes them, and the environment."""
        place, player = self.resolved()
        environment = place.build()
        if not isinstance(environment, Environment):
            raise InputError(f"{place.name}: expected an Environment, got {environment!r}.")
        added = {key: getattr(self, key) for key in ADDED_OPTIONS if key not in player.options and player.accepts(key)}
        if isinstance(environment, Table) and player.accepts("features") and "features" not in player.options:
            # the policy over arrays that a table's own description makes: it knows which columns belong together
            return player.build(features=environment.features, **added).inner, environment
        policy = player.build(**added)
        if not isinstance(policy, Policy):
            raise InputError(f"{player.name}: expected a Policy, got {policy!r}.")
        return policy, environment


@dataclass(frozen=True)
class Study:
    """Runs that belong together.

    Attributes:
        name: of the folder that holds its records.
        title: one line for figures and reports.
        runs: ordered by seed, so that a study stopped early has finished the same seeds for every policy.
        quick: caps on ``horizon`` and ``seeds`` for a quick look; may be empty.
    """

    name: str
    title: str
    runs: tuple[Run, ...]
    quick: Mapping[str, int] = field(default_factory=dict)

    def capped(self, horizon: int | None = None, seeds: int | None = None) -> Self:
        """Return the study with at most ``horizon`` rounds and the first ``seeds`` seeds per policy and environment."""
        kept: list[Run] = []
        seen: dict[tuple[str, str], int] = {}
        for run in self.runs:
            seen[run.cell] = seen.get(run.cell, 0) + 1
            if seeds is None or seen[run.cell] <= as_count("seeds", seeds):
                rounds = run.horizon if horizon is None else min(run.horizon, as_count("horizon", horizon))
                kept.append(replace(run, horizon=rounds))
        return replace(self, runs=tuple(kept))

    def shifted(self, by: int) -> Self:
        """Return the study with ``by`` added to every seed."""
        largest = max((run.seed for run in self.runs), default=0) + by
        if not 0 <= largest < 2**63:
            raise InputError(f"seed: expected seeds below 2⁶³, got {largest}.")
        return replace(self, runs=tuple(replace(run, seed=run.seed + by) for run in self.runs))

"""The decisions that await their reward, and what happened to the others."""

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from kernel_bandits.commit import Steps, drop_step
from kernel_bandits.errors import InputError

# The number of settled decisions remembered with what happened to them; older ones are only known to be settled.
REMEMBERED = 10_000
# What happened to a decision whose reward was given up; it completes the sentence "decision 7 …".
EXPIRED = "has expired (a reward that arrives after all is learned by update)"


class Ledger:
    """Numbers decisions from 0 and keeps track of those that are open; its memory is bounded but for these."""

    def __init__(self) -> None:
        self.issued = 0
        self._open: dict[int, None] = {}
        # the reward that was told, or what else happened
        self._settled: dict[int, float | str] = {}

    @property
    def open(self) -> tuple[int, ...]:
        """The ids of the decisions that await their reward, oldest first."""
        return tuple(self._open)

    def issue_steps(self, count: int = 1) -> Steps:
        """Return the steps that open decisions, whose ids are ``issued`` and the next ones."""
        keys = range(self.issued, self.issued + count)
        return [(self._open.update, dict.fromkeys(keys)), (setattr, self, "issued", self.issued + count)]

    def require_issued(self, verb: str, key: int) -> int:
        """Return the id of a decision, open or settled, as a plain integer."""
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise InputError(
                f"{verb}: expected the id of a decision, got {key!r}; pass decision.id as ask returned it."
            )
        key = int(key)
        if not 0 <= key < self.issued:
            raise InputError(f"{verb}: decision {key} was never asked for; ask has issued {self.issued} ids so far.")
        return key

    def require_open(self, verb: str, key: int) -> int:
        """Return the id as a plain integer, or raise an error that says what happened to the decision."""
        key = self.require_issued(verb, key)
        if key in self._open:
            return key
        raise InputError(
            f"{verb}: decision {key} {self._fate(key)}; a decision is settled once, and nothing was changed."
        )

    def require_unlearned(self, verb: str, key: int | None) -> None:
        """Raise if the reward of a decision was told, or is still to be told; one that has expired may be learned."""
        if key is None or key >= self.issued:
            return
        if key in self._open:
            raise InputError(f"{verb}: decision {key} came from ask; write tell(decision, reward).")
        fate = self._fate(key)
        if fate != EXPIRED:
            raise InputError(
                f"{verb}: decision {key} {fate}; a reward counts once, and nothing was changed. To learn another "
                "reward of the same action, pass its row and action: update(decision.context, decision.action, reward)."
            )

    def _fate(self, key: int) -> str:
        fate = self._settled.get(key, f"was settled more than {REMEMBERED:,} decisions ago")
        return fate if isinstance(fate, str) else f"was told already, with reward {fate!r}"

    def require_all_open(self, verb: str, keys: Sequence[int]) -> list[int]:
        """Return ids as plain integers, or raise an error if one is not open or appears twice."""
        # sets compare in C; True and False are no ids
        if set(map(type, keys)) <= {int} and self._open.keys() >= set(keys):
            plain = list(keys)
        else:
            plain = [self.require_open(verb, key) for key in keys]
        if len(set(plain)) < len(plain):
            twice = next(key for key in plain if plain.count(key) > 1)
            raise InputError(f"{verb}: decision {twice} appears twice among the ids; a reward counts once.")
        return plain

    def settle_steps(self, keys: Sequence[int], fate: str) -> Steps:
        """Return the steps that close open decisions; ``fate`` completes the sentence "decision 7 …"."""
        return self._settle_steps(dict.fromkeys(keys, fate))

    def tell_steps(self, rewards: Mapping[int, float]) -> Steps:
        """Return the steps that close open decisions whose rewards are learned."""
        return self._settle_steps(rewards)

    def _settle_steps(self, fates: Mapping[int, float | str]) -> Steps:
        excess = max(len(self._settled) + len(fates) - REMEMBERED, 0)
        oldest = [*islice(self._settled, excess), *islice(fates, max(excess - len(self._settled), 0))]
        return [drop_step(self._open, fates), (self._settled.update, fates), drop_step(self._settled, oldest)]

"""Reports of a policy over a table, by name."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from typing import Any, Self

from kernel_bandits import persistence
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.features.description import Features
from kernel_bandits.features.offers import Offer
from kernel_bandits.features.relevance import relevance
from kernel_bandits.features.rows import RowLike
from kernel_bandits.features.transformer import Transformer
from kernel_bandits.features.translator import Mask, Translator
from kernel_bandits.features.values import Level
from kernel_bandits.policies.export import export
from kernel_bandits.policies.policy import Policy, deep_copy
from kernel_bandits.policies.posterior_policy import PosteriorPolicy
from kernel_bandits.policies.table_records import (
    NamedDecision,
    NamedDiagnostics,
    NamedExplanation,
    named_explanation,
)
from kernel_bandits.posteriors.base import Prediction
from kernel_bandits.rng import Seed


class TableReports(ABC):
    """A policy over arrays behind names: predictions, explanations, diagnostics, files.

    Attributes:
        inner: the policy over arrays.
        translator: encodes rows and actions for it.
    """

    inner: Policy
    translator: Translator

    @abstractmethod
    def select(self, context: RowLike, actions: Offer | None = None, mask: Mask | None = None) -> NamedDecision:
        """Choose an action for a row."""

    @property
    def features(self) -> Features:
        """What the table is."""
        return self.translator.features

    @property
    def round_index(self) -> int:
        """t, the number of rewards learned."""
        return self.inner.round_index

    @property
    def dictionary_size(self) -> int:
        """How many points or features carry the model."""
        return self.inner.dictionary_size

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the decisions of :meth:`ask` that were neither told nor expired, oldest first."""
        return self.inner.pending

    @property
    def arms(self) -> tuple[Level, ...]:
        """Every arm that was described or learned."""
        return self.translator.arms

    def encode(self, context: RowLike, actions: Offer | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the arrays of a row and the actions, shapes (d_x,) and (A, d_a), with the levels known now."""
        table = self.translator
        return table.context(context)[0], table.actions(table.offered(actions))[0]

    def predict(self, context: RowLike, actions: Offer | None = None) -> Prediction:
        """Return mean and standard deviation of the expected reward of each action, shape (A,); writes nothing."""
        model = self._model("predict")
        with model._reading():
            return model.predict(*self.encode(context, actions))

    def _model(self, verb: str) -> PosteriorPolicy:
        if not isinstance(self.inner, PosteriorPolicy):
            raise InputError(f"{verb}: {type(self.inner).__name__} has no posterior; use ek_ucb or k_ucb.")
        return self.inner

    def explain(self, decision: NamedDecision, count: int = 5) -> NamedExplanation:
        """Explain a decision: the past rounds behind it, and how much of its bound is exploration.

        Args:
            decision: as :meth:`select` or :meth:`ask` returned it.
            count: how many rounds to name at most.
        """
        if not isinstance(decision, NamedDecision):
            raise InputError(f"decision: expected what select or ask returned, got {type(decision).__name__}.")
        model = self._model("explain")
        with model._reading():
            return named_explanation(self.translator, model.explain(decision.encoded, count), decision.arm)

    def diagnostics(self) -> NamedDiagnostics:
        """Describe the policy: sizes, dimensions, memory, and how much each variable matters."""
        with self.inner._reading():
            return NamedDiagnostics(self.inner.diagnostics(), self.relevance(), self.translator.levels)

    def relevance(self) -> dict[str, float]:
        """Return how much the expected reward depends on each variable, as in :class:`NamedDiagnostics`.

        Empty where no points are kept to vary them at, as of ``lin_ucb``.
        """
        if not isinstance(self.inner, PosteriorPolicy) or not self.round_index:
            return {}
        posterior = self.inner.posterior
        try:
            points = self.points
        except UnavailableError:
            return {}
        return relevance(points, self.features.layout, lambda rows: posterior.predict(rows).mean)

    @property
    def points(self) -> FloatArray:
        """The joint points that were observed, shape (t, d); the anchors where the history is not kept."""
        posterior = self._model("points").posterior
        if posterior.approximation == "history-free":
            return posterior.dictionary_points
        return posterior.observed_points

    def reseed(self, seed: Seed) -> None:
        """Restart every random stream of the policy, as :meth:`Policy.reseed` does."""
        persistence.reseed(self, seed)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write mean and standard deviation to a JSON file, as :meth:`PosteriorPolicy.export` does.

        Under ``variables`` the file says how rows become the points it is a function of, with the levels and arms
        known now. An error where a transformer encodes rows.

        Args:
            path: of the file, replaced if it exists.
        """
        model = self._model("export")
        with model._reading() as require_unchanged:
            names, variables = self.features.layout.names, self.translator.variables()
            export(model.posterior, path, names, require_unchanged, variables)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to one file, atomically; :func:`kernel_bandits.load` reads it back with its levels and arms.

        Args:
            path: of the file, replaced if it exists.
        """
        for side, value in (("context is", self.features.context), ("actions are", self.features.actions)):
            if isinstance(value, Transformer):
                raise InputError(
                    f"save: the {side} encoded by {type(value).__name__}, and a saved policy holds data and no "
                    "code, so a transformer cannot be saved; describe the columns by kb.Features, or keep the "
                    "transformer in your own pipeline and save a policy over arrays (policy.inner)."
                )
        with self.inner._reading() as require_unchanged:
            persistence.save(self, path, require_unchanged)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with self.inner._reading():
            return deep_copy(self, memo)

    def __getstate__(self) -> object:
        return object.__getstate__(copy.deepcopy(self))

    def __repr__(self) -> str:
        described = ", ".join(name for _, name in self.features.layout.variables)
        return f"TablePolicy({self.inner!r}, {described})"

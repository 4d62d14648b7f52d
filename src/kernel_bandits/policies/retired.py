"""Errors for options that presets no longer take: they name the new form."""

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ParamSpec, TypeVar

import numpy as np

from kernel_bandits.dictionaries import DictionaryRule, Fixed, Kors, PosteriorVariance
from kernel_bandits.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")
# Options that have moved into the rule, and what they are called there.
MOVED = {
    "oversampling": "oversampling",
    "leverage_regularization": "leverage_regularization",
    "leverage_accuracy": "leverage_accuracy",
    "max_dictionary_size": "max_size",
    "history": "history",
}
# What a dictionary used to be called.
NAMED: dict[str, type[DictionaryRule]] = {"kors": Kors, "posterior_variance": PosteriorVariance}


def names_new_options(preset: Callable[P, T]) -> Callable[P, T]:
    """Name the new form of an option that was renamed, or has moved into the dictionary rule."""

    @functools.wraps(preset)
    def checked(*arguments: P.args, **options: P.kwargs) -> T:
        if "exploration_rate" in options:
            raise InputError("exploration_rate: now called exploration_floor, with the same meaning.")
        moved = {MOVED[name]: value for name, value in options.items() if name in MOVED}
        if moved:
            names = ", ".join(name for name in options if name in MOVED)
            raise InputError(f"{names}: {_advice(options.get('dictionary', Kors()), moved)}")
        return preset(*arguments, **options)

    return checked


def _advice(rule: Any, moved: dict[str, Any]) -> str:
    """Return what to write, with the rule that was asked for."""
    kind = _kind(rule)
    taken = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    unknown = [name for name in moved if name not in taken]
    if unknown:
        listed = ", ".join(sorted(taken)) or "none"
        return f"now belongs to the dictionary rule, and kb.{kind.__name__} has no {unknown[0]!r}; it has {listed}."
    kept = {name: value for name, value in _given(rule).items() if name not in moved}
    written = [*(f"{name}={value!r}" for name, value in {**kept, **moved}.items())]
    if kind is Fixed:
        written = ["points", *(text for text in written if not text.startswith("points="))]
    return f"now an option of the dictionary rule; write dictionary=kb.{kind.__name__}({', '.join(written)})."


def _kind(rule: Any) -> type[DictionaryRule]:
    if isinstance(rule, DictionaryRule):
        return type(rule)
    if isinstance(rule, (list, tuple, np.ndarray)):
        return Fixed
    return NAMED.get(rule, Kors) if isinstance(rule, str) else Kors


def _given(rule: Any) -> dict[str, Any]:
    """Return the options of a rule that differ from their defaults."""
    if not isinstance(rule, DictionaryRule) or isinstance(rule, Fixed):
        return {}
    named = {field.name: (getattr(rule, field.name), field.default) for field in fields(rule)}  # type: ignore[arg-type]
    return {name: value for name, (value, default) in named.items() if value != default}

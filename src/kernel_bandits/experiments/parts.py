"""Environments, policies, kernels and radii as data: a name and options, turned into objects where a run is played.

Names are looked up in what ``kernel_bandits`` exports, found by inspection; anything else is code of the study's own,
a class or function given directly or written as ``"module:attribute"``.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

import kernel_bandits.environments
import kernel_bandits.policies
from kernel_bandits import confidence, kernels
from kernel_bandits.environments.base import Environment
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.learning import KernelLearning

Factory: TypeAlias = Callable[..., Any]
Kind: TypeAlias = Literal["environment", "policy", "kernel or radius"]


def catalogue(kind: Kind) -> dict[str, Factory]:
    """What the library offers of a kind, by name."""
    if kind == "environment":
        return _classes(kernel_bandits.environments, Environment)
    if kind == "policy":
        return {name: value for name, value in vars(kernel_bandits.policies).items() if inspect.isfunction(value)}
    learning = {KernelLearning.__name__: KernelLearning}
    return _classes(kernels, kernels.Kernel) | _classes(confidence, confidence.Confidence) | learning


def _classes(module: Any, base: type) -> dict[str, Factory]:
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, base) and not inspect.isabstract(value) and name[0] != "_"
    }


@dataclass(frozen=True)
class Part:
    """An environment, a policy, a kernel or a radius, as data.

    Attributes:
        name: of a thing in :func:`catalogue`, or ``"module:attribute"``.
        options: its arguments: numbers, text, lists, and parts, which may be written as tables with a ``name``.
        label: what tables and figures call it; says nothing about what it does, and two parts that differ in it alone
            are equal.
        factory: what the name stands for, once :meth:`resolved`.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = field(default="", compare=False)
    factory: Factory | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", {key: _as_option(key, value) for key, value in self.options.items()})
        if not self.label:
            object.__setattr__(self, "label", self.name)

    def resolved(self, kind: Kind) -> Part:
        """This part and those inside its options with the factories their names stand for."""
        options = {key: _resolved_option(value) for key, value in self.options.items()}
        return replace(self, options=options, factory=self.factory or _find(kind, self.name))

    @property
    def settings(self) -> dict[str, Any]:
        """Name and options as plain data, labels left out; equal for equal parts, whatever the order of options."""
        return {"name": self.name, **{key: _as_data(self.options[key]) for key in sorted(self.options)}}

    def accepts(self, option: str) -> bool:
        """Whether the factory of a resolved part takes an option of this name."""
        return option in _parameters(self._resolved_factory)

    def build(self, **given: Any) -> Any:
        """The object: the factory called with the options, those in ``given`` added."""
        factory = self._resolved_factory
        options = {key: _build_option(value) for key, value in self.options.items()}
        _check_options(self.name, factory, {**options, **given})
        try:
            return factory(**options, **given)
        except KernelBanditsError as reason:
            raise InputError(f"{self.name}: {reason}") from reason

    @property
    def _resolved_factory(self) -> Factory:
        if self.factory is None:
            raise InputError(f"{self.name}: a part read from a record cannot be built; load its study instead.")
        return self.factory


def part_of(thing: str | Factory, options: Mapping[str, Any], label: str = "") -> Part:
    """The part with these options of a name, or of a class or function itself."""
    if isinstance(thing, str):
        return Part(thing, options, label)
    if not callable(thing):
        raise InputError(f"name: expected a name, a class or a function, got {thing!r}.")
    return Part(_reference(thing), options, label, thing)


def _reference(factory: Factory) -> str:
    """The name of a factory: that of the catalogue, or ``module:attribute``."""
    for kind in get_args(Kind):
        for known, value in catalogue(kind).items():
            if value is factory:
                return known
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", "<")
    if module is None or "<" in name:
        raise InputError(
            f"name: {factory!r} has no name that another process could find; define it at the top level of a module."
        )
    if module == "__main__":
        # The same study run as a script and by the command line must have the same ids.
        module = Path(getattr(sys.modules["__main__"], "__file__", None) or "__main__").stem
    return f"{module}:{name}"


def _find(kind: Kind, name: str) -> Factory:
    if ":" in name:
        return _import(name)
    known = catalogue(kind)
    if name not in known:
        raise InputError(
            f"unknown {kind} {name!r}{nearest(name, known)} There are {', '.join(sorted(known))}; "
            "one of your own is written 'module:attribute'."
        )
    return known[name]


def _import(reference: str) -> Factory:
    module, _, attribute = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as reason:
        raise InputError(f"{reference}: cannot be imported ({reason}); put the module beside the study.") from reason
    if not callable(found):
        raise InputError(f"{reference}: expected a class or a function, got {found!r}.")
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean …?`` if one of the known names is close, else a full stop."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "."


def _parameters(factory: Factory) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError) as reason:
        raise InputError(f"{factory!r} does not say which options it takes; wrap it in a function.") from reason


def _check_options(name: str, factory: Factory, options: Mapping[str, Any]) -> None:
    parameters = _parameters(factory)
    named = [key for key, value in parameters.items() if value.kind not in (value.VAR_POSITIONAL, value.VAR_KEYWORD)]
    if all(value.kind is not value.VAR_KEYWORD for value in parameters.values()):
        for option in options:
            if option not in named:
                raise InputError(
                    f"{name}: unknown option {option!r}{nearest(option, named)} "
                    f"It takes {', '.join(named) or 'no options'}."
                )
    missing = [key for key in named if parameters[key].default is inspect.Parameter.empty and key not in options]
    if missing:
        raise InputError(f"{name}: needs the option {missing[0]!r}; write it among its options.")


def _as_option(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        if "name" not in value:
            raise InputError(
                f"{key}: expected a table with a name, such as {{name = 'Gaussian', …}}, got {dict(value)!r}."
            )
        return part_of(value["name"], {key: item for key, item in value.items() if key != "name"})
    if isinstance(value, (list, tuple)):
        return tuple(_as_option(key, item) for item in value)
    if isinstance(value, (np.ndarray, np.generic)):
        return _as_option(key, value.tolist())
    if value is None or isinstance(value, (bool, int, float, str, Part)):
        return value
    raise InputError(
        f"{key}: expected a number, a text, a list or a table with a name, got {value!r}; "
        "settings are data, as {'name': 'Gaussian', 'lengthscale': 0.1}."
    )


def _as_data(value: Any) -> Any:
    if isinstance(value, Part):
        return value.settings
    if isinstance(value, tuple):
        return [_as_data(item) for item in value]
    # 10 and 10.0 are one setting
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _resolved_option(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_resolved_option(item) for item in value)
    return value.resolved("kernel or radius") if isinstance(value, Part) else value


def _build_option(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_build_option(item) for item in value]
    return value.build() if isinstance(value, Part) else value

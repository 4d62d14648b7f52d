"""Environments, policies, kernels, radii and rules as data: a name and options.

A :class:`Reference` is known by name alone, as in a record on disk. A :class:`Component` has been resolved: it also
holds the class or function that the name stands for, and builds the object where a run is executed.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits_lab.study.catalogue import (
    Factory,
    Role,
    check_options,
    find_factory,
    name_of,
    parameters,
    rules,
)

# Makes a nested reference or component from a name (or a class or function) and its options.
Make: TypeAlias = Callable[[Any, Mapping[str, Any]], Any]


@dataclass(frozen=True, eq=False)
class _Named:
    """The data that references and components share; make them with :func:`reference` and :func:`component`.

    Attributes:
        name: in the catalogue, or ``"module:attribute"``.
        options: arguments: numbers, texts, tuples, and references or components.
        label: what tables and figures call it. It does not enter comparisons or run ids.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Named) and (self.name, self.options) == (other.name, other.options)

    __hash__ = None  # type: ignore[assignment] # options are a dict

    @property
    def settings(self) -> dict[str, Any]:
        """Name and options as plain data, without labels; the order of the options does not matter."""
        return {"name": self.name, **{key: _as_data(self.options[key]) for key in sorted(self.options)}}


@dataclass(frozen=True, eq=False)
class Reference(_Named):
    """A component known by name and options alone, as read from a record. It cannot be built."""


@dataclass(frozen=True, eq=False)
class Component(_Named):
    """A component with the class or function that builds it.

    Attributes:
        factory: the class or function.
    """

    factory: Factory = field(kw_only=True, repr=False)

    def accepts(self, option: str) -> bool:
        """Return whether the factory has a parameter of this name."""
        return option in parameters(self.factory)

    def check(self, added: Collection[str] = ()) -> None:
        """Raise :class:`InputError` if an option is unknown or missing, here or in a nested component.

        A run adds the options ``added`` itself.
        """
        check_options(self.name, self.factory, self.options, added)
        for value in self.options.values():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Component):
                    item.check()

    def build(self, **added: Any) -> Any:
        """Call the factory with the options and with ``added``."""
        options = {key: _build(value) for key, value in self.options.items()} | added
        check_options(self.name, self.factory, options)
        try:
            return self.factory(**options)
        except KernelBanditsError as reason:
            raise InputError(f"{self.name}: {reason}") from reason


def reference(name: str, options: Mapping[str, Any] | None = None, label: str = "") -> Reference:
    """Return a reference; its options may be tables as in a study's file."""
    return Reference(name, parse_options(options or {}, reference), label)


def component(role: Role, thing: str | Factory, options: Mapping[str, Any], label: str = "") -> Component:
    """Return the component that a name in the catalogue of a role, a class or a function stands for.

    Options are as in a study's file; tables and figures call the component by its label.
    """
    if isinstance(thing, str):
        name, factory = thing, find_factory(role, thing)
    elif callable(thing):
        name, factory = name_of(thing), thing
    else:
        raise InputError(f"name: expected a name, a class or a function, got {thing!r}.")
    return Component(name, parse_options(options), label, factory=factory)


def _nested(thing: str | Factory, options: Mapping[str, Any]) -> Component:
    return component("kernel, radius or rule", thing, options)


def parse_options(options: Mapping[str, Any], make: Make = _nested) -> dict[str, Any]:
    """Return options with every nested table turned into a component, or into what ``make`` returns."""
    return {key: _parse(key, value, make) for key, value in options.items()}


def readable(value: Any) -> Any:
    """Return an option as labels see it: ``{kernel.lengthscale}`` looks into a component."""
    if isinstance(value, _Named):
        return SimpleNamespace(name=value.name, **{key: readable(item) for key, item in value.options.items()})
    return value


def in_words(value: Any) -> str:
    """Return an option as text: ``Gaussian(lengthscale=0.1)``."""
    if isinstance(value, _Named):
        return f"{value.name}({', '.join(f'{key}={in_words(item)}' for key, item in value.options.items())})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _parse(key: str, value: Any, make: Make) -> Any:
    if isinstance(value, Mapping):
        return _parse_table(key, value, make)
    if isinstance(value, (list, tuple)):
        return tuple(_parse(key, item, make) for item in value)
    if isinstance(value, (np.ndarray, np.generic)):
        return _parse(key, value.tolist(), make)
    if key == "dictionary" and isinstance(value, str) and value in rules():
        return make(value, {})
    if value is None or isinstance(value, (bool, int, float, str, _Named)):
        return value
    raise InputError(
        f"{key}: expected a number, a text, a list or a table with a name, got {value!r}; "
        "settings are data, as {'name': 'Gaussian', 'lengthscale': 0.1}."
    )


def _parse_table(key: str, table: Mapping[str, Any], make: Make) -> Any:
    """Make the component of ``{name = "Gaussian", …}``; dictionary rules may also be ``{rule = "Kors", …}``."""
    names = [entry for entry in ("name", "rule") if entry in table]
    if len(names) != 1:
        example = "{rule = 'Kors', …}" if key == "dictionary" else "{name = 'Gaussian', …}"
        raise InputError(f"{key}: expected a table with a name, such as {example}, got {dict(table)!r}.")
    thing = table[names[0]]
    if names == ["rule"] and isinstance(thing, str) and ":" not in thing and thing not in rules():
        raise InputError(f"{key}: unknown rule {thing!r}. There are {', '.join(sorted(rules()))}.")
    return make(thing, {entry: value for entry, value in table.items() if entry != names[0]})


def _as_data(value: Any) -> Any:
    if isinstance(value, _Named):
        return value.settings
    if isinstance(value, tuple):
        return [_as_data(item) for item in value]
    # 10 and 10.0 are the same setting.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _build(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_build(item) for item in value]
    return value.build() if isinstance(value, Component) else value

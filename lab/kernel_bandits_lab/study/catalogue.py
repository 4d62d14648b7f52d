"""What the names in a study stand for: exports of the library, found by inspection, or ``"module:attribute"``."""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import kernel_bandits.environments
from kernel_bandits import confidence, dictionaries, kernels, presets
from kernel_bandits.environments.base import Environment
from kernel_bandits.errors import InputError
from kernel_bandits.learning import KernelLearning

Factory: TypeAlias = Callable[..., Any]
Role: TypeAlias = Literal["environment", "policy", "kernel, radius or rule"]


def catalogue(role: Role) -> dict[str, Factory]:
    """Return what the library offers for a role, by name."""
    if role == "environment":
        return _classes(kernel_bandits.environments, Environment)
    if role == "policy":
        return {name: getattr(presets, name) for name in presets.__all__}
    return {
        **_classes(kernels, kernels.Kernel),
        **_classes(confidence, confidence.Confidence),
        **rules(),
        KernelLearning.__name__: KernelLearning,
    }


def rules() -> dict[str, Factory]:
    """Return the dictionary rules that the library offers, by name."""
    return _classes(dictionaries, dictionaries.DictionaryRule)


def find_factory(role: Role, name: str) -> Factory:
    """Return the class or function that a name stands for."""
    if ":" in name:
        return _import(name)
    known = catalogue(role)
    if name not in known:
        raise InputError(
            f"unknown {role} {name!r}{did_you_mean(name, known)} There are {', '.join(sorted(known))}; "
            "write your own as 'module:attribute'."
        )
    return known[name]


def name_of(factory: Factory) -> str:
    """Return the name of a class or function: that in the catalogue, or ``module:attribute``."""
    for role in get_args(Role):
        for known, value in catalogue(role).items():
            if value is factory:
                return known
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", "<")
    if module is None or "<" in name:
        raise InputError(f"name: another process cannot find {factory!r}; define it at the top level of a module.")
    if module == "__main__":
        # A study has the same run ids whether it runs as a script or through the command line.
        module = Path(getattr(sys.modules["__main__"], "__file__", None) or "__main__").stem
    return f"{module}:{name}"


def parameters(factory: Factory) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function."""
    try:
        return _signature(factory)
    except TypeError:  # one that cannot be hashed, or has no signature
        return _parameters(factory)


def _parameters(factory: Factory) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError) as reason:
        raise InputError(f"{factory!r} does not say which options it takes; wrap it in a function.") from reason


@functools.lru_cache(maxsize=256)
def _signature(factory: Factory) -> Mapping[str, inspect.Parameter]:
    return _parameters(factory)


def check_options(name: str, factory: Factory, options: Iterable[str], added: Collection[str] = ()) -> None:
    """Raise :class:`InputError` if an option is unknown, or a required one is neither given nor added by a run."""
    known = parameters(factory)
    named = [key for key, value in known.items() if value.kind not in (value.VAR_POSITIONAL, value.VAR_KEYWORD)]
    takes_any = any(value.kind is value.VAR_KEYWORD for value in known.values())
    given = set(options)
    for option in sorted(given - set(named)):
        if not takes_any:
            hint = _rule_hint(option, named) if "dictionary" in named else did_you_mean(option, named)
            raise InputError(f"{name}: unknown option {option!r}{hint} It takes {', '.join(named) or 'no options'}.")
    for key in named:
        if known[key].default is inspect.Parameter.empty and key not in given and key not in added:
            raise InputError(f"{name}: needs the option {key!r}; add it to its options.")


def _rule_hint(option: str, known: Collection[str]) -> str:
    """Say where to write an option of a dictionary rule; a rule calls ``max_dictionary_size`` just ``max_size``."""
    moved = option.replace("dictionary_", "")
    # Kors, the default of EK-UCB, is named before the other rules that share its options.
    for rule, factory in sorted(rules().items(), key=lambda item: item[0] != "Kors"):
        if moved in parameters(factory):
            return f"; write dictionary = {{ rule = {rule!r}, {moved} = … }}."
    return did_you_mean(option, known)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean …?`` if a known name is close, else a full stop."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "."


def _classes(module: Any, base: type) -> dict[str, Factory]:
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, base) and not inspect.isabstract(value) and name[0] != "_"
    }


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

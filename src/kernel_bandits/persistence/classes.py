"""The classes whose objects a saved file may hold, and the attributes it may set."""

import dis
import importlib
import itertools
import keyword
import sys
from functools import cache, cached_property
from inspect import getattr_static
from types import MemberDescriptorType
from typing import TypeVar

from kernel_bandits.errors import InputError, needs

C = TypeVar("C", bound=type)

_PACKAGE = __name__.partition(".")[0]
_FOREIGN_KERNELS = "sklearn.gaussian_process.kernels"
_registered: dict[str, type] = {}


def register(cls: C) -> C:
    """Allow objects of your own class (a kernel, a radius, a policy) in saved files; use it as a decorator.

    Their attributes are saved; ``__init__`` is not called on load. Register the class again, under the same module and
    name, before you load a file that holds such an object.
    """
    _registered[f"{cls.__module__}:{cls.__qualname__}"] = cls
    return cls


def name_of(cls: type) -> str | None:
    """Return the name under which objects of a class are saved; None if they may not be."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    return name if is_ours(cls) or cls.__module__ == _FOREIGN_KERNELS or name in _registered else None


def class_of(name: str) -> type:
    """Return the class saved under a name, without importing anything but scikit-learn's kernels."""
    if name in _registered:
        return _registered[name]
    module_name, _, qualified = name.partition(":")
    if module_name == _FOREIGN_KERNELS:
        with needs("scikit-learn", "kernel-bandits[sklearn]"):
            importlib.import_module(_FOREIGN_KERNELS)
    module = sys.modules.get(module_name)
    ours = module_name.startswith(f"{_PACKAGE}.") or module_name == _FOREIGN_KERNELS
    cls = getattr(module, qualified, None) if ours and module is not None else None
    if not isinstance(cls, type) or cls.__module__ != module_name:
        raise InputError(
            f"it holds an object of the class {name!r}, which is not known here; "
            "apply kb.register to the class before loading."
        )
    return cls


def is_ours(cls: type) -> bool:
    """Return whether a class is of this library."""
    return cls.__module__.startswith(f"{_PACKAGE}.")


def require_attribute(cls: type, name: str) -> None:
    """Raise unless objects of a class may hold a value under this name: no method, no property, no special name."""
    plain = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")
    default = getattr_static(cls, name, None) if plain else None
    is_place = isinstance(default, (MemberDescriptorType, cached_property))
    is_value = not callable(default) and not hasattr(type(default), "__get__")
    if not (plain and (is_place or is_value)):
        raise InputError(f"it sets {name!r} of {cls.__qualname__}, which is no attribute of such an object.")


@cache
def assigned_names(cls: type) -> frozenset[str]:
    """Return the attributes that the constructors of a class assign to ``self``, from their byte code."""
    names = set()
    for one in cls.__mro__:
        code = getattr(one.__dict__.get("__init__"), "__code__", None)
        if code is None or not code.co_varnames:
            continue
        instructions = list(dis.get_instructions(code))
        for before, instruction in itertools.pairwise(instructions):
            # newer compilers load two variables at once
            loaded = before.argval[-1] if isinstance(before.argval, tuple) else before.argval
            if instruction.opname == "STORE_ATTR" and loaded == code.co_varnames[0]:
                names.add(str(instruction.argval))
    return frozenset(names)

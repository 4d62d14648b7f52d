"""Options of presets that have another name now."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from kernel_bandits.errors import InputError

_P = ParamSpec("_P")
_T = TypeVar("_T")
# Options that have moved into the rule, and what they are called there.
_RETIRED = {
    "oversampling": "oversampling",
    "leverage_regularization": "leverage_regularization",
    "leverage_accuracy": "leverage_accuracy",
    "max_dictionary_size": "max_size",
    "history": "history",
}


def names_new_options(preset: Callable[_P, _T]) -> Callable[_P, _T]:
    """Name the new form of an option that was renamed, or has moved into the dictionary rule."""

    @functools.wraps(preset)
    def checked(*arguments: _P.args, **options: _P.kwargs) -> _T:
        if "exploration_rate" in options:
            raise InputError("exploration_rate: now called exploration_floor, with the same meaning.")
        moved = {_RETIRED[name]: value for name, value in options.items() if name in _RETIRED}
        if moved:
            written = ", ".join(f"{name}={value!r}" for name, value in moved.items())
            names = ", ".join(name for name in options if name in _RETIRED)
            raise InputError(
                f"{names}: now an option of the dictionary rule; write dictionary=kernel_bandits.Kors({written})."
            )
        return preset(*arguments, **options)

    return checked

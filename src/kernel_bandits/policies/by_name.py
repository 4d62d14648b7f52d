"""Presets that take ``features=``: the same policy, over a table."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from kernel_bandits.errors import InputError
from kernel_bandits.features.description import Features
from kernel_bandits.kernels import KernelLike
from kernel_bandits.policies.policy import Policy
from kernel_bandits.policies.table import TablePolicy

P = ParamSpec("P")
T = TypeVar("T", bound=Policy)
T_co = TypeVar("T_co", bound=Policy, covariant=True)


class Preset(Protocol[P, T_co]):
    """A preset that returns a policy over arrays or, with ``features=``, one over a table."""

    __name__: str

    @overload
    def __call__(self, *arguments: P.args, **options: P.kwargs) -> T_co: ...

    @overload
    def __call__(self, kernel: KernelLike | None = None, *, features: Features, **options: Any) -> TablePolicy: ...


def takes_features(preset: Callable[P, T]) -> Preset[P, T]:
    """Let a preset take ``features=``, and return a policy over a table where it is given."""
    signature = inspect.signature(preset)

    @functools.wraps(preset)
    def by_name(*arguments: Any, features: Features | None = None, **options: Any) -> Any:
        if features is None:
            return preset(*arguments, **options)
        if isinstance(features, str) and "feature_map" in signature.parameters:
            raise InputError(
                f"features: expected kb.Features(…), the columns of a table, got {features!r}; the kind of Fourier "
                f"features is feature_map={features!r}."
            )
        policy = preset(*arguments, **options)
        if isinstance(features, Features):
            for posterior in policy.posteriors:
                posterior.group_columns(features.layout.labels)
        return TablePolicy(policy, features)

    # after the kernel, which may be given without its name, and before the seed
    parameters = list(signature.parameters.values())
    added = inspect.Parameter("features", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Features | None")
    place = next((i for i, one in enumerate(parameters) if one.name == "seed"), len(parameters))
    by_name.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*parameters[:place], added, *parameters[place:]]
    )
    by_name.is_by_name = True  # type: ignore[attr-defined]
    return cast("Preset[P, T]", by_name)


def is_by_name(preset: Callable[..., Any]) -> bool:
    """Return whether :func:`takes_features` has let a preset take ``features=``."""
    return getattr(preset, "is_by_name", False)

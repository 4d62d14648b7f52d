"""Compile each program once per set of shapes, and in the background those that may be needed next."""

from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

Program: TypeAlias = Callable[..., Any]

# Programs compiled at a time. Eight at a time took half as long as one after the other: Python traces them under one
# lock, and XLA has threads of its own.
WORKERS = 3
# Trying Triton's kernels for the products takes half of the compilation and gains nothing. Loops as nodes of a CUDA
# graph spare the host from checking their condition.
_COMPILER_OPTIONS: dict[str, bool | str] = {
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
}
_programs: dict[Hashable, Future[Program]] = {}
_lock = Lock()


class Compiler:
    """Compile a function of a static argument, a state that is donated, and further arguments, for a device.

    ``ahead`` allows compiling in the background; leave it off where the host itself computes.
    """

    def __init__(self, function: Callable[..., Any], static: Hashable, device: jax.Device, ahead: bool) -> None:
        self._function, self._static, self._device, self._ahead = function, static, device, ahead
        self._asked: list[Future[Program]] = []

    def program(self, *arguments: Any) -> Program:
        """Return the program for arguments of these shapes; it takes them without the static one."""
        while True:
            # another compiler may have asked for it and cancelled
            with suppress(CancelledError):
                return self.ask(*arguments).result()

    def prepare(self, *arguments: Any) -> None:
        """Compile the program for arguments of these shapes ahead, if that is switched on."""
        if self._ahead:
            self._asked.append(self.ask(*arguments))

    def forget(self) -> None:
        """Cancel the programs asked for by :meth:`prepare` that are not begun."""
        with _lock:
            for future in self._asked:
                future.cancel()

    def ask(self, *arguments: Any) -> Future[Program]:
        """Start compiling the program for arguments of these shapes, unless that is under way or done."""
        shapes = jax.tree.map(_shape, arguments)
        key = self._function, self._static, self._device, *jax.tree.leaves(shapes)
        with _lock:
            known = _programs.get(key)
            if known is None or known.cancelled() or (known.done() and known.exception() is not None):
                known = _programs[key] = _pool().submit(self._compile, shapes)
            return known

    def _compile(self, shapes: tuple[Any, ...]) -> Program:
        # these settings are per thread
        with jax.enable_x64(True), jax.default_device(self._device):
            return _jitted(self._function).lower(self._static, *shapes).compile()


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)  # type: ignore[no-untyped-call]  # JAX leaves it without types


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="compile")


@cache
def _jitted(function: Callable[..., Any]) -> Any:
    """Return the function to compile, with the options above if this version of JAX knows them."""
    options = _COMPILER_OPTIONS
    try:
        jax.jit(jnp.negative, compiler_options=options).lower(0.0).compile()
    except (RuntimeError, ValueError):
        options = {}
    return jax.jit(function, static_argnums=0, donate_argnums=1, compiler_options=options)

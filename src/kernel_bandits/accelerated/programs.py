"""Programs, compiled once for each set of shapes; while one runs, those that may be wanted next are compiled."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

Program: TypeAlias = Callable[..., Any]

# Programs compiled at a time. Eight took half the time that they take one after the other: Python traces them under
# one lock, and XLA has threads of its own.
WORKERS = 3
# Trying Triton's kernels for the products takes half the compilation and gains nothing. Loops as nodes of a CUDA graph
# spare the host's look at their condition.
_COMPILER_OPTIONS: dict[str, bool | str] = {
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
}
_programs: dict[Hashable, Future[Program]] = {}
_lock = Lock()


class Compiler:
    """Compiles a function of a static argument, a state that is given away, and further arguments.

    Args:
        function: what to compile.
        static: its first argument.
        device: what to compile for.
        ahead: whether to compile in the background what may be wanted; not where the host itself computes.
    """

    def __init__(self, function: Callable[..., Any], static: Hashable, device: jax.Device, ahead: bool) -> None:
        self._function = function
        self._static = static
        self._device = device
        self._ahead = ahead
        self._asked: list[Future[Program]] = []

    def program(self, *arguments: Any) -> Program:
        """The program for arguments of these shapes, which takes them without the static one."""
        while True:
            try:
                return self.ask(*arguments).result()
            except CancelledError:
                # someone else had it prepared, and wants it no more
                continue

    def prepare(self, *arguments: Any) -> None:
        """The program for arguments of these shapes may be wanted."""
        if self._ahead:
            self._asked.append(self.ask(*arguments))

    def forget(self) -> None:
        """Programs that were to be prepared, and are not begun, are not wanted any more."""
        with _lock:
            for future in self._asked:
                future.cancel()

    def ask(self, *arguments: Any) -> Future[Program]:
        """Have the program for arguments of these shapes compiled, unless it is or was."""
        shapes = jax.tree.map(_shape, arguments)
        key = self._function, self._static, self._device, *jax.tree.leaves(shapes)
        with _lock:
            known = _programs.get(key)
            if known is None or known.cancelled() or (known.done() and known.exception() is not None):
                known = _programs[key] = _pool().submit(self._compile, shapes)
            return known

    def _compile(self, shapes: tuple[Any, ...]) -> Program:
        # what is set for a thread does not hold in another
        with jax.enable_x64(True), jax.default_device(self._device):
            return _jitted(self._function).lower(self._static, *shapes).compile()


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)  # type: ignore[no-untyped-call]  # JAX leaves it without types


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="compile")


@cache
def _jitted(function: Callable[..., Any]) -> Any:
    """The function to be compiled; with the options above if this version of JAX knows them."""
    options = _COMPILER_OPTIONS
    try:
        jax.jit(jnp.negative, compiler_options=options).lower(0.0).compile()
    except (RuntimeError, ValueError):
        options = {}
    return jax.jit(function, static_argnums=0, donate_argnums=1, compiler_options=options)

"""Output of the command line: progress with the time left, tables, and failures."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import NoReturn, TypeAlias

import rich.table
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kernel_bandits.errors import KernelBanditsError
from kernel_bandits_lab.execution import Failure
from kernel_bandits_lab.tables import Table

PLAIN_LINES = 10
SHOWN_FAILURES = 5
Show: TypeAlias = Callable[[int, int, str], None]


@contextmanager
def progress(console: Console) -> Iterator[Show]:
    """Yield a function that shows (done, total, label): a bar on a terminal, a few lines in a log."""
    if console.is_terminal:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda done, total, label: bar.update(task, completed=done, total=total, description=escape(label))
    else:
        yield _plain_lines()


def _plain_lines() -> Show:
    """Return a function that prints at most ten lines."""
    started, first, printed = perf_counter(), None, 0

    def show(done: int, total: int, label: str) -> None:
        nonlocal first, printed
        first = done if first is None else first
        # Work done before the start does not count for the speed.
        if done > first and done * PLAIN_LINES // total > printed:
            printed = done * PLAIN_LINES // total
            elapsed = perf_counter() - started
            left = elapsed / (done - first) * (total - done)
            print(f"{done} of {total}, {elapsed:.0f} s, about {left:.0f} s left ({label})", flush=True)

    return show


def terminal_table(table: Table) -> rich.table.Table:
    """Return a table for the terminal; a first cell that repeats is left blank.

    Columns from the third on hold numbers: they are right-aligned and never wrapped.
    """
    shown = rich.table.Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=table.note)
    for number, head in enumerate(table.heads):
        is_number = number > 1
        shown.add_column(head, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    before = ""
    for row in table.rows:
        if before and row[0] != before:
            shown.add_section()
        shown.add_row("" if row[0] == before else escape(row[0]), *map(escape, row[1:]))
        before = row[0]
    return shown


def report_failures(failures: Sequence[Failure], path: Path) -> NoReturn:
    """Write what failed to a file, show the first failures, and raise :class:`KernelBanditsError`."""
    path.write_text("\n".join(f"{failure.run.label}\n{failure.details}" for failure in failures), encoding="utf-8")
    for failure in failures[:SHOWN_FAILURES]:
        typer.echo(f"failed: {failure.run.label}: {failure.message}", err=True)
    raise KernelBanditsError(
        f"{len(failures)} runs failed; the others are kept. See {path} for details, and run the command again to retry."
    )

"""The command line of the comparison: ``python -m kernel_bandits.experiments``."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated

try:
    import typer
    from rich import box
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table
except ImportError as reason:
    raise SystemExit(
        f"{reason.name} is missing; install what the experiments need with: "
        "pip install 'kernel-bandits[experiments,plots]'"
    ) from None

from kernel_bandits import plots
from kernel_bandits.arrays import InputError, KernelBanditsError
from kernel_bandits.experiments.compare import Cell, Groups, Outcome, Summary, cells, group, play, summarize

INTERRUPTED = 130  # 128 + SIGINT, what shells report of a command stopped by Ctrl-C
PLAIN_LINES = 10
PROCESSORS = os.cpu_count() or 1

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def compare(
    seeds: Annotated[int, typer.Option(help="Runs of each policy in each environment, at least 2.")] = 6,
    horizon: Annotated[int, typer.Option(help="Rounds per run.")] = 2000,
    jobs: Annotated[int, typer.Option(help="Worker processes.", show_default="one per processor")] = PROCESSORS,
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("results/compare"),
) -> None:
    """Compare EK-UCB, K-UCB and uniform play: regret, dictionary size and time, in a table and a figure."""
    console = Console()
    try:
        planned = cells(seeds, horizon)
        plots.require_matplotlib()
        _make_folder(out)
        outcomes = _play_with_progress(planned, jobs, console)
    except KernelBanditsError as reason:
        typer.echo(f"error: {reason}", err=True)
        raise typer.Exit(2 if isinstance(reason, InputError) else 1) from None
    groups = group(outcomes)
    if groups:
        console.print(_table(groups, horizon))
    if len(outcomes) < len(planned):
        console.print(f"Stopped after {len(outcomes)} of {len(planned)} runs; no figure was written.")
        raise typer.Exit(INTERRUPTED)
    path = out / "comparison.png"
    plots.comparison_figure(groups).savefig(path, dpi=110)
    # Console.print would break a long path over two lines.
    typer.echo(f"Figure: {path}")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise InputError(f"out: cannot make the folder {folder} ({reason.strerror}); choose another.") from reason


def _play_with_progress(planned: list[Cell], jobs: int, console: Console) -> list[Outcome]:
    """The finished runs; all of them unless Ctrl-C came first."""
    outcomes: list[Outcome] = []
    report = _bar if console.is_terminal else _plain_lines
    try:
        with report(console, len(planned)) as advance:
            for outcome in play(planned, jobs):
                outcomes.append(outcome)
                advance(outcome[0].label)
    except KeyboardInterrupt:
        pass
    return outcomes


@contextmanager
def _bar(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda label: progress.update(task, advance=1, description=label)


@contextmanager
def _plain_lines(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """A line now and then, for logs, where a bar that redraws itself is noise."""
    started = perf_counter()
    done = 0

    def advance(label: str) -> None:
        nonlocal done
        done += 1
        if done * PLAIN_LINES // total > (done - 1) * PLAIN_LINES // total:
            elapsed = perf_counter() - started
            left = elapsed / done * (total - done)
            console.print(
                f"{done} of {total} runs, {elapsed:.0f} s, about {left:.0f} s left ({label})", highlight=False
            )

    yield advance


def _table(groups: Groups, horizon: int) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title=f"After {horizon} rounds",
        caption="regret: mean ± 95 % interval; dictionary: mean final size\nµs/round: mean time of select and update",
    )
    table.add_column("environment", no_wrap=True)
    table.add_column("policy", no_wrap=True)
    for heading in ("runs", "regret", "dictionary", "µs/round"):
        table.add_column(heading, justify="right", no_wrap=True)
    for environment, by_policy in groups.items():
        for number, (policy, runs) in enumerate(by_policy.items()):
            table.add_row("" if number else environment, policy, *_figures(summarize(runs)))
        table.add_section()
    return table


def _figures(summary: Summary) -> tuple[str, str, str, str]:
    interval = "" if math.isnan(summary.regret_interval) else f" ± {summary.regret_interval:.1f}"
    return (
        str(summary.runs),
        f"{summary.regret:.1f}{interval}",
        f"{summary.dictionary_size:.0f}",
        f"{summary.round_microseconds:.0f}",
    )


if __name__ == "__main__":
    app(prog_name="python -m kernel_bandits.experiments")

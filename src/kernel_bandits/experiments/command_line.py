"""The command line ``kernel-bandits``: run, sweep, reproduce, plot, report, list."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
except ImportError as reason:
    raise SystemExit(
        f"{reason.name} is missing; install what the command line needs with: "
        "pip install 'kernel-bandits[experiments,plots]'"
    ) from None

from kernel_bandits import plots
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.experiments.console import drawn, progress
from kernel_bandits.experiments.execute import Executor, Failure, executor
from kernel_bandits.experiments.parts import catalogue
from kernel_bandits.experiments.report import summary_table, write_report
from kernel_bandits.experiments.reproductions import (
    Reproduction,
    choose,
    figure_of,
    find_reproductions,
    result_folders,
    section_of,
)
from kernel_bandits.experiments.storage import read_results
from kernel_bandits.experiments.study import Study
from kernel_bandits.experiments.summary import group
from kernel_bandits.experiments.sweep import Sweep
from kernel_bandits.experiments.tables import load_study, study_of

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130  # 128 + SIGINT, what shells report of a command stopped by Ctrl-C
SHOWN_FAILURES = 5
RESOLUTION = 150  # dots per inch

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Run kernelised contextual bandits: one policy, a study from a file, or the paper's figures. "
    "Records are kept as Parquet files; what is finished is never run twice, so a command that was stopped goes on "
    "where it stopped. Exit codes: 0 done, 1 something failed, 2 bad input, 130 stopped by Ctrl-C.",
)

Jobs = Annotated[int, typer.Option(min=1, help="Worker processes, one BLAS thread each.")]
Seed = Annotated[int, typer.Option(min=0, help="Added to every seed: other contexts, noise and coins.")]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler whose workers play the runs, as tcp://host:8786.")
]
Out = Annotated[Path | None, typer.Option(help="Folder for records and figures.")]
Quick = Annotated[bool, typer.Option("--quick", help="A short version, with the study's own limits.")]
Studies = Annotated[Path | None, typer.Option(help="Folder with a folder per figure; the paper's unless given.")]
PROCESSORS = os.cpu_count() or 1


class Device(Enum):
    """Where runs are played; auto is the GPU if JAX sees one."""

    cpu = "cpu"
    gpu = "gpu"
    auto = "auto"


@app.command()
def run(
    policy: Annotated[str, typer.Argument(help="A policy's name; see `kernel-bandits list`.")] = "ek_ucb",
    environment: Annotated[str, typer.Argument(help="An environment's name.")] = "Chessboard",
    option: Annotated[
        list[str] | None,
        typer.Option(help="An option of the policy, as regularization=0.1 or kernel={name='Matern',lengthscale=0.2}."),
    ] = None,
    horizon: Annotated[int, typer.Option(min=1, help="Rounds per run.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs, each with its own seed.")] = 5,
    seed: Seed = 0,
    jobs: Jobs = PROCESSORS,
    out: Out = None,
) -> None:
    """Play one policy in one environment: a table and a figure."""
    with _plain_errors():
        study = study_of(
            {
                "title": f"{policy} in {environment}",
                "environments": [{"name": environment}],
                "policies": [{"name": policy, "options": dict(map(_option, option or []))}],
                "seeds": seeds,
                "horizon": horizon,
            },
            "run",
        )
        _sweep_and_show(study.shifted(seed), out or Path("results", "run"), executor(jobs))


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="The study, a .toml or .py file.", show_default=False)],
    quick: Quick = False,
    horizon: Annotated[int | None, typer.Option(min=1, help="At most so many rounds per run.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="At most so many seeds per policy.")] = None,
    seed: Seed = 0,
    jobs: Jobs = PROCESSORS,
    scheduler: Scheduler = None,
    device: Annotated[
        Device, typer.Option(help="gpu plays thousands of runs of EK-UCB, K-UCB and uniform at once, with JAX.")
    ] = Device.cpu,
    out: Out = None,
) -> None:
    """Play every run of a study that has no record yet, then show a table and a figure."""
    with _plain_errors():
        study = load_study(file)
        if quick and not study.quick:
            raise InputError(f"quick: {file.name} names no limits; write quick = {{ horizon = …, seeds = … }} in it.")
        if quick:
            study = study.capped(**study.quick)
        study = study.capped(horizon, seeds).shifted(seed)
        play_runs = executor(jobs, scheduler, device.value, typer.echo)
        _sweep_and_show(study, out or Path("results", study.name), play_runs)


@app.command()
def reproduce(
    figures: Annotated[list[str] | None, typer.Argument(help="Which; all of them unless given.")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    jobs: Jobs = PROCESSORS,
    scheduler: Scheduler = None,
    studies: Studies = None,
    out: Out = None,
) -> None:
    """Make the paper's figures, say which of its claims hold, and write a report."""
    console = Console()
    with _plain_errors():
        plots.require_matplotlib()
        known = find_reproductions(studies)
        if not known:
            raise InputError("the paper's studies are not installed; give their folder with --studies.")
        chosen = choose(known, figures or [])
        out = out or Path("results", "quick" if quick else "reproduce")
        play_runs = executor(jobs, scheduler)
        for number, item in enumerate(chosen, start=1):
            console.print(f"[bold]{number}/{len(chosen)} {item.name}[/bold]")
            _gather(item, out / item.name, quick, seed, play_runs, console)
        title = "Efficient Kernel UCB, reproduced" if studies is None else studies.name
        _write_report(title, [out / item.name for item in chosen], out / "report.html", known)


@app.command()
def plot(
    results: Annotated[Path, typer.Argument(help="Folder of results, as `sweep` leaves it.", show_default=False)],
    studies: Studies = None,
    out: Annotated[Path | None, typer.Option(help="The figure's file; .png, .pdf or .svg.")] = None,
) -> None:
    """Draw the figure of a folder of results again."""
    with _plain_errors():
        plots.require_matplotlib()
        known = find_reproductions(studies)
        folders = result_folders(results, known)
        if out is not None and len(folders) > 1:
            raise InputError(f"out: {results} holds {len(folders)} results; name one of them, or leave out --out.")
        for folder in folders:
            _save(figure_of(folder, known), out or folder / "figure.png")


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="Folder of results, or of several.", show_default=False)],
    studies: Studies = None,
    out: Annotated[Path | None, typer.Option(help="The page's file; RESULTS/report.html unless given.")] = None,
) -> None:
    """Write one HTML page with figures, tables and settings of a folder of results."""
    with _plain_errors():
        plots.require_matplotlib()
        known = find_reproductions(studies)
        _write_report(f"Results in {results}", result_folders(results, known), out or results / "report.html", known)


@app.command("list")
def list_names(studies: Studies = None) -> None:
    """Say which policies, environments, kernels, radii and figures there are."""
    with _plain_errors():
        known = find_reproductions(studies)
        for heading, names in (
            ("policies", catalogue("policy")),
            ("environments", catalogue("environment")),
            ("kernels and radii", catalogue("kernel or radius")),
        ):
            typer.echo(f"{heading}:")
            for name, factory in sorted(names.items(), key=lambda item: item[0].lower()):
                summary = (factory.__doc__ or "").partition("\n")[0]
                typer.echo(f"  {name:<22} {summary}")
        typer.echo(f"figures: {', '.join(known) or 'none; give their folder with --studies'}")


@contextmanager
def _plain_errors() -> Iterator[None]:
    """An error is one line; what is finished stays, also after Ctrl-C."""
    try:
        yield
    except KernelBanditsError as reason:
        typer.echo(f"error: {' '.join(str(reason).split())}", err=True)
        raise typer.Exit(BAD_INPUT if isinstance(reason, InputError) else FAILED) from None
    except KeyboardInterrupt:
        typer.echo("Stopped; what is finished is kept. Run again to go on.", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _option(text: str) -> tuple[str, Any]:
    """``key=value`` with a value as in TOML, or any other text as it is."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"option: expected name=value, got {text!r}.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _sweep_and_show(study: Study, folder: Path, play_runs: Executor) -> None:
    plots.require_matplotlib()
    console = Console()
    _play(study, folder, play_runs, console)
    results = read_results(folder)
    console.print(drawn(summary_table(results)))
    _save(plots.comparison_figure(group(results.records)), folder / "figure.png")


def _play(study: Study, folder: Path, play_runs: Executor, console: Console, others: Sequence[Path] = ()) -> None:
    """Play what is missing here and in other folders, with progress; runs that fail are reported at the end."""
    work = Sweep(study, folder)
    work.adopt(others)
    for reason in work.damaged.values():
        typer.echo(f"damaged, run again: {reason}", err=True)
    total = len({run.id for run in study.runs})
    if len(work.missing) < total:
        typer.echo(f"{total - len(work.missing)} of {total} runs were finished before.")
    if work.outdated:
        typer.echo(
            f"{len(work.outdated)} of them with other code than there is now, of the library or of the study's own; "
            f"delete {folder} to run them again.",
            err=True,
        )
    failures = []
    with progress(console) as show:
        show(0, len(work.missing), "")
        for done, outcome in enumerate(work.play(play_runs), start=1):
            show(done, len(work.missing), outcome.run.label)
            if isinstance(outcome, Failure):
                failures.append(outcome)
    if failures:
        _complain(failures, folder / "failures.txt")


def _complain(failures: Sequence[Failure], path: Path) -> None:
    path.write_text("\n".join(f"{failure.run.label}\n{failure.details}" for failure in failures), encoding="utf-8")
    for failure in failures[:SHOWN_FAILURES]:
        typer.echo(f"failed: {failure.run.label}: {failure.message}", err=True)
    raise KernelBanditsError(
        f"{len(failures)} runs failed, the others are kept; {path} has the details. Run again to try them again."
    )


def _gather(item: Reproduction, folder: Path, quick: bool, seed: int, play_runs: Executor, console: Console) -> None:
    """Whatever the figure is made of."""
    folder.mkdir(parents=True, exist_ok=True)
    if item.sweep is not None:
        others = [path for path in sorted(folder.parent.glob("*/")) if path != folder]
        _play(item.study(quick).shifted(seed), folder, play_runs, console, others)
    elif item.measure is not None:
        with progress(console) as show:
            item.measure(folder, quick, show)


def _write_report(title: str, folders: Sequence[Path], path: Path, known: dict[str, Reproduction]) -> None:
    found = [section_of(folder, known) for folder in folders]
    for folder, section in zip(folders, found, strict=True):
        for _, figure in section.figures:
            _save(figure, folder / "figure.png")
        for claim in section.claims:
            typer.echo(f"  {claim.verdict}: {claim.statement}")
    try:
        write_report(path, found[0].title if len(found) == 1 else title, found)
    except OSError as reason:
        raise InputError(f"{path}: the report cannot be written ({reason.strerror}); choose another file.") from reason
    typer.echo(f"Report: {path}")


def _save(figure: Any, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=RESOLUTION)
    except (OSError, ValueError) as reason:
        raise InputError(f"{path}: the figure cannot be written ({reason}); choose another file.") from reason
    # Console.print would break a long path over two lines.
    typer.echo(f"Figure: {path}")


def main() -> None:
    """The entry point of the command ``kernel-bandits``."""
    app(prog_name="kernel-bandits")


if __name__ == "__main__":
    main()

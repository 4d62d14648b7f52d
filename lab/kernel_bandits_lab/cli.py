"""The command line ``kernel-bandits``: running studies, and what becomes of their results."""

import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, cast

try:
    import typer
    from rich.console import Console
except ImportError as reason:
    raise SystemExit(
        f"{reason.name} is missing; install what the command line needs with: pip install 'kernel-bandits-lab'"
    ) from None

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.version import __version__
from kernel_bandits_lab import log_commands, plots
from kernel_bandits_lab.archive import copy_source
from kernel_bandits_lab.console import progress, report_failures, terminal_table
from kernel_bandits_lab.differences import differences
from kernel_bandits_lab.execution import Executor, Failure, executor
from kernel_bandits_lab.execution.serialization import own_files
from kernel_bandits_lab.figures import Figures
from kernel_bandits_lab.listing import listing
from kernel_bandits_lab.paper_figure import Font, Layout
from kernel_bandits_lab.report import Section, tally, write_report
from kernel_bandits_lab.research_commands import (
    Environments,
    Format,
    Policies,
    draw_for_paper,
    register,
    write_figure,
)
from kernel_bandits_lab.store import MANIFEST, Results, read_results
from kernel_bandits_lab.study import Study, load_study, study_of, validate
from kernel_bandits_lab.study.catalogue import did_you_mean
from kernel_bandits_lab.summary import group
from kernel_bandits_lab.sweep import Sweep
from kernel_bandits_lab.tables import difference_table, summary_table

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130  # 128 + SIGINT, which shells report after Ctrl-C
RESOLUTION = 150  # dots per inch

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run kernelised contextual bandits: one policy, a study from a file, or the figures of the paper. "
    "Results are Parquet files. Finished runs are never repeated: run a command again to continue where it stopped. "
    "Exit codes: 0 success, 1 failure, 2 bad input, 130 interrupted.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernel-bandits {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


Jobs = Annotated[int, typer.Option(min=1, help="Worker processes, with one BLAS thread each.")]
Seed = Annotated[int, typer.Option(min=0, help="A number added to every seed.")]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler that executes the runs, such as tcp://host:8786.")
]
Out = Annotated[Path | None, typer.Option(help="Folder for records and figures.")]
Quick = Annotated[bool, typer.Option("--quick", help="Run a short version, within the limits that the study sets.")]
Studies = Annotated[
    Path | None, typer.Option(help="Folder with one folder per figure. Default: the figures of the paper.")
]
CORES = os.cpu_count() or 1


class Device(Enum):
    """Where runs are executed; auto is the GPU if JAX sees one."""

    cpu = "cpu"
    gpu = "gpu"
    auto = "auto"


@app.command()
def run(
    policy: Annotated[str, typer.Argument(help="Name of a policy; see `kernel-bandits list`.")] = "ek_ucb",
    environment: Annotated[str, typer.Argument(help="Name of an environment.")] = "Chessboard",
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="An option of the policy: regularization=0.1 or kernel={name='Matern',lengthscale=0.2}. Repeatable."
        ),
    ] = None,
    horizon: Annotated[int, typer.Option(min=1, help="Rounds per run.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs, each with its own seed.")] = 5,
    seed: Seed = 0,
    jobs: Jobs = CORES,
    out: Out = None,
) -> None:
    """Run one policy in one environment, and show a table and a figure."""
    with _plain_errors():
        tables = {
            "title": f"{policy} in {environment}",
            "environments": [{"name": environment}],
            "policies": [{"name": policy, "options": dict(map(_option, option or []))}],
            "seeds": seeds,
            "horizon": horizon,
        }
        study = study_of(tables, "run").shifted(seed)
        _sweep_and_show(study, out or Path("results", "run"), executor(jobs))


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="The study, a .toml or .py file.", show_default=False)],
    quick: Quick = False,
    horizon: Annotated[int | None, typer.Option(min=1, help="Maximum number of rounds per run.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Maximum number of seeds per policy.")] = None,
    seed: Seed = 0,
    jobs: Jobs = CORES,
    scheduler: Scheduler = None,
    device: Annotated[
        Device, typer.Option(help="gpu runs EK-UCB, K-UCB and uniform with JAX, thousands of runs at once.")
    ] = Device.cpu,
    out: Out = None,
) -> None:
    """Run a study from a file, and show a table and a figure. Finished runs are skipped."""
    with _plain_errors():
        study = load_study(file)
        if quick and not study.quick:
            raise InputError(f"quick: {file.name} sets no limits; add quick = {{ horizon = …, seeds = … }} to it.")
        if quick:
            study = study.capped(**study.quick)
        study = study.capped(horizon, seeds).shifted(seed)
        execute_runs = executor(jobs, scheduler, device.value, typer.echo)
        folder = out or Path("results", study.name)
        _sweep_and_show(study, folder, execute_runs)
        copy_source(file, own_files(study.runs), folder)


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="FIGURE", help="Which figures; all of them by default.")
    ] = None,
    quick: Quick = False,
    seed: Seed = 0,
    jobs: Jobs = CORES,
    scheduler: Scheduler = None,
    studies: Studies = None,
    out: Out = None,
) -> None:
    """Reproduce the figures of the paper, check its claims, and write a report."""
    console = Console()
    with _plain_errors():
        plots.require_matplotlib()
        figures = Figures(studies)
        chosen = _choose(figures, names or [])
        out = out or Path("results", "quick" if quick else "reproduce")
        execute_runs = executor(jobs, scheduler)
        sections = {}
        for number, name in enumerate(chosen, start=1):
            folder = out / name
            folder.mkdir(parents=True, exist_ok=True)
            study = figures.study(name)
            if study is None:
                console.print(
                    f"[bold]{number}/{len(chosen)} {name}[/bold]: {figures.description(name)}", highlight=False
                )
                with progress(console) as show:
                    figures.measure(name, folder, quick, show)
                sections[folder] = figures.section(folder, None)
                continue
            study = (study.capped(**study.quick) if quick else study).shifted(seed)
            longest = max(run.horizon for run in study.runs)
            played = f"{study.title}; {len(study.runs)} runs of up to {longest} rounds"
            console.print(f"[bold]{number}/{len(chosen)} {name}[/bold]: {played}", highlight=False)
            others = [path for path in sorted(out.glob("*/")) if path != folder]
            sections[folder] = figures.section(folder, _sweep(study, folder, execute_runs, console, others))
        title = "Efficient Kernel UCB, reproduced" if studies is None else studies.name
        _write_report(title, sections, out / "report.html", "kernel-bandits reproduce" if quick else "")


@app.command()
def plot(
    results: Annotated[Path, typer.Argument(help="Folder of results, as `sweep` writes it.", show_default=False)],
    studies: Studies = None,
    out: Annotated[Path | None, typer.Option(help="File of the figure: .png, .pdf or .svg.")] = None,
    width: Annotated[
        float | None, typer.Option(help="Width in inches, for a paper: 3.25 for a column, 6.75 for the page.")
    ] = None,
    font: Annotated[str, typer.Option(help="serif (as Times) or sans-serif; with --width.")] = "serif",
    text_size: Annotated[float, typer.Option(help="Text size in points; with --width.")] = 8.0,
    file_format: Annotated[
        Format, typer.Option("--format", help="File format, with Type 42 fonts; with --width.")
    ] = Format.pdf,
    panels: Annotated[str, typer.Option(help="Panels: regret, time, dictionary; with --width.")] = "regret,time",
    log: Annotated[str, typer.Option(help="Logarithmic axes: names of panels, and round; with --width.")] = "",
    environment: Environments = None,
    policy: Policies = None,
) -> None:
    """Draw the figure of a folder of results again; with --width, as a paper prints it."""
    with _plain_errors():
        plots.require_matplotlib()
        if width is not None or environment or policy:
            layout = Layout(width or 6.75, cast(Font, font), text_size, _words(panels), _words(log))
            draw_for_paper(results, out, file_format, layout, environment or [], policy or [])
            return
        sections = _sections(results, Figures(studies))
        if out is not None and len(sections) > 1:
            raise InputError(f"out: {results} holds {len(sections)} results; choose one of them, or omit --out.")
        for folder, section in sections.items():
            for _, figure in section.figures:
                write_figure(figure, out or folder / "figure.png", RESOLUTION)


def _words(text: str) -> tuple[Any, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="Folder of results, or of several such folders.", show_default=False)],
    studies: Studies = None,
    out: Annotated[Path | None, typer.Option(help="File of the page. Default: RESULTS/report.html.")] = None,
) -> None:
    """Write one HTML page with the figures, tables and settings of a folder of results."""
    with _plain_errors():
        plots.require_matplotlib()
        sections = _sections(results, Figures(studies))
        full = "kernel-bandits reproduce" if studies is None else ""
        _write_report(f"Results in {results}", sections, out or results / "report.html", full)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Print an error as one line and exit with its code."""
    try:
        yield
    except KernelBanditsError as reason:
        typer.echo(f"error: {' '.join(str(reason).split())}", err=True)
        raise typer.Exit(BAD_INPUT if isinstance(reason, InputError) else FAILED) from None
    except BrokenPipeError:
        raise  # whoever read the output has seen enough; the framework ends quietly
    except (OSError, MemoryError, RecursionError) as reason:
        # what no check foresaw; the type names it where the message is empty
        typer.echo(f"error: {type(reason).__name__}: {' '.join(str(reason).split())}", err=True)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted. Finished runs are kept; run the command again to continue.", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _option(text: str) -> tuple[str, Any]:
    """Parse ``key=value``; the value is TOML, or else plain text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"option: expected name=value, got {text!r}.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
    except RecursionError:
        raise InputError(f"option: the value of {key.strip()} is nested too deeply.") from None


def _choose(figures: Figures, names: Sequence[str]) -> Sequence[str]:
    chosen: dict[str, None] = {}
    for name in names:
        found = figures.find(name)
        if found is None:
            hint = did_you_mean(name, figures.names)
            raise InputError(f"there is no figure {name!r}{hint} There are {', '.join(figures.names)}.")
        chosen[found] = None
    if chosen:
        return tuple(chosen)
    for name, reason in figures.unavailable.items():
        typer.echo(f"skipped {name}: {reason}", err=True)
    return tuple(name for name in figures.names if name not in figures.unavailable)


def _sweep_and_show(study: Study, folder: Path, execute_runs: Executor) -> None:
    plots.require_matplotlib()
    console = Console()
    results = _sweep(study, folder, execute_runs, console)
    console.print(terminal_table(summary_table(results.records)))
    compared = [one for one in differences(results.records) if one.pairs > 1]
    if compared:
        console.print(terminal_table(difference_table(compared)))
    write_figure(plots.comparison_figure(group(results.records)), folder / "figure.png", RESOLUTION)


def _sweep(
    study: Study, folder: Path, execute_runs: Executor, console: Console, others: Sequence[Path] = ()
) -> Results:
    """Execute the runs that have no record here or in other folders; runs that fail are reported at the end."""
    validate(study)
    work = Sweep(study, folder)
    work.adopt(others)
    for reason in work.damaged.values():
        typer.echo(f"damaged, run again: {reason}", err=True)
    total = len({run.id for run in study.runs})
    if len(work.missing) < total:
        typer.echo(f"{total - len(work.missing)} of {total} runs are finished already.")
    if work.outdated:
        typer.echo(
            f"{len(work.outdated)} of them come from another version of the library or of the study's own code; "
            f"delete {folder} to run them again.",
            err=True,
        )
    failures = []
    with progress(console) as show:
        show(0, len(work.missing), "")
        for done, outcome in enumerate(work.run(execute_runs), start=1):
            show(done, len(work.missing), outcome.run.label)
            if isinstance(outcome, Failure):
                failures.append(outcome)
    if failures:
        report_failures(failures, folder / "failures.txt")
    return work.results


def _sections(results: Path, figures: Figures) -> dict[Path, Section]:
    """Return the sections of a folder of results, or of those in it."""
    sections = {}
    folders = sorted(results.glob("*/"))
    # in the order of the figures
    folders.sort(key=lambda one: figures.names.index(one.name) if one.name in figures.names else len(figures.names))
    for folder in (results, *folders):
        if (folder / MANIFEST).is_file():
            sections[folder] = figures.section(folder, read_results(folder))
        elif folder.is_dir() and folder.name in figures.names:
            sections[folder] = figures.section(folder, None)
    if not sections:
        raise InputError(f"{results}: expected the results of a study, but there is no {MANIFEST} in it.")
    return sections


def _write_report(title: str, sections: dict[Path, Section], path: Path, full_command: str = "") -> None:
    for folder, section in sections.items():
        for _, figure in section.figures:
            write_figure(figure, folder / "figure.png", RESOLUTION)
    found = list(sections.values())
    is_short = any(section.shortened for section in found)
    checks = [check for section in found for check in section.checks]
    for check in () if is_short else checks:
        typer.echo(f"  {check.line}")
    try:
        write_report(path, found[0].title if len(found) == 1 else title, found, full_command)
    except OSError as reason:
        raise InputError(f"{path}: the report cannot be written ({reason.strerror}); choose another file.") from reason
    if is_short and checks:
        typer.echo(f"Claims of the paper, in this shortened run: {tally(checks)}.")
    for section in found:
        if section.headline:
            typer.echo(section.headline)
    typer.echo(f"Report: {path}")


register(app, _plain_errors)
log_commands.register(app, _plain_errors)


@app.command("list")
def list_names(studies: Studies = None) -> None:
    """List policies, environments, kernels, radii, dictionary rules and figures, with what each is."""
    with _plain_errors():
        for line in listing(Figures(studies)):
            typer.echo(line)


def main() -> None:
    """Run the command ``kernel-bandits``."""
    app(prog_name="kernel-bandits")


if __name__ == "__main__":
    main()

"""The command line ``kernel-bandits``: run, sweep, reproduce, plot, report, serve, list."""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
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

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.experiments import plots
from kernel_bandits.experiments.console import progress, terminal_table
from kernel_bandits.experiments.execution import Executor, Failure, executor
from kernel_bandits.experiments.figures import Figures, load_figures
from kernel_bandits.experiments.report import Section, summary_table, write_report
from kernel_bandits.experiments.store import MANIFEST, Results, read_results
from kernel_bandits.experiments.study import Study, catalogue, load_study, study_of, validate
from kernel_bandits.experiments.study.catalogue import Role, did_you_mean
from kernel_bandits.experiments.summary import group
from kernel_bandits.experiments.sweep import Sweep

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130  # 128 + SIGINT, which shells report after Ctrl-C
SHOWN_FAILURES = 5
RESOLUTION = 150  # dots per inch
# Loaded by name: the service is a layer below this one, and needs packages of its own.
SERVICE = "kernel_bandits.service.serve"

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Run kernelised contextual bandits: one policy, a study from a file, or the figures of the paper. "
    "Results are Parquet files. Finished runs are never repeated: run a command again to continue where it stopped. "
    "Exit codes: 0 success, 1 failure, 2 bad input, 130 interrupted.",
)

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
        _sweep_and_show(study, out or Path("results", study.name), execute_runs)


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
        figures = load_figures(studies)
        chosen = _choose(figures, names or [])
        out = out or Path("results", "quick" if quick else "reproduce")
        execute_runs = executor(jobs, scheduler)
        sections = {}
        for number, name in enumerate(chosen, start=1):
            console.print(f"[bold]{number}/{len(chosen)} {name}[/bold]")
            folder = out / name
            folder.mkdir(parents=True, exist_ok=True)
            study = figures.study(name)
            if study is None:
                with progress(console) as show:
                    figures.measure(name, folder, quick, show)
                sections[folder] = figures.section(folder, None)
                continue
            study = (study.capped(**study.quick) if quick else study).shifted(seed)
            others = [path for path in sorted(out.glob("*/")) if path != folder]
            sections[folder] = figures.section(folder, _sweep(study, folder, execute_runs, console, others))
        title = "Efficient Kernel UCB, reproduced" if studies is None else studies.name
        _write_report(title, sections, out / "report.html")


@app.command()
def plot(
    results: Annotated[Path, typer.Argument(help="Folder of results, as `sweep` writes it.", show_default=False)],
    studies: Studies = None,
    out: Annotated[Path | None, typer.Option(help="File of the figure: .png, .pdf or .svg.")] = None,
) -> None:
    """Draw the figure of a folder of results again."""
    with _plain_errors():
        plots.require_matplotlib()
        sections = _sections(results, load_figures(studies))
        if out is not None and len(sections) > 1:
            raise InputError(f"out: {results} holds {len(sections)} results; choose one of them, or omit --out.")
        for folder, section in sections.items():
            for _, figure in section.figures:
                _save(figure, out or folder / "figure.png")


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="Folder of results, or of several such folders.", show_default=False)],
    studies: Studies = None,
    out: Annotated[Path | None, typer.Option(help="File of the page. Default: RESULTS/report.html.")] = None,
) -> None:
    """Write one HTML page with the figures, tables and settings of a folder of results."""
    with _plain_errors():
        plots.require_matplotlib()
        sections = _sections(results, load_figures(studies))
        _write_report(f"Results in {results}", sections, out or results / "report.html")


@app.command()
def serve(
    file: Annotated[Path, typer.Argument(help="The decision loops, a .toml file.", show_default=False)],
    check: Annotated[bool, typer.Option("--check", help="Only check the file; mistakes are named by line.")] = False,
    host: Annotated[str, typer.Option(help="Address to bind to. Anything but loopback needs API keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind to.")] = 8080,
    database: Annotated[
        str | None, typer.Option(help="sqlite:///FILE or postgresql://…  Default: a SQLite file beside FILE.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="File of API keys. Default: KERNEL_BANDITS_KEYS.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that decide; one of them leads.")] = 1,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every request, and not only refused ones.")] = False,
) -> None:
    """Serve decision loops over HTTP, with a page for people."""
    with _plain_errors():
        service = import_module(SERVICE)
        if check:
            typer.echo(service.check(file))
        else:
            service.serve(file, host, port, database, keys, processes, verbose)


@app.command("list")
def list_names(studies: Studies = None) -> None:
    """List policies, environments, kernels, radii, dictionary rules and figures."""
    headings: dict[str, Role] = {
        "policies": "policy",
        "environments": "environment",
        "kernels, radii and rules": "kernel, radius or rule",
    }
    with _plain_errors():
        figures = load_figures(studies)
        for heading, role in headings.items():
            typer.echo(f"{heading}:")
            for name, factory in sorted(catalogue(role).items(), key=lambda item: item[0].lower()):
                typer.echo(f"  {name:<22} {_summary(factory)}")
        typer.echo(f"figures: {', '.join(figures.names)}")


def _summary(factory: Callable[..., Any]) -> str:
    """Return the first line of a docstring without its markup: the last name of a role, and literals as they are."""
    line = (factory.__doc__ or "").partition("\n")[0]
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", line).replace("``", "`")


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Print an error as one line and exit with its code."""
    try:
        yield
    except KernelBanditsError as reason:
        typer.echo(f"error: {' '.join(str(reason).split())}", err=True)
        raise typer.Exit(BAD_INPUT if isinstance(reason, InputError) else FAILED) from None
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


def _choose(figures: Figures, names: Sequence[str]) -> Sequence[str]:
    for name in names:
        if name not in figures.names:
            hint = did_you_mean(name, figures.names)
            raise InputError(f"there is no figure {name!r}{hint} There are {', '.join(figures.names)}.")
    return names or figures.names


def _sweep_and_show(study: Study, folder: Path, execute_runs: Executor) -> None:
    plots.require_matplotlib()
    console = Console()
    results = _sweep(study, folder, execute_runs, console)
    console.print(terminal_table(summary_table(results)))
    _save(plots.comparison_figure(group(results.records)), folder / "figure.png")


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
        _report_failures(failures, folder / "failures.txt")
    return work.results


def _report_failures(failures: Sequence[Failure], path: Path) -> None:
    path.write_text("\n".join(f"{failure.run.label}\n{failure.details}" for failure in failures), encoding="utf-8")
    for failure in failures[:SHOWN_FAILURES]:
        typer.echo(f"failed: {failure.run.label}: {failure.message}", err=True)
    raise KernelBanditsError(
        f"{len(failures)} runs failed; the others are kept. See {path} for details, and run the command again to retry."
    )


def _sections(results: Path, figures: Figures) -> dict[Path, Section]:
    """Return the sections of a folder of results, or of those in it."""
    sections = {}
    for folder in (results, *sorted(results.glob("*/"))):
        if (folder / MANIFEST).is_file():
            sections[folder] = figures.section(folder, read_results(folder))
        elif folder.is_dir() and folder.name in figures.names:
            sections[folder] = figures.section(folder, None)
    if not sections:
        raise InputError(f"{results}: expected the results of a study, but there is no {MANIFEST} in it.")
    return sections


def _write_report(title: str, sections: dict[Path, Section], path: Path) -> None:
    for folder, section in sections.items():
        for _, figure in section.figures:
            _save(figure, folder / "figure.png")
        for check in section.checks:
            typer.echo(f"  {check.line}")
    found = list(sections.values())
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
    """Run the command ``kernel-bandits``."""
    app(prog_name="kernel-bandits")


if __name__ == "__main__":
    main()

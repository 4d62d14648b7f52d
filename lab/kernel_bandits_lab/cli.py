"""The command line ``kernel-bandits``: running studies, and what becomes of their results."""

import os
import re
import shutil
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from importlib.metadata import entry_points
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NoReturn, TypeAlias, cast

try:
    import rich.table
    import typer
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
except ImportError as reason:
    raise SystemExit(
        f"{reason.name} is missing; install what the command line needs with: pip install 'kernel-bandits-lab'"
    ) from None

from kernel_bandits import confidence, dictionaries, kernels
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.version import __version__
from kernel_bandits_lab import archive, log_commands, plots
from kernel_bandits_lab.citations import BEHIND, bibliography
from kernel_bandits_lab.execution import Executor, Failure, executor, own_files
from kernel_bandits_lab.figures import Figures
from kernel_bandits_lab.paper_figure import Font, Layout, paper_figure, write
from kernel_bandits_lab.report import Section, tally, write_report
from kernel_bandits_lab.results import MANIFEST, Record, Results, read_results
from kernel_bandits_lab.study import Study, catalogue, did_you_mean, load_study, study_of, validate
from kernel_bandits_lab.sweep import Sweep
from kernel_bandits_lab.tables import (
    Table,
    as_csv,
    as_latex,
    as_markdown,
    condensed,
    difference_table,
    differences,
    group,
    paper_table,
    summary_table,
)

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130  # 128 + SIGINT, which shells report after Ctrl-C
PRINT = 300  # dots per inch

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run kernelised contextual bandits: one policy, a study from a file, or the paper. Finished runs are never "
    "repeated: run a command again to continue.",
    epilog="Exit codes: 0 success, 1 failure, 2 bad input, 130 interrupted.",
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
Environments = Annotated[list[str] | None, typer.Option("--environment", help="Only this one. Repeatable.")]
Policies = Annotated[list[str] | None, typer.Option("--policy", help="Only this one, in this order. Repeatable.")]
Folder = Annotated[Path, typer.Argument(help="Folder of results, as `sweep` writes it.", show_default=False)]
CORES = os.cpu_count() or 1


class Device(Enum):
    """Where runs are executed; auto is the GPU if JAX sees one."""

    cpu = "cpu"
    gpu = "gpu"
    auto = "auto"


class Format(Enum):
    """File formats of figures."""

    pdf = "pdf"
    png = "png"
    svg = "svg"


@app.command(rich_help_panel="Play")
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
    """Run one policy in one environment; show a table and a figure."""
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


@app.command(rich_help_panel="Play")
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
    """Run a study from a file; show a table and a figure."""
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
        archive.copy_source(file, own_files(study.runs), folder)


@app.command(rich_help_panel="Play")
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
    """Reproduce the paper: its figures, its claims and a report."""
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


@app.command(rich_help_panel="Results")
def plot(
    results: Folder,
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
    """Draw the figure of a folder of results, also for print (--width)."""
    with _plain_errors():
        plots.require_matplotlib()
        if width is not None or environment or policy:
            layout = Layout(width or 6.75, cast(Font, font), text_size, _words(panels), _words(log))
            records = chosen(read_results(results).records, environment or [], policy or [])
            path = out or results / f"figure.{file_format.value}"
            write(paper_figure(group(records), layout), path, PRINT)
            return
        sections = _sections(results, Figures(studies))
        if out is not None and len(sections) > 1:
            raise InputError(f"out: {results} holds {len(sections)} results; choose one of them, or omit --out.")
        for folder, section in sections.items():
            for _, figure in section.figures:
                write(figure, out or folder / "figure.png")


@app.command(rich_help_panel="Results")
def report(
    results: Annotated[Path, typer.Argument(help="Folder of results, or of several such folders.", show_default=False)],
    studies: Studies = None,
    out: Annotated[Path | None, typer.Option(help="File of the page. Default: RESULTS/report.html.")] = None,
) -> None:
    """Write one HTML page with the figures, tables and settings."""
    with _plain_errors():
        plots.require_matplotlib()
        sections = _sections(results, Figures(studies))
        full = "kernel-bandits reproduce" if studies is None else ""
        _write_report(f"Results in {results}", sections, out or results / "report.html", full)


@app.command(rich_help_panel="Results")
def table(
    results: Folder,
    latex: Annotated[bool, typer.Option("--latex", help="LaTeX, for the package booktabs.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="CSV, with numbers in full.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown, the default.")] = False,
    reference: Annotated[
        str | None, typer.Option(help="Policy to compare with, paired by seed. Default: the first.")
    ] = None,
    environment: Environments = None,
    policy: Policies = None,
    out: Annotated[Path | None, typer.Option(help="File of the table. Default: the terminal.")] = None,
) -> None:
    """Print regrets, costs and paired differences, with intervals."""
    with _plain_errors():
        if latex + csv + markdown > 1:
            raise InputError("table: choose one of --latex, --csv and --markdown.")
        records = chosen(read_results(results).records, environment or [], policy or [])
        if not records:
            raise InputError(f"{results}: there is no finished run in it yet.")
        write_as = as_latex if latex else as_markdown
        text = as_csv(records, reference) if csv else write_as(paper_table(records, reference))
        if out is None:
            typer.echo(text, nl=False)
            return
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as reason:
            raise InputError(
                f"{out}: the table cannot be written ({reason.strerror}); choose another file."
            ) from reason
        typer.echo(f"Table: {out}")


@app.command(rich_help_panel="Results")
def cite(
    study: Annotated[
        Path | None, typer.Argument(help="A study or a folder of results. Default: everything.", show_default=False)
    ] = None,
) -> None:
    """Print BibTeX of the library and of the papers behind a study."""
    with _plain_errors():
        if study is None:
            names = list(BEHIND)
        else:
            runs = [one.run for one in read_results(study).records] if study.is_dir() else load_study(study).runs
            names = [name for run in runs for name in archive.names_of(run.settings)]
        typer.echo(bibliography(names))


@app.command(rich_help_panel="Results")
def export(
    results: Folder,
    out: Annotated[Path | None, typer.Argument(help="The archive. Default: RESULTS.zip.")] = None,
) -> None:
    """Write a finished study, with code and versions, to one archive."""
    with _plain_errors():
        path = out or results.with_name(f"{results.resolve().name}.zip")
        try:
            count = archive.write_archive(results, path)
        except OSError as reason:
            raise InputError(f"{path}: cannot be written ({reason.strerror}); choose another file.") from reason
        typer.echo(f"Archive: {path} ({count} runs). Anyone can check it: kernel-bandits check {path.name}")


@app.command(rich_help_panel="Results")
def check(
    path: Annotated[Path, typer.Argument(help="An archive that `export` wrote.", show_default=False)],
    runs: Annotated[int | None, typer.Option(min=0, help="Replay at most this many runs. Default: all.")] = None,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="Run the study's own code, which the archive holds.")
    ] = False,
) -> None:
    """Play the runs of an archive again and compare them bit for bit."""
    with _plain_errors(), tempfile.TemporaryDirectory() as folder:
        files = archive.unpack(path, Path(folder))
        typer.echo(f"{files} files are as they were written.")
        for difference in archive.changed_versions(Path(folder)):
            typer.echo(f"  {difference}")
        total = len(read_results(folder).records[:runs])
        replays = []
        with progress(Console()) as show:
            show(0, total, "")
            for done, one in enumerate(archive.replay(Path(folder), runs, trust_code), start=1):
                replays.append(one)
                show(done, total, one.run.label)
        other = [one for one in replays if not one.same]
        for one in other[:5]:
            where = "in another column" if one.first_difference is None else f"from round {one.first_difference} on"
            typer.echo(f"differs {where}: {one.run.label}", err=True)
        if other:
            raise KernelBanditsError(
                f"{len(other)} of {len(replays)} runs differ; the versions above may be the reason."
            )
        typer.echo(f"{len(replays)} of {len(replays)} runs were played again, bit for bit the same.")


@app.command("list", rich_help_panel="Play")
def list_names(studies: Studies = None) -> None:
    """List policies, environments, kernels, radii, rules and figures."""
    with _plain_errors():
        for line in listing(Figures(studies)):
            typer.echo(line)


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
        console.print(terminal_table(condensed(difference_table(compared))))
    write(plots.comparison_figure(group(results.records)), folder / "figure.png")


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
            write(figure, folder / "figure.png")
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


def _words(text: str) -> tuple[Any, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def chosen(records: Sequence[Record], environments: Sequence[str], policies: Sequence[str]) -> list[Record]:
    """Return the records of these environments and policies, in the order in which they are named; all by default."""
    found = list(records)
    for index, labels in enumerate((environments, policies)):
        known = list(dict.fromkeys(record.run.cell[index] for record in found))
        for label in labels:
            if label not in known:
                kind = ("environment", "policy")[index]
                raise InputError(f"{kind}: no {label!r}{did_you_mean(label, known)} There are {'; '.join(known)}.")
        if labels:
            found = [record for label in labels for record in found if record.run.cell[index] == label]
    return found


NAME_WIDTH = 22  # letters
KINDS = {
    "kernels": kernels.Kernel,
    "radii, as confidence =": confidence.Confidence,
    "dictionary rules, as dictionary =": dictionaries.DictionaryRule,
}


def listing(figures: Figures) -> Iterator[str]:
    """Yield the lines of the list."""
    parts = catalogue("kernel, radius or rule")
    for heading, found in (
        ("policies", catalogue("policy")),
        ("environments", catalogue("environment")),
        *_by_kind(parts).items(),
    ):
        yield f"{heading}:"
        for name, factory in sorted(found.items(), key=lambda item: item[0].lower()):
            yield from _entry(name, _summary(factory))
    yield "figures, for `kernel-bandits reproduce`:"
    for name in figures.names:
        yield from _entry(name, figures.description(name))


def _by_kind(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return kernels, radii, rules and the rest apart."""
    groups = {
        heading: {name: one for name, one in found.items() if issubclass(one, base)} for heading, base in KINDS.items()
    }
    rest = {name: one for name, one in found.items() if not any(name in group for group in groups.values())}
    return {**groups, "other parts": rest} if rest else groups


def _summary(factory: Callable[..., Any]) -> str:
    """Return the first line of a docstring without its markup: the last name of a role, and literals as they are."""
    line = (factory.__doc__ or "").partition("\n")[0]
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", line).replace("``", "")


def _entry(name: str, text: str) -> Iterator[str]:
    """Yield a name and what it is, wrapped beside it; a name is never broken."""
    width = max(shutil.get_terminal_size().columns - NAME_WIDTH - 3, 30)
    first, *rest = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    yield f"  {name:<{NAME_WIDTH}} {first}".rstrip()
    yield from (" " * (NAME_WIDTH + 3) + line for line in rest)


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


log_commands.register(app, _plain_errors)


@app.command(
    rich_help_panel="Decisions",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def serve(context: typer.Context) -> None:
    """Serve decisions over HTTP; the same as kernel-bandits-server."""
    with _plain_errors():
        found = entry_points(group="console_scripts", name="kernel-bandits-server")
        if not found:
            raise InputError("the service is not installed; pip install kernel-bandits-server")
        (server,) = found
        server.load()(context.args)


def main() -> None:
    """Run the command ``kernel-bandits``."""
    app(prog_name="kernel-bandits")


if __name__ == "__main__":
    main()

"""Commands for those who write about their results: plot, table, cite, export and check."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits_lab import archive, plots
from kernel_bandits_lab.citations import BEHIND, bibliography
from kernel_bandits_lab.console import progress
from kernel_bandits_lab.paper_figure import Layout, paper_figure, save
from kernel_bandits_lab.results import Record
from kernel_bandits_lab.store import read_results
from kernel_bandits_lab.study import load_study
from kernel_bandits_lab.study.catalogue import did_you_mean
from kernel_bandits_lab.summary import group
from kernel_bandits_lab.tables import as_csv, as_latex, as_markdown, paper_table

Results = Annotated[Path, typer.Argument(help="Folder of results, as `sweep` writes it.", show_default=False)]
Environments = Annotated[list[str] | None, typer.Option("--environment", help="Only this one. Repeatable.")]
Policies = Annotated[list[str] | None, typer.Option("--policy", help="Only this one, in this order. Repeatable.")]
RESOLUTION = 300  # dots per inch


class Format(Enum):
    """File formats of figures."""

    pdf = "pdf"
    png = "png"
    svg = "svg"


def draw_for_paper(
    results: Path,
    out: Path | None,
    file_format: Format,
    layout: Layout,
    environments: Sequence[str],
    policies: Sequence[str],
) -> None:
    """Draw chosen results in the layout of a paper, and say where."""
    plots.require_matplotlib()
    records = chosen(read_results(results).records, environments, policies)
    path = out or results / f"figure.{file_format.value}"
    write_figure(paper_figure(group(records), layout), path, RESOLUTION)


def write_figure(figure: Any, path: Path, resolution: int) -> None:
    """Write a figure to a file, and say where."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(figure, path, resolution)
    except (OSError, ValueError) as reason:
        raise InputError(f"{path}: the figure cannot be written ({reason}); choose another file.") from reason
    # Console.print would break a long path over two lines.
    typer.echo(f"Figure: {path}")


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


def register(app: typer.Typer, errors: Callable[[], AbstractContextManager[None]]) -> None:
    """Add the commands to the command line; ``errors`` prints an error as one line."""

    @app.command(rich_help_panel="Results")
    def table(
        results: Results,
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
        with errors():
            _table(results, (latex, csv, markdown), reference, environment or [], policy or [], out)

    @app.command(rich_help_panel="Results")
    def cite(
        study: Annotated[
            Path | None, typer.Argument(help="A study or a folder of results. Default: everything.", show_default=False)
        ] = None,
    ) -> None:
        """Print BibTeX of the library and of the papers behind a study."""
        with errors():
            typer.echo(bibliography(BEHIND if study is None else _names_in(study)))

    @app.command(rich_help_panel="Results")
    def export(
        results: Results,
        out: Annotated[Path | None, typer.Argument(help="The archive. Default: RESULTS.zip.")] = None,
    ) -> None:
        """Write a finished study, with code and versions, to one archive."""
        with errors():
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
        with errors(), tempfile.TemporaryDirectory() as folder:
            _check(path, Path(folder), runs, trust_code)


def _table(
    results: Path,
    formats: tuple[bool, bool, bool],
    reference: str | None,
    environments: Sequence[str],
    policies: Sequence[str],
    out: Path | None,
) -> None:
    if sum(formats) > 1:
        raise InputError("table: choose one of --latex, --csv and --markdown.")
    latex, csv, _ = formats
    records = chosen(read_results(results).records, environments, policies)
    if not records:
        raise InputError(f"{results}: there is no finished run in it yet.")
    write = as_latex if latex else as_markdown
    text = as_csv(records, reference) if csv else write(paper_table(records, reference))
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as reason:
        raise InputError(f"{out}: the table cannot be written ({reason.strerror}); choose another file.") from reason
    typer.echo(f"Table: {out}")


def _names_in(study: Path) -> list[str]:
    runs = [one.run for one in read_results(study).records] if study.is_dir() else list(load_study(study).runs)
    return [name for run in runs for name in archive.names_of(run.settings)]


def _check(path: Path, folder: Path, count: int | None, trust_code: bool) -> None:
    files = archive.unpack(path, folder)
    typer.echo(f"{files} files are as they were written.")
    for difference in archive.changed_versions(folder):
        typer.echo(f"  {difference}")
    total = len(read_results(folder).records[:count])
    replays = []
    with progress(Console()) as show:
        show(0, total, "")
        for done, one in enumerate(archive.replay(folder, count, trust_code), start=1):
            replays.append(one)
            show(done, total, one.run.label)
    other = [one for one in replays if not one.same]
    for one in other[:5]:
        where = "in another column" if one.first_difference is None else f"from round {one.first_difference} on"
        typer.echo(f"differs {where}: {one.run.label}", err=True)
    if other:
        raise KernelBanditsError(f"{len(other)} of {len(replays)} runs differ; the versions above may be the reason.")
    typer.echo(f"{len(replays)} of {len(replays)} runs were played again, bit for bit the same.")

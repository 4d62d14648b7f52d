"""The command that serves decision loops; the service itself is an optional package above this one."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

# Loaded by name: the service needs packages of its own, and stands above the experiments.
SERVICE = "kernel_bandits_server.serve"


def register(app: typer.Typer, errors: Callable[[], AbstractContextManager[None]]) -> None:
    """Add the command to the command line; ``errors`` prints an error as one line."""

    @app.command()
    def serve(
        file: Annotated[Path, typer.Argument(help="The decision loops, a .toml file.", show_default=False)],
        check: Annotated[bool, typer.Option("--check", help="Only check the file.")] = False,
        host: Annotated[str, typer.Option(help="Address to bind to. Other than loopback: needs keys.")] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind to.")] = 8080,
        database: Annotated[
            str | None, typer.Option(help="sqlite:///FILE or postgresql://…  Default: a SQLite file beside FILE.")
        ] = None,
        keys: Annotated[Path | None, typer.Option(help="File of API keys. Default: KERNEL_BANDITS_KEYS.")] = None,
        processes: Annotated[int, typer.Option(min=1, help="Processes that decide; one of them leads.")] = 1,
        verbose: Annotated[bool, typer.Option("--verbose", help="Log every request.")] = False,
    ) -> None:
        """Serve decision loops over HTTP, with a page for people."""
        with errors():
            service = import_module(SERVICE)
            if check:
                typer.echo(service.check(file))
            else:
                service.serve(file, host, port, database, keys, processes, verbose)

"""The commands about logs: what a candidate would have earned."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from kernel_bandits.logs import read
from kernel_bandits.offpolicy import RewardModel
from kernel_bandits_lab.evaluation import evaluate_candidates, valuation_figure
from kernel_bandits_lab.research_commands import RESOLUTION, write_figure


def register(app: typer.Typer, errors: Callable[[], AbstractContextManager[None]]) -> None:
    """Add the commands to the command line; ``errors`` prints an error as one line."""

    @app.command()
    def evaluate(
        log: Annotated[
            Path, typer.Argument(help="The log: .parquet, .csv, .jsonl, .vw or .dsjson.", show_default=False)
        ],
        policy: Annotated[
            list[str], typer.Option(help="A candidate: a policy by name, a saved policy, or an action. Repeatable.")
        ],
        context: Annotated[list[str] | None, typer.Option(help="A column of the context. Repeatable.")] = None,
        action: Annotated[str | None, typer.Option(help="The column of the action.")] = None,
        reward: Annotated[str | None, typer.Option(help="The column of the reward.")] = None,
        propensity: Annotated[str | None, typer.Option(help="The column of the propensity.")] = None,
        learned_share: Annotated[float, typer.Option(help="The share of the log that policies learn first.")] = 0.5,
        model: Annotated[bool, typer.Option(help="Whether to use estimators with a model of the rewards.")] = True,
        seed: Annotated[int, typer.Option(help="Seed of the candidates and of the model.")] = 0,
        out: Annotated[Path | None, typer.Option(help="File of the figure: .png, .pdf or .svg.")] = None,
    ) -> None:
        """Estimate from a log what candidates would have earned, with intervals and warnings, and draw them."""
        with errors():
            found = read(log, context=context, action=action, reward=reward, propensity=propensity)
            reward_model = RewardModel(seed=seed) if model else None
            values = evaluate_candidates(found, policy, learned_share=learned_share, model=reward_model, seed=seed)
            for name, valuation in values.items():
                typer.echo(f"{name}\n{valuation}\n{valuation.verdict}\n")
            if out is not None:
                write_figure(valuation_figure(values), out, RESOLUTION)

"""The commands about logs: what a candidate would have earned, and whether to switch to it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from kernel_bandits import offpolicy
from kernel_bandits.errors import InputError
from kernel_bandits.logs import Log, read
from kernel_bandits.offpolicy import RewardModel
from kernel_bandits.tables import Features
from kernel_bandits_lab.evaluation import evaluate_candidates, named_action, valuation_figure
from kernel_bandits_lab.paper_figure import write

LogFile = Annotated[Path, typer.Argument(help="The log: .parquet, .csv, .jsonl, .vw or .dsjson.", show_default=False)]
Context = Annotated[list[str] | None, typer.Option(help="A column of the context. Repeatable.")]
Action = Annotated[str | None, typer.Option(help="The column of the action.")]
Reward = Annotated[str | None, typer.Option(help="The column of the reward.")]
Propensity = Annotated[str | None, typer.Option(help="The column of the propensity.")]
Table = Annotated[Path | None, typer.Option(help="What the columns of a table are: a file of Features.to_toml.")]
WithModel = Annotated[bool, typer.Option(help="Whether to use estimators with a model of the rewards.")]
Seed = Annotated[int, typer.Option(help="Seed of the candidates and of the model.")]
Out = Annotated[Path | None, typer.Option(help="File of the figure: .png, .pdf or .svg.")]


def register(app: typer.Typer, errors: Callable[[], AbstractContextManager[None]]) -> None:
    """Add the commands to the command line; ``errors`` prints an error as one line."""

    @app.command(rich_help_panel="Decisions")
    def evaluate(
        log: LogFile,
        policy: Annotated[
            list[str], typer.Option(help="A candidate: a policy by name, a saved policy, or an action. Repeatable.")
        ],
        context: Context = None,
        action: Action = None,
        reward: Reward = None,
        propensity: Propensity = None,
        features: Table = None,
        learned_share: Annotated[float, typer.Option(help="The share of the log that policies learn first.")] = 0.5,
        learning: Annotated[bool, typer.Option(help="Whether a policy that learned wrote the log.")] = False,
        model: WithModel = True,
        seed: Seed = 0,
        out: Out = None,
    ) -> None:
        """Estimate from a log what candidates would have earned."""
        with errors():
            described = _described(features)
            values = evaluate_candidates(
                read(log, context=context, action=action, reward=reward, propensity=propensity, features=described),
                policy,
                learned_share=learned_share,
                model=RewardModel(seed=seed) if model else None,
                written_by="learning" if learning else "fixed",
                seed=seed,
            )
            for name, valuation in values.items():
                typer.echo(f"{name}\n{valuation}\n{valuation.verdict}\n")
            if out is not None:
                write(valuation_figure(values), out)

    @app.command(rich_help_panel="Decisions")
    def verdict(
        log: LogFile,
        policy: Annotated[str, typer.Option(help="The candidate: a policy by name, a saved policy, or an action.")],
        baseline: Annotated[str | None, typer.Option(help="What to compare with; the log itself unless given.")] = None,
        context: Context = None,
        action: Action = None,
        reward: Reward = None,
        propensity: Propensity = None,
        features: Table = None,
        reward_range: Annotated[
            tuple[float, float] | None, typer.Option(help="The lowest and the highest reward that is possible.")
        ] = None,
        model: WithModel = True,
        seed: Seed = 0,
        out: Out = None,
    ) -> None:
        """Say from a log whether to switch; may be asked after every round."""
        with errors():
            described = _described(features)
            found = read(log, context=context, action=action, reward=reward, propensity=propensity, features=described)
            if not isinstance(found, Log):
                raise InputError("log: expected actions from a catalogue, got densities.")
            answer = offpolicy.verdict(
                found,
                named_action(policy, found),
                None if baseline is None else named_action(baseline, found),
                reward_range=reward_range,
                model=RewardModel(seed=seed) if model else None,
                seed=seed,
            )
            typer.echo(answer)
            if out is not None:
                write(answer.plot().figure, out)


def _described(path: Path | None) -> Features | None:
    return None if path is None else Features.from_toml(path)

"""The commands about logs: what a candidate would have earned, and whether to switch to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from kernel_bandits import offpolicy
from kernel_bandits.errors import InputError
from kernel_bandits.logs import ContinuousLog, Log, read
from kernel_bandits.offpolicy import RewardModel, Valuation, evaluate, fitted_model
from kernel_bandits.offpolicy.reward_model import Written
from kernel_bandits.policy import Policy
from kernel_bandits.tables import Features
from kernel_bandits_lab.paper_figure import write
from kernel_bandits_lab.plots import require_matplotlib
from kernel_bandits_lab.study import catalogue, did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LogFile = Annotated[Path, typer.Argument(help="The log: .parquet, .csv, .jsonl, .vw or .dsjson.", show_default=False)]
Context = Annotated[list[str] | None, typer.Option(help="A column of the context; '' for none. Repeatable.")]
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
            values = evaluate_candidates(
                _read(log, context, action, reward, propensity, features),
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
            found = _read(log, context, action, reward, propensity, features)
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


def _read(
    log: Path,
    context: list[str] | None,
    action: str | None,
    reward: str | None,
    propensity: str | None,
    features: Path | None,
) -> Log | ContinuousLog:
    named = None if context is None else [name for name in context if name]
    described = None if features is None else Features.from_toml(features)
    return read(log, context=named, action=action, reward=reward, propensity=propensity, features=described)


def evaluate_candidates(
    log: Log | ContinuousLog,
    names: Sequence[str],
    *,
    learned_share: float = 0.5,
    model: RewardModel | None = RewardModel(),  # noqa: B008 (frozen)
    written_by: Written = "fixed",
    seed: int = 0,
) -> dict[str, Valuation]:
    """Return the value of each candidate on the last rounds of a log.

    Args:
        log: with a catalogue of actions.
        names: of candidates: an action of the log, the file of a saved policy, or a policy by name, which learns the
            first rounds before it is judged on the others.
        learned_share: the share of the log that policies learn first.
        model: of the rewards.
        written_by: ``"learning"`` if the policy that wrote the log learned from it.
        seed: of policies and intervals.
    """
    if not isinstance(log, Log):
        raise InputError("log: expected actions from a catalogue; use kb.offpolicy.evaluate_continuous for densities.")
    if not 0.0 <= learned_share < 1.0:
        raise InputError(f"learned_share: expected at least 0 and less than 1, got {learned_share!r}.")
    split = int(learned_share * len(log))
    first, rest = log.rows(slice(0, split)) if split else None, log.rows(slice(split, len(log)))
    found, fitted = {}, fitted_model(rest, model, written_by)
    for name in names:
        candidate = _candidate(name, log, first, seed)
        found[name] = evaluate(rest, candidate, model=fitted, written_by=written_by, seed=seed)
    return found


def named_action(name: str, log: Log) -> Any:
    """Return the action of a log that a word on the command line means; the word itself if there is none."""
    return {str(action): action for action in log.names}.get(name, name)


def _candidate(name: str, log: Log, first: Log | None, seed: int) -> Any:
    action = named_action(name, log)
    if action in log.names or Path(name).is_file():
        return action
    presets = catalogue("policy")
    if name not in presets:
        hint = did_you_mean(name, [*presets, *map(str, log.names)])
        raise InputError(f"policy: expected a policy, an action of the log or a saved policy, got {name!r}.{hint}")
    policy: Policy = presets[name](seed=seed, **({} if log.features is None else {"features": log.features}))
    return policy if first is None else first.taught(policy)


def valuation_figure(valuations: Mapping[str, Valuation]) -> Figure:
    """Draw the value of each candidate by every estimator, with intervals, beside the mean reward of the log."""
    require_matplotlib()
    from matplotlib.figure import Figure

    names = list(valuations)
    figure = Figure(figsize=(8.0, 1.2 + 0.8 * len(names)), layout="constrained")
    axes = figure.subplots()
    estimators = list(next(iter(valuations.values())).estimates)
    offsets = np.linspace(0.3, -0.3, len(estimators))
    markers = "osD^vP*X"
    for place, estimator in enumerate(estimators):
        rows = [valuations[name].estimates[estimator] for name in names]
        values = np.array([one.value for one in rows])
        ends = np.abs(np.array([[one.value - one.low, one.high - one.value] for one in rows]).T)
        heights = np.arange(len(names))[::-1] + offsets[place]
        finite = np.isfinite(values) & np.isfinite(ends).all(axis=0)
        axes.errorbar(
            values[finite], heights[finite], xerr=ends[:, finite], fmt=markers[place % 8], capsize=2, label=estimator
        )
    logged = next(iter(valuations.values())).logged_value
    axes.axvline(logged, color="#555555", linestyle="--", label="logged")
    axes.set_yticks(np.arange(len(names))[::-1], [Path(name).name for name in names])
    axes.set_xlabel("value")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    return figure

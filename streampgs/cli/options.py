"""The options of the commands that train, as a table: a line an option."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from streampgs.errors import OptionError
from streampgs.losses import LOSSES
from streampgs.options import (
    DEFAULT_EPOCHS,
    EPOCHS_FOR_A_TARGET,
    ON_GROWTH_NAMES,
    RETURN_NAMES,
    SAMPLING_NAMES,
    STANDARDIZE_NAMES,
    TEXT_WEIGHTS,
    parse_duration,
    parse_lengths,
    parse_size,
)


class _Parsed(click.ParamType[Any]):
    """A value that a function of streampgs.options reads, or refuses."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except OptionError as error:
            self.fail(str(error), param, ctx)


def _number_or(*words: str) -> Callable[[str], float | str]:
    def parse(text: str) -> float | str:
        if text in words:
            return text
        try:
            return float(text)
        except ValueError:
            raise OptionError(f"'{text}' is neither a number nor one of {', '.join(words)}") from None

    return parse


def _listed(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """One value, or several with commas between them."""

    def parse_all(text: str) -> Any:
        values = tuple(parse(part.strip()) for part in text.split(","))
        return values if len(values) > 1 else values[0]

    return parse_all


def _loss(text: str) -> str:
    if text not in LOSSES:
        raise OptionError(f"'{text}' is none of {', '.join(LOSSES)}")
    return text


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _labels(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> str | tuple[str, ...]:
    return names[0] if len(names) == 1 else names or "label"


SIZE = _Parsed("SIZE", parse_size)
DURATION = _Parsed("TIME", parse_duration)
SIGMA = _Parsed("S[,…]|auto", _listed(_number_or("auto")))


def _options(*options: Callable[..., Any]) -> Callable[..., Any]:
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


model_options = _options(
    click.option("--loss", type=_Parsed("LOSS[,…]", _listed(_loss)), default="logistic", show_default=True, help=f"What to minimise: {', '.join(LOSSES)}."),
    click.option("--p", type=_Parsed("P[,…]|auto", _listed(_number_or("auto"))), default=2.0, show_default=True, help="The norm of the regularizer, in (1, 2]. Towards 1: sparser. auto: the best of 2, 1.8, 1.5, 1.2 and one near 1."),
    click.option("--sigma", type=SIGMA, default="auto", show_default=True, help="The weight of the regularizer. auto: found during the first half epoch. Of several values, here as for --loss, --p and --ball, a model is trained for each combination, all in one pass, and the best is used."),
    click.option("--ball", type=_Parsed("B[,…]|auto|none", _listed(_number_or("auto", "none"))), default=None, help="Keep the p-norm of the weights below B. Default: auto for losses that need it (squared, squared-hinge), else none."),
    click.option("--t0", type=_Parsed("T0|auto", _number_or("auto")), default="auto", show_default=True, help="Offset of the step count; the paper's is 1. auto: from the rows' norms."),
    click.option("--batch", type=int, default=1, show_default=True, help="Rows a step."),
    click.option("--quantile", type=float, default=None, help="Which quantile --loss quantile estimates, in (0, 1). Default: 0.5."),
    click.option("--huber-width", type=float, default=None, help="Where --loss huber turns from squared to absolute. Default: the spread of the labels, their mean distance from the median."),
    click.option("--intercept", type=float, default=0.1, show_default=True, metavar="C", help="The constant feature that carries the intercept."),
    click.option("--no-intercept", is_flag=True, help="Leave the intercept out."),
    click.option("--return", "returns", type=click.Choice(RETURN_NAMES), default="suffix", show_default=True, help="Which iterate is the model: the average of the later part, of all, the last, or the paper's random one."),
    click.option("--sampling", type=click.Choice(SAMPLING_NAMES), default="epoch", show_default=True, help="Every row once an epoch, or independent uniform draws."),
    click.option("--seed", type=int, default=0, show_default=True, help="Decides the order of the rows."),
    click.option("--label", multiple=True, callback=_labels, metavar="COLUMN", help="The column to predict. Default: label. Given several times: a model for each."),
    click.option("--positive", type=_Parsed("VALUE", _number_or_text), default=None, help="The label of the positive class; all others are the negative one. Default: found in a sample of the labels: 1 against 0 or -1, the larger of two numbers, the later of two strings."),
    click.option("--classes", type=_Parsed("A,B,…", _listed(_number_or_text)), default=None, help="The labels of the classes, of two the positive one last. Default: found in a sample of the labels."),
    click.option("--class-weight", type=_Parsed("balanced|A,B,…", _listed(_number_or("balanced"))), default=None, help="Factors for the rows of each class, the negative one first; balanced: all classes weigh the same."),
    click.option("--validation", multiple=True, metavar="DATA", help="Rows to judge on: by them σ is chosen and --target-accuracy is reached. Some ten thousand are enough. Default: rows that are yet to be trained on."),
    click.option("--weight", default=None, metavar="COLUMN", help="A column of row weights."),
    click.option("--feature-count", type=int, default=None, metavar="N", help="The number of features of rows that are lists of them. Default: found while reading."),
    click.option("--threads", type=int, default=1, show_default=True, metavar="N", help="Workers that train side by side, in rounds. The result depends on N, not on the machine."),
    click.option("--on-bad-row", type=click.Choice(("error", "skip")), default="error", show_default=True, help="Stop at a row that cannot be used, or leave it out and count it."),
)  # fmt: skip

encoding_options = _options(
    click.option("--features", multiple=True, metavar="GLOB", help="Columns to use, by name or pattern like 'user_*'; may be given several times. Default: all that can be features."),
    click.option("--ignore", multiple=True, metavar="GLOB", help="Columns to leave out."),
    click.option("--category", multiple=True, metavar="GLOB", help="Columns of numbers that are names: postcodes, user ids."),
    click.option("--text", multiple=True, metavar="GLOB", help="Columns of text, to be taken apart into words or runs of characters."),
    click.option("--ngrams", type=_Parsed("A-B", parse_lengths), default=None, help="Of text: runs of A to B words. Default: single words, unless --char-ngrams is given."),
    click.option("--char-ngrams", type=_Parsed("A-B", parse_lengths), default=None, help="Of text: runs of A to B characters."),
    click.option("--text-weights", type=click.Choice(TEXT_WEIGHTS), default="tf-idf", show_default=True, help="What a word counts: by how often and how rare it is, by how often, or 1. Each text is scaled to length 1."),
    click.option("--cross", multiple=True, type=_Parsed("A,B", str), help="A category for each pair of values of two categories."),
    click.option("--cyclic", multiple=True, metavar="GLOB", help="Columns of times of which also the hour of the day, day of the week and day of the year count."),
    click.option("--standardize", type=click.Choice(STANDARDIZE_NAMES), default="auto", show_default=True, help="Centre and scale numbers, by a sample. auto: columns of numbers always, lists of numbers if their scales differ widely."),
    click.option("--null-flags", is_flag=True, help="A feature for each column of numbers that tells where it is null."),
    click.option("--hash-bits", type=int, default=None, metavar="BITS", help="Categories and words are hashed to 2^BITS features. Default: 20, or fewer if a sample has few different ones."),
    click.option("--hash-seed", type=int, default=0, show_default=True, help="Decides which share a feature."),
    click.option("--vocabulary", is_flag=True, help="Categories and words of a sample get features of their own; the others are hashed."),
)  # fmt: skip

limit_options = _options(
    click.option("--epochs", type=int, default=None, metavar="E", help=f"Passes over the data. Default: {DEFAULT_EPOCHS} if there is no other limit, {EPOCHS_FOR_A_TARGET} with a target alone; at a resume the run's own."),
    click.option("--rows", type=int, default=None, metavar="N", help="Rows to train on."),
    click.option("--seconds", type=DURATION, default=None, help="Time to train for, like 90s, 5m, 1h."),
    click.option("--target-accuracy", type=float, default=None, metavar="A", help="Stop when the accuracy reaches this share: on the validation data, or progressively if there are none."),
    click.option("--target-gap", type=float, default=None, metavar="G", help="Stop when the certificate says that the objective is this near its optimum."),
)  # fmt: skip

resource_options = _options(
    click.option("--memory", type=SIZE, default="512MB", show_default=True, help="Budget for reading and mixing rows; Python itself and the model come on top."),
    click.option("--checkpoint-every", type=DURATION, default="30s", show_default=True, help="How often to save. Never changes the result."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output at the end."),
    click.option("--quiet", is_flag=True, help="No progress."),
)  # fmt: skip


growth_options = _options(
    click.option("--on-growth", type=click.Choice(ON_GROWTH_NAMES), default=None, help="How often shards that have come late come in the present epoch: as often as the others will have come by its end, or once. Default: catch-up, but union where there are more new rows than old."),
    click.option("--follow", is_flag=True, help="When all rows are used up, wait for more shards; Ctrl-C or SIGTERM ends."),
    click.option("--poll", "poll_seconds", type=DURATION, default="10s", show_default=True, help="How often --follow looks for more."),
)  # fmt: skip

skip_option = click.option(
    "--on-bad-row",
    type=click.Choice(("error", "skip")),
    default="error",
    show_default=True,
    help="Stop at a row that cannot be used, or leave it out.",
)

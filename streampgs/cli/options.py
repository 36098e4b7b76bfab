"""Command-line options made from the fields of dataclasses, and help that lists them under headings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from streampgs.base.errors import command_words
from streampgs.options.fields import FIRST_SCREEN, HEADINGS, Flag, Option, Repeated, Text, meant, options_for

_EVERYTHING = "streampgs.help-all"


class Word(click.ParamType[Any]):
    """A word on the command line; the dataclass of the option reads it."""

    def __init__(self, value: Text) -> None:
        self.name = value.metavar
        self._value = value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._value.word(value) if isinstance(value, str) else value


class DeclaredOption(click.Option):
    """An option of a dataclass field. It has no default of its own: the field has it."""

    def __init__(self, name: str, declared: Option) -> None:
        self.declared = declared
        is_flag = isinstance(declared.value, Flag)
        super().__init__(
            [declared.flag, name],
            help=command_words(declared.text),
            required=declared.required,
            is_flag=is_flag or None,
            multiple=isinstance(declared.value, Repeated),
            type=None if is_flag else Word(declared.value),
        )


def _show_everything(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_EVERYTHING] = True
        click.echo(ctx.get_help())
        ctx.exit()


class Command(click.Command):
    """A command with the options of dataclasses; it is called with those that were given."""

    def __init__(self, name: str, kinds: Sequence[type] = (), **facts: Any) -> None:
        super().__init__(name, **facts)
        self.params += [DeclaredOption(field, declared) for field, declared in options_for(name, kinds).items()]
        if not self._fits_a_screen:
            help = "Show all options, and more about each."
            eager: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
            self.params.append(click.Option(["--help-all"], callback=_show_everything, help=help, **eager))

    @property
    def _fits_a_screen(self) -> bool:
        return set(grouped(self)) <= {*FIRST_SCREEN}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            near = " or ".join(meant(error.option_name, [each for option in self.params for each in option.opts]))
            question = f" Did you mean {near}?" if near else ""
            raise click.UsageError(f"No such option '{error.option_name}'.{question}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        # By identity: 0 equals False, and is a value.
        ctx.params = {
            n: value for n, value in ctx.params.items() if value is not None and value is not False and value != ()
        }
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        everything = self._fits_a_screen or _EVERYTHING in ctx.meta
        shown = str if everything else _first_sentence
        own = [each for each in self.get_params(ctx) if not isinstance(each, DeclaredOption | click.Argument)]
        groups: dict[str, list[Any]] = {**grouped(self)}
        groups[[*groups][-1]] += own
        for heading, options in groups.items():
            if everything or heading in FIRST_SCREEN:
                records = [each.get_help_record(ctx) for each in options]
                with formatter.section(heading):
                    formatter.write_dl([(flag, shown(help)) for flag, help in records])


class Commands(click.Group):
    """Lists its commands in the order in which they were added."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _first_sentence(help: str) -> str:
    """Without the sentences that follow. Click marks required options at the end."""
    return re.sub(r"\. \S.*?(?=  \[|$)", ".", help)


def grouped(command: click.Command) -> dict[str, list[DeclaredOption]]:
    """The options of a command by heading."""
    declared = [each for each in command.params if isinstance(each, DeclaredOption)]
    groups = {name: [each for each in declared if each.declared.heading == name] for name in HEADINGS}
    return {name: options for name, options in groups.items() if options}

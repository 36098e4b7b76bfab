"""Command-line options made from the fields of dataclasses, and help that lists them under headings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from streampgs.errors import OptionError
from streampgs.option_fields import HEADINGS, OUTPUT, Flag, Option, Repeated, Text, options_for


class Word(click.ParamType[Any]):
    """A word on the command line, parsed by the option's value."""

    def __init__(self, value: Text) -> None:
        self.name = value.metavar
        self._value = value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._value.parse(value) if isinstance(value, str) else value
        except OptionError as error:
            self.fail(str(error), param, ctx)


class DeclaredOption(click.Option):
    """An option of a dataclass field. It has no default of its own: the field has it."""

    def __init__(self, name: str, declared: Option) -> None:
        self.declared = declared
        is_flag = isinstance(declared.value, Flag)
        super().__init__(
            [declared.flag, name],
            help=declared.text,
            required=declared.required,
            is_flag=is_flag or None,
            multiple=isinstance(declared.value, Repeated),
            type=None if is_flag else Word(declared.value),
        )


class Command(click.Command):
    """A command with the options of dataclasses; it is called with those that were given."""

    def __init__(self, name: str, kinds: Sequence[type] = (), **facts: Any) -> None:
        super().__init__(name, **facts)
        self.params += [DeclaredOption(field, declared) for field, declared in options_for(name, kinds).items()]

    def invoke(self, ctx: click.Context) -> Any:
        # By identity: 0 equals False, and is a value.
        ctx.params = {
            n: value for n, value in ctx.params.items() if value is not None and value is not False and value != ()
        }
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[click.Option]] = {name: [*options] for name, options in grouped(self).items()}
        if (own := self.get_help_option(ctx)) is not None:
            last = OUTPUT if len(groups) > 1 else next(iter(groups), "Options")
            groups[last] = [*groups.get(last, []), own]
        for heading, options in groups.items():
            with formatter.section(heading):
                formatter.write_dl([record for each in options if (record := each.get_help_record(ctx)) is not None])


class Commands(click.Group):
    """Lists its commands in the order in which they were added."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def grouped(command: click.Command) -> dict[str, list[DeclaredOption]]:
    """The options of a command by heading."""
    declared = [each for each in command.params if isinstance(each, DeclaredOption)]
    if len(declared) <= 8:
        return {"Options": declared}
    groups = {name: [each for each in declared if each.declared.heading == name] for name in HEADINGS}
    return {name: options for name, options in groups.items() if options}

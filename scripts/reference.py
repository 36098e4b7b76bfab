"""Writes docs/reference.md from the commands: python scripts/reference.py > docs/reference.md"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping

import click

from streampgs.cli.main import EXIT_CODES_HELP, cli
from streampgs.cli.options import DeclaredOption, grouped
from streampgs.options.commands import RESUME_OPTIONS, TRAIN_OPTIONS
from streampgs.options.fields import Flag, Option, options_for
from streampgs.packing.options import PackOptions

_KEYWORDS = {"pack": (PackOptions,), "train": TRAIN_OPTIONS, "resume": RESUME_OPTIONS}

_HEAD = """# Reference of the commands

Generated from the command line by `python scripts/reference.py`; do not edit.

`streampgs.train`, `streampgs.resume` and `streampgs.pack` take the options of the commands as keywords: the column "Python"
has their names. Sizes and durations may be strings, as on the command line (`memory="2GB"`). An option with several
values takes a list."""


def reference() -> str:
    context = click.Context(cli, info_name="streampgs")
    sections = ["\n".join(_command(cli.commands[name], context)) for name in cli.list_commands(context)]
    return "\n\n".join([_HEAD, *sections, f"## Exit codes\n\n{EXIT_CODES_HELP}"]) + "\n"


def _command(command: click.Command, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=command.name)
    yield f"## streampgs {command.name}\n"
    yield f"```\nstreampgs {command.name} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        is_example = paragraph.startswith("\b")
        text = paragraph.removeprefix("\b\n")
        yield f"```\n{inspect.cleandoc(text)}\n```\n" if is_example else " ".join(text.split()) + "\n"
    for heading, options in grouped(command).items():
        keywords = options_for(command.name or "", _KEYWORDS.get(command.name or "", ()))
        columns = ["option", "Python", "meaning"] if keywords else ["option", "meaning"]
        rows = [_row(each, keywords) for each in options]
        yield f"**{heading}**\n"
        yield "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)) + "\n"


def _row(option: DeclaredOption, keywords: Mapping[str, Option]) -> list[str]:
    declared = option.declared
    metavar = "" if isinstance(declared.value, Flag) else f" {declared.value.metavar}"
    keyword = [f"`{option.name}`" if option.name in keywords else "–"] if keywords else []
    cells = [f"`{declared.flag}{metavar}`", *keyword, declared.text + " Required." * declared.required]
    return [cell.replace("|", "\\|") for cell in cells]


if __name__ == "__main__":
    sys.stdout.write(reference())

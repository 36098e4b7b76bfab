"""The commands, and the exit codes of their errors."""

from __future__ import annotations

import itertools
import sys

import click

from streampgs import __version__
from streampgs.base.errors import OptionError, StreampgsError
from streampgs.cli import model_commands, pack_command, train_commands
from streampgs.cli.console import EXIT_CODES, end_of_signals, fail, say, say_note, say_usage
from streampgs.cli.options import Commands
from streampgs.cli.streams import make_robust
from streampgs.kernels import compiling

_WIDEST = 160  # columns of help; longer lines are hard to read
EXIT_CODES_HELP = (
    "Exit codes: 0 done, 1 error in data or run (the message says what to do), 2 wrong option, 3 done, but a new file was "
    "left out (incomplete, or waiting for another limit), 4 a condition of --fail-if holds and the run was left as it was, "
    "129, 130 or 143 paused by SIGHUP, Ctrl-C or SIGTERM, 141 the reader of the output has gone."
)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST},
    epilog=EXIT_CODES_HELP,
)
@click.version_option(__version__, prog_name="streampgs")
def cli() -> None:
    """Train linear models on tables far larger than memory.

    Training stays within a memory budget and can be paused at any moment: a resumed run gives the same bits as one that
    was never paused. New shards can join at any time. It starts within a second or two; only the first start with a loss
    compiles its loops, for some ten seconds.

    \b
      streampgs pack data.csv.gz shards/                       convert a file to shards
      streampgs train shards/ --run my-run                     train; Ctrl-C pauses
      streampgs resume my-run                                  continue
      streampgs evaluate my-run test-shards/                   measure the model on other rows
      streampgs predict my-run new/ --out predictions.parquet  write a prediction per row
    """


for _command in (
    pack_command.pack,
    model_commands.inspect,
    train_commands.train,
    train_commands.resume,
    model_commands.history,
    model_commands.evaluate,
    model_commands.predict,
    pack_command.synth,
):
    cli.add_command(_command)


def run_commands() -> None:
    make_robust()
    if not _is_given("--quiet"):
        compiling.listeners.append(say_note)
    code = _exit_code()
    end_of_signals()
    sys.exit(_flushed(code))


def _exit_code() -> int:
    as_json = _is_given("--json")  # before the options are parsed: they may be wrong
    try:
        code: int = cli.main(standalone_mode=False)
    except click.ClickException as error:
        if as_json:
            return fail(OptionError(error.format_message(), _help_of(error)), as_json)
        say_usage(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return EXIT_CODES["SIGINT"]
    except (StreampgsError, MemoryError, RuntimeError, OSError) as error:
        explained = _explained(error)
        if explained is None:
            raise
        return fail(explained, as_json)
    return code


def _flushed(code: int) -> int:
    """The exit code, after all that was printed is written."""
    try:
        sys.stdout.flush()
    except StreampgsError as error:
        return fail(error)
    return code


def _is_given(flag: str) -> bool:
    return flag in itertools.takewhile(lambda word: word != "--", sys.argv[1:])


def _help_of(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"see {context.command_path if context else 'streampgs'} --help"


def _explained(error: Exception) -> StreampgsError | None:
    """The error in words for a user; None for a fault of the program."""
    if isinstance(error, StreampgsError):
        return error
    if isinstance(error, OSError):
        return StreampgsError(f"the system reported: {error}", "fix the cause, then run the command again")
    if isinstance(error, RuntimeError) and "start new thread" not in str(error):
        return None
    cause = f" ({error})" if str(error) else ""
    return StreampgsError(
        f"out of memory{cause}",
        "lower --memory, or give the process more; the last checkpoint is intact: continue with streampgs resume",
    )

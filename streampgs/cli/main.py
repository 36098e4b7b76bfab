"""The commands, and the exit codes of their errors."""

from __future__ import annotations

import io
import sys

import click

from streampgs import __version__
from streampgs.cli import model_commands, pack_command, synth_command, train_commands
from streampgs.cli.console import end_of_signals, fail, say
from streampgs.cli.options import Commands
from streampgs.errors import OptionError, StreampgsError

_WIDEST = 160  # columns of help; longer lines are hard to read
EXIT_CODES_HELP = (
    "Exit codes: 0 done, 1 error in data or run (the message says what to do), 2 wrong option, "
    "129, 130 or 143 paused by SIGHUP, Ctrl-C or SIGTERM."
)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST},
    epilog=EXIT_CODES_HELP,
)
@click.version_option(__version__, prog_name="streampgs")
def cli() -> None:
    """Train linear models on tables far larger than memory.

    Training starts within seconds, stays within a memory budget, and can be paused at any moment: a resumed run gives
    the same bits as one that was never paused. New shards can join at any time.

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
    synth_command.synth,
):
    cli.add_command(_command)


def run_commands() -> None:
    for stream in (sys.stdout, sys.stderr):  # file names may hold bytes that are not text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = _exit_code()
    end_of_signals()
    sys.exit(code)


def _exit_code() -> int:
    try:
        code: int = cli.main(standalone_mode=False)
    except OptionError as error:
        fail(error)
        return 2
    except StreampgsError as error:
        return fail(error)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return 130
    except BrokenPipeError:
        return 1
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "start new thread" not in str(error):
            raise
        cause = f" ({error})" if str(error) else ""
        return fail(
            StreampgsError(
                f"out of memory{cause}",
                "lower --memory, or give the process more; the last checkpoint is intact: continue with streampgs resume",
            )
        )
    except OSError as error:
        return fail(StreampgsError(f"the system reported: {error}", "fix the cause, then run the command again"))
    return code

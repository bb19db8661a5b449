"""The command line. Draws what the rooms below report; everything it does, a library call does too.

Figures and pictures go to standard error; standard output carries the answer, as a table or, with ``--json``, as
one JSON object on its last line. Heavy imports wait until a command needs them, so that ``--help`` is quick.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fkge.cli import consortium, exits, federate, learn, nodes, privacy, serve, show
from fkge.cli.options import FEDERATE, SHOW, example

app = typer.Typer(
    help="Knowledge-graph embedding for owners who federate.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=example("fkge demo", "fkge new project"),
)
app.add_typer(learn.commands)
app.add_typer(federate.commands)
app.add_typer(privacy.ledger, name="ledger", rich_help_panel=FEDERATE, epilog=example("fkge ledger show LEDGER"))
app.add_typer(serve.commands)
app.add_typer(nodes.commands)
app.add_typer(
    nodes.audit_log, name="audit-log", rich_help_panel=nodes.NODE, epilog=example("fkge audit-log verify state/audit")
)
app.add_typer(consortium.commands)
app.add_typer(consortium.cert, name="cert", rich_help_panel=nodes.NODE, epilog=example("fkge cert show site"))
app.add_typer(show.commands)
app.add_typer(show.data, name="data", rich_help_panel=SHOW, epilog=example("fkge data show atlas"))

_Misused: type[Exception] = typer.BadParameter.__mro__[2]
"""Base of what Typer raises for words that it cannot make sense of; it has no public name."""


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"fkge {version('fkge')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: errors meant for people become one line on standard error and a numbered exit code."""
    # Threads that spin while they wait starve each other when owners share a machine. Must precede torch.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        sys.exit(app(prog_name="fkge", standalone_mode=False) or exits.DONE)
    except _Misused as error:
        _misused(error)
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(exits.DONE)
    except Exception as error:
        found = exits.explain(error)
        if found is None:
            raise
        code, sentence = found
        _fail(code, sentence, exits.hint(code, sentence))


def _misused(error: Exception) -> None:
    """One line for words that make no sense; where there were no words at all, help has been shown instead."""
    if type(error).__name__ != "NoArgsIsHelpError":
        context = getattr(error, "ctx", None)
        sentence = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        _fail(exits.USAGE, sentence, f" (exit {exits.USAGE}; {context.command_path if context else 'fkge'} --help)")
    sys.exit(exits.USAGE)


def _fail(code: int, sentence: str, hint: str) -> None:
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), " ".join(sentence.split()), (hint, "dim")))
    sys.exit(code)

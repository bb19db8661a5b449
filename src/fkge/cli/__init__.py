"""The command line. Everything it does, a library call does too.

Progress and messages go to standard error, the answer to standard output: tables, or with ``--json`` one JSON object on
the last line. Heavy imports wait until a command needs them, so that ``--help`` is quick.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fkge.cli import exit_codes as exits
from fkge.cli import federations, models, nodes, outputs, pki, tune
from fkge.cli.options import FEDERATE, NODE, SHOW, example

app = typer.Typer(
    help="Federated knowledge-graph embedding.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=example("fkge demo", "fkge new project"),
)
app.add_typer(models.commands)
app.add_typer(tune.commands)
app.add_typer(federations.commands)
app.add_typer(federations.ledger, name="ledger", rich_help_panel=FEDERATE, epilog=example("fkge ledger show LEDGER"))
app.add_typer(nodes.commands)
app.add_typer(
    nodes.audit_log, name="audit-log", rich_help_panel=NODE, epilog=example("fkge audit-log verify state/audit")
)
app.add_typer(pki.commands)
app.add_typer(pki.cert, name="cert", rich_help_panel=NODE, epilog=example("fkge cert show site"))
app.add_typer(outputs.commands)
app.add_typer(outputs.data, name="data", rich_help_panel=SHOW, epilog=example("fkge data show atlas"))

_Misused: type[Exception] = typer.BadParameter.__mro__[2]
"""Base of what Typer raises for a command line that it does not understand; it has no public name."""


def _version(asked: bool) -> None:
    if asked:
        import fkge

        print(f"fkge {fkge.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; errors of the user become one line on standard error and a numbered exit code."""
    # Threads that spin while they wait starve each other when owners share a machine. Set before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        sys.exit(app(prog_name="fkge", standalone_mode=False) or exits.DONE)
    except _Misused as error:
        _misused(error)
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(exits.DONE)
    except Exception as error:
        found = exits.explain(error)
        if found is None:
            raise
        code, sentence = found
        _fail(code, sentence, exits.hint(code, sentence))


def _misused(error: Exception) -> None:
    """Print one line and exit; without any arguments, Typer has printed the help instead."""
    if type(error).__name__ != "NoArgsIsHelpError":
        context = getattr(error, "ctx", None)
        sentence = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        _fail(exits.USAGE, sentence, f" (exit {exits.USAGE}; {context.command_path if context else 'fkge'} --help)")
    sys.exit(exits.USAGE)


def _fail(code: int, sentence: str, hint: str) -> None:
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), " ".join(sentence.split()), (hint, "dim")))
    sys.exit(code)

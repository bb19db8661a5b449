"""Commands that start a node, and that look whether it could start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fkge.cli.nodes import NODE, NodeFile
from fkge.cli.options import example

commands = typer.Typer()


@commands.command(rich_help_panel=NODE, epilog=example("fkge node --config node.toml"))
def node(
    config: NodeFile = Path("node.toml"),
    anew: Annotated[
        bool, typer.Option("--anew", help="Put aside what it has reached, and begin again; ledger and audit log stay.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log to the file only.")] = False,
    tape: Annotated[
        Path | None, typer.Option(help="Record all that it hears and says there; as private as its state.")
    ] = None,
    score: Annotated[
        Path | None, typer.Option(help="With rehearsal: follow the order on this tape of a simulation.")
    ] = None,
) -> None:
    """Be a peer: federate with others over mutual TLS, until stopped."""
    from fkge.errors import need

    need("grpc", "node", "fkge node")
    need("cryptography", "node", "fkge node")
    from fkge.node.node import run
    from fkge.node.settings import NodeConfig

    run(NodeConfig.load(config), anew=anew, echo=not quiet, tape=tape, score=score)

"""Commands that start a node, and that look whether it could start."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from fkge.cli.nodes import NODE, NodeFile
from fkge.cli.options import AsJson, example
from fkge.errors import SettingsError

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

    need("cryptography", "node", "fkge node")
    from fkge.node.transport import library

    library()  # before anything else loads gRPC
    from fkge.node.node import run
    from fkge.node.settings import NodeConfig

    found = NodeConfig.load(config)
    if found.node.rehearsal != (score is not None):
        raise SettingsError(
            f"{config}: rehearsal = true and --score go together: secrets follow from the seed then, and hide nothing. "
            "For real data have neither"
        )
    os.umask(0o077)  # what it keeps is its owner's alone
    run(found, anew=anew, echo=not quiet, tape=tape, score=score)


@commands.command(rich_help_panel=NODE, epilog=example("fkge preflight --config node.toml"))
def preflight(config: NodeFile = Path("node.toml"), as_json: AsJson = False) -> None:
    """Look whether a node could start: configuration, certificate, clock, ports, disk, GPU, and its peers."""
    from dataclasses import asdict

    from rich.console import Console
    from rich.text import Text

    from fkge.cli import exits
    from fkge.errors import need

    need("cryptography", "node", "fkge preflight")
    from fkge.node.transport import library

    library()  # before anything else loads gRPC
    from fkge.node.preflight import Found, check

    console, found = Console(highlight=False, soft_wrap=True), list[Found]()
    marks = {"good": ("✓", "green"), "mind": ("!", "yellow"), "bad": ("✗", "bold red")}

    def told(look: Found) -> None:
        found.append(look)
        if not as_json:
            console.print(Text.assemble(marks[look.verdict], f" {look.what:<16}", look.sentence))

    good = check(config, told)
    if as_json:
        print(json.dumps({"good": good, "found": [asdict(look) for look in found]}))
    if not good:
        raise typer.Exit(exits.NODE)

"""Commands that start a node, and that check whether it could start."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from fkge.cli.nodes import NodeFile
from fkge.cli.options import NODE, AsJson, Commands
from fkge.errors import SettingsError

commands = Commands(NODE)


@commands.add("fkge node --config node.toml")
def node(
    config: NodeFile = Path("node.toml"),
    anew: Annotated[
        bool, typer.Option("--anew", help="Set aside its training state and start over; ledger and audit log stay.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log to the file only.")] = False,
    tape: Annotated[
        Path | None, typer.Option(help="Record all messages in this file, which is as private as its state.")
    ] = None,
    score: Annotated[
        Path | None, typer.Option(help="With rehearsal: follow the order in this recording of a simulation.")
    ] = None,
) -> None:
    """Run a node: federate with peers over mutual TLS, until stopped."""
    from fkge.node.transport import library

    library()  # before anything else loads gRPC
    import asyncio

    from fkge.experiment.replay_script import ReplayScript
    from fkge.node.inputs import Inputs
    from fkge.node.service import run_node
    from fkge.node.settings import NodeConfig

    found = NodeConfig.load(config)
    if found.node.rehearsal != (score is not None):
        raise SettingsError(
            f"{config}: rehearsal = true and --score need each other: all secrets follow from the seed then, and "
            "protect nothing. Use neither with real data"
        )
    os.umask(0o077)  # its files are private
    inputs = Inputs(recording=tape, order=None if score is None else ReplayScript(score))
    asyncio.run(run_node(found, inputs, anew=anew, echo=not quiet))


@commands.add("fkge preflight --config node.toml")
def preflight(config: NodeFile = Path("node.toml"), as_json: AsJson = False) -> None:
    """Check whether a node could start: configuration, certificate, clock, ports, disk, GPU, and its peers."""
    from dataclasses import asdict

    from rich.console import Console
    from rich.text import Text

    from fkge.cli import exit_codes as exits
    from fkge.node.transport import library

    library()  # before anything else loads gRPC
    from fkge.node.ops.preflight import preflight as check

    console, findings = Console(highlight=False, soft_wrap=True), []
    marks = {"good": ("✓", "green"), "mind": ("!", "yellow"), "bad": ("✗", "bold red")}
    for finding in check(config):
        findings.append(finding)
        if not as_json:
            console.print(Text.assemble(marks[finding.verdict], f" {finding.what:<16}", finding.sentence))
    good = all(finding.verdict != "bad" for finding in findings)
    if as_json:
        print(json.dumps({"good": good, "found": [asdict(finding) for finding in findings]}))
    if not good:
        raise typer.Exit(exits.NODE)

"""Create the stores of all owners of a simulation: the shareable part, the alignment by private set intersection,
common first rows, and masks of the test triples that others hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fkge.align import (
    Common,
    Tokens,
    agree_on_tokens,
    extend_pairs,
    held_splits,
    held_through_chains,
    private_common,
)
from fkge.align.links import KINDS
from fkge.align.psi import OverlapError
from fkge.embed import load_tensors, make_model
from fkge.embed.models import Kind
from fkge.errors import GraphError, SettingsError
from fkge.experiment.owners import Masks
from fkge.federation import Federation, FederationSettings, Member, OwnerStore, PeerProfile
from fkge.federation.owner import seed_of
from fkge.federation.owner.store import PEERS_FILE, Origin, check_split, new_run, shareable, widths, write_store
from fkge.federation.source import sides
from fkge.graph import Graph, Policy, load_graph
from fkge.progress import SILENT, Progress
from fkge.settings import TrainSettings


def create_stores(
    folder: Path, federation: Federation, settings: FederationSettings, seed: int, progress: Progress = SILENT
) -> None:
    """Create the store of every owner under ``folder/owners``; see `fkge.experiment.simulation.Simulation.create`.

    This is what owners do among themselves before they train: split off what they share, align (each pair, by private
    set intersection), exchange the form of their vectors, and agree on how aligned rows are initialised.

    Raises:
        SettingsError: the federation cannot work with these settings. Nothing is written then.

    Args:
        folder, federation, settings, seed, progress: see there.
    """
    trains = {
        name: TrainSettings.build(settings.train.model_dump() | dict(member.train), f"owner {name}")
        for name, member in federation.members.items()
    }
    owns = {name: settings.model_copy(update={"train": trains[name]}) for name in federation.members}
    models = {name: make_model(own.shared_train) for name, own in owns.items()}
    check_split(settings, federation.members)
    two_tracks = settings.privacy.mode == "dp" or any(m.policy is not None for m in federation.members.values())
    parts = {name: shareable(member, two_tracks) for name, member in federation.members.items()}
    graphs = {
        name: member.graph if (part := parts[name]) is None else part.graph
        for name, member in federation.members.items()
    }
    for name, graph in graphs.items():
        if len(graph.train) == 0:
            raise SettingsError(f"{name}: its policy shares no training triple; there is nothing to federate with")
    pairs = _align(federation, graphs, settings, seed, progress)
    # Each owner draws its own tokens: only links make rows begin alike, not labels that happen to be equal.
    tokens = {name: Tokens.draw(graph, seed_of(seed, name, "tokens")) for name, graph in graphs.items()}
    agree_on_tokens(tokens, pairs)
    if settings.follows_chains:
        pairs = extend_pairs(tokens, pairs)
    run = new_run()
    anyhow = held_through_chains(federation.graphs, federation.pairs)
    apart = held_through_chains(graphs, pairs) if two_tracks else anyhow
    for name, member in federation.members.items():
        peers = {
            peer: PeerProfile(common, trains[peer].model, widths(models[peer]))
            for peer, common in sides(name, pairs).items()
        }
        store = OwnerStore(
            name, folder / "owners" / name, owns[name], peers, tuple(member.refuses), tokens[name], two_tracks, seed,
            run,
        )  # fmt: skip
        links = {pair: known for pair, known in federation.links.items() if name in pair}
        write_store(store, federation.name, member, parts[name], links)
        held = held_splits(name, federation.graphs, federation.pairs)
        chained = {split: anyhow[name][split] & ~mask for split, mask in held.items()}
        Masks(held, chained, ~apart[name]["valid"]).save(store.folder)


def check_valid(federation: Federation) -> None:
    """Raise `GraphError` for owners without validation triples."""
    for name, member in federation.members.items():
        if len(member.graph.valid) == 0:
            raise GraphError(
                name, "has no validation triples, by which an owner decides what it keeps",
                "Add some: a valid file next to train and test, or more triples to split.",
            )  # fmt: skip


def federation_of(folder: Path, owners: Sequence[str]) -> Federation:
    """Return the federation whose stores lie under `folder`: what `create_stores` was given."""
    members, links, name = {}, {}, ""
    for owner in owners:
        store = folder / "owners" / owner
        _, about = load_tensors(store / "peers.safetensors", PEERS_FILE)
        origin = Origin.load(store)
        policy = Policy.load(store / "policy.toml") if (store / "policy.toml").exists() else None
        members[owner] = Member(
            load_graph(store / "graph.safetensors"), origin.train, tuple(about["refuses"]), policy
        )  # fmt: skip
        for pair, known in origin.links.items():
            a, b = pair.split("|")
            links[a, b] = known
        name = origin.name
    return Federation(name, members, links)


def _align(
    federation: Federation, graphs: Mapping[str, Graph], settings: FederationSettings, seed: int, progress: Progress
) -> dict[tuple[str, str], tuple[Common, Common]]:
    """Return the alignments of all pairs that exchange, of what they share."""
    kinds: list[Kind] = [
        k for k in KINDS if settings.share in ("both", {"entity": "entities", "relation": "relations"}[k])
    ]
    found, refused = {}, list[str]()
    for (a, b), links in federation.links.items():
        if federation.refused(a, b):
            continue
        try:
            rule = settings.psi.normalisation
            keys = links.keys(graphs[a], 0, kinds, rule), links.keys(graphs[b], 1, kinds, rule)
            sides = private_common(*keys, settings.psi, progress)
        except OverlapError as error:
            refused.append(f"{a} and {b} do not federate: {error}")
            continue
        one, other = (side.only(kinds).sample(settings.ratio, seed) for side in sides)
        if len(one):
            found[a, b] = one, other
    if not found and refused:
        raise SettingsError("; ".join(refused))
    return found

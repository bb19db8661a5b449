"""The last steps of an owner: its best vectors, the private track if there is one, the blend with a lone model, scores
on the test triples, `result.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

import numpy as np
import numpy.typing as npt
import torch

from fkge.embed import Tables
from fkge.embed.losses import margin_of
from fkge.embed.models import Kind
from fkge.errors import SettingsError
from fkge.evaluation import Known, Ranks, classify, metrics, rank
from fkge.federation.owner.blend import blend_with_lone
from fkge.federation.owner.private_track import train_private
from fkge.federation.owner.store import OwnerStore
from fkge.federation.owner.training import Activity, Owner, seed_of
from fkge.federation.owner.workspace import Workspace
from fkge.graph import Graph, sample_triples
from fkge.graph.graph import Triples
from fkge.owner_events import Concluded, Emit, EpochReached, StateChanged
from fkge.results import Blend, OwnerReport, PrivacyAccount, PrivateTrack, Scores
from fkge.settings import TrainSettings

Mask = npt.NDArray[np.bool_]
Extra = Mapping[str, PrivateTrack | PrivacyAccount | Blend | None]
"""Further fields of an owner's report, by name; those that are None are left out."""


def finish(
    store: OwnerStore,
    owner: Owner,
    emit: Emit,
    stop: Callable[[], bool],
    *,
    decide: Triples | None,
    write: Callable[[Tables, Activity, Extra], OwnerReport],
    blend: bool = True,
    serve: bool = False,
) -> bool:
    """Finish an owner's training and write its model and report.

    Args:
        store: the owner's data.
        owner: who has trained.
        emit: receives `StateChanged`, `EpochReached` and `Concluded`.
        stop: asked between epochs; True ends this early.
        decide: (k, 3) validation triples by which the private track is chosen, if there is one; None: there is none.
        write: scores the final tables and writes everything; see `write_report`.
        blend: blend with a lone model if the settings say so; see `with_lone_model`.
        serve: the owner continues to answer peers, so its ledger stays open.

    Returns:
        False if `stop` ended it early; called again, it starts this step over.
    """
    found = (owner.best(), None) if decide is None else final_vectors(store, owner, decide, emit, stop)
    if found is None:
        return False
    tables, private = found
    lone = None
    if blend:
        blended = with_lone_model(store, tables, owner.activity, emit, stop, peers=bool(owner.peers))
        if blended is None:
            return False
        tables, lone = blended
    account = close_account(owner, serve)
    emit(StateChanged(state="scoring"))
    report = write(tables, owner.activity, {"private": private, "privacy": account, "blend": lone})
    emit(Concluded(spent=report.epsilon))
    return True


def write_report(
    store: OwnerStore, workspace: Workspace, tables: Tables, activity: Activity, extra: Extra
) -> OwnerReport:
    """Score an owner's final vectors on all test triples, as one part ``all``, and write everything to `workspace`.

    Args:
        store: the owner's data.
        workspace: where the results go.
        tables, activity, extra: see `score`.
    """
    report, _ = score(tables, store.graph, {"all": np.ones(len(test_triples(store.graph)), bool)}, activity, extra)
    workspace.write_results(tables, settings_of(tables, store.settings.train), report)
    return report


def final_vectors(
    store: OwnerStore, owner: Owner, decide: Triples, emit: Emit, stop: Callable[[], bool]
) -> tuple[Tables, PrivateTrack | None] | None:
    """An owner's best vectors over its whole vocabulary; with two tracks, those of the private track.

    Args:
        store: the owner's data.
        owner: who has trained its shared track.
        decide: (k, 3) validation triples of the whole graph by which the private track is chosen.
        emit, stop: see `finish`.

    Returns:
        The tables and how the private track was chosen, if there is one; None if `stop` ended it early.
    """
    shared = owner.best()
    if store.rows is None:
        return shared, None
    emit(StateChanged(state="private"))
    graph, known = store.graph, Known.of(store.graph)
    settings = store.settings.train.model_copy(update={"seed": seed_of(store.seed, store.name, "private")})
    decide = sample_triples(decide, settings.validation_triples, store.seed)
    began = owner.activity.epochs

    def between(done: int) -> bool:
        emit(EpochReached(epoch=began + done))
        return stop()

    sizes: dict[Kind, int] = {"entity": len(graph.entities), "relation": len(graph.relations)}
    with owner.activity.clock("private"):
        track = train_private(
            torch.from_numpy(graph.train.astype(np.int64)), sizes, shared,
            {kind: torch.from_numpy(ids) for kind, ids in store.rows.items()}, settings, store.settings.private,
            margin_of(store.settings.shared_train), lambda tables: metrics(rank(tables, decide, known=known))["mrr"],
            between,
        )  # fmt: skip
    if track is None:
        return None
    chosen = PrivateTrack(score=track.score, shared=track.shared, pull=track.pull, epoch=track.epoch)
    return track.tables, chosen


def with_lone_model(
    store: OwnerStore, tables: Tables, activity: Activity, emit: Emit, stop: Callable[[], bool], *, peers: bool
) -> tuple[Tables, Blend | None] | None:
    """Blend an owner's model with one that it trains without peers, if its settings say so (`lone_epochs`).

    All validation triples choose the blend, even with `decide` = ``strict``: the federated model is better at facts
    that a partner holds, and an owner that blends wants that, too.

    Args:
        store: the owner's data.
        tables: its model so far.
        activity: what it did for that; the CPU time is added.
        emit, stop: see `finish`.
        peers: the model was made with peers.

    Returns:
        The tables and how they were blended, if they were; None if `stop` ended it early.
    """
    settings, decide = store.settings, store.graph.valid
    if not settings.lone_epochs or store.rows is not None or len(decide) == 0:
        return tables, None
    emit(StateChanged(state="lone"))

    def between(done: int) -> bool:
        emit(EpochReached(epoch=activity.epochs + done))
        return stop()

    decide = sample_triples(decide, settings.train.validation_triples, store.seed)
    try:
        with activity.clock("lone"):
            return blend_with_lone(tables, store, decide, peers=peers, stop=between)
    except SettingsError as error:  # a training that diverges must not cost the owner the model that it has
        best = activity.best_score or 0.0
        kept = Blend(epochs=0, score=best, first=best, lone=0.0, weight=1.0, relations=0, failed=str(error))
        return tables, kept


def settings_of(tables: Tables, settings: TrainSettings) -> TrainSettings:
    """The settings by which `tables` can be made again: those of the training, but for the size of a blend."""
    if tables.model.dim == settings.dim:
        return settings
    return settings.model_copy(update={"dim": tables.model.dim, "relation_dim": None})


def close_account(owner: Owner, serve: bool = False) -> PrivacyAccount | None:
    """The final statement of an owner's ledger; closes the ledger unless the owner continues to serve peers."""
    account = owner.egress.account()
    if not serve:
        owner.egress.close()
    return account


def test_triples(graph: Graph) -> Triples:
    """(n, 3) the triples of all test splits of a graph, in the order of the splits."""
    return np.concatenate([triples for name, triples in graph.splits.items() if name.startswith("test")])


def score(
    tables: Tables,
    graph: Graph,
    parts: Mapping[str, Mask],
    activity: Activity,
    extra: Extra | None = None,
) -> tuple[OwnerReport, Ranks]:
    """Score an owner's vectors.

    Args:
        tables: the vectors.
        graph: the owner's whole graph.
        parts: by name, which of its `test_triples` belong to a part that is scored apart; empty parts are left out.
        activity: what the owner did.
        extra: further fields of the report.

    Returns:
        The report, and the ranks of all test triples.
    """
    known, triples = Known.of(graph), test_triples(graph)
    ranks = rank(tables, triples, known=known)
    present = {part: mask for part, mask in parts.items() if mask.any()}
    splits = {"train": graph.train, "valid": graph.valid, "test": graph.test}
    # Every part, empty ones too: the negatives of a split are drawn by its place among the names of all splits.
    scored = replace(graph, splits=splits | {part: triples[mask] for part, mask in parts.items()})
    accuracy = classify(tables, scored, splits=("valid", *present)).accuracy
    test = {
        part: Scores.model_validate(
            {"triples": int(mask.sum()), "accuracy": accuracy[part]} | metrics(ranks[mask])
        )
        for part, mask in present.items()
    }  # fmt: skip
    valid = metrics(rank(tables, graph.valid, known=known)) | {"accuracy": accuracy["valid"]}
    more = {key: value for key, value in (extra or {}).items() if value is not None}
    found = {"version": OwnerReport.VERSION, "valid": valid, "test": test, **asdict(activity), **more}
    return OwnerReport.model_validate(found), ranks

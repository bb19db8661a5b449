"""The owner's sharing policy: which of its triples may influence what others see.

A policy is a TOML file; docs/reference/files.md lists its keys, with an example. `default` says what happens to a
triple that no rule matches; of the rules that match a triple **the last one wins**. So the file reads from the general
to the particular, and a rule added at the end always takes effect.

A rule looks at a triple's three labels and at nothing else, so no triple's answer depends on another triple. That is
what makes the guarantee of `Policy.shareable` exact.

What a policy does not do: it covers triples as they are, not what follows from them. An owner that keeps ``diagnosis``
but shares its inverse ``diagnosis of`` has shared it; one that keeps one triple of an entity and shares another has
shared that the entity exists.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, StrictBool, field_validator, model_validator

from fkge.errors import FkgeError, GraphError, SettingsError, UnknownLabelError
from fkge.files import write_atomically
from fkge.graph.graph import HEAD, RELATION, TAIL, Graph, Triples, Vocabulary, among, mix_bits, renamed, seen, tidy
from fkge.graph.readers import read_graph
from fkge.graph.split import split_triples
from fkge.settings import Settings, SettingValues, read_toml, toml_value

Mask: TypeAlias = npt.NDArray[np.bool_]
"""(n,) bool: one answer for each triple."""

Ids: TypeAlias = npt.NDArray[np.int64]
Place: TypeAlias = Literal["entity", "head", "relation", "tail"]

_COLUMNS: dict[Place, tuple[int, int]] = {  # the two columns that a place may be in
    "entity": (HEAD, TAIL),
    "head": (HEAD, HEAD),
    "relation": (RELATION, RELATION),
    "tail": (TAIL, TAIL),
}
_CONDITIONS = (*_COLUMNS, "pattern", "source", "fraction")
_NAMELESS = "_:["  # how the RDF reader calls nodes that their file gives no name
_TABLES = (".tsv", ".txt", ".csv")


def _as_list(value: object) -> object:
    if value in ([], ()):
        raise ValueError("an empty list matches nothing; name a label, or leave the key out")
    return [value] if isinstance(value, str) else value


Labels: TypeAlias = Annotated[tuple[str, ...] | None, BeforeValidator(_as_list)]


class Rule(Settings):
    """One rule: it matches a triple if all its conditions do, and then says whether the triple is shared."""

    share: StrictBool = Field(description="true or false: whether a triple that the rule matches is shared")
    entity: Labels = Field(None, description="labels of which one is the triple's head or its tail")
    head: Labels = Field(None, description="labels of which one is the triple's head")
    relation: Labels = Field(None, description="labels of which one is the triple's relation")
    tail: Labels = Field(None, description="labels of which one is the triple's tail")
    pattern: str | None = Field(None, description="a regular expression found in the label that `of` names")
    of: Place = Field("entity", description="where `pattern` looks: entity (head or tail), head, relation or tail")
    source: str | None = Field(None, description="a file or folder, relative to the policy, that has the triple")
    fraction: float | None = Field(None, ge=0, le=1, description="the share of all triples that match, chosen by hash")
    seed: int = Field(0, ge=0, lt=2**63, description="which triples `fraction` chooses; a larger share adds to them")

    @field_validator("pattern")
    @classmethod
    def _is_expression(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return pattern

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if all(getattr(self, key) is None for key in _CONDITIONS):
            raise ValueError(f"matches by nothing; give it one of {', '.join(_CONDITIONS)}, or change `default`")
        for key, needs in (("of", "pattern"), ("seed", "fraction")):
            if key in self.model_fields_set and getattr(self, needs) is None:
                raise ValueError(f"has {key!r} without {needs!r}, which it belongs to; add that or leave it out")
        return self

    def to_toml(self) -> str:
        """Return the keys that were given, as TOML."""
        values = {key: getattr(self, key) for key in type(self).model_fields if key in self.model_fields_set}
        return "".join(f"{key} = {toml_value(value)}\n" for key, value in values.items() if value is not None)


class _File(Settings):
    default: Literal["share", "keep"] = Field(description="what happens to a triple that no rule matches")
    rules: tuple[SettingValues, ...] = Field((), description="a list of tables, each under [[rules]]")


@dataclass(frozen=True)
class Shareable:
    """The part of an owner's graph that may influence what others see.

    `graph` is a function of the shareable triples alone. Everything else here describes its place in the full
    graph, does depend on confidential triples, and stays with the owner.

    Attributes:
        graph: the shareable train and valid triples under ids of their own; ``test`` is empty.
        entities: (n,) int64: the id in the full graph of each of its entities.
        relations: (m,) int64: the same for relations.
        masks: split of the full graph → (n,) bool, which of its triples the policy shares. Test sets
            included: that is how to score shareable and confidential facts apart.
    """

    graph: Graph
    entities: Ids
    relations: Ids
    masks: Mapping[str, Mask]


@dataclass(frozen=True, eq=False)
class Policy:
    """An owner's decision which of its triples to share. Made by `load`, `build` or `everything`.

    The files that `source` names are read once, when the policy is made. Two policies are the same if their
    `fingerprint` is.

    Attributes:
        default: what happens to a triple that no rule matches.
        rules: in order; the last that matches wins.
    """

    default: Literal["share", "keep"]
    rules: tuple[Rule, ...] = ()
    _listed: Mapping[str, Graph] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    @classmethod
    def everything(cls) -> Policy:
        """Return the policy of an owner without secrets."""
        return cls("share")

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy file; the sources it names are in its folder.

        Raises:
            SettingsError: the file, or one of its sources, cannot be used; names rule and key.
        """
        return cls.build(read_toml(Path(path)), Path(path).parent, str(path))

    @classmethod
    def build(cls, values: SettingValues, folder: str | Path = ".", place: str = "policy") -> Policy:
        """Return a policy from what a policy file holds.

        Args:
            values: ``default`` and ``rules``.
            folder: where sources are looked for.
            place: what errors call the policy: its file, say.

        Raises:
            SettingsError: names rule and key.
        """
        if "default" not in values:
            what = "default is missing, so nothing says what happens to a triple that no rule matches"
            raise SettingsError(f'{place}: {what}. Write default = "share" or default = "keep" above the first rule')
        file = _File.build(values, place)
        rules = tuple(Rule.build(rule, f"{place}: rule {n}") for n, rule in enumerate(file.rules, 1))
        listed = {}
        for n, rule in enumerate(rules, 1):
            if rule.source is not None and rule.source not in listed:
                try:
                    listed[rule.source] = _read_source(Path(folder) / rule.source)
                except FkgeError as error:
                    raise SettingsError(f"{place}: rule {n}: source: {error}") from None
        return cls(file.default, rules, MappingProxyType(listed))

    def to_toml(self) -> str:
        """Return the policy as a file. The contents of its sources are not in it; `fingerprint` covers them."""
        return f"default = {toml_value(self.default)}\n" + "".join(
            f"\n[[rules]]\n{rule.to_toml()}" for rule in self.rules
        )

    def save(self, folder: Path) -> None:
        """Write the policy to ``folder/policy.toml`` and its sources' triples to the same folder; `load` reads it back.

        Raises:
            SettingsError: a label of a source cannot be written.
        """
        names = {source: f"policy.source{number}.tsv" for number, source in enumerate(self._listed, 1)}
        for source, graph in self._listed.items():
            entities, relations = graph.entities, graph.relations
            if any(set("\t\r\n") & set(label) for label in (*entities, *relations)):
                raise SettingsError(f"{source}: has a label with a tab or a line break in it, which no list can hold")
            lines = [f"{entities[h]}\t{relations[r]}\t{entities[t]}\n" for h, r, t in tidy(graph.facts).tolist()]
            write_atomically(folder / names[source], "".join(lines).encode())
        rules = tuple(
            rule if rule.source is None else rule.model_copy(update={"source": names[rule.source]})
            for rule in self.rules
        )  # fmt: skip
        write_atomically(folder / "policy.toml", replace(self, rules=rules).to_toml().encode())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the rules and the triples of their sources, to notice a policy that has changed."""
        sources = "".join(f"\n{toml_value(key)} {graph.fingerprint}" for key, graph in sorted(self._listed.items()))
        return hashlib.sha256((self.to_toml() + sources).encode()).hexdigest()

    def mask(self, graph: Graph, split: str) -> Mask:
        """Return which triples of a split the policy shares, (n,) bool; raise `UnknownLabelError` for another split."""
        if split not in graph.splits:
            raise UnknownLabelError("split", split, graph.splits)
        return self._shared(graph, graph.splits[split])

    def shareable(self, graph: Graph) -> Shareable:
        """Return the part of `graph` that may influence what others see, and its place in the whole.

        The guarantee: add, remove or replace any confidential triples in any split of `graph`, and
        ``shareable(graph).graph`` stays the same to the bit: labels, ids, triples, their order, notes. So

        - its vocabulary is what occurs in its own triples, sorted, as if nothing else had ever been read;
        - valid triples with an entity or a relation that no shareable training triple has are left out of it,
          whether or not a confidential one has it;
        - it has no test set, nor the statements in `Graph.same_as`: these are not triples, no rule covers
          them, and what no rule covers is not shared.

        The guarantee starts from the splits of `graph`. Where those were drawn at random from all triples, a
        confidential one more or less moves shareable ones between train and valid: `resplit` first. It starts from the
        labels, too: names that a reader makes up for nameless RDF nodes count the nodes before them. Name such nodes.
        """
        answers = self._shared(graph, graph.facts)
        ends = np.cumsum([len(triples) for triples in graph.splits.values()])
        masks = dict(zip(graph.splits, np.split(answers, ends[:-1]), strict=True))
        train, valid = graph.train[masks["train"]], graph.valid[masks["valid"]]
        known = seen(valid, train, len(graph.entities), len(graph.relations))
        notes = ["Holds only what the owner's sharing policy shares."]
        if unseen := len(valid) - int(known.sum()):
            notes.append(
                f"valid: {unseen:,} shareable triples hold an entity or a relation that no shareable "
                "training triple has; they are left out."
            )
        entities, relations, (train, valid) = _on_their_own(graph, train, valid[known])
        for array in (entities, relations, *masks.values()):
            array.flags.writeable = False
        part = Graph(
            Vocabulary((graph.entities[i] for i in entities.tolist()), "entity"),
            Vocabulary((graph.relations[i] for i in relations.tolist()), "relation"),
            {"train": train, "valid": valid},
            name=graph.name,
            notes=tuple(notes),
        )
        return Shareable(part, entities, relations, MappingProxyType(masks))

    def resplit(
        self,
        graph: Graph,
        *,
        seed: int,
        fractions: tuple[float, float, float] = (0.9, 0.05, 0.05),
        allow_unseen: bool = False,
    ) -> Graph:
        """Return `graph` split again, such that where a shareable triple goes depends on shareable triples only.

        The shareable triples are split as if there were no others, then the confidential ones. Graphs with ready-made
        splits must not be split again.

        Args:
            graph: the owner's.
            seed, fractions, allow_unseen: see `split_triples`.
        """
        facts = tidy(np.concatenate([graph.train, graph.valid, graph.test]))
        shared = self._shared(graph, facts)
        entities, relations, (own,) = _on_their_own(graph, facts[shared])
        own_parts = split_triples(own, seed=seed, fractions=fractions, allow_unseen=allow_unseen)
        kept_parts = split_triples(facts[~shared], seed=seed, fractions=fractions, allow_unseen=True)
        train, valid, test = (
            np.concatenate([renamed(one, entities, relations), other])
            for one, other in zip(own_parts, kept_parts, strict=True)
        )
        if not allow_unseen:
            sizes = len(graph.entities), len(graph.relations)
            seen_valid, seen_test = seen(valid, train, *sizes), seen(test, train, *sizes)
            train = np.concatenate([train, valid[~seen_valid], test[~seen_test]])
            valid, test = valid[seen_valid], test[seen_test]
        further = {name: triples for name, triples in graph.splits.items() if name not in ("train", "valid", "test")}
        splits = {"train": tidy(train), "valid": tidy(valid), "test": tidy(test), **further}
        note = f"Split again with seed {seed}: what the sharing policy shares apart from what it keeps."
        return replace(graph, splits=splits, notes=(*graph.notes, note))

    def unused(self, graph: Graph) -> tuple[str, ...]:
        """Return the entries of rules without a counterpart in `graph`, mostly mistyped labels. Confidential."""
        notes: list[str] = []
        for number, rule in enumerate(self.rules, 1):
            odd = [*_unknown_labels(rule, graph)]
            if rule.pattern is not None and not _like(_vocabulary(graph, rule.of), rule.pattern).any():
                odd.append(f"pattern: {rule.pattern!r} is found in no {rule.of} label")
            if rule.source is not None:
                listed = _translated(self._listed[rule.source], graph)
                if missing := len(listed) - int(among(listed, graph.facts).sum()):
                    odd.append(f"source: {missing:,} of the {len(listed):,} triples of {rule.source} do not occur")
            if not odd and not self._matches(rule, graph, graph.facts).any():
                odd.append("matches no triple")
            notes.extend(f"rule {number}: {what}" for what in odd)
        return tuple(notes)

    def _shared(self, graph: Graph, triples: Triples) -> Mask:
        """Return (n,) bool: the policy's answer for `triples` under the ids of `graph`."""
        shared = np.full(len(triples), self.default == "share")
        for rule in self.rules:
            shared[self._matches(rule, graph, triples)] = rule.share
        return shared

    def _matches(self, rule: Rule, graph: Graph, triples: Triples) -> Mask:
        """Return (n,) bool. Works label by label, then looks the triples' ids up: there are far fewer labels."""
        matches = np.ones(len(triples), np.bool_)
        for place in _COLUMNS:
            if (labels := getattr(rule, place)) is not None:
                matches &= _stands(_named(_vocabulary(graph, place), labels), place, triples)
        if rule.pattern is not None:
            matches &= _stands(_like(_vocabulary(graph, rule.of), rule.pattern), rule.of, triples)
        if rule.source is not None:
            matches &= among(triples, _translated(self._listed[rule.source], graph))
        if rule.fraction is not None:
            matches &= _uniform(graph, triples, rule.seed) < rule.fraction
        return matches


def _read_source(path: Path) -> Graph:
    """Return the triples of a file. Literals are kept: what the graph may hold must be found here."""
    graph = read_graph(path, fractions=(1, 0, 0), literals="keep")
    table = path.name.lower().removesuffix(".gz").endswith(_TABLES)
    if not table and any(label.startswith(_NAMELESS) for label in graph.entities):
        problem = "holds nodes without a name, which cannot be found again in another file"
        raise GraphError(path, problem, "List their triples in a .tsv file, under the labels they have in the graph.")
    return graph


def _vocabulary(graph: Graph, place: Place) -> Vocabulary:
    return graph.relations if place == "relation" else graph.entities


def _named(vocabulary: Vocabulary, labels: Iterable[str]) -> Mask:
    """Return (labels,) bool: those that are named."""
    named = np.zeros(len(vocabulary), np.bool_)
    named[[vocabulary.id(label) for label in labels if label in vocabulary]] = True
    return named


def _like(vocabulary: Vocabulary, pattern: str) -> Mask:
    """Return (labels,) bool: those that the pattern is found in."""
    return np.fromiter((found is not None for found in map(re.compile(pattern).search, vocabulary)), np.bool_)


def _stands(wanted: Mask, place: Place, triples: Triples) -> Mask:
    """Return (n,) bool: triples that have a wanted label in this place."""
    one, other = _COLUMNS[place]
    return wanted[triples[:, one]] | wanted[triples[:, other]]


def _unknown_labels(rule: Rule, graph: Graph, most: int = 5) -> Iterable[str]:
    """Return a sentence for each label that the graph does not have; of very many, for the first ones."""
    for place in _COLUMNS:
        vocabulary = _vocabulary(graph, place)
        unknown = [label for label in getattr(rule, place) or () if label not in vocabulary]
        yield from (f"{place}: {vocabulary.unknown(label)}" for label in unknown[:most])
        if len(unknown) > most:
            yield f"{place}: {len(unknown) - most:,} more labels do not occur"


def _translated(source: Graph, graph: Graph) -> Ids:
    """Return (n, 3) int64: the facts of `source` under the ids of `graph`; -1 for a label it does not have."""
    entities, relations = (
        np.array([ours.id(label) if label in ours else -1 for label in theirs], np.int64)
        for theirs, ours in ((source.entities, graph.entities), (source.relations, graph.relations))
    )
    return renamed(source.facts, entities, relations)


def _uniform(graph: Graph, triples: Triples, seed: int) -> npt.NDArray[np.float64]:
    """Return (n,) float64 in [0, 1): a number for each triple that its labels and the seed alone decide."""
    key = seed.to_bytes(8, "little")

    def hashed(labels: Vocabulary) -> npt.NDArray[np.uint64]:
        digests = (hashlib.blake2b(label.encode(), digest_size=8, key=key).digest() for label in labels)
        return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)

    entities, relations = hashed(graph.entities), hashed(graph.relations)
    state = np.zeros(len(triples), np.uint64)
    for hashes, column in ((entities, HEAD), (relations, RELATION), (entities, TAIL)):
        state = mix_bits(state + hashes[triples[:, column]] + np.uint64(0x9E3779B97F4A7C15))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _on_their_own(graph: Graph, *parts: Triples) -> tuple[Ids, Ids, tuple[Triples, ...]]:
    """Return the parts under the ids they would have if `graph` held nothing else, and what those ids are in it."""
    together = np.concatenate(parts)
    entities, entity_places = _own_ids(together[:, [HEAD, TAIL]], graph.entities)
    relations, relation_places = _own_ids(together[:, RELATION], graph.relations)
    return entities, relations, tuple(tidy(renamed(part, entity_places, relation_places)) for part in parts)


def _own_ids(ids: npt.NDArray[np.integer], vocabulary: Vocabulary) -> tuple[Ids, Ids]:
    """Return the distinct ids in the order of their labels, and (labels,) the place of each of them there."""
    own = np.array(sorted(np.unique(ids).tolist(), key=vocabulary.__getitem__), np.int64)
    places = np.zeros(len(vocabulary), np.int64)
    places[own] = np.arange(len(own))
    return own, places

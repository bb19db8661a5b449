"""The claims of each owner of ``bio``, from the texts of its sources."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from fkge.data.bio.sources import Gene, Ontology, name, rows
from fkge.data.facts import Claim

BREADTH = 50
"""Members of a pathway, at most: a larger one, such as all of metabolism, tells little about a member."""

_ASPECTS = {"P": "has_phenotype", "I": "inherited_as", "C": "has_course", "H": "has_history", "M": "has_modifier"}
_ROLES = {"P": "involved_in", "F": "enables", "C": "located_in"}
_UNREVIEWED = ("IEA", "ND")  # inferred by a machine; no data
_BINDING = "GO:0005515"  # protein binding, of no protein in particular: most genes have it
_DRUG = "CHEBI:23888"
_DISEASE_RELATIONS = (
    "is_a", "has_characteristic", "predisposes_towards", "disease_has_feature", "disease_has_major_feature",
    "disease_arises_from_feature", "disease_shares_features_of",
)  # fmt: skip
_INHIBITOR = re.compile(r":EC_(\d+\.\d+\.\d+\.\d+)_.*inhibitor")


def clinic(records: bytes, database: str, diseases: Mapping[str, str], phenotypes: Ontology) -> Iterator[Claim]:
    """Yield a clinic's records of diseases and their phenotypes, and the hierarchy of the phenotypes it uses.

    Args:
        records: the annotations of HPO.
        database: the codes the clinic uses, ``OMIM`` or ``ORPHA``.
        diseases: labels by such a code.
        phenotypes: HPO.
    """
    used = set()
    for row in rows(records):
        # annotations based on OMIM's own texts are under other terms of use than HPO's
        if row["database_id"].startswith(database) and row["qualifier"] != "NOT" and "OMIM:" not in row["reference"]:
            disease, phenotype = diseases.get(row["database_id"]), row["hpo_id"]
            yield disease, _ASPECTS[row["aspect"]], phenotypes.labels.get(phenotype)
            if disease and phenotype in phenotypes.labels:
                used.add(phenotype)
    for phenotype in phenotypes.above(used):
        yield from phenotypes.related(phenotype, "is_a")


def registry(diseases: Ontology, chosen: Collection[str]) -> Iterator[Claim]:
    """Yield the chosen diseases' parents, features and chapters of the ICD."""
    for disease in chosen:
        yield from diseases.related(disease, *_DISEASE_RELATIONS)
        for code in diseases.codes[disease]:
            book, _, entry = code.partition(":")
            if book in ("ICD9", "ICD10CM"):
                yield diseases.labels[disease], "coded_in", f"{book.lower()}:{entry[:3]}"


def genebank(
    causes: bytes,
    annotations: bytes,
    genes: Mapping[str, Gene],
    diseases: Mapping[str, str],
    functions: Ontology,
    wanted: Collection[str],
) -> Iterator[Claim]:
    """Yield the genes of the diseases and the drugs: their functions, locations and enzymes.

    Args:
        causes: HPO's table of genes, of which Orphanet's rows are read.
        annotations: of genes with GO, in GAF.
        genes: HGNC's, by symbol.
        diseases: labels by Orphanet's code.
        functions: GO.
        wanted: labels of further genes to include, and of enzymes whose genes to include.
    """
    held = {
        symbol
        for symbol, gene in genes.items()
        if f"gene:{symbol}" in wanted or any(f"enzyme:{enzyme}" in wanted for enzyme in gene.enzymes)
    }
    for row in rows(causes):
        disease, symbol = diseases.get(row["disease_id"]), row["gene_symbol"]
        if disease and row["disease_id"].startswith("ORPHA") and symbol in genes:
            held.add(symbol)
            yield f"gene:{symbol}", "associated_with", disease
    for symbol in held:
        for enzyme in genes[symbol].enzymes:
            yield f"gene:{symbol}", "codes_for", f"enzyme:{enzyme}"
            yield f"enzyme:{enzyme}", "is_a", f"enzyme:{enzyme.rpartition('.')[0]}"
    used = set()
    for line in annotations.decode().splitlines():
        if line.startswith("!"):
            continue
        symbol, qualifier, term, evidence, aspect = (line.split("\t")[i] for i in (2, 3, 4, 6, 8))
        if symbol in held and "NOT" not in qualifier and evidence not in _UNREVIEWED and term != _BINDING:
            yield f"gene:{symbol}", _ROLES[aspect], functions.labels.get(term)
            used.add(term)
    for term in used & functions.labels.keys():
        yield from functions.related(term, "is_a", "part_of", "regulates")


def pharma(chemicals: Ontology, guidelines: bytes, genes: Collection[str]) -> Iterator[Claim]:
    """Yield drugs: their structure and roles, the enzymes they inhibit, and the genes their effect depends on.

    Args:
        chemicals: ChEBI.
        guidelines: CPIC's table of genes and drugs.
        genes: their symbols.
    """
    roles = chemicals.below(_DRUG)
    drugs = {code for code, known in chemicals.relations.items() if roles.intersection(known.get("has_role", []))}
    acts = {role for drug in drugs for role in chemicals.relations[drug]["has_role"]}
    for drug in drugs:
        yield from chemicals.related(drug, "has_role", "has_functional_parent", "has_part", "has_parent_hydride")
    for term in chemicals.above(drugs | acts):
        yield from chemicals.related(term, "is_a")
    for act in acts:
        label = chemicals.labels.get(act, "")
        if enzyme := _INHIBITOR.search(label):
            yield label, "inhibits", f"enzyme:{enzyme[1]}"
    known = {label.lower(): label for label in chemicals.labels.values()}
    for row in rows(guidelines, ","):
        if row["Gene"] in genes:
            drug = "_".join(row["Drug"].lower().split())
            yield known.get(f"chemical:{drug}"), "response_depends_on", f"gene:{row['Gene']}"


def pathways(chemicals: Ontology, reactome: bytes, wikipathways: bytes, genes: Mapping[str, Gene]) -> Iterator[Claim]:
    """Yield the pathways that chemicals and genes participate in.

    Args:
        chemicals: ChEBI.
        reactome: its table of chemicals and pathways.
        wikipathways: its sets of genes, in GMT.
        genes: HGNC's, by symbol.
    """
    symbols = {gene.number: symbol for symbol, gene in genes.items()}
    names: dict[str, tuple[str, str]] = {}
    members: dict[str, set[str]] = {}
    for line in reactome.decode().splitlines():
        chemical, pathway, _, words, _, species = line.split("\t")
        if species == "Homo sapiens" and (label := chemicals.labels.get(f"CHEBI:{chemical}")):
            names[pathway] = "pathway", words
            members.setdefault(pathway, set()).add(label)
    for line in wikipathways.decode().splitlines():
        title, _, *numbers = line.split("\t")
        words, _, pathway, _ = title.rsplit("%", 3)
        names[pathway] = "pathway", words
        members[pathway] = {f"gene:{symbols[number]}" for number in numbers if number in symbols}
    labels = name(names)
    for pathway, taking_part in members.items():
        if len(taking_part) <= BREADTH:
            for member in taking_part:
                yield member, "participates_in", labels[pathway]

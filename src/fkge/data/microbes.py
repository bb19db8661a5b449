"""The federation ``microbes``: two laboratories, each with a model of a bacterium's metabolism.

The models, of *E. coli* and *Salmonella*, are SBML files that ship with cobra. They share the names of metabolites and
reactions (those of BiGG), not of genes, so each owner learns by itself which gene's product catalyses what.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

from fkge.data.facts import Claim, Recipe
from fkge.data.wheels import Wheel
from fkge.progress import Progress

COBRA = Wheel("cobra", "0.32.1", "6ebfc29503224371ff5390ce0ce347b738415bd37a2dfb8a9683591c6e5535dc", "py2.py3-none-any")

_FILES = {"ecoli": "iJO1366", "salmonella": "salmonella"}

# Not reactions of the cell: exchanges with its surroundings, and the sum of what growth consumes.
_BOOKKEEPING = re.compile("EX_|DM_|sink_|.*biomass", re.IGNORECASE)

ORIGINS = {
    "ecoli": COBRA.origin(
        "BiGG Models' terms: free with this notice; commercial use, see BiGG",
        "iJO1366, Orth et al. 2011, of BiGG Models, © 2017 The Regents of the University of California",
    ),
    "salmonella": COBRA.origin(
        "LGPL-2.0-or-later OR GPL-2.0-or-later, the package's; the model states none of its own",
        "iYS1720, Seif et al. 2018, a model of all Salmonella, as cobra packs it",
    ),
}


def claims(sbml: bytes) -> Iterator[Claim]:
    """Yield the claims of a model in SBML about metabolites, reactions and genes."""
    for element in ElementTree.fromstring(sbml).iter():
        kind = _local(element.tag)
        if kind == "species":
            yield from _metabolite(element)
        elif kind == "reaction":
            yield from _reaction(element)
        elif kind == "group":
            for member in element.iter():
                if (name := _get(member, "idRef")) and not _BOOKKEEPING.match(_plain(name)):
                    yield f"reaction:{_plain(name)}", "in_subsystem", f"subsystem:{_words(_get(element, 'name'))}"


def _metabolite(element: ElementTree.Element) -> Iterator[Claim]:
    # a metabolite is a compound in a compartment
    name, compartment = _plain(_get(element, "id")), _get(element, "compartment")
    compound = f"compound:{name.removesuffix(f'_{compartment}')}"
    yield f"metabolite:{name}", "in_compartment", f"compartment:{compartment}"
    yield f"metabolite:{name}", "form_of", compound
    if formula := _get(element, "chemicalFormula"):
        yield compound, "formula", f"formula:{formula}"


def _reaction(element: ElementTree.Element) -> Iterator[Claim]:
    name = _plain(_get(element, "id"))
    if _BOOKKEEPING.match(name):
        return
    for part in element:
        relation = {"listOfReactants": "consumes", "listOfProducts": "produces"}.get(_local(part.tag))
        for item in part.iter():
            if relation and (metabolite := _get(item, "species")):
                yield f"reaction:{name}", relation, f"metabolite:{_plain(metabolite)}"
            elif gene := _get(item, "geneProduct"):
                yield f"gene:{_plain(gene)}", "catalyses", f"reaction:{name}"


def _local(tag: str) -> str:
    """Return a tag without its namespace."""
    return tag.rpartition("}")[2]


def _get(element: ElementTree.Element, attribute: str) -> str:
    """Return an attribute in any namespace; empty if there is none."""
    return next((value for key, value in element.attrib.items() if _local(key) == attribute), "")


def _plain(identifier: str) -> str:
    """Return a name without SBML's prefix: ``M_glc__D_c`` becomes ``glc__D_c``."""
    return re.sub("^[MRG]_", "", identifier)


def _words(text: str) -> str:
    return "-".join(re.findall("[a-z0-9]+", text.lower()))


def _claims(progress: Progress) -> Iterator[tuple[str, Iterable[Claim]]]:
    for owner, file in _FILES.items():
        yield owner, claims(gzip.decompress(COBRA.read(f"cobra/data/{file}.xml.gz", progress)))


MICROBES = Recipe(
    name="microbes",
    about="Two laboratories, each with the metabolism of its bacterium.",
    origins=ORIGINS,
    claims=_claims,
    versions=lambda: {COBRA.package: COBRA.version},
)

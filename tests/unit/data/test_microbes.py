"""``microbes``: the claims read from a model, and the real federation."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.data import build, describe
from fkge.data.facts import clean
from fkge.data.microbes import COBRA, claims
from fkge.errors import DataError
from fkge.federation.source import read_federation

MODEL = b"""<?xml version="1.0"?>
<sbml xmlns="urn:sbml" xmlns:fbc="urn:fbc" xmlns:groups="urn:groups"><model>
 <listOfSpecies>
  <species id="M_glc__D_c" compartment="c" fbc:chemicalFormula="C6H12O6"/>
  <species id="M_glc__D_e" compartment="e"/>
 </listOfSpecies>
 <listOfReactions>
  <reaction id="R_GLCt">
   <fbc:geneProductAssociation><fbc:or>
    <fbc:geneProductRef fbc:geneProduct="G_b1101"/><fbc:geneProductRef fbc:geneProduct="G_b1817"/>
   </fbc:or></fbc:geneProductAssociation>
   <listOfReactants><speciesReference species="M_glc__D_e"/></listOfReactants>
   <listOfProducts><speciesReference species="M_glc__D_c"/></listOfProducts>
  </reaction>
  <reaction id="R_EX_glc__D_e"><listOfReactants><speciesReference species="M_glc__D_e"/></listOfReactants></reaction>
 </listOfReactions>
 <groups:listOfGroups><groups:group groups:name="Transport, Inner Membrane"><groups:listOfMembers>
  <groups:member groups:idRef="R_GLCt"/><groups:member groups:idRef="R_EX_glc__D_e"/>
 </groups:listOfMembers></groups:group></groups:listOfGroups>
</model></sbml>"""


def test_reads_claims_from_sbml() -> None:
    assert clean(claims(MODEL)) == {
        ("metabolite:glc__D_c", "in_compartment", "compartment:c"),
        ("metabolite:glc__D_e", "in_compartment", "compartment:e"),
        ("metabolite:glc__D_c", "form_of", "compound:glc__D"),
        ("metabolite:glc__D_e", "form_of", "compound:glc__D"),
        ("compound:glc__D", "formula", "formula:C6H12O6"),
        ("reaction:GLCt", "consumes", "metabolite:glc__D_e"),
        ("reaction:GLCt", "produces", "metabolite:glc__D_c"),
        ("gene:b1101", "catalyses", "reaction:GLCt"),
        ("gene:b1817", "catalyses", "reaction:GLCt"),
        ("reaction:GLCt", "in_subsystem", "subsystem:transport-inner-membrane"),
    }


def test_offline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(DataError, match=r"cobra-0\.32\.1-py2\.py3-none-any\.whl cannot be downloaded .* pip download"):
        build("microbes")
    assert not list(cache.glob("microbes-*"))


def test_builds_the_real_federation(cache: Path) -> None:
    try:
        COBRA.fetch()
    except DataError as error:
        pytest.skip(str(error))
    told = describe("microbes")
    federation = read_federation("microbes")
    assert {name: said["entities"] for name, said in told["owners"].items()} == {
        name: len(graph.entities) for name, graph in federation.graphs.items()
    }
    assert told["owners"]["ecoli"]["by_relation"]["catalyses"] > 3000
    (pair,) = told["pairs"]
    assert pair["by_kind"]["reaction"] > 1500
    assert set(pair["relations"]) >= {"consumes", "produces", "catalyses"}

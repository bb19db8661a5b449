"""Federations in folders and TOML files: read as they stand, refused with a sentence that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.errors import GraphError, SettingsError
from fkge.experiment.setup import create_stores, federation_of
from fkge.federation import Federation, read_federation
from fkge.graph import Graph
from tests.conftest import OWNERS, tiny_federation, tiny_settings


def write_graph(graph: Graph, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, triples in graph.splits.items():
        rows = [f"{graph.entities[h]}\t{graph.relations[r]}\t{graph.entities[t]}" for h, r, t in triples.tolist()]
        (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")


def write_federation(federation: Federation, folder: Path) -> Path:
    for name, graph in federation.graphs.items():
        write_graph(graph, folder / name)
    (folder / "aligned").mkdir()
    for (a, b), (side, other) in federation.pairs.items():
        here, there = federation.graphs[a], federation.graphs[b]
        links = [(here.entities[i], there.entities[j]) for i, j in zip(side.entities, other.entities, strict=True)]
        (folder / "aligned" / f"{a}__{b}.entities.tsv").write_text("".join(f"{x}\t{y}\n" for x, y in links))
        links = [(here.relations[i], there.relations[j]) for i, j in zip(side.relations, other.relations, strict=True)]
        (folder / "aligned" / f"{a}__{b}.relations.tsv").write_text("".join(f"{x}\t{y}\n" for x, y in links))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_federation(tiny_federation(), tmp_path / "circle")


def test_a_folder(folder: Path) -> None:
    read, made = read_federation(folder), tiny_federation()
    assert read.name == "circle"
    assert list(read.members) == list(OWNERS)
    assert {n: g.fingerprint for n, g in read.graphs.items()} == {n: g.fingerprint for n, g in made.graphs.items()}
    assert dict(read.pairs) == dict(made.pairs)
    assert {peer: len(common) for peer, common in read.common("bee").items()} == {"ant": 24, "cat": 24}
    (folder / "aligned" / "ant__bee.entities.tsv").unlink()  # relations alone will do
    assert len(read_federation(folder).common("ant")["bee"].entities) == 0
    (folder / "ant").rename(folder / "ant.v2")  # an owner may have a dot in its name
    for kind in ("relations.tsv",):
        (folder / "aligned" / f"ant__bee.{kind}").rename(folder / "aligned" / f"ant.v2__bee.{kind}")
    for file in (folder / "aligned").glob("ant__cat.*"):
        file.unlink()
    assert set(read_federation(folder).common("ant.v2")) == {"bee"}


def test_folders_that_are_no_federations(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere: no such file or folder\. A federation is a folder"):
        read_federation(tmp_path / "nowhere")
    with pytest.raises(SettingsError, match=r"train\.tsv: is none\. A federation is a folder"):
        read_federation(folder / "ant" / "train.tsv")
    with pytest.raises(SettingsError, match=r"holds 1 folders of owners; a federation has at least two$"):
        read_federation(tmp_path)
    (tmp_path / "federation.toml").touch()
    with pytest.raises(SettingsError, match=r"at least two; did you mean .*federation\.toml\?"):
        read_federation(tmp_path)
    strange = folder / "aligned" / "ant__bea.entities.tsv"
    strange.write_text("a\tb\n")
    with pytest.raises(SettingsError, match=r"ant__bea\.entities\.tsv: there is no owner 'bea' in .*did you mean bee"):
        read_federation(folder)
    strange.rename(folder / "aligned" / "bee__ant.entities.tsv")
    with pytest.raises(SettingsError, match="bee and ant are one owner, or linked by ant__bee already"):
        read_federation(folder)
    (folder / "aligned" / "bee__ant.entities.tsv").write_text("")
    (folder / "aligned" / "bee__ant.entities.tsv").unlink()
    (folder / "aligned" / "ant__bee.entities.tsv").write_text("one label\n")
    with pytest.raises(GraphError, match=r"ant__bee\.entities\.tsv:1: expected two labels"):
        read_federation(folder)
    for file in (folder / "aligned").iterdir():
        file.unlink()
    with pytest.raises(SettingsError, match="no two owners share an entity or a relation; put links into aligned"):
        read_federation(folder)


TOML = """
name = "friends"
[owners.ant]
graph = "ant"
refuses = ["cat"]
[owners.bee]
graph = "bee"
[owners.bee.train]
model = "TransR"
[owners.cat]
graph = "cat"
[[links]]
between = ["ant", "bee"]
entities = "aligned/ant__bee.entities.tsv"
[[links]]
between = ["cat", "bee"]
same = true
[[links]]
between = ["ant", "cat"]
same = true
"""


def toml(folder: Path, text: str) -> Federation:
    path = folder / "friends.toml"
    path.write_text(text)
    return read_federation(path)


def test_a_toml_file(folder: Path) -> None:
    read = toml(folder, TOML)
    assert read.name == "friends"
    assert read.members["ant"].refuses == ("cat",)
    assert (read.refused("ant", "cat"), read.refused("cat", "ant"), read.refused("ant", "bee")) == (True, True, False)
    assert read.members["bee"].train == {"model": "TransR"}
    assert len(read.common("ant")["bee"].relations) == 0
    assert {kind: len(read.common("bee")["cat"].ids(kind)) for kind in ("entity", "relation")} == {
        "entity": 20, "relation": 4,
    }  # fmt: skip
    assert toml(folder, TOML.replace('name = "friends"', "")).name == "friends"  # after the file


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('graph = "cat"', 'grph = "cat"', r"friends\.toml: \[owners\.cat\]: unknown key 'grph'; did you mean graph"),
        ('graph = "cat"', "", r"friends\.toml: \[owners\.cat\]: graph: Field required"),
        (
            '[owners.cat]\ngraph = "cat"',
            '[owners]\ncat = "cat"',
            r"friends\.toml: owners\.cat: Input should be a valid",
        ),
        ('refuses = ["cat"]', 'refuses = ["cta"]', r"\[owners\.ant\] refuses 'cta'; did you mean cat"),
        ('model = "TransR"', "dims = 3", r"\[owners\.bee\] train: unknown key 'dims'; did you mean dim"),
        ('["cat", "bee"]', '["cat", "be"]', r"links\[1\]: there is no owner 'be'; did you mean bee"),
        ('["cat", "bee"]', '["cat"]', r"links\[1\]: between"),
        ('["cat", "bee"]', '["bee", "ant"]', r"links\[1\]: bee and ant are one owner, or linked above already"),
        ('["cat", "bee"]', '["bee", "bee"]', r"links\[1\]: bee and bee are one owner"),
        ("same = true", "sam = true", r"links\[1\]: unknown key 'sam'; did you mean same"),
        ("[[links]]", "[[link]]", r"friends\.toml: unknown key 'link'; did you mean links"),
        ("[owners.ant]", "[owners.ant", r"not valid TOML"),
    ],
)
def test_mistakes_in_a_toml_file(old: str, new: str, error: str, folder: Path) -> None:
    assert old in TOML
    if old.startswith("[owners.cat]\n"):  # a text where a table is due; it must come before other tables
        text = 'owners.cat = "cat"\n' + TOML.replace(old, "")
    else:
        text = TOML.replace(old, new)
    with pytest.raises(SettingsError, match=error):
        toml(folder, text)


def test_files_that_a_toml_file_names_must_be_there(folder: Path) -> None:
    with pytest.raises(GraphError, match="nobody"):
        toml(folder, TOML.replace('graph = "cat"', 'graph = "nobody"'))
    with pytest.raises(GraphError, match=r"gone\.tsv"):
        toml(folder, TOML.replace("ant__bee.entities.tsv", "gone.tsv"))
    with pytest.raises(SettingsError, match="no two owners share"):
        toml(folder, TOML.partition("[[links]]")[0])
    slashed = TOML.replace("[owners.cat]", '[owners."c/t"]').replace('["cat"', '["c/t"').replace(', "cat"]', ', "c/t"]')
    with pytest.raises(SettingsError, match=r"'c/t' cannot be an owner's name, .*choose one without /"):
        toml(folder, slashed)
    with pytest.raises(SettingsError, match=r"gone\.toml: no such file"):
        read_federation(folder / "gone.toml")


# -- policies --------------------------------------------------------------------------------------

KEEPS = """
default = "share"

[[rules]]
share = false
relation = "{relation}"

[[rules]]
share = false
source = "secrets.tsv"
"""


def write_policy(folder: Path, graph: Graph, name: str = "ant.toml") -> Path:
    folder.mkdir(exist_ok=True)
    h, r, t = graph.train[0].tolist()
    (folder / "secrets.tsv").write_text(f"{graph.entities[h]}\t{graph.relations[r]}\t{graph.entities[t]}\n")
    (folder / name).write_text(KEEPS.format(relation=graph.relations[1]))
    return folder / name


def test_policies_in_a_folder(folder: Path, tmp_path: Path) -> None:
    graph = tiny_federation().graphs["ant"]
    write_policy(folder / "policies", graph)
    read = read_federation(folder)
    assert list(read.members) == list(OWNERS)  # the folder of policies is no owner
    policy = read.members["ant"].policy
    assert policy is not None
    assert read.members["bee"].policy is None
    kept = ~policy.mask(read.members["ant"].graph, "train")
    assert kept[0]
    assert kept[1:].tolist() == (graph.train[1:, 1] == 1).tolist()
    (folder / "policies" / "ant.toml").rename(folder / "policies" / "aunt.toml")
    with pytest.raises(SettingsError, match=r"no owner 'aunt'; did you mean ant"):
        read_federation(folder)


def test_a_policy_in_a_toml_file_is_kept_in_the_store(folder: Path, tmp_path: Path) -> None:
    write_policy(folder / "rules", tiny_federation().graphs["ant"])
    (folder / "circle.toml").write_text(
        '[owners.ant]\ngraph = "ant"\npolicy = "rules/ant.toml"\n[owners.bee]\ngraph = "bee"\n'
        '[[links]]\nbetween = ["ant", "bee"]\nsame = true\n'
    )
    read = read_federation(folder / "circle.toml")
    create_stores(tmp_path / "stores", read, tiny_settings(), seed=0)
    again = federation_of(tmp_path / "stores", ["ant", "bee"])
    assert again.links == read.links
    for name, member in read.members.items():
        other = again.members[name]
        assert other.graph.fingerprint == member.graph.fingerprint
        if member.policy is None:
            assert other.policy is None
        else:
            assert other.policy is not None
            for split in member.graph.splits:
                assert (other.policy.mask(other.graph, split) == member.policy.mask(member.graph, split)).all()


def test_a_graph_that_was_split_at_random_is_split_by_its_policy(folder: Path) -> None:
    graph = tiny_federation().graphs["ant"]
    everything = "".join((folder / "ant" / f"{split}.tsv").read_text() for split in ("train", "valid", "test"))
    (folder / "ant.tsv").write_text(everything)
    write_policy(folder / "rules", graph)
    links = '[[links]]\nbetween = ["ant", "bee"]\nsame = true\n'
    toml = '[owners.ant]\ngraph = "ant.tsv"\n{}[owners.bee]\ngraph = "bee"\n' + links
    (folder / "plain.toml").write_text(toml.format(""))
    (folder / "kept.toml").write_text(toml.format('policy = "rules/ant.toml"\n'))
    plain, kept = (read_federation(folder / f"{name}.toml").members["ant"].graph for name in ("plain", "kept"))
    assert plain.split_seed == 0
    assert any("Split again" in note for note in kept.notes)


def test_a_share_for_everybody_but_those_with_a_policy(folder: Path) -> None:
    write_policy(folder / "policies", tiny_federation().graphs["ant"])
    read = read_federation(folder)
    kept = read.keeping(0.5, seed=1)
    assert kept.members["ant"].policy is read.members["ant"].policy
    policy = kept.members["bee"].policy
    assert policy is not None
    share = policy.mask(kept.members["bee"].graph, "train").mean()
    assert 0.3 < share < 0.7

"""`Policy`: which triples are shared, and that nothing else shows in what is."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from fkge.errors import SettingsError, UnknownLabelError
from fkge.graph import Graph, Policy, Shareable, Vocabulary, load_graph, read_graph, save_graph, tidy

Fact = tuple[str, str, str]
Splits = Mapping[str, Iterable[Fact]]

ENTITIES = ("a", "b", "c/1", "c/2", "é", "r")
RELATIONS = ("likes", "r", "ž/knows")


def graph_of(splits: Splits, same_as: tuple[tuple[str, str], ...] = (), idle: Iterable[str] = ()) -> Graph:
    """The graph that a reader makes of these facts."""
    facts = {split: sorted(set(rows)) for split, rows in splits.items()}
    every = [fact for rows in facts.values() for fact in rows]
    entities = Vocabulary(sorted({e for h, _, t in every for e in (h, t)} | set(idle)), "entity")
    relations = Vocabulary(sorted({r for _, r, _ in every}), "relation")
    ids = {
        split: tidy(np.array([(entities.id(h), relations.id(r), entities.id(t)) for h, r, t in rows]).reshape(-1, 3))
        for split, rows in facts.items()
    }
    notes = (f"{len(every)} facts were read.",)
    return Graph(entities, relations, ids, same_as=same_as, name="ward", notes=notes)


def labelled(graph: Graph, triples: np.ndarray) -> list[Fact]:
    return [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in triples.tolist()]


# -- the slow honest twin: one triple at a time, by its labels -------------------------------------


def slow_answer(values: Mapping[str, Any], fact: Fact) -> bool:
    answer = values["default"] == "share"
    for rule in values["rules"]:
        if slow_match(rule, fact):
            answer = rule["share"]
    return answer


def slow_match(rule: Mapping[str, Any], fact: Fact) -> bool:
    head, relation, tail = fact
    places = {"entity": (head, tail), "head": (head,), "relation": (relation,), "tail": (tail,)}
    for place, labels in places.items():
        if place in rule:
            wanted = [rule[place]] if isinstance(rule[place], str) else rule[place]
            if not any(label in wanted for label in labels):
                return False
    if "pattern" in rule and not any(re.search(rule["pattern"], x) for x in places[rule.get("of", "entity")]):
        return False
    return "fraction" not in rule or slow_uniform(fact, rule.get("seed", 0)) < rule["fraction"]


def slow_uniform(fact: Fact, seed: int) -> float:
    state = 0
    for label in fact:
        digest = hashlib.blake2b(label.encode(), digest_size=8, key=seed.to_bytes(8, "little")).digest()
        state = splitmix64((state + int.from_bytes(digest, "little")) % 2**64)
    return (state >> 11) / 2**53


def splitmix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def test_the_mixer_is_splitmix64() -> None:
    """The first numbers of the generator with state 0, as published with it."""
    steps = [splitmix64(i * 0x9E3779B97F4A7C15 % 2**64) for i in range(3)]
    assert steps == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


# -- policies and graphs at random -----------------------------------------------------------------


def _some(labels: tuple[str, ...]) -> st.SearchStrategy[Any]:
    known = st.sampled_from((*labels, "nowhere"))
    return known | st.lists(known, min_size=1, max_size=3)


conditions: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "relation": _some(RELATIONS).map(lambda x: {"relation": x}),
    "entity": _some(ENTITIES).map(lambda x: {"entity": x}),
    "head": _some(ENTITIES).map(lambda x: {"head": x}),
    "tail": _some(ENTITIES).map(lambda x: {"tail": x}),
    "pattern": st.fixed_dictionaries(
        {"pattern": st.sampled_from(["^c/", "[a-c]$", "é", "r", "^$"])},
        optional={"of": st.sampled_from(["entity", "head", "relation", "tail"])},
    ),
    "fraction": st.fixed_dictionaries(
        {"fraction": st.sampled_from([0.0, 0.3, 0.7, 1.0])}, optional={"seed": st.integers(0, 5)}
    ),
}


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    keys = draw(st.lists(st.sampled_from(sorted(conditions)), min_size=1, max_size=2, unique=True))
    rule: dict[str, Any] = {"share": draw(st.booleans())}
    for key in keys:
        rule |= draw(conditions[key])
    return rule


policies = st.fixed_dictionaries(
    {"default": st.sampled_from(["share", "keep"]), "rules": st.lists(rules(), max_size=4)}
)
facts = st.tuples(st.sampled_from(ENTITIES), st.sampled_from(RELATIONS), st.sampled_from(ENTITIES))
splits = st.fixed_dictionaries(
    {"train": st.sets(facts, max_size=20)}
    | {split: st.sets(facts, max_size=6) for split in ("valid", "test", "test_more")}
)
same_as = st.lists(st.tuples(st.sampled_from(ENTITIES), st.just("x")), max_size=2).map(tuple)


@given(policies, splits)
def test_mask_agrees_with_a_triple_at_a_time(values: dict[str, Any], split: Splits) -> None:
    policy, graph = Policy.build(values), graph_of(split)
    masks = policy.shareable(graph).masks
    assert list(masks) == list(graph.splits)
    for name, triples in graph.splits.items():
        expected = [slow_answer(values, fact) for fact in labelled(graph, triples)]
        assert policy.mask(graph, name).tolist() == expected
        assert masks[name].tolist() == expected


@given(policies, splits)
def test_shareable_is_the_graph_of_the_shareable_triples_alone(values: dict[str, Any], split: Splits) -> None:
    graph = graph_of(split, idle=["idle"])
    part = Policy.build(values).shareable(graph)
    train = {fact for fact in split["train"] if slow_answer(values, fact)}
    entities, relations = {e for h, _, t in train for e in (h, t)}, {r for _, r, _ in train}
    valid = {
        (h, r, t)
        for h, r, t in split["valid"]
        if slow_answer(values, (h, r, t)) and {h, t} <= entities and r in relations
    }
    alone = graph_of({"train": train, "valid": valid})
    assert part.graph.fingerprint == alone.fingerprint
    assert list(part.graph.splits) == ["train", "valid", "test"]
    assert part.graph.name == "ward"
    assert part.entities.dtype == part.relations.dtype == np.int64
    assert [graph.entities[i] for i in part.entities] == list(part.graph.entities)
    assert [graph.relations[i] for i in part.relations] == list(part.graph.relations)


# -- non-interference ------------------------------------------------------------------------------


def visible(part: Shareable, graph: Graph) -> tuple[Any, ...]:
    """Everything of a shareable part that the guarantee speaks of."""
    inside = {name: labelled(graph, triples[part.masks[name]]) for name, triples in graph.splits.items()}
    own = part.graph
    arrays = {name: triples.tolist() for name, triples in own.splits.items()}
    return list(own.entities), list(own.relations), arrays, own.same_as, own.name, own.notes, own.fingerprint, inside


def check_non_interference(share: Callable[[Policy, Graph], Shareable]) -> None:
    """Keep the shareable triples of a random graph, put other confidential ones in, and compare."""

    @settings(max_examples=300, derandomize=True, database=None, phases=[Phase.generate], deadline=None)
    @given(policies, splits, splits, same_as, same_as)
    def check(values: dict[str, Any], one: Splits, other: Splits, here: Any, there: Any) -> None:
        shareable = {name: {fact for fact in rows if slow_answer(values, fact)} for name, rows in one.items()}
        other = {
            name: shareable[name] | {f for f in rows if not slow_answer(values, f)} for name, rows in other.items()
        }
        policy = Policy.build(values)
        graphs = graph_of(one, here), graph_of(other, there, idle=["idle"])
        seen = [visible(share(policy, graph), graph) for graph in graphs]
        assert seen[0] == seen[1]

    check()


def test_no_confidential_triple_shows_in_the_shareable_graph() -> None:
    check_non_interference(Policy.shareable)


def leaky_vocabulary(policy: Policy, graph: Graph) -> Shareable:
    """Right triples, under the ids of the full graph."""
    part = policy.shareable(graph)
    kept = {name: graph.splits[name][part.masks[name]] for name in ("train", "valid")}
    return replace(part, graph=replace(part.graph, entities=graph.entities, relations=graph.relations, splits=kept))


def leaky_validation(policy: Policy, graph: Graph) -> Shareable:
    """Valid triples whose entities any training triple knows, a confidential one too."""
    part = policy.shareable(graph)
    known = set(graph.train[:, [0, 2]].flat)
    valid = [row for row in graph.valid[part.masks["valid"]].tolist() if {row[0], row[2]} <= known]
    facts = {"train": labelled(part.graph, part.graph.train), "valid": labelled(graph, np.array(valid).reshape(-1, 3))}
    return replace(part, graph=replace(graph_of(facts), notes=()))


def leaky_notes(policy: Policy, graph: Graph) -> Shareable:
    part = policy.shareable(graph)
    return replace(part, graph=replace(part.graph, notes=graph.notes))


def leaky_links(policy: Policy, graph: Graph) -> Shareable:
    part = policy.shareable(graph)
    return replace(part, graph=replace(part.graph, same_as=graph.same_as))


@pytest.mark.parametrize("leak", [leaky_vocabulary, leaky_validation, leaky_notes, leaky_links])
def test_a_planted_leak_is_found(leak: Callable[[Policy, Graph], Shareable]) -> None:
    with pytest.raises(AssertionError):
        check_non_interference(leak)


def test_ids_do_not_depend_on_the_order_of_an_unsorted_vocabulary() -> None:
    rows = np.array([[0, 0, 1], [1, 1, 2]], np.int32)
    graph = Graph(Vocabulary(["z", "y", "x"]), Vocabulary(["two", "one"]), {"train": rows})
    part = Policy.everything().shareable(graph)
    assert list(part.graph.entities) == ["x", "y", "z"]
    assert part.entities.tolist() == [2, 1, 0]
    assert part.relations.tolist() == [1, 0]
    assert part.graph.train.tolist() == [[1, 0, 0], [2, 1, 1]]


def test_what_is_left_out_of_validation_is_told() -> None:
    graph = graph_of({"train": [("a", "r", "b"), ("c", "secret", "d")], "valid": [("b", "r", "a"), ("a", "r", "c")]})
    part = Policy.build({"default": "share", "rules": [{"share": False, "relation": "secret"}]}).shareable(graph)
    assert labelled(part.graph, part.graph.valid) == [("b", "r", "a")]
    assert part.masks["valid"].tolist() == [True, True]
    assert "1 shareable triples" in part.graph.notes[1]


def test_parts_are_read_only_and_can_be_empty(tmp_path: Path) -> None:
    graph = graph_of({"train": [("a", "r", "b")]})
    part = Policy.build({"default": "keep"}).shareable(graph)
    assert (len(part.graph.entities), len(part.graph.relations), len(part.graph.facts)) == (0, 0, 0)
    with pytest.raises(ValueError, match="read-only"):
        part.masks["train"][0] = True
    save_graph(part.graph, tmp_path / "empty")
    assert load_graph(tmp_path / "empty").fingerprint == part.graph.fingerprint


# -- splitting at random ---------------------------------------------------------------------------


@given(policies, splits, splits, st.integers(0, 3), st.booleans())
def test_resplit_places_shareable_triples_by_shareable_triples_only(
    values: dict[str, Any], one: Splits, other: Splits, seed: int, unseen: bool
) -> None:
    pool = {fact for rows in one.values() for fact in rows}
    shareable = {fact for fact in pool if slow_answer(values, fact)}
    more = shareable | {fact for rows in other.values() for fact in rows if not slow_answer(values, fact)}
    policy, seen = Policy.build(values), []
    for facts in (pool, more):
        graph = policy.resplit(graph_of({"train": facts}), seed=seed, fractions=(0.4, 0.3, 0.3), allow_unseen=unseen)
        parts = [labelled(graph, triples) for triples in graph.splits.values()]
        assert sorted(fact for part in parts for fact in part) == sorted(facts)
        if not unseen:
            assert len(np.unique(graph.train[:, [0, 2]])) == len(graph.entities)
            assert len(np.unique(graph.train[:, 1])) == len(graph.relations)
        seen.append(visible(policy.shareable(graph), graph))
    assert seen[0] == seen[1]


def test_a_plain_random_split_would_leak_and_resplit_does_not(tmp_path: Path) -> None:
    rows = [f"p{i}\tknows\tp{(i * j + 1) % 40}" for i in range(40) for j in (1, 3, 7)]
    policy = Policy.build({"default": "share", "rules": [{"share": False, "relation": "diagnosis"}]})
    plain, again = [], []
    for extra in ([], ["p1\tdiagnosis\tflu"]):
        (tmp_path / "ward.tsv").write_text("\n".join(rows + extra))
        graph = read_graph(tmp_path / "ward.tsv", seed=3)
        plain.append(policy.shareable(graph).graph.fingerprint)
        again.append(policy.shareable(policy.resplit(graph, seed=3)).graph.fingerprint)
    assert plain[0] != plain[1]
    assert again[0] == again[1]


# -- the fraction chosen by hash -------------------------------------------------------------------


def grid(n: int = 150) -> Graph:
    ids = np.stack([np.repeat(np.arange(n), n), np.zeros(n * n, int), np.tile(np.arange(n), n)], axis=1)
    return Graph(Vocabulary([f"e{i:03}" for i in range(n)]), Vocabulary(["r"]), {"train": ids})


def chosen(fraction: float, seed: int, graph: Graph) -> np.ndarray:
    rules = [{"share": False, "fraction": fraction, "seed": seed}]
    return ~Policy.build({"default": "share", "rules": rules}).mask(graph, "train")


@pytest.mark.parametrize("seed", range(4))
def test_fraction_is_met_evenly_and_in_no_pattern(seed: int) -> None:
    graph = grid()
    square = chosen(0.2, seed, graph).reshape(150, 150)
    deviation = (0.2 * 0.8 / square.size) ** 0.5
    assert abs(square.mean() - 0.2) < 4 * deviation
    assert not abs(square.mean() - 0.22) < 4 * deviation
    for counts in (square.sum(0), square.sum(1)):
        # If triples are decided apart from each other, counts per head and per tail are binomial.
        assert 0.6 < counts.var() / (150 * 0.2 * 0.8) < 1.5
    by_head_alone = np.broadcast_to(square[:, :1], square.shape)
    assert not by_head_alone.sum(1).var() / (150 * 0.2 * 0.8) < 1.5
    # A triple and the one with head and tail exchanged have nothing to do with each other.
    above = np.triu_indices(150, 1)
    both = (square & square.T)[above].mean()
    assert abs(both - 0.04) < 5 * (0.04 * 0.96 / len(above[0])) ** 0.5


def test_a_larger_fraction_adds_and_another_seed_chooses_anew() -> None:
    graph = grid(60)
    small, large, other = chosen(0.2, 1, graph), chosen(0.5, 1, graph), chosen(0.2, 2, graph)
    assert (large | ~small).all()
    assert 0.02 < (small & other).mean() < 0.06
    assert chosen(1, 1, graph).all()
    assert not chosen(0, 1, graph).any()


# -- files -----------------------------------------------------------------------------------------

FILE = """
default = "share"
[[rules]]
share = false
relation = "diagnosis"
[[rules]]
share = false
entity = ["patient/17"]
[[rules]]
share = true
source = "public.tsv"
"""


def test_the_last_rule_that_matches_wins(write: Callable[[str, str], Path]) -> None:
    write("public.tsv", "patient/17\tdiagnosis\tflu\nnobody\tdiagnosis\tflu\n")
    policy = Policy.load(write("policy.toml", FILE))
    graph = graph_of(
        {
            "train": [
                ("patient/17", "diagnosis", "flu"),
                ("patient/18", "diagnosis", "flu"),
                ("patient/17", "lives in", "Athens"),
                ("patient/18", "lives in", "Athens"),
            ],
            "test": [("patient/17", "diagnosis", "flu")],
        }
    )
    shared = labelled(graph, graph.train[policy.mask(graph, "train")])
    assert shared == [("patient/17", "diagnosis", "flu"), ("patient/18", "lives in", "Athens")]
    assert policy.mask(graph, "test").tolist() == [True]
    assert policy.unused(graph) == ("rule 3: source: 1 of the 2 triples of public.tsv do not occur",)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kept.nt", '<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> <http://x/r> "1" .\n'),
        ("kept.ttl", '<http://x/a> <http://x/r> <http://x/b>, "1" .\n'),
        ("kept.tsv.gz", 'http://x/a\thttp://x/r\thttp://x/b\nhttp://x/a\thttp://x/r\t"1"\n'),
        ("kept/train.csv", 'http://x/a,http://x/r,http://x/b\nhttp://x/a,http://x/r,"""1"""\n'),
    ],
)
def test_source_in_any_format_finds_triples_literals_included(
    write: Callable[[str, str], Path], name: str, text: str
) -> None:
    whole = '<http://x/a> <http://x/r> <http://x/b>, "1", "2" . <http://x/b> <http://x/r> <http://x/a> .'
    graph = read_graph(write("whole.ttl", whole), literals="keep", fractions=(1, 0, 0))
    write(name, text)
    source = name.partition("/")[0]
    policy = Policy.load(write("p.toml", f'default = "share"\n[[rules]]\nshare = false\nsource = "{source}"\n'))
    shared = labelled(graph, graph.train[policy.mask(graph, "train")])
    assert shared == [("http://x/a", "http://x/r", '"2"'), ("http://x/b", "http://x/r", "http://x/a")]
    assert policy.unused(graph) == ()


def test_source_is_read_once_and_is_part_of_the_fingerprint(write: Callable[[str, str], Path]) -> None:
    path, source = write("p.toml", 'default = "share"\n[[rules]]\nshare = false\nsource = "s.tsv"\n'), "a\tr\tb\n"
    write("s.tsv", source)
    one = Policy.load(path)
    write("s.tsv", source + "b\tr\ta\n")
    other = Policy.load(path)
    graph = graph_of({"train": [("a", "r", "b"), ("b", "r", "a")]})
    assert one.mask(graph, "train").tolist() == [False, True]
    assert other.mask(graph, "train").tolist() == [False, False]
    assert one.to_toml() == other.to_toml()
    assert one.fingerprint != other.fingerprint


def test_order_of_rules_is_part_of_the_fingerprint() -> None:
    rules = [{"share": False, "head": "a"}, {"share": True, "tail": "b"}]
    one, other = ({"default": "share", "rules": order} for order in (rules, rules[::-1]))
    assert Policy.build(one).fingerprint != Policy.build(other).fingerprint


labels = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(policies, st.lists(labels, min_size=1, max_size=3))
@example({"default": "keep", "rules": []}, ["\x7f", "\x00\n\r\t", "\\", '"', "\x85", ""])
def test_to_toml_says_the_same(values: dict[str, Any], odd: list[str]) -> None:
    policy = Policy.build({**values, "rules": [*values["rules"], {"share": False, "entity": odd}]})
    again = Policy.build(tomllib.loads(policy.to_toml()))
    assert (again.default, again.rules) == (policy.default, policy.rules)
    assert again.fingerprint == policy.fingerprint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", r"p\.toml: default is missing.*above the first rule"),
        ('[[rules]]\nshare = false\nrelation = "r"\ndefault = "share"', "default is missing.*above the first rule"),
        ('default = "shared"', r"default: Input should be 'share' or 'keep' \(got 'shared'\)"),
        ('default = "keep"\nrule = []', "unknown key 'rule'; did you mean rules"),
        ('default = "keep"\n[rules]\nshare = true', r"rules: .*each under \[\[rules\]\]"),
        ("RULE", "rule 2: matches by nothing; give it one of .* or change `default`"),
        ('RULE\nrelatoin = "r"', "rule 2: unknown key 'relatoin'; did you mean relation"),
        ("RULE\nrelation = []", "rule 2: relation: an empty list matches nothing"),
        ("RULE\nrelation = 3", "rule 2: relation: "),
        ("RULE\nhead = [3]", "rule 2: head.0: .*string"),
        ('RULE\npattern = "(a"', r"rule 2: pattern: is not a regular expression: .*unterminated.*\(got '\(a'\)"),
        ('RULE\npattern = "a"\nof = "subject"', "rule 2: of: .*'entity', 'head', 'relation' or 'tail'"),
        ('RULE\nrelation = "r"\nof = "head"', "rule 2: has 'of' without 'pattern'"),
        ('RULE\nrelation = "r"\nseed = 1', "rule 2: has 'seed' without 'fraction'"),
        ("RULE\nfraction = 1.5", "rule 2: fraction: .*less than or equal to 1.*got 1.5"),
        ("RULE\nfraction = nan", "rule 2: fraction: "),
        ("RULE\nfraction = 0.5\nseed = -1", "rule 2: seed: .*greater than or equal to 0"),
        ('RULE\nsource = "hospitl.tsv"', "rule 2: source: .*hospitl.tsv: does not exist; did you mean hospital.tsv"),
        ('RULE\nsource = "empty.tsv"', r"rule 2: source: .*empty.tsv: holds no triples"),
        ('RULE\nsource = "nameless.ttl"', r"rule 2: source: .*nodes without a name.*\.tsv"),
    ],
)
def test_errors_name_the_rule_the_key_and_the_way_out(write: Callable[[str, str], Path], text: str, told: str) -> None:
    write("hospital.tsv", "a\tr\tb\n")
    write("empty.tsv", "")
    write("nameless.ttl", "[] <http://x/r> <http://x/a> .")
    first = 'default = "keep"\n[[rules]]\nshare = true\nrelation = "r"\n[[rules]]\nshare = false'
    path = write("p.toml", text.replace("RULE", first))
    with pytest.raises(SettingsError, match=told) as caught:
        Policy.load(path)
    assert str(caught.value).startswith(str(path))


def test_share_must_be_given_and_be_true_or_false() -> None:
    for rule in ({"relation": "r"}, {"relation": "r", "share": "no"}):
        with pytest.raises(SettingsError, match=r"policy: rule 1: share: .*share: true or false"):
            Policy.build({"default": "share", "rules": [rule]})


def test_missing_file_and_unknown_split(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such file"):
        Policy.load(tmp_path / "none.toml")
    with pytest.raises(UnknownLabelError, match="no split 'trian'; did you mean train"):
        Policy.everything().mask(graph_of({}), "trian")


def test_what_a_rule_names_in_vain_is_told() -> None:
    graph = graph_of({"train": [("patient/1", "diagnosis", "flu"), ("flu", "is a", "illness")]})
    rules = [
        {"share": False, "relation": ["diagnoses", "diagnosis"]},
        {"share": False, "entity": [f"x{i}" for i in range(7)]},
        {"share": False, "pattern": "^patients/", "of": "head"},
        {"share": False, "head": "illness"},
        {"share": False, "head": "flu", "fraction": 1},
    ]
    notes = Policy.build({"default": "share", "rules": rules}).unused(graph)
    assert notes[0] == "rule 1: relation: no relation 'diagnoses'; did you mean diagnosis?"
    assert [note for note in notes if note.startswith("rule 2")][-1] == "rule 2: entity: 2 more labels do not occur"
    assert notes[-2:] == ("rule 3: pattern: '^patients/' is found in no head label", "rule 4: matches no triple")


def test_resplit_leaves_further_test_sets_alone() -> None:
    facts = [(f"e{i}", "r", f"e{i + 1}") for i in range(40)]
    graph = graph_of({"train": facts[:30], "valid": [], "test": [], "test_hard": facts[30:]})
    policy = Policy.build({"default": "share", "rules": [{"share": False, "fraction": 0.3}]})
    again = policy.resplit(graph, seed=1, allow_unseen=True)
    assert labelled(again, again.splits["test_hard"]) == labelled(graph, graph.splits["test_hard"])
    drawn = [fact for split in ("train", "valid", "test") for fact in labelled(again, again.splits[split])]
    assert sorted(drawn) == sorted(facts[:30])

"""Every attack succeeds where nothing protects, fails where a claim holds, and detects a claim that does not."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fkge.align import Tokens, psi
from fkge.audit import attack_names
from fkge.audit.findings import Verdict
from fkge.audit.roc import against_dp, auc_limit
from fkge.audit.run import audit
from fkge.audit.subject import opened
from fkge.cli import app
from fkge.embed.dp_noise import Noise
from fkge.errors import FkgeError, RunError, SettingsError
from fkge.experiment.simulation import Simulation
from fkge.federation import Federation, Links, Member, Owner
from fkge.federation.owner import training as owners
from fkge.graph import Graph, Policy, Shareable, read_graph, tidy
from fkge.ppat import host
from fkge.privacy import noise_for
from tests.conftest import tiny_federation, tiny_settings
from tests.privacy.test_non_interference import leak

TRAIN = {"dim": 32, "batch": 256, "negatives": 8, "lr": 0.01}


def umls() -> Federation:
    """UMLS dealt to two owners at random, a third of each part held out: few triples, soon known by heart."""
    graph = read_graph("pykeen:umls")
    members = {}
    for name, part in zip(("ada", "bob"), np.array_split(np.random.default_rng(0).permutation(graph.facts), 2),
                          strict=True):  # fmt: skip
        a, b = int(0.7 * len(part)), int(0.85 * len(part))
        splits = {"train": tidy(part[:a]), "valid": tidy(part[a:b]), "test": tidy(part[b:])}
        members[name] = Member(replace(graph, splits=splits, name=name))
    return Federation("umls", members, {("ada", "bob"): Links(same=True)})


def made(folder: Path, federation: Federation, **settings: Any) -> Path:
    simulation = Simulation.create(
        folder / "run", federation, tiny_settings(**settings), baselines=(), engine="in-process"
    )
    assert simulation.run() is not None
    return folder / "run"


def only(run: Path, section: str, *, quick: bool = True, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = audit(run, only=[section], quick=quick, **more).to_json()["sections"][section]
    json.dumps(found, allow_nan=False)
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No noise; 30% of the triples confidential."""
    folder = tmp_path_factory.mktemp("plain")
    return made(folder, umls().keeping(0.3, seed=1), exchanges=8, epochs=3, train=TRAIN)


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("private")
    mode = {"mode": "dp", "epsilon": 1.0}
    return made(folder, umls(), exchanges=4, epochs=2, train=TRAIN, privacy=mode)


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("game")
    return made(folder, tiny_federation(), exchanges=2, translate="ppat", privacy={"mode": "paper"})


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go; whatever happens, nothing may be left there."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def digest(run: Path) -> dict[str, tuple[str, int]]:
    files = sorted(path for path in run.rglob("*") if path.is_file())
    return {str(f.relative_to(run)): (hashlib.sha256(f.read_bytes()).hexdigest(), f.stat().st_mtime_ns) for f in files}


# -- all of it -------------------------------------------------------------------------------------


def test_every_section_has_its_verdict_and_the_run_is_only_read(plain: Path, scratch: Path) -> None:
    before = digest(plain)
    result = audit(plain, quick=True).to_json()
    assert digest(plain) == before
    verdicts = {name: found["verdict"] for name, found in result["sections"].items()}
    holds, no_claim = Verdict.HOLDS, Verdict.OPEN
    assert verdicts | {
        "non-interference": holds, "membership": no_claim, "canaries": no_claim, "reconstruction": no_claim,
        "dictionary": holds, "poisoning": holds,
    } == verdicts  # fmt: skip
    assert tuple(verdicts) == attack_names()
    assert not result["broken"]
    for found in result["sections"].values():
        assert all(isinstance(found[key], str) and found[key] for key in ("claim", "on", "result"))
    same = result["sections"]["non-interference"]
    assert same["messages"] > 20
    assert same["bytes"] > 100_000
    assert same["secrets"] > 1000
    json.dumps(result, allow_nan=False)


def test_interrupted_nothing_is_left(plain: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        assert any(scratch.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr("fkge.audit.attacks.non_interference.InProcess.run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        audit(plain, only=["non-interference"], quick=True)


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [({"only": ["membrship"]}, SettingsError, "did you mean membership"), ({"owner": "eve"}, FkgeError, "eve")],
)
def test_mistakes_are_named(plain: Path, more: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        audit(plain, **more)


def test_what_is_not_finished_is_not_audited(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no simulation"):
        audit(tmp_path)
    Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings(), baselines=())
    with pytest.raises(RunError, match="--resume"):
        audit(tmp_path / "run")


def test_the_victim_can_be_chosen(plain: Path, scratch: Path) -> None:
    with opened(plain, "bob") as subject:
        assert (subject.owner, subject.peer) == ("bob", "ada")
        shared = subject.victim.shared
        assert subject.track("bob").tables["entity"].shape == (len(shared.entities), 32)
        assert subject.track("bob").spent  # it is what the federation ended with
        assert len(shared.train) < len(subject.victim.graph.train)


# -- the command -----------------------------------------------------------------------------------


def test_the_command_says_broken_and_exits_24(plain: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["audit", str(plain), "--only", "non-interference", "--quick"]
    sound = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert sound.exit_code == 0, sound.output
    assert "holds" in sound.stdout
    leak(monkeypatch)
    found = CliRunner().invoke(app, [*words, "--json"])
    assert found.exit_code == 24
    result = json.loads(found.stdout.strip().splitlines()[-1])
    assert result["broken"]
    assert result["sections"]["non-interference"]["verdict"] == Verdict.BROKEN
    assert "ada, bob" in result["sections"]["non-interference"]["result"]


# -- membership ------------------------------------------------------------------------------------


def test_rows_without_noise_disclose_shareable_but_not_confidential_triples(plain: Path) -> None:
    found = only(plain, "membership", quick=False)
    assert found["verdicts"] == [Verdict.OPEN, Verdict.HOLDS]
    for attack in found["shareable"].values():
        assert attack["low"] > 0.55
    assert set(found["shareable"]) == {"raw", "calibrated", "shadow"}
    for attack in (found["confidential"]["raw"], found["confidential"]["calibrated"]):
        assert attack["low"] < 0.5 < attack["high"]
        assert attack["members"] > 200


def test_private_training_stays_within_its_claim(private: Path) -> None:
    found = only(private, "membership")
    assert found["verdicts"] == [Verdict.HOLDS]
    assert found["dp"]["raw"]["auc_allowed"] == pytest.approx(1 - 1 / (1 + math.e), abs=1e-4)
    assert found["shareable"]["raw"]["high"] < found["dp"]["raw"]["auc_allowed"]


def test_a_track_that_saw_confidential_triples_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that is read and not heeded: the masks say confidential, the shared track trains on all the same."""
    with monkeypatch.context() as careless:

        def everything(policy: Policy, graph: Graph) -> Shareable:
            return honest(Policy.everything(), graph)

        honest = Policy.shareable
        careless.setattr(Policy, "shareable", everything)
        run = made(tmp_path, umls().keeping(0.3, seed=1), exchanges=8, epochs=3, train=TRAIN)
    found = only(run, "membership")
    assert found["verdicts"] == [Verdict.OPEN, Verdict.BROKEN]
    assert found["verdict"] == Verdict.BROKEN
    assert found["confidential"]["raw"]["low"] > found["confidential"]["control"]["raw"]["high"]


def test_too_few_triples_are_no_test(game: Path) -> None:
    found = only(game, "membership")
    assert found["verdict"] == Verdict.UNTESTED
    assert "too few" in found["result"]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_limits_of_dp_are_those_of_randomised_response(epsilon: float) -> None:
    """The best test of pure ε-DP: it reaches the limit at every ε, and is refused by any smaller claim."""
    assert auc_limit(0, 0) == 0.5
    rate = np.linspace(0, 1, 100_001)
    curve = np.minimum(math.exp(epsilon) * rate, 1 - math.exp(-epsilon) * (1 - rate))
    assert auc_limit(epsilon, 0) == pytest.approx(float(np.trapezoid(curve, rate)), abs=1e-6)
    rng = np.random.default_rng(0)
    truth = 1 / (1 + math.exp(-epsilon))
    members, others = ((rng.random(20_000) < p).astype(float) for p in (truth, 1 - truth))
    assert not against_dp(members, others, epsilon, 1e-5).exceeded
    assert against_dp(members, others, epsilon / 2, 1e-5).exceeded


def test_a_few_triples_disclosed_for_certain_exceed_the_limit() -> None:
    """The area hardly moves; the share found at no false alarm does."""
    rng = np.random.default_rng(1)
    members, others = rng.normal(size=(2, 5000))
    members[:500] = 100
    found = against_dp(members, others, 1.0, 1e-5)
    assert found.exceeded
    assert found.tpr_at_01.low > found.tpr_at_01.allowed
    assert not against_dp(members[500:], others, 1.0, 1e-5).exceeded


# -- canaries --------------------------------------------------------------------------------------


def test_the_noise_that_was_paid_for_is_there(private: Path) -> None:
    found = only(private, "canaries")
    assert (found["verdict"], found["tenth_caught"], found["audited_optimizer"]) == (Verdict.HOLDS, True, "sgd")
    by_share = {one["noise_share"]: one["epsilon_lower"] for one in found["audits"]}
    assert by_share[1.0] < found["epsilon"] < by_share[0.1]


def tenth_of_sigma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "noise_for", lambda *words: noise_for(*words) / 10)


def tenth_of_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Noise.normal
    monkeypatch.setattr(Noise, "normal", lambda source, rows, width: honest(source, rows, width) / 10)


@pytest.mark.parametrize("cut", [tenth_of_sigma, tenth_of_draws])
def test_a_tenth_of_the_noise_is_detected(
    cut: Callable[[pytest.MonkeyPatch], None], private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch)
    assert only(private, "canaries")["verdict"] == Verdict.BROKEN


def test_a_large_epsilon_is_audited_where_it_can_be_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(tmp_path, tiny_federation(), exchanges=2, privacy={"mode": "dp", "epsilon": 8.0})
    found = only(run, "canaries")
    assert [one["claim"] for one in found["audits"]] == [8.0, 2.0, 2.0]
    assert (found["verdict"], found["tenth_caught"]) == (Verdict.HOLDS, True)
    tenth_of_sigma(monkeypatch)
    assert only(run, "canaries")["verdict"] == Verdict.BROKEN


def test_samples_are_audited_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dp = {"rate": 0.25, "optimizer": "sgd", "lr": 0.02}
    run = made(tmp_path, tiny_federation(), exchanges=2, privacy={"mode": "dp", "epsilon": 1.0}, dp=dp)
    found = only(run, "canaries")
    assert (found["verdict"], found["tenth_caught"], found["rate"]) == (Verdict.HOLDS, True, 0.25)
    tenth_of_sigma(monkeypatch)
    assert only(run, "canaries")["verdict"] == Verdict.BROKEN


def test_votes_have_their_noise_and_a_tenth_of_it_is_found_out(game: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = only(game, "canaries")
    assert (found["verdict"], found["tenth_caught"]) == (Verdict.HOLDS, True)
    assert 0 < found["audits"][0]["epsilon_lower"] < found["epsilon"] < 4.5
    honest = host.laplace
    monkeypatch.setattr(host, "laplace", lambda shape, scale, source: honest(shape, scale / 10, source))
    assert only(game, "canaries")["verdict"] == Verdict.BROKEN


# -- reconstruction, dictionary, poisoning ---------------------------------------------------------


def test_a_client_has_no_secrets_from_its_host(game: Path) -> None:
    found = only(game, "reconstruction")
    assert found["verdict"] == Verdict.OPEN
    assert "no guarantee" in found["claim"]
    assert found["ppat"]["error"] < 1e-4
    assert found["ppat"]["identified"] == 1
    assert found["procrustes"]["gram_error"] < 1e-5
    assert found["procrustes"]["from_anchors"]["error"] < 1e-4


def test_hashes_fall_and_the_intersection_does_not(plain: Path) -> None:
    found = only(plain, "dictionary")
    assert found["verdict"] == Verdict.HOLDS
    assert found["hashed"]["recovered"] == 1
    assert found["psi"]["recovered"] == found["tokens"]["recovered"] == 0
    assert found["psi"]["looked_at"] > 33 * 3 * 100  # all that passed, at every offset


def test_an_intersection_without_a_secret_is_detected(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def known(secret: Any) -> None:
        import private_set_intersection.python as library

        secret._library, secret._key = library, 1
        secret._hider = library.client.CreateFromKey((1).to_bytes(32, "big"), True)

    monkeypatch.setattr(psi.Secret, "__init__", known)
    found = only(plain, "dictionary")
    assert found["verdict"] == Verdict.BROKEN
    assert found["psi"]["hash"] == "no exponent"


def test_tokens_made_of_labels_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def named(rows: Any, seed: int) -> Tokens:
        def of(labels: Any) -> np.ndarray:
            digests = [hashlib.sha256(label.encode()).digest()[:8] for label in labels]
            return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)

        return Tokens({"entity": of(rows.entities), "relation": of(rows.relations)})

    monkeypatch.setattr(Tokens, "draw", staticmethod(named))
    found = only(made(tmp_path, tiny_federation(), exchanges=1), "dictionary")
    assert found["verdict"] == Verdict.BROKEN
    assert found["tokens"]["recovered"] == 44
    assert found["psi"]["recovered"] == 0


def test_a_hostile_peer_is_kept_out_by_limits_and_backtrack_alone(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = only(plain, "poisoning")
    assert found["verdict"] == Verdict.HOLDS
    assert found["before"]["mrr"] > 0.15
    assert found["largest"]["limits and backtrack"] <= found["tolerance"]
    assert found["largest"]["neither"] > 0.1  # the attack is one
    for by_attack in found["drops"].values():
        assert set(by_attack) == {"honest", "huge", "flipped", "targeted"}
        assert all(scored["handshakes"] > 0 for scored in by_attack.values())
    # An owner that does not go back is at the attacker's mercy, and the audit says so.
    monkeypatch.setattr(Owner, "_roll_back", lambda owner: False)
    monkeypatch.setattr(Owner, "best", lambda owner: owner.tables)
    assert only(plain, "poisoning")["verdict"] == Verdict.BROKEN

"""Settings of a federation. The defaults won in experiments; recipes/ have the paper's settings."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fkge.align import PsiSettings
from fkge.embed import DpSettings
from fkge.federation.protocol import ProtocolConfig
from fkge.ppat import PpatSettings
from fkge.settings import Settings, TrainSettings

Translate = Literal["frame", "procrustes", "ppat", "ppat+refine"]


def _section(kind: type[Settings], description: str) -> Any:
    """Return a field for settings of their own, at their defaults where none are given."""
    return Field(default_factory=lambda: kind.build({}), description=description)


class PrivateSettings(Settings):
    """Settings of the private track: how it learns from the shared track."""

    epochs: int = Field(60, ge=0, description="epochs on all triples, for each `pull` that is tried")
    pull: tuple[float, ...] = Field(
        (0.5, 0.0),
        min_length=1,
        description="part of the way back to the shared vectors; of several, the owner's validation triples choose",
    )
    alone: bool = Field(
        True, description="try a lone training from a fresh start as well, so that bad peers do no harm"
    )
    follow: Literal["rows", "relations"] = Field(
        "rows",
        description="what to take over and be pulled to: every shared row, or relations only, the least noisy ones",
    )
    scale: float = Field(
        1.0, gt=0, description="factor on the shared vectors, in addition to the ratio of the two margins"
    )
    rest: float = Field(
        1.0, ge=0, description="factor on the initial values of columns that a narrower shared track does not fill"
    )
    every: int = Field(3, ge=1, description="epochs between two pulls")
    tests: int = Field(4, ge=1, description="looks at validation triples on the way; the best vectors are kept")

    @property
    def total(self) -> int:
        """Epochs, over all tries."""
        return self.epochs * len(self.tries)

    @property
    def tries(self) -> tuple[float | None, ...]:
        """The candidates that are tried: pulls, and None for the lone training."""
        return (*self.pull, None) if self.alone else self.pull


class PrivacySettings(Settings):
    """Protection of messages that leave. An owner's sharing policy is separate, and applies in every mode."""

    mode: Literal["none", "paper", "dp"] = Field(
        "none",
        description="none: no noise; paper: the game's votes are noised and paid for, the client's vectors have no "
        "guarantee; dp: the shared track is trained by DP-SGD, (epsilon, delta) per triple against all that leaves",
    )
    epsilon: float | None = Field(
        None, gt=0, description="the most that may ever be spent; mode dp needs it, mode paper may have no limit"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="δ of that (ε, δ)")
    ledger: str | None = Field(
        None,
        description="a folder where each owner's ledger is kept for good, OWNER.sqlite, over all runs and arms; "
        "without it each arm of a simulation has a budget of its own",
    )


class FederationSettings(Settings):
    """Settings of a federation: how its owners exchange and train."""

    start: Literal["together", "alone"] = Field(
        "together",
        description="aligned rows begin alike and are exchanged from the first epoch, or owners train alone first",
    )
    translate: Translate = Field(
        "frame",
        description="frame: all owners share one frame, vectors are sent as they are; procrustes: sent under a secret "
        "rotation, aligned by the host; ppat: the paper's adversarial game; ppat+refine: that, then aligned too",
    )
    share: Literal["both", "entities", "relations"] = Field("both", description="what is exchanged")
    ratio: float = Field(
        1.0, gt=0, le=1, description="part of the aligned pairs that is used, drawn once per pair of owners"
    )
    chains: bool = Field(
        True,
        description="also exchange rows that two owners have in common only through links to third owners, found by "
        "random tokens (start = together, ratio = 1)",
    )
    aggregate: Literal["support", "average", "replace", "validation"] = Field(
        "support",
        description="own and received vectors: mean weighted by log(1 + training triples of each), where sent "
        "(frame, procrustes); plain mean; received ones only; or a mix chosen on the host's validation triples",
    )
    moments: Literal["average", "keep", "fresh"] = Field(
        "average",
        description="the optimiser's moments of aggregated rows: exchanged and averaged, kept, or reset",
    )
    limit: float = Field(
        4.0,
        gt=0,
        description="a received row may move the host's by at most this many median row lengths; a peer's "
        "weights and moments are limited by the host's own. Against a hostile or broken peer",
    )
    neighbours: bool = Field(
        False,
        description="clients also send their aligned rows' neighbours and the triples between (discloses triples)",
    )

    initial_epochs: int = Field(
        120, ge=0, description="epochs of a lone owner's first training; start=together needs none"
    )
    exchanges: int = Field(80, ge=0, description="rounds of exchange, training and test an owner pays for after that")
    epochs: int = Field(3, ge=1, description="epochs after each exchange")
    test_every: int = Field(8, ge=1, description="exchanges between two tests on validation triples")
    regularization_factor: float = Field(
        1.0,
        ge=0,
        description="factor on `train.regularization` while owners exchange: more facts support a shared row than one "
        "owner has",
    )
    validate_means: bool = Field(
        False,
        description="validate right after an exchange, too, before training continues: the mean of owners' rows "
        "may be better than the rows after training",
    )
    lone_epochs: int = Field(
        0,
        ge=0,
        description="epochs of a second training at the end, without peers; the two models are blended with weights "
        "that validation triples choose for each relation, so that joining costs nothing. 0: none. Owners with two "
        "tracks have `private.alone` instead",
    )
    patience: int = Field(
        0,
        ge=0,
        description="tests without a better score before an owner rolls back to its best vectors; 0: only at the end",
    )
    decide: Literal["all", "strict"] = Field(
        "all",
        description="validation triples that decide: all, or those that no partner holds (a simulation can tell)",
    )

    gather: bool = Field(True, description="fetch from all peers that have news before training, or from one at a time")
    window: float = Field(30.0, ge=0, description="seconds to give other peers to come up with news, once one has")
    train_alone: bool = Field(False, description="train alone when no peer has news, rather than sleep")
    period: float = Field(
        60.0, gt=0, description="seconds of sleep, unless a peer wakes the owner before; then it trains alone once"
    )
    answer: float = Field(120.0, gt=0, description="seconds after which an exchange without progress is abandoned")

    train: TrainSettings = _section(
        TrainSettings, "how each owner trains, unless the federation says otherwise for one of them"
    )
    ppat: PpatSettings = _section(PpatSettings, "the adversarial translation")

    private: PrivateSettings = _section(PrivateSettings, "the private track, where not all triples are shareable")
    privacy: PrivacySettings = _section(PrivacySettings, "what protects messages that leave")
    dp: DpSettings = _section(DpSettings, "DP-SGD of the shared track, in privacy mode dp")
    psi: PsiSettings = _section(PsiSettings, "private set intersection, by which owners align")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        """Refuse settings under which a privacy mode would not hold, and a schedule that does not suit a federation."""
        for key in ("epochs", "validate_every", "patience"):
            if getattr(self.train, key) != TrainSettings.model_fields[key].default:
                raise ValueError(
                    f"train.{key} is for `fkge train`; in a federation say initial_epochs, exchanges, epochs, "
                    "test_every and patience"
                )
        mode = self.privacy.mode
        if mode == "paper" and not self.translate.startswith("ppat"):
            raise ValueError('privacy mode "paper" is about the adversarial game; say translate = "ppat"')
        if mode == "dp":
            if self.privacy.epsilon is None:
                raise ValueError('privacy mode "dp" needs an epsilon, such as privacy.epsilon=8')
            wrong = [
                f"{key} = {getattr(self, key)!r}"
                for key, right in (("start", ("together",)), ("translate", ("frame",)), ("neighbours", (False,)),
                                   ("aggregate", ("average", "support", "replace")))
                if getattr(self, key) not in right
            ]  # fmt: skip
            if wrong:
                raise ValueError(f'privacy mode "dp" does not cover {", ".join(wrong)}; leave that at its default')
        return self

    @property
    def shared_train(self) -> TrainSettings:
        """Settings of the shared track's training: the owner's, but for its regulariser and what DP requires."""
        weight = self.train.regularization * self.regularization_factor
        train = (
            self.train
            if weight == self.train.regularization
            else self.train.model_copy(update={"regularization": weight})
        )
        return self.dp.of(train) if self.privacy.mode == "dp" else train

    @property
    def follows_chains(self) -> bool:
        """Whether rows are found through third owners: these are known once owners agreed on tokens for all pairs."""
        return self.chains and self.start == "together" and self.ratio == 1

    @property
    def total_epochs(self) -> int:
        """Epochs that every arm of an experiment spends."""
        return self.initial_epochs + self.exchanges * self.epochs

    def protocol_config(self, refuses: tuple[str, ...] = ()) -> ProtocolConfig:
        """Return the configuration of the protocol; peers in `refuses` are neither served nor requested from."""
        return ProtocolConfig(
            gather=self.gather, window=self.window, train_alone=self.train_alone, period=self.period,
            answer=self.answer, refuses=frozenset(refuses), avoids=frozenset(refuses),
        )  # fmt: skip

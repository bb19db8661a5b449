"""Attacks that audit every claim: what a peer, or a host, makes of what it is given. Pure functions of arrays.

    membership       was a triple in the training set?
    one_run          a lower bound on ε from one training run
    canaries         triples to put in for that, and how to score them
    private_training the strongest such audit of `DpTrainer`: its own arithmetic, turned against it
    reconstruction   a client's rows, out of an exchange
    dictionary       labels, out of an alignment
    poisoning        what a hostile peer sends, and a limit on it

Every attack must be seen to succeed where nothing protects, or its failure elsewhere says nothing.
"""

from fkge.evaluation.attacks.canaries import State as State
from fkge.evaluation.attacks.canaries import audit_dp as audit_dp
from fkge.evaluation.attacks.canaries import dedicated_canaries as dedicated_canaries
from fkge.evaluation.attacks.canaries import drift as drift
from fkge.evaluation.attacks.canaries import insert as insert
from fkge.evaluation.attacks.canaries import plausibility as plausibility
from fkge.evaluation.attacks.canaries import random_canaries as random_canaries
from fkge.evaluation.attacks.canaries import translation_gradient as translation_gradient
from fkge.evaluation.attacks.dictionary import Recovered as Recovered
from fkge.evaluation.attacks.dictionary import dictionary as dictionary
from fkge.evaluation.attacks.dictionary import keyed_blake2b as keyed_blake2b
from fkge.evaluation.attacks.dictionary import usual_hashes as usual_hashes
from fkge.evaluation.attacks.dictionary import windows as windows
from fkge.evaluation.attacks.membership import Attack as Attack
from fkge.evaluation.attacks.membership import between as between
from fkge.evaluation.attacks.membership import calibrated as calibrated
from fkge.evaluation.attacks.membership import membership as membership
from fkge.evaluation.attacks.membership import shadow_scores as shadow_scores
from fkge.evaluation.attacks.membership import translations as translations
from fkge.evaluation.attacks.membership import triple_scores as triple_scores
from fkge.evaluation.attacks.one_run import Audit as Audit
from fkge.evaluation.attacks.one_run import audit as audit
from fkge.evaluation.attacks.one_run import gaussian_mechanism_audit as gaussian_mechanism_audit
from fkge.evaluation.attacks.one_run import lower_bound as lower_bound
from fkge.evaluation.attacks.one_run import p_value as p_value
from fkge.evaluation.attacks.poisoning import POISONS as POISONS
from fkge.evaluation.attacks.poisoning import Influence as Influence
from fkge.evaluation.attacks.poisoning import clip_rows as clip_rows
from fkge.evaluation.attacks.poisoning import influence as influence
from fkge.evaluation.attacks.poisoning import targeted as targeted
from fkge.evaluation.attacks.private_training import audit_trainer as audit_trainer
from fkge.evaluation.attacks.private_training import matched_filter as matched_filter
from fkge.evaluation.attacks.private_training import private_trajectory as private_trajectory
from fkge.evaluation.attacks.reconstruction import Recovery as Recovery
from fkge.evaluation.attacks.reconstruction import Remains as Remains
from fkge.evaluation.attacks.reconstruction import Replay as Replay
from fkge.evaluation.attacks.reconstruction import from_anchors as from_anchors
from fkge.evaluation.attacks.reconstruction import gram as gram
from fkge.evaluation.attacks.reconstruction import gram_from_repeat as gram_from_repeat
from fkge.evaluation.attacks.reconstruction import recovery as recovery
from fkge.evaluation.attacks.reconstruction import relative_error as relative_error
from fkge.evaluation.attacks.reconstruction import remains as remains
from fkge.evaluation.attacks.reconstruction import replay as replay

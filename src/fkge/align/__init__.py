"""Alignment: which rows two owners share, and how one vector space is mapped onto another."""

from fkge.align.chains import extend_pairs as extend_pairs
from fkge.align.clusters import clusters as clusters
from fkge.align.keys import Keys as Keys
from fkge.align.keys import label_keys as label_keys
from fkge.align.keys import owner_keys as owner_keys
from fkge.align.keys import private_common as private_common
from fkge.align.links import Common as Common
from fkge.align.links import Pairs as Pairs
from fkge.align.links import find_common as find_common
from fkge.align.links import read_links as read_links
from fkge.align.links import same_labels as same_labels
from fkge.align.overlap import held_by_partner as held_by_partner
from fkge.align.overlap import held_splits as held_splits
from fkge.align.overlap import held_through_chains as held_through_chains
from fkge.align.overlap import translation as translation
from fkge.align.procrustes import procrustes as procrustes
from fkge.align.procrustes import random_rotation as random_rotation
from fkge.align.psi import OverlapError as OverlapError
from fkge.align.psi import PsiClient as PsiClient
from fkge.align.psi import PsiHost as PsiHost
from fkge.align.psi import PsiSettings as PsiSettings
from fkge.align.rate_limit import RateLimiter as RateLimiter
from fkge.align.tokens import Tokens as Tokens
from fkge.align.tokens import agree_on_tokens as agree_on_tokens
from fkge.align.tokens import initial_vectors as initial_vectors

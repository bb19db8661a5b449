"""Who shares what, and how two vector spaces are brought together locally."""

from fkge.align.clusters import clusters as clusters
from fkge.align.links import Common as Common
from fkge.align.links import Dropped as Dropped
from fkge.align.links import Kind as Kind
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
from fkge.align.tokens import Tokens as Tokens
from fkge.align.tokens import initial_vectors as initial_vectors
from fkge.align.tokens import settle as settle

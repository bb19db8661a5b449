"""One owner of a graph: its training, its exchanges with peers, its private track and the folder it keeps."""

from fkge.federation.owner.exchange import PeerProfile as PeerProfile
from fkge.federation.owner.training import Activity as Activity
from fkge.federation.owner.training import Outcome as Outcome
from fkge.federation.owner.training import Owner as Owner
from fkge.federation.owner.training import Plan as Plan
from fkge.federation.owner.training import begin_together as begin_together
from fkge.federation.owner.training import seed_of as seed_of

"""Privacy-preserving adversarial translation (PPAT) between two peers: a client's generator, a host's discriminators.

The client holds X, the host holds Y: a row for each entity and relation that both have, in the same order. The client
learns G(x) = xW so that its rows look like the host's, and the host ends with G(X) in its own space. Each role turns
messages into messages (`step`) and does nothing else.

What is private here, and what is not:

- The host's Y reaches the client through noisy votes only; their price is counted (`PaperMoments`).
- The client's X has no protection at all: G(X) goes to the host as it is. Where both have the same width W begins as
  the identity, so the first samples *are* rows of X, and a host that follows W's steps, whose gradients are its own
  answers, recovers all the others too (`fkge.audit.attacks.reconstruction`). What a client sends must be fit for
  publication before it comes here.
"""

from fkge.ppat.client import PpatClient as PpatClient
from fkge.ppat.host import PpatHost as PpatHost
from fkge.ppat.messages import Candidate as Candidate
from fkge.ppat.messages import Gradient as Gradient
from fkge.ppat.messages import Received as Received
from fkge.ppat.messages import Samples as Samples
from fkge.ppat.settings import PpatSettings as PpatSettings

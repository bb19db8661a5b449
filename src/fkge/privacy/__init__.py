"""Differential-privacy accounting: release events, accountants, and a durable ledger. No network here.

What was released is a frozen value (`Release`), apart from how it is priced (`price`). An owner pays for a release in
its `Ledger` before making it; the ledger refuses what exceeds the owner's budget, and survives crashes. What leaves
without a guarantee is `Unprotected` and is counted in the same ledger.
"""

from fkge.privacy.accountants import fits as fits
from fkge.privacy.accountants import noise_for as noise_for
from fkge.privacy.accountants import price as price
from fkge.privacy.events import ADD_OR_REMOVE as ADD_OR_REMOVE
from fkge.privacy.events import GAUSSIAN as GAUSSIAN
from fkge.privacy.events import LAPLACE_VOTES as LAPLACE_VOTES
from fkge.privacy.events import REPLACE as REPLACE
from fkge.privacy.events import Release as Release
from fkge.privacy.events import Unprotected as Unprotected
from fkge.privacy.ledger import Budget as Budget
from fkge.privacy.ledger import Ledger as Ledger
from fkge.privacy.ledger_store import Head as Head
from fkge.privacy.ledger_store import Tally as Tally
from fkge.privacy.statement import describe as describe

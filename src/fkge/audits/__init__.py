"""Audits of a simulation: what was claimed, put to the test by whoever would profit if it were wrong.

`audit` runs them all on a finished simulation, in copies; the simulation's own folder is only read. Every attack says
what was claimed, what it was tried on and what came of it; one that nothing is claimed against says how much it takes.
"""

from fkge.audits.interference import disturbed as disturbed
from fkge.audits.interference import heard_by_others as heard_by_others
from fkge.audits.interference import non_interference as non_interference
from fkge.audits.sections import SECTIONS as SECTIONS
from fkge.audits.sections import audit as audit
from fkge.audits.subject import BROKEN as BROKEN
from fkge.audits.subject import HOLDS as HOLDS
from fkge.audits.subject import OPEN as OPEN
from fkge.audits.subject import UNTESTED as UNTESTED
from fkge.audits.subject import Subject as Subject
from fkge.audits.subject import opened as opened

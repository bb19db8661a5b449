"""The federation: the handshake protocol, owners, what they exchange, and where they keep their things."""

from fkge.federation.exchange import Gift as Gift
from fkge.federation.exchange import Offer as Offer
from fkge.federation.gate import Gate as Gate
from fkge.federation.gate import Released as Released
from fkge.federation.home import PARTS as PARTS
from fkge.federation.home import Arm as Arm
from fkge.federation.home import Home as Home
from fkge.federation.home import federation_of as federation_of
from fkge.federation.home import found_home as found_home
from fkge.federation.home import load_ranks as load_ranks
from fkge.federation.home import make_homes as make_homes
from fkge.federation.owner import Acquaintance as Acquaintance
from fkge.federation.owner import Outcome as Outcome
from fkge.federation.owner import Owner as Owner
from fkge.federation.owner import Plan as Plan
from fkge.federation.protocol import Manners as Manners
from fkge.federation.protocol import Protocol as Protocol
from fkge.federation.protocol import State as State
from fkge.federation.settings import FederationSettings as FederationSettings
from fkge.federation.source import Federation as Federation
from fkge.federation.source import Links as Links
from fkge.federation.source import Member as Member
from fkge.federation.source import read_federation as read_federation

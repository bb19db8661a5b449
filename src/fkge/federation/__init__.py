"""The federation: the handshake protocol, owners, what they exchange, and the folders in which they keep their data."""

from fkge.federation.egress import Released as Released
from fkge.federation.exchange import Update as Update
from fkge.federation.owner import Owner as Owner
from fkge.federation.owner import PeerProfile as PeerProfile
from fkge.federation.owner import Plan as Plan
from fkge.federation.owner.store import OwnerStore as OwnerStore
from fkge.federation.owner.store import create_store as create_store
from fkge.federation.protocol import ProtocolConfig as ProtocolConfig
from fkge.federation.settings import FederationSettings as FederationSettings
from fkge.federation.source import Federation as Federation
from fkge.federation.source import Links as Links
from fkge.federation.source import Member as Member
from fkge.federation.source import read_federation as read_federation

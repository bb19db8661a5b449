"""Local embedding: models, negatives, row-wise optimisers and the training loop. Knows no peer."""

from fkge.embed.models import MODELS as MODELS
from fkge.embed.models import Model as Model
from fkge.embed.models import Relations as Relations
from fkge.embed.models import Table as Table
from fkge.embed.models import model_class as model_class
from fkge.embed.tables import Snapshot as Snapshot
from fkge.embed.tables import Tables as Tables
from fkge.embed.trainer import Graft as Graft
from fkge.embed.trainer import Trainer as Trainer
from fkge.embed.trainer import make_model as make_model
from fkge.embed.trainer import make_tables as make_tables
from fkge.embed.trainer import resolve_device as resolve_device

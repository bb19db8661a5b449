"""Local embedding: models, negatives, row-wise optimisers and the training loop. Knows no peer."""

from fkge.embed.checkpoint import load_checkpoint as load_checkpoint
from fkge.embed.checkpoint import load_model as load_model
from fkge.embed.checkpoint import load_tensors as load_tensors
from fkge.embed.checkpoint import save_checkpoint as save_checkpoint
from fkge.embed.checkpoint import save_model as save_model
from fkge.embed.checkpoint import save_tensors as save_tensors
from fkge.embed.dp import DpSettings as DpSettings
from fkge.embed.dp import DpTrainer as DpTrainer
from fkge.embed.fit import Best as Best
from fkge.embed.fit import BestState as BestState
from fkge.embed.fit import FitState as FitState
from fkge.embed.fit import TrainingLoop as TrainingLoop
from fkge.embed.fit import fit as fit
from fkge.embed.models import MODELS as MODELS
from fkge.embed.models import Model as Model
from fkge.embed.models import Relations as Relations
from fkge.embed.models import Table as Table
from fkge.embed.models import model_class as model_class
from fkge.embed.tables import Snapshot as Snapshot
from fkge.embed.tables import Tables as Tables
from fkge.embed.trainer import Trainer as Trainer
from fkge.embed.trainer import initial_bound as initial_bound
from fkge.embed.trainer import make_model as make_model
from fkge.embed.trainer import make_tables as make_tables
from fkge.embed.trainer import resolve_device as resolve_device

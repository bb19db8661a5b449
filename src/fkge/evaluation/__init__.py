"""Evaluation of a model: link prediction, triple classification, relation categories, and questions to it."""

from fkge.evaluation.categories import metrics_by_category as metrics_by_category
from fkge.evaluation.categories import relation_categories as relation_categories
from fkge.evaluation.classification import classify as classify
from fkge.evaluation.classification import fit_thresholds as fit_thresholds
from fkge.evaluation.known import Known as Known
from fkge.evaluation.known import TypeConstraint as TypeConstraint
from fkge.evaluation.queries import Neighbor as Neighbor
from fkge.evaluation.queries import Prediction as Prediction
from fkge.evaluation.queries import neighbors as neighbors
from fkge.evaluation.queries import predict as predict
from fkge.evaluation.ranking import Ranks as Ranks
from fkge.evaluation.ranking import metrics as metrics
from fkge.evaluation.ranking import rank as rank
from fkge.evaluation.scoring import score_triples as score_triples
from fkge.evaluation.significance import mean_interval as mean_interval
from fkge.evaluation.significance import paired_bootstrap as paired_bootstrap
from fkge.evaluation.summary import Metrics as Metrics
from fkge.evaluation.summary import evaluate as evaluate

"""How good is a model: link prediction, triple classification, relation categories, and questions to it."""

from fkge.evaluate.categories import CATEGORIES as CATEGORIES
from fkge.evaluate.categories import metrics_by_category as metrics_by_category
from fkge.evaluate.categories import relation_categories as relation_categories
from fkge.evaluate.classification import Classification as Classification
from fkge.evaluate.classification import classify as classify
from fkge.evaluate.classification import fit_thresholds as fit_thresholds
from fkge.evaluate.evaluation import evaluate as evaluate
from fkge.evaluate.known import Known as Known
from fkge.evaluate.known import TypeConstraint as TypeConstraint
from fkge.evaluate.queries import Neighbor as Neighbor
from fkge.evaluate.queries import Prediction as Prediction
from fkge.evaluate.queries import neighbors as neighbors
from fkge.evaluate.queries import predict as predict
from fkge.evaluate.ranking import Ranks as Ranks
from fkge.evaluate.ranking import metrics as metrics
from fkge.evaluate.ranking import rank as rank
from fkge.evaluate.scoring import score_triples as score_triples
from fkge.evaluate.significance import Difference as Difference
from fkge.evaluate.significance import Interval as Interval
from fkge.evaluate.significance import mean_interval as mean_interval
from fkge.evaluate.significance import paired_bootstrap as paired_bootstrap

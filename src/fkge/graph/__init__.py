"""Triples in, an immutable `Graph` out: readers, splits, stable ids, and a file to keep it in."""

from fkge.graph.graph import HEAD as HEAD
from fkge.graph.graph import RELATION as RELATION
from fkge.graph.graph import TAIL as TAIL
from fkge.graph.graph import Graph as Graph
from fkge.graph.graph import Triples as Triples
from fkge.graph.graph import Vocabulary as Vocabulary
from fkge.graph.graph import tidy as tidy
from fkge.graph.policy import Policy as Policy
from fkge.graph.policy import Rule as Rule
from fkge.graph.policy import Shareable as Shareable
from fkge.graph.readers import read_graph as read_graph
from fkge.graph.split import sample_triples as sample_triples
from fkge.graph.split import split_triples as split_triples
from fkge.graph.store import load_graph as load_graph
from fkge.graph.store import save_graph as save_graph

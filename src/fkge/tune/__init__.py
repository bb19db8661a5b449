"""`fkge tune`: search for settings by validation, within a budget of minutes.

The search is Optuna's: a tree-structured Parzen estimator proposes settings, and a trial whose validation MRR falls
behind is pruned. `fkge.tune.space` says what is searched, `fkge.tune.objective` how a trial is trained,
`fkge.tune.study` keeps everything in a folder from which a search can be continued:

RUN/
  tune.json             what was asked for (`fkge.tune.spec.Spec`)
  graph.safetensors     the graph; or owners/NAME/, the stores of a federation's owners
  journal.log           every trial, in Optuna's journal
  spent.json            seconds spent so far
  best/PHASE/           the best trial so far, and of a graph its vectors
  recipe.toml           the best settings, for --config; of a federation also lone.toml, the best without it
  tune.html             the page
  result.json           what was found
"""

"""Experiments on a federation: arms, controls, engines that run owners, scores and results."""

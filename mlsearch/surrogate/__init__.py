"""Learned models that predict a candidate's time and feasibility before it is compiled, and the gate that
uses them.

- `features`: what a model sees of a candidate.
- `base`: what a model is, `Surrogate`.
- `trees`: the first one, boosted trees.
- `gate`: when a model is trusted, and what it lets through.
"""

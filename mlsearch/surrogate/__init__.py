"""Learned models that predict a candidate's time and feasibility before it is compiled, and the gate that
uses them.

- `features`, `gpu_features`: what a model sees of a candidate for a CPU, and for a GPU.
- `base`: what a model is, `Surrogate`.
- `trees`: the first one, boosted trees.
- `gate`: when a model is trusted, and what it lets through.
"""

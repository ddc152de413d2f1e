"""The record store: what was tried, how it ended, under which circumstances. Append-only.

It is an ordinary Optuna storage, so `optuna-dashboard` opens it and every study of it.
"""

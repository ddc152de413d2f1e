"""Which candidate to try next: proposers on Optuna's ask/tell."""

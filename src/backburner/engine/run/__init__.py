"""Runs claimed jobs: worker, attempt, context, settlement."""

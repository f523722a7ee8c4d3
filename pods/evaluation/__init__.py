"""Checkpoints -> results: one engine a run, every checkpoint an adapter on it, crash-safe records.

session (the command) -> candidates, questions -> evaluation -> engines -> records -> scores
"""

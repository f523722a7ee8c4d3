"""Checkpoints -> results: one engine a run, every checkpoint an adapter on it, crash-safe records.

evaluate_run.py -> plan (targets, questions) -> run (engine, records, scores) -> scoreboard
"""

"""Checkpoints -> results: one engine a run, every checkpoint an adapter, crash-safe records."""

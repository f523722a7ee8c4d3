"""Results -> figures: definition, aligned curves, speed-ups with intervals, drawings, the HTML page.

results/*.json -> curves (alignment, wandb_export) -> drawing, speedup, report (charts, inspector)
"""

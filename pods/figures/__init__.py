"""Results -> figures: aligned curves, speed-ups with their intervals, drawings, the HTML page.

results/*.json -> curves (alignment, wandb_export) -> drawing, speedup, report (charts, page)
"""

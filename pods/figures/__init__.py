"""Results -> figures: aligned curves, speed-ups with intervals, drawings, the HTML page.

results/*.json -> samples, wandb_export -> curves -> speedup, drawing, report (charts, inspector)
"""

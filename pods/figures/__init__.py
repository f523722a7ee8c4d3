"""Results -> figures: curves, comparisons with intervals, drawings, the HTML page, the planner.

figure (the keys) -> published, reading -> curves -> statistics, speedup -> tables, drawing, page
"""

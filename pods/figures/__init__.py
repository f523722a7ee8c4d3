"""Results -> figures: curves, comparisons with intervals, drawings, the HTML page.

figure (the keys) -> reading -> curves -> statistics, speedup, tables -> drawing, page
"""

from pathlib import Path

STYLE = Path(__file__).with_name("style.mplstyle")  # of every picture
COLOURS = (  # Okabe-Ito, and grey
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#000000",
    "#808080",
)

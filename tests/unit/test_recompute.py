"""The results that README and docs print are those of the stored rows, all with an interval."""

import re

import pytest

from benchmarks import recompute
from tests.conftest import ROOT

INTERVAL = re.compile(r"[+-]?\d+\.\d+ ?[(\[][+-]?\d+\.\d+(?: to|,) [+-]?\d+\.\d+")


@pytest.mark.parametrize("page", recompute.PAGES)
def test_a_page_says_what_the_stored_rows_give(page):
    assert recompute.check(page, recompute.PAGES[page]()) == []


@pytest.mark.parametrize("page", ["README.md", "docs/board.md", "docs/log.md"])
def test_every_interval_of_a_page_is_recomputed_or_marked(page):
    blocks = re.split(r"\n\n|\n(?=[-|#] )", (ROOT / page).read_text())
    marked = [b for b in blocks if "not stored" in b or "published runs" in b]
    text = " ".join(" ".join(b.split()) for b in blocks if b not in marked)
    for claim in recompute.PAGES[page]():
        text = text.replace(claim, "")
    assert INTERVAL.findall(text) == []

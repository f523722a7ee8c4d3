"""Speed of scoring, on real and on hostile completions: one process, one core, no GPU.

    uv run benchmarks/rewards.py [a .jsonl with the columns completion and answer]

Without a file it takes the real completions of ../shared where they exist, else made-up ones.
"cold" clears the caches of normalised answers before each completion, "warm" does not.
Goals: v1, v2 at least 5,000 a second with p99 under 2 ms; hostile text under one second each.
"""

import json
import platform
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # this folder's own rewards.py would hide the package

from rewards import VERSIONS, Scorer, published  # noqa: E402
from tests.test_rewards_strict import HOSTILE, block  # noqa: E402

SAMPLE = ROOT.parent / "shared" / "reference" / "grading_sample.jsonl"
MADE_UP = [
    (f"<think>{'First, we add the numbers. ' * 20}</think>\n<answer>{answer}</answer>", "18")
    for answer in ("18", "$18$", "18 dollars", "\\frac{36}{2}", "17", "9 * 2 = 18", "x^2 + 1")
] * 300


def rows() -> list[tuple[str, str]]:
    """(completion, gold) pairs to score."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE
    if not path.is_file():
        return MADE_UP
    loaded = (json.loads(line) for line in path.read_text().split("\n") if line)
    return [(row["completion"], row["answer"]) for row in loaded]


def seconds(scorer: Scorer, completion: str, answer: str) -> float:
    """Wall-clock seconds of scoring one completion."""
    start = time.perf_counter()
    scorer.score([completion], [answer], ["math"])
    return time.perf_counter() - start


def speed(scorer: Scorer, pairs: list[tuple[str, str]], cold: bool) -> str:
    """One line: throughput and the distribution over single completions."""
    times = []
    for i, (completion, answer) in enumerate(pairs):
        if cold or i == 0:
            published.first_form.cache_clear()
            published.second_form.cache_clear()
        times.append(seconds(scorer, completion, answer))
    times.sort()
    p50, p99, slowest = (1000 * times[int(q * (len(times) - 1))] for q in (0.5, 0.99, 1.0))
    rate = len(times) / sum(times)
    name = f"{scorer.version} ({'cold' if cold else 'warm'})"
    return f"{name:<22}{rate:>10,.0f}/s{p50:>10.3f}{p99:>10.3f}{slowest:>10.3f} ms"


def main() -> None:
    pairs = rows()
    print(f"{len(pairs)} completions, {platform.machine()}, Python {platform.python_version()}")
    print(f"{'version':<22}{'throughput':>12}{'p50':>10}{'p99':>10}{'max':>10}")
    scorers = {version: Scorer(version, workers=2, deadline_seconds=0.5) for version in VERSIONS}
    scorers["strict"].grade([block("(x+1)(x+2)")], ["x^2+3x+2"], ["math"])  # starts the workers
    for scorer in scorers.values():
        for cold in (True, False):
            print(speed(scorer, pairs, cold))
    print("\nhostile text, alone and as an answer, seconds (the slower of two gold answers)")
    print(f"{'':<24}" + "".join(f"{version:>16}" for version in scorers))
    for name, text in HOSTILE.items():
        cells = []
        for scorer in scorers.values():
            calls = [(c, gold) for c in (text, block(text)) for gold in ("18", "\\frac{\\pi}{2}")]
            cells.append(f"{max(seconds(scorer, *call) for call in calls):>16.4f}")
        print(f"{name:<24}" + "".join(cells))
    print(f"timeouts: {scorers['strict'].timeouts}")
    for scorer in scorers.values():
        scorer.close()


if __name__ == "__main__":
    main()

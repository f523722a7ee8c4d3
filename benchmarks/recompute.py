"""Recompute the results that README.md and docs/ print from the rows in benchmarks/results.

    uv run benchmarks/recompute.py    # rows and text of each claim; exit code 1 if a page differs

A claim is a text of a page whose numbers are computed here. Nothing of the project is imported, so
that an error in its own statistics would show. Accuracies are in percent.
"""

import json
import math
import sys
from functools import cache
from pathlib import Path

import numpy as np
import yaml
from scipy import stats

ROOT = Path(__file__).parents[1]
FIRST, FRESH = range(100, 110), range(110, 120)  # test seeds
VARIANTS = ["sums", "noisy", "steps", "tags", "hard"]
PRICES = ["fast_generation", "h100s"]
SETTINGS = [*VARIANTS, "large", *PRICES]
METHODS = yaml.safe_load((ROOT / "config/benchmarks/board.yaml").read_text())["arms"]
WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven"]
sources: dict[str, int] = {}  # of the present claim: file -> rows


@cache
def lines_of(file):
    text = (ROOT / "benchmarks/results" / file).read_text()
    return [{"world": "sums"} | json.loads(line) for line in text.splitlines()]


def rows(file, **fields):
    chosen = [
        line
        for line in lines_of(file)
        if all(line.get(key) == value for key, value in fields.items())
    ]
    sources[file] = sources.get(file, 0) + len(chosen)
    return chosen


def runs(file, seeds, cell, metric="accuracy", last=0, **fields):
    """(seeds,): a run's mean over its evaluations, or over the last ones."""
    chosen = [row for row in rows(file, **fields) if row["cell"] == [*map(float, cell)]]
    by_seed = {row["seed"]: 100 * np.mean(row[metric][-last:]) for row in chosen}
    return np.array([by_seed[seed] for seed in seeds])


def board(arm, setting, seeds=FIRST, cell=None, **options):
    cell = cell or METHODS[arm]["cells"][setting]
    world, clock = ("sums", setting) if setting in PRICES else (setting, "l40s")
    return runs("board/report.jsonl", seeds, cell, arm=arm, world=world, clock=clock, **options)


def smollm2_rows(arm):
    """(4 test seeds, 3 checkpoints): shares of 256 questions, stored with four digits."""
    chosen = sorted(rows("smollm2/runs.jsonl", stage="test", arm=arm), key=lambda row: row["seed"])
    return np.round(256 * np.array([row["sampled"] for row in chosen])) / 256


def smollm2(arm, first=0):
    """(4,): percent, mean over the checkpoints from `first` on."""
    return 100 * smollm2_rows(arm)[:, first:].mean(axis=1)


def paired(a, b):
    """Mean of a - b, Student's 95 % interval, p value."""
    test = stats.ttest_rel(a, b)
    return (np.mean(a - b), *test.confidence_interval(), test.pvalue)


def holm(differences):
    """p values adjusted for their number (Holm 1979)."""
    p = np.array([difference[3] for difference in differences])
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(steps, 1)[np.argsort(order)]


def said(difference, sign=""):
    """3.6 (2.3 to 4.9)"""
    mean, low, high = (f"{round(number, 1) + 0.0:{sign}.1f}" for number in difference[:3])
    return f"{mean} ({low} to {high})"


def bracket(difference):
    """+3.6 [+2.3, +4.9]"""
    return said(difference, "+").replace("(", "[").replace(" to", ",").replace(")", "]")


def spread(values):
    return f"{min(values):.1f} to {max(values):.1f}"


def rank(a, b):
    return stats.spearmanr(a, b).statistic


def pods_minus_grpo():
    """The difference that is sure after Holm, and the means of the others."""
    results = [paired(board("pods", place), board("grpo", place)) for place in SETTINGS]
    sure = [r for r, p in zip(results, holm(results), strict=True) if p < 0.05]
    return sure, [r[0] for r in results if r not in sure]


def tuning_runs():
    """(arm, setting) -> how many runs tuned it."""
    counts = {}
    for row in rows("board/tune.jsonl"):
        key = row["arm"], row["clock"] if row["clock"] in PRICES else row["world"]
        counts[key] = counts.get(key, 0) + 1
    return counts


def four_prompts():
    """GRPO on 16 rollouts of each of four prompts minus PODS with n = 64 and m = 16."""
    seeds = range(100, 104)
    grpo = board("grpo", "sums", seeds, cell=(4, 16, 16, 2e-3))
    return said(paired(grpo, board("pods", "sums", seeds, cell=(4, 64, 16, 2e-3))))[:-1]


def readme():
    (ahead,), others = pods_minus_grpo()
    counts = tuning_runs()
    used = [
        counts[arm, place]
        for arm in ("pods", "grpo", "thin")
        for place in SETTINGS
        if (arm, place) in counts
    ]
    yield f"ten seeds, equal priced seconds, {min(used)} to {max(used)} tuning runs each"
    points = said(ahead).replace(" (", " points (")
    yield f"surely ahead of GRPO in one setting of eight, by {points} if sampling"
    yield f"the others are undecided, {min(others):.1f} to {max(others):+.1f}"
    yield f"n = 64, m = 16 and four prompts a step it is behind, by {four_prompts()}; four seeds)"
    points = said(smollm2_row("pods", "grpo")).replace(" (", " points (")
    yield f"four seeds cannot tell, {points}"
    base = rows_of_json("environment.json")
    share = np.mean(base["correct"]) / 16
    yield f"starts at {share:.2f} (greedy, always the likeliest token: {base['greedy']:.2f})"


def smollm2_row(a, b, first=0):
    return paired(smollm2(a, first), smollm2(b, first))


def rows_of_json(file):
    sources[file] = 1
    return json.loads((ROOT / "benchmarks/results" / file).read_text())


def board_page():
    for a, b in (
        ("pods", "grpo"),
        ("thin", "grpo"),
        ("thin", "pods"),
        ("max_abs_advantage", "pods"),
        ("horvitz_thompson", "pods"),
    ):
        places = [place for place in SETTINGS if place in METHODS[a]["cells"]]
        results = [paired(board(a, place), board(b, place)) for place in places]
        texts = [bracket(result) for result in results]
        texts = [f"**{t}**" if p < 0.05 else t for t, p in zip(texts, holm(results), strict=True)]
        texts += ["-"] * (len(SETTINGS) - len(places))
        yield f"| {a} - {b} | {' | '.join(texts)} |"
    yield f"PODS (4, 64, 16) is behind GRPO (4, 16, 16) by {four_prompts()}; rate 2e-3"
    tags = {arm: board(arm, "tags", metric="both") for arm in ("pods", "grpo", "dapo")}
    yield f"it leads by {said(paired(tags['pods'], tags['grpo']))[:-1]}; looked at afterwards)"
    large = (board("pods", "large"), board("grpo", "large"))
    behind, p = sum(large[0] < large[1]), stats.wilcoxon(*large).pvalue
    yield f"In `large` it is behind in {behind} of 10 seeds (Wilcoxon's p {p:.3f})"
    both = {
        seeds: said(paired(*(board(arm, "tags", seeds, metric="both") for arm in ("thin", "pods"))))
        for seeds in (FIRST, FRESH)
    }
    yield f"its lead in `tags` is {both[FIRST]}, and {both[FRESH]} on the fresh seeds"
    fresh = holm(
        [paired(board("thin", place, FRESH), board("pods", place, FRESH)) for place in VARIANTS]
    )
    yield f"it is ahead of PODS in {WORDS[sum(fresh < 0.05)]} of five variants"
    right = paired(board("dapo", "tags"), board("pods", "tags"))
    yield f"`dapo` has {right[0]:+.1f} in right answers ({spread(right[1:3])}, minus PODS)"
    yield f"and {said(paired(tags['dapo'], tags['pods']))} in those that are right and well formed"
    worlds = rows_of_json("worlds.json")
    shares = [f"{100 * np.mean(worlds[w]['correct']) / 16:.1f}" for w in ("sums", "tags", "hard")]
    low = [
        sum(board(arm, "hard", last=3) < float(shares[2]))
        for arm in ("random", "dapo", "max_abs_advantage")
    ]
    yield f"end below {shares[2]} %, the base on validation questions"
    yield f"in {low[0]}, {low[1]} and {low[2]} of 10 runs"
    yield f"get {shares[0]}, {shares[1]} and {shares[2]} % of 256 validation questions right"
    alike = [
        100 * np.mean([uniform(c) for c in worlds[w]["correct"]]) for w in ("sums", "tags", "hard")
    ]
    yield "groups of 8, {:.1f}, {:.1f} and {:.1f} % are all right or all wrong".format(*alike)
    counts = tuning_runs()
    rest = [counts[arm, place] for arm in ("pods", "grpo") for place in SETTINGS[1:]]
    yield f"{counts['pods', 'sums']} runs of PODS and {counts['grpo', 'sums']} of GRPO in `sums`"
    yield f"{min(rest)} to {max(rest)} of each elsewhere; {counts['thin', 'sums']} of `thin`"
    yield f"{counts['horvitz_thompson', 'hard']} of `horvitz_thompson` in each variant"


def uniform(correct, of=16, group=8):
    """Probability that a group drawn from `of` completions, so many of them right, is alike."""
    return (math.comb(correct, group) + math.comb(of - correct, group)) / math.comb(of, group)


def means(file, value, key=lambda row: (row["arm"], *row["cell"]), **fields):
    """Key -> mean over its rows."""
    values = {}
    for row in rows(file, **fields):
        values.setdefault(key(row), []).append(value(row))
    return {name: np.mean(list_) for name, list_ in values.items()}


def accuracy(row):
    return np.mean(row["accuracy"])


def rate(row):
    return row["rate"]


def tuned(world):
    """Method of the factor study -> its cell with the rate that tuning chose."""
    tuning = means("factors/tune.jsonl", accuracy, world=world)
    return {key[0]: key for key in sorted(tuning, key=tuning.__getitem__)}


def planner_on_factors(world, **point):
    """Correlations with the trained accuracies of the planner's rates, and of 8 before 16."""
    planned = means("factors/cells.jsonl", rate, lambda row: row["arm"], world=world, **point)
    trained = means("factors/report.jsonl", accuracy, world=world)
    cells = [tuned(world)[arm] for arm in planned]
    accuracies = [trained[cell] for cell in cells]
    return rank(list(planned.values()), accuracies), rank([-cell[2] for cell in cells], accuracies)


def prompts_sampled(arm, prompts):
    return 2 * prompts if arm.startswith("thin") or arm == "pods_alive" else prompts


def planner_on_board(world, learning_rate=None):
    """The same, with more prompts sampled as the rule; the best learning rate if none is given."""
    planned = means("signal/cells.jsonl", rate, world=world)
    tuning = means("board/tune.jsonl", accuracy, world=world, clock="l40s")
    best = {}
    for (*cell, lr), value in tuning.items():
        if learning_rate in (None, lr):
            best[tuple(cell)] = max(value, best.get(tuple(cell), 0))
    trained = [best[cell] for cell in planned]
    rule = [prompts_sampled(arm, prompts) for arm, prompts, *_ in planned]
    return rank(list(planned.values()), trained), rank(rule, trained)


def planner_on_smollm2(seeds):
    cells = rows_of_json("smollm2/plan.json")["cells"]
    planned = {(c["algorithm"], c["prompts"], c["n"], c["m"]): c["rate"] for c in cells}
    values = {}
    for row in rows("smollm2/runs.jsonl"):
        final = 1e-3 if row["arm"] == "thin" else 3e-4
        if row["stage"] != "test" and row["rate"] == final and row["seed"] in seeds:
            key = row["arm"], row["P"], row["n"], row["m"]
            values.setdefault(key, []).append(np.mean(row["sampled"]))
    trained = [np.mean(list_) for list_ in values.values()]
    rule = [prompts_sampled(*key[:2]) for key in values]
    return rank([planned[key] for key in values], trained), rank(rule, trained)


def eight_before_sixteen(world, one_rate=False):
    """Factor study: n = 8 minus n = 16, means over the methods, paired by seed."""
    cells = {(*key[:4], 0.002) if one_rate else key for key in tuned(world).values()}
    chosen = [
        r for r in rows("factors/report.jsonl", world=world) if (r["arm"], *r["cell"]) in cells
    ]
    seeds = sorted({row["seed"] for row in chosen})
    few, many = (
        [
            100 * np.mean([accuracy(r) for r in chosen if (r["seed"], r["cell"][1]) == (seed, n)])
            for seed in seeds
        ]
        for n in (8, 16)
    )
    return paired(np.array(few), np.array(many))


def lead_at(prompts):
    """Tuning runs of `sums`, seed 0, best rates: PODS with n = 2 m minus GRPO at the same m."""
    best = {}
    for row in rows("board/tune.jsonl", world="sums", clock="l40s", seed=0):
        key = (row["arm"], *row["cell"][:3])
        best[key] = max(best.get(key, 0), 100 * accuracy(row))
    sizes = (4, 8, 16)
    leads = [best["pods", prompts, 2 * m, m] - best["grpo", prompts, m, m] for m in sizes]
    return np.mean(leads) + 0.0


def log():
    leads = [round(lead_at(prompts), 1) + 0.0 for prompts in (1, 4, 8)]
    yield f"{leads[0]:+.1f} points at P = 1, {leads[1]:.1f} at 4, {leads[2]:+.1f} at 8"

    for place, label in (
        ("sums", "`sums`, 16 factors, tuned rates"),
        ("noisy", "`noisy`, the same"),
        ("hard", "`hard`, the same"),
    ):
        planner, rule = planner_on_factors(place)
        digits = 3 if place == "sums" else 2
        yield f"| {label} | {planner:.{digits}f} | {rule:.2f}"
    for place in ("tags", "hard"):
        planner, rule = planner_on_board(place, 0.002)
        yield f"| `{place}`, 13 settings, rate 2e-3 | {planner:.2f} | {rule:.2f}"
    planner, rule = planner_on_smollm2((0, 1))
    yield f"| SmolLM2-135M, 15 settings | {planner:.3f} | {rule:.2f} |"
    at = [planner_on_factors("sums", point=point)[0] for point in ("base", "step 26", "step 52")]
    yield f"({at[0]:.2f}, {at[1]:.2f} and {at[2]:.2f} at each)"
    by_seed = [planner_on_smollm2([seed])[0] for seed in (1, 0)]
    yield "SmolLM2's is {:.2f} with seed 1 and {:.2f} with seed 0".format(*by_seed)
    yield f"`hard` has {planner_on_board('hard')[0]:.2f} if each setting has its best rate"
    known = planner_on_board("sums")
    yield f"it had {known[0]:.2f}, the second rule {known[1]:.2f}"

    methods = ("horvitz_thompson", "grpo", "pods", "max_abs_advantage", "thin")
    for arm in methods:
        seeds = ", ".join(f"{value:.1f}" for value in smollm2(arm))
        minus = [bracket(smollm2_row(arm, b)) if arm != b else "" for b in ("grpo", "pods")]
        means_ = f"{smollm2(arm).mean():.1f} | {smollm2(arm, 2).mean():.1f}"
        yield f"| {arm} | {seeds} | {means_} | {minus[0]} | {minus[1]} |".replace("|  |", "| |")
    pairs = [(arm, "grpo") for arm in methods if arm != "grpo"] + [
        (arm, "pods") for arm in methods if arm not in ("grpo", "pods")
    ]
    best = smollm2("horvitz_thompson") - smollm2("grpo")
    p = holm([smollm2_row(*pair) for pair in pairs])[0]
    yield f"by {spread(best)} points, p {p:.3f} after Holm over {WORDS[len(pairs)]} comparisons"
    by_arm = [smollm2_rows(arm) for arm in ("horvitz_thompson", "grpo")]  # (seeds, checkpoints)
    variance = sum(shares * (1 - shares) / 256 for shares in by_arm)  # of a difference
    noise = 100 * np.sqrt(variance.mean() / 3)
    half = stats.t.ppf(0.975, 3) * round(noise, 1) / 2
    ends = spread((best.mean() - half, best.mean() + half))
    yield f"binomial SD of {noise:.1f} points it is {ends}"
    yield f"At the last checkpoint: {said(smollm2_row('horvitz_thompson', 'grpo', 2), '+')}"
    yield f"once by {-min(smollm2('thin') - smollm2('grpo')):.1f} points"

    for b in ("pods", "grpo"):
        texts = [
            bracket(paired(board("horvitz_thompson", place), board(b, place))) for place in VARIANTS
        ]
        yield f"| {b.upper()} | {' | '.join(texts)} |"
    # The sizes of PODS, at the rate that tuning chose for them; not the board's own cell.
    same_rates = dict.fromkeys(VARIANTS, 2e-3) | {"steps": 4e-3}
    cells = {place: (*METHODS["pods"]["cells"][place][:3], lr) for place, lr in same_rates.items()}
    sides = [
        (board("horvitz_thompson", p), board("max_abs_advantage", p, cell=cells[p]))
        for p in VARIANTS
    ]
    texts = [bracket(paired(*pair)) for pair in sides]
    yield f"| max_abs_advantage, same sizes | {' | '.join(texts)} |"
    better = paired(sides[0][1], board("pods", "sums"))
    yield f"ahead of PODS in `sums`, by {said(better)}; so was"
    better = paired(board("pods_alive", "sums", cell=(8, 4, 2, 2e-3)), board("pods", "sums"))
    yield f"(`pods_alive` of 2026-11-25, {better[0]:.1f}, {spread(better[1:3])})"
    seeds = np.sort(board("horvitz_thompson", "tags"))
    yield f"has {seeds[0]:.1f} %, the others {spread(seeds[1:])}: its rate"

    speed = {}
    for arm in ("speed_pilot_8", "speed_pilot_8_band"):
        metrics = ("accuracy", "greedy")
        speed[arm] = [board(arm, "sums", cell=(8, 16, 16, 4e-3), metric=m) for m in metrics]
    pilot, band = speed.values()
    sampled, greedy = (
        said(paired(b, a), "+").replace("to +", "to ") for a, b in zip(pilot, band, strict=True)
    )
    yield f"{sampled.replace(')', '; greedily ')}{greedy.replace(' (+', ', ')}"
    yield f"Both, {pilot[0].mean():.1f} and {band[0].mean():.1f} %, are behind `speed`"
    yield f"a pilot of 4 of 8 rollouts, {board('speed', 'sums').mean():.1f} %"

    few = [said(eight_before_sixteen(place)) for place in VARIANTS]
    few[0] = few[0].replace(" (", " points (")
    yield f"cost {few[0]} in `sums`, {few[1]} in `noisy`, {few[4]} in `hard`"
    one = [said(eight_before_sixteen(place, one_rate=True)) for place in ("sums", "noisy", "hard")]
    yield f"at one rate for all {one[0]}, {one[1]}, {one[2]}"
    yield f"with four settings (dc9aa2c) {few[2]} in `steps` and {few[3]} in `tags`"

    fresh = {
        place: (board("thin", place, FRESH), board("pods", place, FRESH)) for place in VARIANTS
    }
    results = {place: paired(*pair) for place, pair in fresh.items()}
    p = dict(zip(results, holm(list(results.values())), strict=True))
    yield ", ".join(
        f"{said(results[place], '+').replace('(+', '(').replace('to +', 'to ')} in `{place}`"
        for place in ("sums", "noisy", "tags", "hard")
    )
    yield f"(p {p['sums']:.3f}, {p['noisy']:.3f}, {p['tags']:.3f}; `hard` {p['hard']:.3f})"
    thin, pods = fresh["steps"]
    rest = pods > pods.min()
    without = paired(thin[rest], pods[rest])
    yield f"`steps`, {said(results['steps'], '+').replace('to +', 'to ')}: PODS collapses"
    yield f"without it the gain is {said(without)}"
    pods = board("pods", "tags", metric="both")
    lost = [paired(pods, board("thin_weighted", "tags", cell=(8, 4, 4, 2e-3), metric="both"))]
    lost += [paired(pods, board("dapo", "tags", metric="both"))]
    texts = [said(result).replace(" (", " points (") for result in lost]
    yield f"in `tags` they lose {texts[0]} and {texts[1]} of answers"


def algorithms():
    noise = smollm2_row("pods", "grpo")
    yield f"undecided, {said(noise).replace(' (', ' points (')}, behind in each"
    yield f"ahead by {said(smollm2_row('horvitz_thompson', 'grpo'))}"
    yield f"once by {-min(smollm2('thin') - smollm2('grpo')):.0f} points"
    (ahead,), others = pods_minus_grpo()
    yield f"undecided in {WORDS[len(others)]} settings, ahead by {said(ahead)} if sampling"
    rules = [planner_on_factors(place)[1] for place in ("sums", "noisy", "hard")]
    yield f"is {min(rules):.2f} to {max(rules):.2f} in the [factor study]"
    yield f"{planner_on_smollm2((0, 1))[1]:.2f} on SmolLM2-135M (more prompts before fewer"
    tags, hard = (planner_on_board(place, 0.002)[1] for place in ("tags", "hard"))
    yield f"{tags:.2f} in `tags` and {hard:.2f} in `hard`"


def paper():
    for arm, name in (("dapo", "DAPO"), ("greso", "GRESO")):
        yield f"{name} minus PODS {said(paired(board(arm, 'sums'), board('pods', 'sums')))}"


def check(page, claims):
    """Print each claim; return those that the page lacks."""
    text = " ".join((ROOT / page).read_text().split())
    missing = []
    for claim in claims:
        print("" if claim in text else "NOT ", page, dict(sources), claim)
        sources.clear()
        if claim not in text:
            missing.append(claim)
    return missing


PAGES = {
    "README.md": readme,
    "docs/board.md": board_page,
    "docs/log.md": log,
    "docs/algorithms.md": algorithms,
    "docs/paper.md": paper,
}

if __name__ == "__main__":
    missing = [check(page, claims()) for page, claims in PAGES.items()]
    sys.exit(any(missing))

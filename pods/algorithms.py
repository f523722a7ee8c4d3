"""Which rollouts are sampled and which are trained on: PODS and its rivals, one function each.

    uv run train.py algorithm=dapo algorithm_kwargs.rounds=2
    uv run train.py algorithm=my_file.py:my_algorithm

An algorithm is a generator. It yields (prompts, count), with one count or a count for each prompt,
as often as it likes, and receives the Batch of every rollout of the step so far; a prompt asked for
again gets further rollouts. It returns the indices to train on, or a Selection with advantages: at
most `step.budget` of them. Its parameters after `step` are the config keys algorithm_kwargs.<name>;
one of the name `rule` is given the config's rule.

    step.number     optimiser steps done before this one
    step.P, .n, .m  prompts of a step, rollouts per prompt, rollouts per prompt that are trained on
    step.budget     P m, the rows of the update; if fewer are returned, the others count nowhere
    step.prompts    the step's own P prompts
    step.fresh(k)   k further prompts of the data, in its order
    step.history    question -> its newest 64 Visits, the oldest first; a prompt is a key of it
    step.rng        numpy generator, a function of seed and step

What an algorithm needs of a run is said beside it, built in or yours, by attributes that are True:

    .samples_m        it samples m rollouts of a prompt: n is not used
    .keeps_all        it trains on every rollout that it samples
    .own_advantages   it returns advantages: the config's advantage function is not used
    .reads_logprobs   it reads batch.logprobs: an engine that gives none is refused
"""

import numpy as np

from pods.advantages import over_all
from pods.batch import MOST_ROUNDS, Algorithm, Batch, Selection, Step
from pods.history import exploration, streak
from pods.rules import Rule, keep, max_variance


def grpo(step: Step):
    """m rollouts of each prompt, all trained on (GRPO, arXiv 2402.03300)."""
    batch = yield step.prompts, step.m
    return np.arange(len(batch))


grpo.samples_m = True
grpo.keeps_all = True


def grpo_ga(step: Step):
    """All n rollouts are trained on, in micro-batches whose gradients add up: the budget is P n, so
    kept_per_prompt is n and micro_batch_size what the memory holds (PODS, section 4)."""
    batch = yield step.prompts, step.n
    return np.arange(len(batch))


grpo_ga.keeps_all = True


def pods(step: Step, rule: str | Rule = max_variance):
    """n rollouts of each prompt; train on the m whose rewards vary most (PODS, arXiv 2504.13818,
    algorithm 1). The config key `rule` names another rule."""
    batch = yield step.prompts, step.n
    return keep(batch, rule, step.m, step.rng)


def cppo(step: Step, each: int | None = None):
    """The `each` rollouts of largest |A| of each prompt, A over all n; further prompts fill up the
    step (CPPO, arXiv 2503.22342, pruning and dynamic completion allocation).

    each: m by default, which needs no further prompts; published: 1 to 8 of n = 16. Simplified: the
    number that is kept is fixed; the paper's is the number that fits the device.
    """
    each = min(each or step.m, step.budget)
    count = step.budget // each  # of prompts
    prompts = [*step.prompts, *step.fresh(max(0, count - step.P))]
    batch = yield prompts[:count], step.n
    advantages = all_advantages(batch)
    kept = np.concatenate([group[largest(advantages[group], each)] for group in batch.groups])
    return Selection(kept, advantages[kept])


cppo.own_advantages = True


def dapo(step: Step, rounds: int = 4):
    """Prompts whose answers are all correct or all wrong are replaced by fresh ones (DAPO, arXiv
    2503.14476, dynamic sampling).

    rounds: of generation at most, 1 to 16; published: until the step is full. Simplified: a
    further round samples as many prompts as are missing. DAPO's loss has its own keys (loss.type,
    epsilon_high).
    """
    if rounds > MOST_ROUNDS:  # a step without signal would end the run, perhaps hours later
        raise ValueError(f"its parameter rounds is {rounds}; set {MOST_ROUNDS} or less")
    batch = yield step.prompts, step.m
    for _ in range(rounds - 1):
        missing = step.P - len(batch.with_signal)
        if missing <= 0:
            break
        batch = yield step.fresh(missing), step.m
    return batch.of(batch.with_signal[: step.P])


dapo.samples_m = True


def speed(step: Step, screen: int = 4, pool: int = 2):
    """A few rollouts of many prompts; the rest only for prompts neither all correct nor all wrong
    among them (SPEED, arXiv 2506.09016).

    screen: rollouts, 2 or more, of each of pool * P prompts; published: 8 of 24. With n = m all are
    trained on, as in the paper; with n > m the m of largest reward variance. Simplified: prompts
    that pass and find no place in the step are not kept for the next one.
    """
    prompts = [*step.prompts, *step.fresh((pool - 1) * step.P)]
    screen = max(2, min(screen, step.n - 1))  # one rollout never has signal
    batch = yield prompts, screen
    chosen = batch.with_signal[: step.P]
    if len(chosen) and step.n > screen:
        batch = yield [prompts[p] for p in chosen], step.n - screen
    kept = keep(batch, max_variance, step.m)
    return kept[np.isin(batch.prompt[kept], chosen)]


def greso(
    step: Step,
    start: float = 0.5,
    change: float = 0.01,
    easy: float = 1 / 12,
    hard: float = 1 / 6,
    lowest: float = 0.01,
    tries: int = 4,
):
    """A prompt is skipped with probability 1 - max(p^c, lowest), where c counts its latest visits
    in a row that were all correct or all wrong (GRESO, arXiv 2506.02177).

    p, one for each of the two kinds, falls by `change` after a step in which the share `easy` or
    `hard` of the visits or more were of the kind, and rises otherwise. Where nothing grades, equal
    rewards are hard. Simplified: at most `tries` P prompts are looked at, and no larger batch makes
    up for groups without signal; p begins at `start` before the newest 1,000 steps, and c is at
    most 64, the visits that the history keeps.
    """
    p = exploration(step.history, start, change, lowest, {True: easy, False: hard})
    chosen, skipped = [], []
    for attempt in range(tries):
        candidates = step.prompts if attempt == 0 else step.fresh(step.P - len(chosen))
        for prompt in candidates:
            kind, c = streak(step.history, prompt)
            passes = step.rng.random() < max(p[kind] ** c, lowest)
            (chosen if passes else skipped).append(prompt)
    batch = yield (chosen + skipped)[: step.P], step.m
    return np.arange(len(batch))


greso.samples_m = True
greso.keeps_all = True


def max_abs_advantage(step: Step):
    """The largest |A| of the whole step, A over all n of a prompt, so that prompts without signal
    come last (CPPO's criterion over the step in place of each prompt)."""
    batch = yield step.prompts, step.n
    advantages = all_advantages(batch)
    kept = largest(advantages, step.budget)
    return Selection(kept, advantages[kept])


max_abs_advantage.own_advantages = True


def d3s(step: Step):
    """The advantages of largest variance over the whole step (D3S, arXiv 2509.22115, its rollout
    level). Simplified: without its token level and its schedule."""
    batch = yield step.prompts, step.n
    advantages = all_advantages(batch)
    kept = max_variance(advantages, step.budget, step.rng)
    return Selection(kept, advantages[kept])


d3s.own_advantages = True


def roc(step: Step):
    """Wrong rollouts are dropped evenly, correct ones by quality; at least one of each kind stays
    (GRPO-RoC, arXiv 2508.20722).

    Quality is the total reward, which counts format, then shortness. Simplified: the best correct
    ones are kept; the paper samples them by quality. If nothing grades, correct means a
    reward above the middle of the prompt's lowest and highest.
    """
    batch = yield step.prompts, step.n
    kept = []
    for group in batch.groups:
        good, bad = halves(batch, group)
        share = round(step.m * len(good) / len(group))
        least = max(min(1, len(good)), step.m - len(bad))
        most = min(len(good), step.m - min(1, len(bad)))  # a wrong one stays, too
        count = min(max(share, least), most)
        best_first = good[np.lexsort((lengths_of(batch)[good], -batch.rewards[good]))]
        kept.append(best_first[:count])
        kept.append(step.rng.choice(bad, min(step.m - count, len(bad)), replace=False))
    return np.concatenate(kept)


def gfpo(step: Step):
    """The m shortest rollouts of each prompt (GFPO, arXiv 2508.09726). Published: m = 4 to 8, n = 8
    to 24, and the loss divides by the tokens of all n. Simplified: one m for all prompts, and
    length alone; variants of the paper adapt m to their difficulty, and keep those of most reward
    per token."""
    batch = yield step.prompts, step.n
    lengths = lengths_of(batch)
    shortest_first = [group[np.argsort(lengths[group], kind="stable")] for group in batch.groups]
    return np.concatenate([group[: step.m] for group in shortest_first])


def thin(step: Step, pool: int = 2, look: int = 1):
    """The largest |A| of a step of few rollouts of many prompts (ours: docs/board.md).

    A is over all rollouts of a prompt; rows without signal are left out, and the loss divides by
    the others. It is biased: the rarer of a prompt's rewards are trained on more often than their
    share.

    pool: it samples rollouts of pool P prompts. look: they are chosen from the next look pool P
    prompts of the data; prompts that were all correct at their last visit come last. This needs a
    grader: without one the prompts beyond the first pool P are never sampled. look=1: all are
    sampled, and solved ones only lose ties.
    """
    prompts = [*step.prompts, *step.fresh((look * pool - 1) * step.P)]
    prompts.sort(key=lambda prompt: streak(step.history, prompt)[0])
    batch = yield prompts[: pool * step.P], step.n
    advantages = all_advantages(batch)
    kept = largest(advantages, step.budget)
    kept = kept[advantages[kept] != 0]
    return Selection(kept, advantages[kept])


thin.own_advantages = True


def horvitz_thompson(step: Step):
    """A sample of the step's rollouts whose expected update is that of all n of each prompt: the
    unbiased choice (Horvitz and Thompson 1952; systematic sampling, Madow 1949).

    Row i is kept with probability pi_i = min(1, c |A_i|), which add up to the budget; its advantage
    is A_i / pi_i, times K/R because the loss takes the mean over the K kept of R. A is over all n.
    Unbiased for losses that take a mean over rows (loss.type=grpo, dr_grpo), without a KL term and
    before gradient clipping. A mean over tokens (dapo) also multiplies the update of a step by the
    mean length of the R rollouts over that of the K.
    """
    batch = yield step.prompts, step.n
    advantages = all_advantages(batch)
    rows = step.rng.permutation(np.flatnonzero(advantages))
    pi = inclusion(np.abs(advantages[rows]), step.budget)
    # One grid of spacing 1 with a random start is laid over the probabilities put end to end.
    ends = np.round(np.cumsum([0, *pi]), 9) + step.rng.random()
    hit = np.diff(np.floor(ends)) > 0
    kept = rows[hit]
    return Selection(kept, advantages[kept] / pi[hit] * len(kept) / len(batch))


horvitz_thompson.own_advantages = True


ALGORITHMS: dict[str, Algorithm] = {
    "grpo": grpo,
    "grpo_ga": grpo_ga,
    "pods": pods,
    "cppo": cppo,
    "dapo": dapo,
    "speed": speed,
    "greso": greso,
    "max_abs_advantage": max_abs_advantage,
    "d3s": d3s,
    "roc": roc,
    "gfpo": gfpo,
    "thin": thin,
    "horvitz_thompson": horvitz_thompson,
}


def all_advantages(batch: Batch) -> np.ndarray:
    """(R,) (r - mean) / (std + 1e-4), mean and unbiased std over all rollouts of the prompt."""
    return over_all(batch, np.arange(len(batch)))


def largest(advantages: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest |A|; equal ones in index order."""
    return np.argsort(-np.abs(advantages), kind="stable")[:count]


def inclusion(sizes: np.ndarray, count: int) -> np.ndarray:
    """(K,) probabilities min(1, c size) with the c at which they add up to `count`; 1 for all if
    there are no more than that. Sizes are above 0."""
    if len(sizes) <= count:
        return np.ones(len(sizes))
    descending = np.sort(sizes)[::-1]
    rest = np.cumsum(descending[::-1])[::-1]  # of this size and the smaller ones
    room = count - np.arange(len(sizes))  # rows left if all larger ones are certain
    certain = np.argmax(descending * room <= rest)  # how many sizes are
    return np.minimum(1, sizes * room[certain] / rest[certain])


def halves(batch: Batch, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The correct and the wrong rollouts of a prompt; without a grade and a reward it is wrong."""
    rewards = batch.rewards[group]
    scored = rewards[np.isfinite(rewards)]
    middle = (scored.min() + scored.max()) / 2 if len(scored) else np.inf
    correct = rewards > middle if batch.correct is None else batch.correct[group].astype(bool)
    return group[correct], group[~correct]


def lengths_of(batch: Batch) -> np.ndarray:
    """(R,) tokens, at least 1; equal ones for a batch made without lengths."""
    return np.ones(len(batch)) if batch.lengths is None else np.maximum(batch.lengths, 1)

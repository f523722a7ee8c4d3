"""The strict grader on a busy machine, and in a script without a main guard."""

import multiprocessing
import os
import subprocess
import sys
import time
from contextlib import closing

import psutil

from rewards import Scorer
from tests.conftest import ROOT
from tests.unit.test_rewards_strict import SLOW, block, wait_until_gone


def busy() -> None:
    """Keep a core busy until killed, as another user's process does."""
    while True:
        pass


def test_a_verdict_does_not_depend_on_the_load_of_the_machine():
    """Four busy processes on the one core that the comparisons may use: they wait, and count only
    the processor's time that they use themselves."""
    count = 4
    golds = [f"(3,\\frac{{{k}\\pi}}{{2}})" for k in range(1, count + 1)]
    answers = [block(f"(3,\\frac{{{2 * k}\\pi}}{{4}})") for k in range(1, count + 1)]
    context = multiprocessing.get_context("fork")  # an interpreter of its own takes a second
    cores = os.sched_getaffinity(0)
    neighbours = [context.Process(target=busy) for _ in range(4)]
    os.sched_setaffinity(0, {min(cores)})  # inherited by every process that is started here
    try:
        for neighbour in neighbours:
            neighbour.start()
        with closing(Scorer("strict", workers=2, deadline_seconds=0.5)) as scorer:
            assert scorer.grade(answers, golds, ["math"] * count) == [True] * count
            assert scorer.timeouts == 0
    finally:
        os.sched_setaffinity(0, cores)
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.join()


def test_a_script_without_a_main_guard_is_run_once_and_no_process_outlives_it():
    """The server never imports the caller's main module, which may start training."""
    code = (
        "import sys; from rewards import Scorer\n"
        "scorer = Scorer('strict', workers=2, deadline_seconds=3)\n"
        "grades = scorer.grade(['<answer>(x+1)(x+2)</answer>'], ['x^2+3x+2'], ['math'])\n"
        "print(scorer._verifier._server.pid, grades, 'torch' in sys.modules, flush=True)\n"
        f"scorer.grade(['<answer>{SLOW}</answer>'], ['x+1'], ['math'])\n"
    )
    command = [sys.executable, "-c", code]
    trainer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pid, line = trainer.stdout.readline().split(maxsplit=1)
    assert line == "[True] False\n"
    server = psutil.Process(int(pid))
    while not server.children():
        time.sleep(0.05)  # until the comparison runs
    pids = [server.pid, *(child.pid for child in server.children())]
    trainer.kill()
    trainer.communicate()
    wait_until_gone(pids)

"""Several processes in one run, started by `accelerate launch`: ranks and collective calls.

All make the same calls in the same order: one rank decides for all, or answers are gathered.
"""

import atexit
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from pods.config.errors import RunFailed, UserError

if TYPE_CHECKING:
    from torch.distributed import Store

T = TypeVar("T")
U = TypeVar("U")
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
TIMEOUT = timedelta(minutes=30)  # longest wait for another rank that gives signs of life
BEAT = 1.0  # s between two signs of life of a rank; assumed to be 1 s below
MISSED = 5  # beats without a sign after which an error is that of a rank that ended
# Beats without a sign after which the other ranks end, also without an error. Many, because a rank
# gives no sign while a reward or a write to a slow folder holds Python's interpreter lock.
SILENT = 600


def world_size() -> int:
    """How many processes the launcher started for this run."""
    if "LOCAL_RANK" not in os.environ:  # WORLD_SIZE alone may be of a cluster's scheduler
        return 1
    return int(os.environ.get("WORLD_SIZE", 1))


def rank() -> int:
    """The number of this process among all of the run, from 0."""
    return int(os.environ["RANK"]) if world_size() > 1 else 0


def local_rank() -> int:
    """The number of this process among those of its machine, from 0."""
    return int(os.environ.get("LOCAL_RANK", 0))


def ranks_of_machine() -> int:
    """How many processes of the run share this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def number_of_run() -> int:
    """A number that the processes of one run share: the launcher's port, else the process's id."""
    return int(os.environ.get("MASTER_PORT") or os.getpid())


def in_process_group() -> bool:
    """Whether this process has joined a group of torch.distributed, its own or vLLM's."""
    import torch

    return torch.distributed.is_initialized()


@contextmanager
def hidden() -> Iterator[None]:
    """Hide the launcher's variables in this block: a process started in it would join the run's
    group, or wait for a store that nobody serves. Every change of the environment is undone at the
    end."""
    before = dict(os.environ)
    for name in before:
        if name in LAUNCHER or name.startswith("TORCHELASTIC_"):
            del os.environ[name]
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def zero_stage() -> int:
    """DeepSpeed's stage: 0 not used, 1 divides the optimiser, 2 also gradients, 3 also weights."""
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") != "true":
        return 0
    return int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", 2))


def is_main() -> bool:
    """True on the rank that writes and prints."""
    return rank() == 0


def say(line: str) -> None:
    """Print a line on stderr, on the main rank only."""
    if is_main():
        print(line, file=sys.stderr)


def printable(text: str) -> str:
    """The text without control characters, which could control the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def name(number: int) -> str:
    """A rank for a message; machines have the numbers of --machine_rank."""
    return f"rank {number} on machine {number // ranks_of_machine()}"


missed: list[int] = []  # by rank: beats without a sign of life; empty with one process


def beat(store: "Store", beats: list[int], ends: threading.Event) -> None:
    """Count this rank's signs of life in the store, and read those of all into `beats`. The store
    is on the first machine; if it is gone, every rank looks silent."""
    own = rank()
    with suppress(RuntimeError):
        while not ends.wait(BEAT):
            beats[:] = [store.add(f"beats of {n}", n == own) for n in range(len(beats))]


def watch(beats: list[int], ends: threading.Event) -> None:
    """Count the beats that each rank missed, and end this process if one is silent: no error comes
    if a machine is switched off. Beats are no seconds: a suspended job misses none."""
    while max(missed) < SILENT:
        before = [*beats]
        if ends.wait(BEAT):
            return
        for number, (old, new) in enumerate(zip(before, beats, strict=True)):
            missed[number] = missed[number] + 1 if old == new else 0
    print(f"{wait_for_lost()} gives no sign of life; run again to resume", file=sys.stderr)
    os._exit(RunFailed.exit_code)  # the main thread waits in a collective call


def watch_each_other(ends: threading.Event) -> None:
    """Beat and watch in the background, once all ranks have joined: then the launcher's store is
    there for each. A connection of its own, because a call blocks it for others."""
    from torch.distributed import TCPStore

    address = os.environ["MASTER_ADDR"]
    store = TCPStore(address, number_of_run(), is_master=False, timeout=TIMEOUT)
    beats = [0] * world_size()
    missed[:] = beats
    for work, arguments in ((beat, (store, beats, ends)), (watch, (beats, ends))):
        threading.Thread(target=work, args=arguments, daemon=True).start()


def wait_for_lost() -> str | None:
    """The name of the rank that ended first, if an error in a collective call is due to that."""
    if missed:
        time.sleep(2 * MISSED)
    longest = max(missed, default=0)
    return name(missed.index(longest)) if longest >= MISSED else None


@contextmanager
def joined() -> Iterator[None]:
    """Join the other processes for this block; before anything that gathers. RunFailed names the
    rank whose end is the cause of an error."""
    if world_size() == 1:
        yield
        return
    import torch
    from accelerate import PartialState

    ends = threading.Event()
    # DeepSpeed calls torch by old names, once a step and more.
    warnings.filterwarnings("ignore", r"`torch.distributed.\w+` is deprecated", FutureWarning)
    cpu = not torch.cuda.is_available()
    try:
        state = PartialState(
            cpu=cpu and not zero_stage(),  # with cpu=True accelerate does not use DeepSpeed
            backend="gloo" if cpu else None,
            timeout=TIMEOUT,
        )
        watch_each_other(ends)
        # While Python still runs: the groups' threads abort a process that is already tearing down.
        atexit.register(state.destroy_process_group)
        if cpu:  # accelerate calls its device cpu:<rank>, which torch.load does not know
            torch.serialization.register_package(
                0,
                lambda _: None,
                lambda storage, place: storage if place.startswith("cpu:") else None,
            )
        yield
    except RuntimeError as error:
        if gone := wait_for_lost():
            raise RunFailed(f"{gone} ended; run again to resume") from error
        raise
    finally:
        ends.set()


def share(items: Sequence[T]) -> list[T]:
    """This rank's part of `items`, cut in rank order; the last item makes the parts equal."""
    items = list(items)
    while len(items) % world_size():
        items.append(items[-1])
    size = len(items) // world_size()
    start = rank() * size
    return items[start : start + size]


def split(work: Callable[[list[T]], list[U]], items: list[T]) -> list[U]:
    """work(items), one result for each: every rank does its share and receives all results."""
    mine = share(items)
    results = work(mine)
    if len(results) != len(mine):  # else they would be those of other items
        raise ValueError(f"{work.__name__} returned {len(results)} values, not {len(mine)}")
    return gather(results)[: len(items)]


def gather(items: list[T]) -> list[T]:
    """The items of every rank in rank order, on every rank."""
    if world_size() == 1:
        return items
    from accelerate.utils import gather_object

    return gather_object(items)


def wait() -> None:
    """Return when every rank has called it."""
    gather([None])


def refuse_difference(value: object, problem: str) -> None:
    """Raise UserError, on every rank, if a rank has another value than rank 0."""
    values = gather([value])
    for number, other in enumerate(values):
        if other != values[0]:
            raise UserError(f"{name(number)} {problem}")


def from_main(work: Callable[[], T]) -> T:
    """What `work` returns on rank 0, on every rank; its UserError is raised on every rank."""
    outcome: list[T | UserError] = []  # empty on every other rank
    if is_main():
        try:
            outcome.append(work())
        except UserError as error:
            outcome.append(error)
    (result,) = gather(outcome)
    if isinstance(result, UserError):
        raise result
    return result

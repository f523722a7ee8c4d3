"""Several processes in one run, started by `accelerate launch`: ranks and collective calls.

All make the same calls in the same order: one rank decides for all, or answers are gathered.
"""

import atexit
import functools
import os
import secrets
import selectors
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TypeVar

from pods.config.errors import RunFailed, UserError, one_line

T = TypeVar("T")
U = TypeVar("U")
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
TIMEOUT = timedelta(minutes=30)  # longest wait for another rank that lives
# After 10 minutes without an answer a machine is lost. Its kernel answers, so none is lost because
# it is busy, or its processes are suspended. In s: before the first question, between two; and how
# many. macOS has other names.
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 60, "TCP_KEEPCNT": 9}
PATIENCE = 30.0  # s for this process to end by its own error, once another rank is lost
RELAY = 10.0  # s to hear which rank was lost, once a collective call has failed
LEFT = "left"  # said by a rank that needs no other rank any more


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


class RankWatch(threading.Thread):
    """Waits for the loss of another rank, and ends this process if its own error does not.

    gloo can miss it: what it is sending or has half received gets no error when the other process
    is killed, so a broadcast waits for its whole timeout. Rank 0 has a connection of our own to
    each other rank, which the kernel closes when a process ends, whatever that was doing. Nobody
    beats on it: a rank may hold Python's interpreter lock for minutes, in a reward, say.
    """

    def __init__(self) -> None:
        """All ranks call it at once, when they have joined. Raises OSError, RuntimeError."""
        super().__init__(daemon=True)
        self.lost = ""  # what became of the first rank that was lost
        self.knows, self.left = threading.Event(), threading.Event()
        self.blamed = False  # whether an error of this process is due to the loss
        self.peers = list(connections())
        for connection, _ in self.peers:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option in KEEPALIVE.keys() & vars(socket).keys():
                number = getattr(socket, option)
                connection.setsockopt(socket.IPPROTO_TCP, number, KEEPALIVE[option])
        # A worker of a reward's pool outlives a killed rank, and would hold its connection open.
        os.register_at_fork(after_in_child=self.close)
        self.start()

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for connection, number in self.peers:
                selector.register(connection, selectors.EVENT_READ, (connection, number))
            while selector.get_map() and not self.lost:
                for key, _ in selector.select():
                    said = hear(*key.data)
                    if said == LEFT:
                        selector.unregister(key.fileobj)
                    else:
                        self.lost = self.lost or said
        if self.lost and not self.left.is_set():
            self.end_process()

    def end_process(self) -> None:
        """End it when PATIENCE is over: the main thread may wait in a collective call, or at its
        end for the threads of the group."""
        self.knows.set()
        self.tell(self.lost)
        if not self.left.wait(PATIENCE):
            print(f"{self.lost}; run again to resume", file=sys.stderr)
        elif self.blamed:
            time.sleep(PATIENCE)
        else:  # all ranks had the same error; in a sweep the next job follows
            return
        os._exit(RunFailed.exit_code)

    def tell(self, message: str) -> None:
        for connection, _ in self.peers:
            with suppress(OSError):  # that one is lost
                connection.sendall(f"{message}\n".encode())

    def leave(self, message: str) -> None:
        """End the connections, with LEFT unless an error ends this rank."""
        self.left.set()
        self.tell(message)
        for connection, _ in self.peers:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for connection, _ in self.peers:
            connection.close()


def hear(connection: socket.socket, number: int) -> str:
    """What a rank says first, LEFT or which rank it lost, or else what became of it."""
    try:
        return connection.recv(256).decode().partition("\n")[0] or f"{name(number)} ended"
    except ConnectionResetError:
        return f"{name(number)} ended"
    except OSError:  # it gave no answer
        return f"{name(number)} gives no sign of life"


def connections() -> Iterator[tuple[socket.socket, int]]:
    """Between rank 0 and each other rank: this rank's, with the number of the rank at the other
    end. It says a secret, because a stranger can reach the port, too."""
    seconds = TIMEOUT.total_seconds()
    if not is_main():
        port, secret = from_main(tuple)
        connection = socket.create_connection((os.environ["MASTER_ADDR"], port), seconds)
        connection.sendall(f"{secret}{rank():08}".encode())
        yield connection, 0
        return
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=dual) as server:
        server.settimeout(seconds)
        secret = secrets.token_hex(16)
        from_main(lambda: (server.getsockname()[1], secret))
        awaited = {f"{secret}{number:08}".encode(): number for number in range(1, world_size())}
        while awaited:
            connection, _ = server.accept()
            connection.settimeout(60)
            said = b""
            with suppress(OSError):
                said = connection.recv(len(secret) + 8)
            if said in awaited:
                yield connection, awaited.pop(said)
            else:
                connection.close()


watches: list[RankWatch] = []  # that of the run; empty with one process


def wait_for_lost() -> str | None:
    """What became of the rank that was lost first, if an error in a collective call is due to
    that."""
    for watch in watches:
        if watch.knows.wait(RELAY):
            watch.blamed = True
            return watch.lost
    return None


@contextmanager
def joined() -> Iterator[None]:
    """Join the other processes for this block; before anything that gathers. RunFailed names the
    rank whose end is the cause of an error."""
    if world_size() == 1:
        yield
        return
    import torch
    from accelerate import PartialState

    # DeepSpeed calls torch by old names, once a step and more.
    warnings.filterwarnings("ignore", r"`torch.distributed.\w+` is deprecated", FutureWarning)
    cpu = not torch.cuda.is_available()
    try:
        state = PartialState(
            cpu=cpu and not zero_stage(),  # with cpu=True accelerate does not use DeepSpeed
            backend="gloo" if cpu else None,
            timeout=TIMEOUT,
        )
        # While Python still runs: the groups' threads abort a process that is tearing down.
        atexit.register(state.destroy_process_group)
        watch = RankWatch()
    except (RuntimeError, OSError) as error:
        raise RunFailed(
            f"the {world_size()} processes did not all join ({one_line(error)}); run again"
        ) from error
    watches[:] = [watch]
    if cpu:
        read_numbered_cpus()
    farewell = ""
    try:
        yield
        farewell = LEFT
    except SystemExit:  # by a signal, of every rank
        farewell = LEFT
        raise
    except RuntimeError as error:
        if gone := wait_for_lost():
            raise RunFailed(f"{gone}; run again to resume") from error
        raise
    finally:
        watch.leave(farewell)


@functools.cache  # torch cannot sort a second one of its priority, in the next job of a sweep
def read_numbered_cpus() -> None:
    """Let torch.load read what was saved from cpu:<rank>, as accelerate calls its device."""
    import torch

    torch.serialization.register_package(
        0,
        lambda _: None,
        lambda storage, place: storage if place.startswith("cpu:") else None,
    )


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

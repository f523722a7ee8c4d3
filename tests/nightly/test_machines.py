"""Two machines as two network namespaces of this one: each has its own address, host name and
folder for caches, and they share a folder for checkpoints. Nothing leaves them: they have no route
to anywhere else. Making them needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN); without it the tests skip.
"""

import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from pods import files, ranks, trainer
from pods.runs import checkpoints
from tests import faults, processes, two_ranks
from tests.conftest import ROOT
from tests.nightly import vllm_server
from tests.nightly.test_distributed import SETTINGS
from tests.nightly.test_faults import assert_same_run, lines, rollouts
from tests.two_ranks import ADAM, differences, fixed_rollouts

ADDRESSES = "10.77.0.1", "10.77.0.2"
NEW_NETWORK, NEW_HOSTNAME = 0x40000000, 0x04000000  # CLONE_NEWNET, CLONE_NEWUTS
libc = ctypes.CDLL(None, use_errno=True)


def ip(arguments):
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def machines():
    """The names of two namespaces, joined by a cable."""
    names = [f"pods{os.getpid()}-{number}" for number in (0, 1)]
    try:
        for name in names:
            ip(f"netns add {name}")
        ip(f"link add cable netns {names[0]} type veth peer name cable netns {names[1]}")
        for name, address in zip(names, ADDRESSES, strict=True):
            ip(f"-n {name} address add {address}/24 dev cable")
            ip(f"-n {name} link set lo up")
            ip(f"-n {name} link set cable up")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces: {getattr(error, 'stderr', None) or error}")
    yield names
    for name in names:
        ip(f"netns delete {name}")


@pytest.fixture
def run(machines, tmp_path):
    """Two machines with `each` processes, forked into them; two_ranks.run has the other words."""

    def start(*overrides, each=1, fault=None, act=two_ranks.run, folder=tmp_path, **settings):
        overrides = [*SETTINGS, f"output_dir={folder}", *overrides]
        inside = partial(move, machines, each, tmp_path, fault)
        return act(folder, *overrides, ranks=2 * each, fault=inside, **settings)

    return start


def move(machines, each, folder, fault):
    """This process into its machine."""
    machine, local_rank = divmod(int(os.environ["RANK"]), each)
    enter(machines[machine])
    if libc.unshare(NEW_HOSTNAME):
        raise OSError(ctypes.get_errno(), "unshare")
    socket.sethostname(f"machine{machine}")
    os.environ.update(settings_of(folder, machine), MASTER_ADDR=ADDRESSES[0])
    os.environ.update(LOCAL_RANK=str(local_rank), LOCAL_WORLD_SIZE=str(each))
    if fault:
        fault()


def enter(machine):
    """This process into the network of a machine."""
    descriptor = os.open(f"/run/netns/{machine}", os.O_RDONLY)
    if libc.setns(descriptor, NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def settings_of(folder, machine):
    """A machine's own folder for caches and temporary files, and its network card."""
    local = folder / f"local{machine}"
    local.mkdir(exist_ok=True)
    folders = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TMPDIR"), str(local))
    return folders | {"GLOO_SOCKET_IFNAME": "cable", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Three steps of one process."""
    folder = tmp_path_factory.mktemp("alone")
    settings = [*SETTINGS, *ADAM, f"output_dir={folder}"]
    two_ranks.run(folder, *settings, ranks=1, fault=fixed_rollouts)
    return folder / "r"


LAUNCHED = f"""
import runpy, sys
from tests import two_ranks
two_ranks.fixed_rollouts()
sys.argv[0] = {str(ROOT / "train.py")!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def assert_same_run_of(alone, path):
    """Rollouts, and weights to the tolerance of two processes on one machine."""
    one, two = (p / "checkpoint-3" / "adapter_model.safetensors" for p in (alone, path))
    one, two = load_file(one), load_file(two)
    assert max(value.abs().max() for name, value in one.items() if "lora_B" in name) > 5e-4
    assert differences(one, two) == {}
    assert rollouts(alone) == rollouts(path)


def test_two_machines_make_the_update_of_one_process(run, tmp_path, alone):
    run(*ADAM, fault=fixed_rollouts)
    assert_same_run_of(alone, tmp_path / "r")


def test_their_launchers_with_two_processes_each_do_so_too(machines, tmp_path, alone):
    """`accelerate launch`, typed on both; the rollouts are those of tests/two_ranks.py."""
    (tmp_path / "train.py").write_text(LAUNCHED)
    launch = ["-m", "accelerate.commands.accelerate_cli", "launch"]
    launch += ["--config_file", str(ROOT / "config" / "accelerate" / "cpu.yaml")]
    launch += ["--num_machines", "2", "--num_processes", "4"]
    launch += ["--main_process_ip", ADDRESSES[0], "--main_process_port", "29500"]
    started = []
    for machine, name in enumerate(machines):
        command = ["ip", "netns", "exec", name, sys.executable, *launch]
        command += ["--machine_rank", str(machine), str(tmp_path / "train.py")]
        command += [*SETTINGS, *ADAM, f"output_dir={tmp_path}"]
        environment = {**os.environ, **settings_of(tmp_path, machine), "PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # torch takes a minute to compile
        with open(tmp_path / f"machine{machine}.log", "w") as log:
            started.append(
                subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
            )
    try:
        codes = [process.wait(500) for process in started]
    finally:
        for process in started:
            process.kill()
    logs = [(tmp_path / f"machine{machine}.log").read_text() for machine in (0, 1)]
    assert codes == [0, 0], logs
    assert logs[0].count(" steps in ") == 1
    assert " steps in " not in logs[1]
    assert_same_run_of(alone, tmp_path / "r")
    assert checkpoints.find(tmp_path / "r")[-1].meta["ranks"] == 4


@pytest.fixture(scope="module")
def reference(machines, tmp_path_factory):
    """Six steps of two processes on one machine."""
    folder = tmp_path_factory.mktemp("reference")
    two_ranks.run(folder, *SETTINGS, f"output_dir={folder}", "max_steps=6")
    return folder / "r"


def slow():
    """Steps of 0.3 s and more, to strike at any moment of them."""
    faults.before(trainer.PodsTrainer, "score", lambda *_: time.sleep(0.3))


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_machine_ends_the_other_by_name_and_both_resume(run, tmp_path, reference, victim):
    """At a random moment, by SIGKILL; a resume has the bits of a run that was never stopped."""
    started = run("max_steps=6", fault=slow, act=two_ranks.start)
    processes.wait_for(lambda: checkpoints.find(tmp_path / "r"), started)
    seconds = random.uniform(0, 1.2)
    time.sleep(seconds)
    os.kill(started[victim].pid, signal.SIGKILL)
    other = started[1 - victim]
    assert other.end() == 1, f"killed after {seconds} s: {other.stderr}"
    started[victim].join()
    last = other.stderr.splitlines()[-1]
    assert last.endswith(f"rank {victim} on machine {victim} ended; run again to resume")
    run("max_steps=6")
    assert_same_run(tmp_path / "r", reference)


def test_a_signal_to_one_machine_ends_both_with_one_checkpoint(run, tmp_path):
    started = run("max_steps=2000", fault=slow, act=two_ranks.start)
    processes.wait_for(lambda: faults.trained(tmp_path / "r"), started)
    os.kill(started[1].pid, signal.SIGTERM)
    assert [process.end() for process in started] == [143, 143], started[0].stderr
    assert "stopped by SIGTERM; run again to resume" in started[0].stderr
    assert "stopped by" not in started[1].stderr


def test_a_cut_cable_ends_both_machines(machines, run, tmp_path):
    """No error comes of it: each finds the other silent, in seconds instead of ten minutes."""

    def impatient():
        slow()
        ranks.KEEPALIVE = dict.fromkeys(ranks.KEEPALIVE, 2)
        ranks.PATIENCE = 1.0

    started = run("max_steps=2000", fault=impatient, act=two_ranks.start)
    processes.wait_for(lambda: faults.trained(tmp_path / "r"), started)
    ip(f"-n {machines[1]} link set cable down")
    try:
        assert [process.end() for process in started] == [1, 1]
    finally:
        ip(f"-n {machines[1]} link set cable up")
    for machine, process in enumerate(started):
        last = process.stderr.splitlines()[-1]
        other = 1 - machine
        assert last.startswith(f"rank {other} on machine {other} gives no sign of life; run again")


def test_a_folder_that_machines_do_not_share_is_refused(run, tmp_path):
    """A relative one: each works in a folder of its own."""
    started = run("output_dir=mine", codes=(2, 2))
    for process in started:
        line = process.stderr.splitlines()[-1]
        assert "rank 1 on machine 1 does not see mine/r/.lock of rank 0; set output_dir to" in line


def test_other_keys_on_a_machine_are_refused_by_name(run):
    def mistyped():
        if ranks.rank() == 1:
            sys.argv += ["max_steps=4", "loss.beta=0.5"]

    for process in run("loss.beta=0.25", fault=mistyped, codes=(2, 2)):
        line = process.stderr.splitlines()[-1]
        assert (
            "rank 1 on machine 1 has other keys than rank 0: loss.beta (0.25 -> 0.5), max" in line
        )


def test_another_data_set_on_a_machine_is_refused_by_name(run, tmp_path):
    """A relative file: each works in a folder of its own."""
    for machine in (0, 1):
        folder = tmp_path / f"rank{machine}"
        folder.mkdir()
        rows = [{"q": f"{i} plus 2", "a": i + 2 + machine} for i in range(40)]
        (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = ["task=own", "task.source=mine.jsonl", "task.question=q", "task.answer=a"]
    for process in run(*own, "evaluation.every_seconds=null", codes=(2, 2)):
        line = process.stderr.splitlines()[-1]
        assert "rank 1 on machine 1 does not have rank 0's questions of the train split" in line


def test_no_route_leaves_the_machines(machines):
    """The only one is the cable between them; IPv6 may be off."""
    for name in machines:
        routes = []
        for family in ("-4", "-6"):
            listed = subprocess.check_output(["ip", "-n", name, family, "-json", "route"])
            routes += json.loads(listed or "[]")
        assert {(route["dev"], route.get("gateway")) for route in routes} == {("cable", None)}
        assert "default" not in {route["dst"] for route in routes}


@pytest.fixture
def serve(machines, tmp_path):
    """A function that starts the stand-in for a vLLM server on the second machine."""
    servers = []

    def start():
        model = ROOT / "pods" / "tiny_policy"
        log = tmp_path / "server.jsonl"
        servers.append(vllm_server.start(ADDRESSES[1], model, log, lambda: enter(machines[1])))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
        server.join()


@pytest.fixture
def train(machines, tmp_path):
    """A function that starts two processes on the first machine, sampling on the second."""

    def inside():
        enter(machines[0])
        vllm_server.without_nccl(ADDRESSES[0])

    keys = f"vllm_mode: server, vllm_server_host: {ADDRESSES[1]}, vllm_server_timeout: 2"
    settings = [*SETTINGS, f"output_dir={tmp_path}", "engine=trl", f"trl={{{keys}}}"]
    settings += ["lora.rank=null", "optimizer.learning_rate=0.001", "warm_up=true"]
    return partial(two_ranks.start, tmp_path, *settings, fault=inside)


def server_notes(folder, kind):
    return [note for note in files.read_lines(folder / "server.jsonl") if note["kind"] == kind]


def test_a_server_on_another_machine_samples_from_every_update(serve, train, tmp_path):
    """Its log-probabilities of a fixed text change by each update, and are the checkpoints'."""
    serve()
    started = train("sampling.max_completion_length=40")  # enough for answers, and so for a signal
    assert [process.end() for process in started] == [0, 0], started[0].stderr
    gaps = [line["engine/logprob_gap"] for line in lines(tmp_path / "r")]
    assert max(gaps) < 1e-5
    seen = [note["logprobs"] for note in server_notes(tmp_path, "update")]
    theirs = []
    for checkpoint in checkpoints.find(tmp_path / "r")[:2]:  # after the third nothing is sampled
        model = AutoModelForCausalLM.from_pretrained(checkpoint.path, dtype=torch.float32)
        theirs.append(vllm_server.token_logprobs(model, vllm_server.PROBE))
    assert np.abs(np.diff(np.array([seen[0], *theirs]), axis=0)).max(axis=1).min() > 0.01
    np.testing.assert_allclose(seen[-2:], theirs, atol=1e-5)


def test_a_server_that_is_gone_ends_the_run_with_its_checkpoint_and_it_resumes(
    serve, train, tmp_path
):
    started = train()
    assert [process.end() for process in started] == [1, 1]
    assert "vLLM server can't be reached" in started[0].stderr.splitlines()[-1]
    server = serve()
    started = train("max_steps=40")
    processes.wait_for(lambda: checkpoints.find(tmp_path / "r"), started)
    server.kill()
    assert [process.end() for process in started] == [1, 1]
    last = checkpoints.find(tmp_path / "r")[-1]
    line = started[0].stderr.splitlines()[-1]
    assert "the vLLM server gave no answer" in line
    assert line.endswith(f"last checkpoint: {last.path}")
    serve()
    started = train(f"max_steps={last.step + 1}")
    assert [process.end() for process in started] == [0, 0], started[0].stderr
    assert [line["step"] for line in lines(tmp_path / "r")] == [*range(1, last.step + 2)]

"""A stand-in for `trl vllm-serve` on a machine without a GPU, whose weights arrive by NCCL only.

It answers the HTTP requests of TRL's client as vLLM does, and samples with transformers. TRL's
client is the real one; `without_nccl` gives it a TCP connection in place of the NCCL group.
"""

import json
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from requests.adapters import HTTPAdapter
from transformers import AutoModelForCausalLM
from trl.generation import vllm_client, vllm_generation

from pods.engines import choose

PORT = 8000
PROBE = list(range(10, 26))  # tokens whose log-probabilities are noted after every update


def token_logprobs(model: Any, ids: list[int], temperature: float = 1.0) -> list[float]:
    """Of each token but the first, given those before it."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1] / temperature
    chosen = torch.tensor(ids[1:])[:, None]
    return logits.log_softmax(-1).gather(1, chosen)[:, 0].tolist()


class Server(HTTPServer):
    """Holds a model, and the trainer's connection for its weights."""

    def __init__(self, address: str, model: Path, log: Path) -> None:
        super().__init__((address, PORT), Handler)
        self.name, self.log = str(model), log
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self.weights: Any = None  # a file that reads from the trainer

    def note(self, kind: str, **facts: Any) -> None:
        with self.log.open("a") as file:
            file.write(json.dumps({"kind": kind, **facts}) + "\n")

    def join(self, init_info: dict[str, Any]) -> None:
        """Connect to the trainer, the group's master, as soon as it listens."""
        place = init_info["master_address"], init_info["master_port"]
        while True:
            with suppress(ConnectionRefusedError):
                self.weights = socket.create_connection(place).makefile("rb")
                return
            time.sleep(0.05)

    def update(self, names: list[str], dtype_names: list[str], shapes: list[list[int]]) -> None:
        """Read these tensors, in this order."""
        parameters = dict(self.model.named_parameters())
        for name, dtype, shape in zip(names, dtype_names, shapes, strict=True):
            assert dtype == "float32"
            data = self.weights.read(4 * int(np.prod(shape)))
            value = np.frombuffer(data, np.float32).reshape(shape)
            parameters[name].data.copy_(torch.from_numpy(value.copy()))
        self.note("update", tensors=len(names), logprobs=token_logprobs(self.model, PROBE))

    def complete(self, prompt: list[list[int]], n: int, **asked: Any) -> dict[str, Any]:
        """The answer of /v1/completions: n choices of a prompt after those of another."""
        known = {"temperature", "top_p", "top_k", "min_p", "max_tokens", "repetition_penalty"}
        known |= {"stop_token_ids", "logprobs", "model"}
        known |= {"return_token_ids", "return_tokens_as_token_ids", "detokenize"}
        assert not {*asked} - known, {*asked} - known
        assert asked["logprobs"] == 0
        choices = []
        for ids in prompt:
            output = self.model.generate(
                torch.tensor([ids] * n),
                attention_mask=torch.ones(n, len(ids), dtype=torch.long),
                do_sample=True,
                temperature=asked["temperature"],
                top_p=asked["top_p"],
                top_k=max(asked["top_k"], 0),
                max_new_tokens=asked["max_tokens"],
                eos_token_id=asked["stop_token_ids"],
                pad_token_id=asked["stop_token_ids"][0],
            )
            for row in output[:, len(ids) :].tolist():
                ends = (i for i, token in enumerate(row, 1) if token in asked["stop_token_ids"])
                row = row[: next(ends, len(row))]
                values = token_logprobs(self.model, ids + row, asked["temperature"])
                logprobs = {
                    "tokens": [f"token_id:{token}" for token in row],
                    "token_logprobs": values[-len(row) :],
                    "top_logprobs": [None] * len(row),
                }
                choices.append({"prompt_token_ids": ids, "token_ids": row, "logprobs": logprobs})
        self.note("completions", prompts=len(prompt), n=n)
        return {"choices": choices}


class Handler(BaseHTTPRequestHandler):
    """One request of TRL's client."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        answers = {
            "/health": {},
            "/v1/models": {"data": [{"id": self.server.name}]},
            "/get_world_size": {"world_size": 1},
        }
        self.answer(answers[self.path])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        answers: dict[str, Callable[[], Any]] = {
            "/init_weight_transfer_engine": lambda: self.server.join(body["init_info"]),
            "/start_weight_update": dict,
            "/update_weights": lambda: self.server.update(**body["update_info"]),
            "/finish_weight_update": dict,
            "/reset_prefix_cache": lambda: {"success": True},
            "/v1/completions": lambda: self.server.complete(**body),
        }
        self.answer(answers[self.path]() or {})

    def answer(self, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Not on stderr."""


def start(
    address: str, model: Path, log: Path, inside: Callable[[], None]
) -> multiprocessing.process.BaseProcess:
    """A server in a process of its own, in which `inside` is called first; it listens when this
    returns."""

    def serve() -> None:
        inside()
        torch.manual_seed(len(log.read_text()) if log.exists() else 0)
        server = Server(address, model, log)
        server.note("ready")
        server.serve_forever()

    process = multiprocessing.get_context("fork").Process(target=serve, daemon=True)
    before = log.read_text().count("ready") if log.exists() else 0
    process.start()
    while not (log.exists() and log.read_text().count("ready") > before):
        process.join(0.1)
        assert process.exitcode is None
    return process


def without_nccl(address: str) -> None:
    """In this process TRL's client finds a vLLM and sends weights by TCP, from this address."""

    def open_endpoint(init_info: dict[str, Any]) -> SimpleNamespace:
        with socket.create_server((address, init_info["master_port"])) as listener:
            connection, _ = listener.accept()
        return SimpleNamespace(group=SimpleNamespace(), connection=connection)

    def send(iterator: Iterator, group: Any, src: int, post_iter_func: Callable) -> None:
        for item in iterator:
            group.connection.sendall(post_iter_func(item).detach().contiguous().numpy().tobytes())

    init = vllm_client.VLLMClient.init_communicator
    vllm_client.VLLMClient.init_communicator = lambda self, device: init(self, "cuda")
    vllm_client.open_trainer_endpoint = open_endpoint
    vllm_client.packed_nccl_broadcast_producer = send
    vllm_client._HAS_STATEFUL_TRAINER_ENGINE = vllm_client._HAS_WEIGHT_UPDATE_LIFECYCLE = True
    vllm_client.get_ip = lambda: address
    vllm_client.is_vllm_available = vllm_generation.is_vllm_available = lambda **_: True
    choose.vllm_obstacle = lambda _: None
    vllm_client.Retry = lambda **keys: HTTPAdapter().max_retries  # a minute of tries otherwise

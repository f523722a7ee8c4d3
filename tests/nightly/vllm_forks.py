"""Scripts forked on request in the environment of .ci/vllm-env: importing vLLM takes 20 s.

    .venv-vllm/bin/python -m tests.nightly.vllm_forks

Reads a JSON object a line: folder, script, arguments and ranks. Answers with the processes' ids,
then, when all have ended, with their exit codes. The engine's processes are forked too, where
vLLM would start fresh ones.
"""

import json
import multiprocessing
import os
import sys
from pathlib import Path

import pods.engines.vllm  # noqa: F401  and with it vLLM
from tests import two_ranks


def main() -> None:
    context = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda _=None: context
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        started = two_ranks.start(
            Path(request["folder"]),
            *request["arguments"],
            script=request["script"],
            ranks=request["ranks"],
            fault=os.setsid,
            cwd=request["folder"],
        )
        print(json.dumps([process.pid for process in started]), file=answers, flush=True)
        codes = [process.end(500) for process in started]
        print(json.dumps(codes), file=answers, flush=True)


if __name__ == "__main__":
    main()

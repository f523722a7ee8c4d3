# The GPU path in a container; not built by us yet, for want of a machine with Docker.
#   docker build -t pods .
#   docker run --gpus all --ipc=host -v $PWD/checkpoints:/pods/checkpoints -v $PWD/hub:/pods/hub pods \
#       train.py experiment=gsm8k_qwen algorithm=pods
# The host needs driver 580 or newer. `devel`: Triton and vLLM compile kernels at the first start.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git python3-pip python3-dev \
    && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir --break-system-packages uv
WORKDIR /pods
ENV UV_LINK_MODE=copy UV_PYTHON=3.12 HF_HOME=/pods/hub
# The packages, in a layer of their own: they change less often than the source.
COPY pyproject.toml uv.lock README.md LICENSE ./
RUN uv sync --locked --extra suite --extra gpu --no-dev --no-install-project
COPY . .
RUN uv sync --locked --extra suite --extra gpu --no-dev
ENTRYPOINT ["uv", "run", "--no-sync"]
CMD ["train.py", "trial=true", "experiment=gsm8k_qwen"]

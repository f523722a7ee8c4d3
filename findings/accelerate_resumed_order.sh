#!/usr/bin/env bash
# accelerate 1.15.0 (torchdata 0.11.0, one process): a run that is resumed in the middle of an epoch, with save_state, load_state
# and the same seed, draws another order of a shuffled data set, and skips in it as many batches as the first run had used.
# Guess: with skip_first_batches, and also with use_stateful_dataloader=True, which saves the state of the data loader, the rest
# of the epoch is what an uninterrupted run has. Seen, for 48 examples of which 24 were used: the epoch has several examples twice
# and misses as many, in both ways alike. Model, optimizer and losses look sound; nothing warns.
# DataLoaderConfiguration(use_seedable_sampler=True) is right in the first epoch; in later ones only after set_epoch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 env
uv pip install --quiet --python env/bin/python "accelerate==1.15.0" "torchdata==0.11.0" "torch==2.13.0"
cat >run.py <<'PY'
"""python run.py stateful seedable epoch part: the examples of `epoch` that `part` of the run, "first" or "resumed", uses."""

import sys

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

stateful, seedable, epoch, part = sys.argv[1] == "yes", sys.argv[2] != "no", int(sys.argv[3]), sys.argv[4]
told = sys.argv[2] == "set_epoch"
set_seed(0)
loading = DataLoaderConfiguration(use_stateful_dataloader=stateful, use_seedable_sampler=seedable)
accelerator = Accelerator(cpu=True, dataloader_config=loading)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.arange(48.0).unsqueeze(1)), batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)


def step(batch: torch.Tensor) -> list[int]:
    accelerator.backward(model(batch).mean())
    optimizer.step()
    optimizer.zero_grad()
    return batch.flatten().int().tolist()


used = []
if part == "first":
    for number in range(epoch + 1):
        if told:
            loader.set_epoch(number)
        for i, (batch,) in enumerate(loader, start=1):
            examples = step(batch)
            if number == epoch:
                used += examples
                if i == 6:
                    accelerator.save_state("state")
                    break  # the run is cut here
else:
    accelerator.load_state("state")
    if told:
        loader.set_epoch(epoch)
    rest = loader if stateful else accelerator.skip_first_batches(loader, 6)
    for (batch,) in rest:
        used += step(batch)
print(*used)
PY
expect() {  # stateful, seedable, epoch, whether the rest of the epoch is what the first part left
    used=$(CUDA_VISIBLE_DEVICES="" env/bin/python -W ignore run.py "${@:1:3}" first 2>progress) || { tail -5 progress; exit 1; }
    rest=$(CUDA_VISIBLE_DEVICES="" env/bin/python -W ignore run.py "${@:1:3}" resumed 2>progress) || { tail -5 progress; exit 1; }
    total=$(wc -w <<<"$used $rest")
    different=$(tr ' ' '\n' <<<"$used $rest" | sort -u | wc -l)
    echo "stateful $1, seedable $2, epoch $3: $total examples, of which $((total - different)) twice; $((48 - different)) never"
    [ "$total" = 48 ] && [ "$( ((different == 48)) && echo whole || echo broken)" = "$4" ] || { echo "the behaviour has changed"; exit 1; }
}
expect no no 0 broken
expect yes no 0 broken
expect no yes 0 whole
expect no yes 1 broken
expect no set_epoch 1 whole
expect yes set_epoch 1 whole

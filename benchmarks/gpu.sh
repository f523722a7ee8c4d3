#!/usr/bin/env bash
# What a card does, if nothing else uses it. Output: checkpoints/gpu/<part>.txt; a part that has this file is not run again.
#   bash benchmarks/gpu.sh [key=value of all trials ...]        half an hour: trials with each engine, a run, a resume, its scores
#   bash benchmarks/gpu.sh ten [key=value of all trials ...]    ten minutes without vLLM or a download: updates of random weights of 3B
# RUN=env takes the Python of the PATH in place of uv's. A trial prints versions, card, seconds by phase, peak memory and the guard's gap.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p checkpoints/gpu
failed=()

part() {  # part <name> <seconds at most> <arguments of Python ...>
    local file=checkpoints/gpu/$1.txt
    [ -e "$file" ] && return
    if timeout "$2" ${RUN:-uv run} python "${@:3}" | tee "$file.part"; then mv "$file.part" "$file"; else failed+=("$1"); fi
}

end() {
    [ ${#failed[@]} -eq 0 ] && exit
    echo "failed: ${failed[*]}"
    exit 1
}

if [ "${1:-}" = ten ]; then
    shift
    part machine 60 -c '
import datetime, pathlib, shutil, subprocess, sysconfig
print(datetime.datetime.now().isoformat(), subprocess.getoutput("git rev-parse HEAD"))
print("compiler", shutil.which("gcc") or shutil.which("clang"))
print("Python.h", pathlib.Path(sysconfig.get_path("include"), "Python.h").is_file())
print("beside us:", subprocess.getoutput("nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader"))
import torch
from torch.utils.benchmark import Timer
a, b = torch.empty(2, 2**32, dtype=torch.uint8, device="cuda")  # the first line that needs a card
copy = Timer("a.copy_(b)", globals=globals()).blocked_autorange().median
x = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
product = Timer("x @ x", globals=globals()).blocked_autorange().median
print(2 * a.nbytes / copy / 1e12, "TB/s;", 2 * len(x) ** 3 / product / 1e12, "TFLOP/s")
'
    [ ${#failed[@]} -eq 0 ] || end  # nothing else would run
    part weights 90 -c '
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from tests.fake_run import QWEN_3B, TINY
shape = AutoConfig.from_pretrained(TINY, **QWEN_3B, initializer_range=0.02)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
model.save_pretrained("checkpoints/gpu/base")
AutoTokenizer.from_pretrained(TINY).save_pretrained("checkpoints/gpu/base")
'
    trial="train.py trial=true experiment=gsm8k_qwen task=arithmetic model.path=checkpoints/gpu/base model.pad_token=null"
    # Random weights earn no reward, and a lean update would leave every row out.
    trial+=" engine=trl trl.use_vllm=false sampling.max_completion_length=128 lean_update=false"
    # The update with each prompt 16 times, and once; without recomputation, on 64 rows, and by transformers.
    UNSLOTH_GRPO_PREFIX_GROUPER=0 part rows 120 $trial backend=unsloth "$@"
    part grouped 90 $trial backend=unsloth "$@"
    part kept-activations 60 $trial backend=unsloth gradient_checkpointing=false micro_batch_size=4 "$@"
    part all-rows 90 $trial backend=unsloth algorithm=grpo_ga "$@"
    part transformers 90 $trial backend=transformers micro_batch_size=4 "$@"
    [ ${#failed[@]} -eq 0 ] && rm -rf checkpoints/gpu/base  # 6 GB; remove checkpoints/gpu to run a part again
    end
fi

trial="train.py trial=true experiment=gsm8k_qwen backend=unsloth"
learns="train.py run=gpu model.dtype=bfloat16 budget.train_seconds=null evaluation.every_seconds=null"
learns+=" checkpoint.every_seconds=null checkpoint.every_steps=20"
part speed-4bit 600 $trial engine=unsloth "$@"
part learns 600 $learns max_steps=40
part resumes 600 $learns max_steps=60
part scores 600 evaluate_run.py run=gpu temperature=0 questions=64
part speed-vllm 600 $trial engine=vllm "$@"
part speed-16bit 600 $trial engine=unsloth model.load_in_4bit=false "$@"
part speed-standby 600 $trial engine=unsloth model.load_in_4bit=false vllm.standby=true "$@"
part speed-merged 600 $trial engine=unsloth model.load_in_4bit=false vllm.merged_rollouts=true "$@"
end

#!/usr/bin/env bash
# What a card does, in about half an hour: bash benchmarks/gpu.sh [key=value of all trials ...]
# A trial prints versions, card, seconds by phase, peak memory and the guard's gap; docs/gpu.md says more.
# Output: checkpoints/gpu/<part>.txt. A part that has this file is not run again.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p checkpoints/gpu
failed=()

part() {  # part <name> <command of Python ...>: ten minutes at most
    local file=checkpoints/gpu/$1.txt
    [ -e "$file" ] && return
    if timeout 600 uv run "${@:2}" | tee "$file.part"; then mv "$file.part" "$file"; else failed+=("$1"); fi
}

trial="train.py trial=true experiment=gsm8k_qwen backend=unsloth"
learns="train.py run=gpu model.dtype=bfloat16 budget.train_seconds=null evaluation.every_seconds=null"
learns+=" checkpoint.every_seconds=null checkpoint.every_steps=20"
part speed-4bit $trial engine=unsloth "$@"
part learns $learns max_steps=40
part resumes $learns max_steps=60
part scores evaluate_run.py run=gpu temperature=0 questions=64
part speed-vllm $trial engine=vllm "$@"
part speed-16bit $trial engine=unsloth model.load_in_4bit=false "$@"
part speed-standby $trial engine=unsloth model.load_in_4bit=false vllm.standby=true "$@"
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}"; exit 1; }

"""trial=true as a command: what it prints, and that nothing stays."""

from tests import processes


def test_the_command_prints_the_first_prompt_and_leaves_nothing(tmp_path):
    work = tmp_path / "work"
    (work / "runs").mkdir(parents=True)
    processes.run(tmp_path, "trial=true", "sampling.max_prompt_length=1", cwd=work, code=2)
    keys = [
        "trial=true",
        "output_dir=runs",
        "prompts_per_step=2",
        "sampling.max_completion_length=16",
        "evaluation.every_seconds=0.01",
        "resume=never",
    ]
    lines = processes.run(tmp_path, *keys, cwd=work).stdout.splitlines()
    assert "tokens, 0 of them BOS:" in lines[0]  # the tiny policy has none
    assert lines[1].startswith("<user>")
    assert any(line.startswith("torch ") for line in lines)
    assert any(line.startswith("well formed: ") for line in lines)
    assert any("steps in 60 s of training" in line for line in lines)
    assert any("; set gradient_checkpointing=" in line for line in lines)
    assert any(line.startswith("c: a step of pods takes ") for line in lines)
    assert not any("evaluate_run.py" in line for line in lines)  # there is no run to evaluate
    assert [path.name for path in work.rglob("*")] == ["runs"]  # was there before

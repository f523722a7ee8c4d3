"""What a run counts up over its steps."""

from types import SimpleNamespace

from pods.clock import Clock
from pods.training.logs import COUNTERS, Meter
from tests.steps import step_of


def test_counters_add_up_over_steps_and_go_on_from_a_checkpoint():
    step = step_of({"a": [0.0, 1.0, 0.5, 0.2], "b": [1.0] * 4}, [0, 1, 5])
    meter = Meter(SimpleNamespace(timeouts=2))
    given = {"tokens_generated": 100, "tokens_trained": 50, "rollouts_generated": 80}
    meter.restore(given | {"rollouts_trained": 30, "step": 9})
    for k in (1, 2):
        meter.updates = [{"loss": 1.0, "kl": None}, {"loss": 2.0 * k, "grad_norm": 4.0}]
        line = meter.line(step, Clock(), {"engine/logprob_gap": 3.0})
        counted = [100 + k * 20, 50 + k * (1 + 2 + 2), 80 + k * 8, 30 + k * 3]
        assert [line[name] for name in COUNTERS] == counted
        assert (line["loss"], line["grad_norm"]) == (0.5 + k, 4.0)
        assert "kl" not in line
        assert (line["score_timeouts"], line["engine/logprob_gap"]) == (2, 3.0)
        assert meter.updates == []

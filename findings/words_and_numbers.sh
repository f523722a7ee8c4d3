#!/usr/bin/env bash
# word2number 1.1 misreads large numbers in words, and not the rare ones: a word with a comma behind it is skipped, and in
# a number that ends in "thousand" what follows "million" counts twice. No error tells of it, nor of a "trillion".
# num2words 0.5.14 writes these commas, and drops the minus sign of numbers between -1 and 0.
# Guess: word2number, "upto the range of 999,999,999,999" by its own page, reads what num2words writes, or raises its error
# for what it cannot read. Seen: "one million two hundred thousand" is 1201200, with a comma 102000; of 2000 random numbers
# below a million 201 are read right. A grader that reads answers in words compares another number.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "word2number==1.1" "num2words==0.5.14"
"$folder/env/bin/python" - <<'PY'
import random

from num2words import num2words
from word2number.w2n import word_to_num

seen = {  # number: how its words are read without and with their commas
    1_200_000: (1_201_200, 102_000),
    3_450_000: (3_451_450, 162_000),
    2_003_984: (2_003_984, 2),
    250_510_600: (250_510_600, 2),
    10**12: (1, 1),
    984_003: (984_003, 984_003),
}
for number, expected in seen.items():
    words = num2words(number)
    read = word_to_num(words.replace(",", "")), word_to_num(words)
    print(f"{words}: {read[0]}, with commas {read[1]}")
    assert read == expected, "the behaviour has changed"
assert word_to_num("two million three thousand nine hundred and eighty four") == 2_003_984  # as on its page
numbers = random.Random(0).choices(range(1, 10**6), k=2000)
right = sum(word_to_num(num2words(number)) == number for number in numbers)
print(f"{right} of {len(numbers)} random numbers below a million are read as what they are")
assert right == 201, "the behaviour has changed"

for number, words in {-1.5: "minus one point five", -0.5: "zero point five"}.items():
    print(number, num2words(number), num2words(number, lang="fr"), num2words(number, lang="de"), sep=", ")
    assert num2words(number) == words, "the behaviour has changed"
PY

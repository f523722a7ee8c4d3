"""train.py with the rollouts of tests/ranks.py, for a launcher, which starts a file."""

import train
from tests.ranks import fixed_rollouts

if __name__ == "__main__":
    fixed_rollouts()
    train.main()

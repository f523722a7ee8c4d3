"""uv run scripts/inspect_run.py run=<run>: pods/evaluation/inspection.py."""

from pods.evaluation.inspection import main

if __name__ == "__main__":
    main()

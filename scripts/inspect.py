"""uv run scripts/inspect.py run=<run>: pods/evaluation/inspection.py.

Python looks for its own module `inspect` in the folder of a script first; it gets it from here.
"""

if __name__ == "inspect":
    import os

    __file__ = os.path.join(os.path.dirname(os.__file__), "inspect.py")
    with open(__file__) as source:
        exec(compile(source.read(), __file__, "exec"))
else:
    from pods.evaluation.inspection import main

    if __name__ == "__main__":
        main()

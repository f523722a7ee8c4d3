"""source.py -> quickstart.ipynb, for a CPU, and gpu.ipynb: the same cells with GPU = True.

UV_PROJECT_ENVIRONMENT=.venv-docs uv run --only-group docs notebooks/make.py
"""

from pathlib import Path

import jupytext

HERE = Path(__file__).resolve().parent


def notebooks() -> dict[str, str]:
    """File name -> content."""
    text = (HERE / "source.py").read_text()
    texts = {"quickstart.ipynb": text, "gpu.ipynb": text.replace("GPU = False", "GPU = True", 1)}
    found = {}
    for name, source in texts.items():
        notebook = jupytext.reads(source, fmt="py:percent")
        for i, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{i}"  # else random: another file at every call
        notebook.metadata["kernelspec"] = {
            "name": "python3", "display_name": "Python 3", "language": "python"
        }  # fmt: skip
        found[name] = jupytext.writes(notebook, fmt="ipynb")
    return found


if __name__ == "__main__":
    for name, content in notebooks().items():
        (HERE / name).write_text(content)

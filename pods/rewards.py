"""The package rewards/ by a name that no file of a user's can take: many projects have a rewards.py
beside their script, and it stands before every installed package."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rewards import *  # noqa: F403
else:
    folder = Path(__file__).parents[1] / "rewards"
    spec = spec_from_file_location(
        __name__, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    sys.modules[__name__] = module_from_spec(spec)  # what `import pods.rewards` returns
    spec.loader.exec_module(sys.modules[__name__])

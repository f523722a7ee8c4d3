"""A config file is data. Hydra would run what some keys of its group `hydra` name, and OmegaConf
would read the environment for ${oc.env:NAME}: neither is accepted from a YAML file, which may come
from a stranger (docs/files.md). The command line is the user's, who may type both."""

import os
import re
from pathlib import Path
from typing import Any

from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import OmegaConf

from pods.config.errors import UserError
from pods.config.keys import flat
from pods.config.paths import CONFIG_DIR

PACKAGES = (None, "_global_", "_group_", "_here_")  # none leads to `hydra`
OTHER_KEYS = re.compile(r"\$\{(method:|[\w.]+)\}")  # ${run}, ${lora.rank}


def refuse(file: Path, name: str, header: str | None, content: Any) -> None:
    """Raise UserError for the first thing in a config file that is more than data.

    name: group and name, as in experiment/quickstart. header: its `# @package`.
    """
    typed = "a file may not, since Hydra runs what is named there; type it on the command line"
    group = os.path.dirname(os.path.normpath(name))
    if f"{group}/".startswith("hydra/"):
        raise UserError(f"{file}: sets {group}; {typed}")
    if header not in PACKAGES:
        raise UserError(f"{file}: @package {header}: must be one of _global_, _group_; correct it")
    if not isinstance(content, dict):
        return  # Hydra has its own line
    for entry in content.get("defaults") or []:
        refuse_default(file, entry, typed)
    for key in flat({"hydra": content.get("hydra", {})}):
        if key != "hydra.sweep.dir":  # the folder of a launcher's logs
            raise UserError(f"{file}: sets {key}; {typed}")
    if not file.resolve().is_relative_to(CONFIG_DIR):
        refuse_resolvers(file, content)


def refuse_default(file: Path, entry: Any, typed: str) -> None:
    """Raise UserError for an entry of a defaults list that chooses a config of Hydra's own groups,
    or puts a config elsewhere."""
    for group in entry if isinstance(entry, dict) else [entry]:
        chosen, _, package = str(group).partition("@")
        if (package or None) not in PACKAGES:
            raise UserError(f"{file}: defaults: {group}: @{package} must be _global_; correct it")
        named = chosen.split()[-1:]  # after `override` or `optional`
        if named and re.match(r"[./]*(hydra|\$)", named[0]):
            raise UserError(f"{file}: defaults: sets {named[0]}; {typed}")


def refuse_resolvers(file: Path, content: dict[str, Any]) -> None:
    """Raise UserError for ${...} of anything but another key."""
    for key, value in flat(content).items():
        if "${" in OTHER_KEYS.sub("", str(value)):  # a list with all that is in it
            raise UserError(
                f"{file}: {key}={value}: only names of keys are replaced in a file outside of "
                f"config/; type {key}=<value> on the command line, where the shell has $NAME"
            )


def read_files_as_data() -> None:
    """From now on Hydra reads the YAML files of folders by this module."""
    Plugins.instance()  # registers Hydra's own sources, once
    registry = SourcesRegistry.instance()

    class FileConfigSource(registry.resolve("file")):  # the registry wants the same name
        def load_config(self, config_path: str) -> ConfigResult:
            result = super().load_config(config_path)
            content = OmegaConf.to_container(result.config, resolve=False)
            name = config_path.removesuffix(".yaml")
            refuse(Path(self.path) / f"{name}.yaml", name, result.header["package"], content)
            return result

    registry.types["file"] = FileConfigSource

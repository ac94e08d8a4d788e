"""Reads a YAML file that people write; a host without such files runs without the YAML library."""

from pathlib import Path
from typing import Any

import yaml

from agent.errors import ConfigError


def load_once(file: Path, path: Path) -> Any:
    """
    Return what a file has, which messages call ``path``.

    Raises:
        ConfigError: it cannot be read, is not YAML, or has a key twice in one group.
    """
    try:
        return yaml.load(file.read_text(encoding="utf-8"), _OnceLoader)
    except _Twice as error:
        raise ConfigError(f"{path}:{error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    except (
        yaml.YAMLError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        TypeError,
        RecursionError,
    ) as error:  # of values whose tag is not theirs too
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error


class _Twice(Exception):
    """A key that stands twice in one group; the message begins with its line."""


class _OnceLoader(yaml.SafeLoader):
    """Refuses a key that stands twice: of the two, YAML would take the last in silence."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _Twice(f"{key.start_mark.line + 1}: {key.value} stands twice in one group: join them")
                seen.add(key.value)
        return node

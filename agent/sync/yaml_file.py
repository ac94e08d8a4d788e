"""Read a YAML file that people write."""

from pathlib import Path
from typing import Any

import yaml

from agent.errors import ConfigError

LIMIT_BYTES = 1 << 17  # of a file, read in 2 s at most; hundreds of providers take 100 KiB
_LONGEST = 64  # letters of a whole number: 0x and 5,000 digits cannot be printed, and 1:1:1... takes seconds


def load_once(file: Path, path: Path) -> Any:
    """
    Return what a file has, which messages call ``path``.

    Raises:
        ConfigError: it cannot be read, is not YAML, is larger than ``LIMIT_BYTES``, has a key twice in one group, or an
            alias, of which a few lines can stand for more than fits into memory.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(LIMIT_BYTES + 1)
        if len(data) > LIMIT_BYTES:
            raise ConfigError(f"{path} is larger than {LIMIT_BYTES >> 10} KiB, the limit for such a file: divide it")
        return yaml.load(data.decode(), _OnceLoader)
    except _Refused as error:
        raise ConfigError(f"{path}:{error}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: it is no text") from error
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


class _Refused(Exception):
    """YAML allows it, and this agent does not; the message begins with the line."""


class _OnceLoader(yaml.SafeLoader):
    """Refuses aliases, and a key that stands twice: of the two, YAML would take the last in silence."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > _LONGEST:
            raise _Refused(f"{node.start_mark.line + 1}: a number has {len(node.value)} letters: no number is so long")
        return super().construct_yaml_int(node)

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            raise _Refused(f"{event.start_mark.line + 1}: *{event.anchor} repeats what stands elsewhere: write it out")
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _Refused(f"{key.start_mark.line + 1}: {key.value} stands twice in one group: join them")
                seen.add(key.value)
        return node


_OnceLoader.add_constructor("tag:yaml.org,2002:int", _OnceLoader.construct_yaml_int)

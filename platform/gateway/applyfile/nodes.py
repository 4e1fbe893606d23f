"""Reads YAML into nodes that know their line, within bounds.

Nodes and not values, for three reasons: an error can name its line, a number keeps the text it was written as
(money is never a float), and nothing in the file can make an object of its own. Events are counted before
anything is built, so that neither depth nor aliases within aliases can exhaust the process.
"""

import yaml

from gateway.applyfile.problems import Problems

__all__ = ["read_nodes"]

MOST_BYTES = 8 * 1024 * 1024
MOST_NODES = 500_000
MOST_DEPTH = 32
# What the nodes come to once each alias is replaced by what it stands for.
MOST_EXPANDED = 1_000_000


def read_nodes(data: bytes, problems: Problems) -> yaml.Node | None:
    """The root node, or None for an empty file or one that was refused: then `problems` says why."""
    if len(data) > MOST_BYTES:
        problems.add(0, 0, "", f"is larger than {MOST_BYTES // 1024**2} MiB")
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        problems.add(data.count(b"\n", 0, exc.start) + 1, 0, "", "is not UTF-8")
        return None
    try:
        if not _is_within_bounds(text, problems):
            return None
        return yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        # Of these texts none repeats what stands in the file: it may be a credential.
        problems.add(line, column, "", f"is not valid YAML: {exc.problem or exc.context}")
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1 if isinstance(exc.position, int) else 0
        problems.add(line, 0, "", "is not valid YAML: it holds a character that YAML does not take")
    return None


def _is_within_bounds(text: str, problems: Problems) -> bool:
    """Walk the events, which builds nothing. An alias counts as much as what it stands for."""
    open_nodes: list[tuple[str | None, int]] = []
    sizes: dict[str | None, int] = {}
    nodes = expanded = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in {anchor for anchor, _ in open_nodes}:
                problems.add(line, 0, "", "an alias stands inside what it stands for")
                return False
            expanded += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.NodeEvent):
            nodes, expanded = nodes + 1, expanded + 1
            if isinstance(event, yaml.CollectionStartEvent):
                open_nodes.append((event.anchor, expanded - 1))
            elif event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = expanded - before
        if len(open_nodes) > MOST_DEPTH:
            problems.add(line, 0, "", f"is nested deeper than {MOST_DEPTH} levels")
            return False
        if nodes > MOST_NODES or expanded > MOST_EXPANDED:
            problems.add(line, 0, "", "holds too much (or aliases that come to too much)")
            return False
    return True

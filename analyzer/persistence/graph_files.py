"""A persistence graph as a file for other tools: GraphML (networkx, Gephi, yEd) or DOT (Graphviz)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import networkx as nx
import numpy as np

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.runtime.trace_format import Kind

PlaceOf = Callable[[int], tuple[str, str]]  # of an event: (file:line, function); "" where unknown
FORMATS = (".graphml", ".dot", ".gv")


def annotated(graph: PersistenceGraph, pieces: Iterable[int], place_of: PlaceOf) -> nx.DiGraph[int]:
    """Some pieces of a graph, and which of them must persist before which (`PersistenceGraph.to_networkx`).

    Nodes carry `file`, `kind` (data, size or exists), `offset` and `size` (bytes), `event`, `thread`, `operation` (the
    ordinal of the marked operation under way, 0 before any), `site` (file:line) and `function`; edges carry `rule`:
    what orders the two.
    """
    events, begins = graph.trace.events, graph.trace.rows(Kind.MARK_BEGIN)
    ordered = graph.to_networkx(pieces=pieces)
    out: nx.DiGraph[int] = nx.DiGraph()
    for id_ in sorted(ordered):
        piece = graph.piece(id_)
        under_way = int(np.searchsorted(begins, piece.event)) - 1
        site, function = place_of(piece.event)
        out.add_node(
            id_,
            file=_printable(graph.trace.files[piece.file].path),
            kind=piece.kind,
            offset=piece.offset,
            size=piece.size,
            event=piece.event,
            thread=int(events["thread"][piece.event]),
            operation=int(events["aux"][begins[under_way]]) if under_way >= 0 else 0,
            site=_printable(site),
            function=_printable(function),
        )
    for before, after in sorted(ordered.edges):
        out.add_edge(before, after, rule=ordered.edges[before, after]["reason"])
    return out


def rendered(network: nx.DiGraph[int], path: Path) -> str:
    """The text of a file by its ending, one of FORMATS; equal graphs give equal texts."""
    if path.suffix == ".graphml":
        return "\n".join(nx.generate_graphml(network)) + "\n"
    return _dot(network)


def _dot(network: nx.DiGraph[int]) -> str:
    lines = ["digraph persistence {", "  node [shape=box];"]
    for id_, node in network.nodes(data=True):
        what = f"{node['file']}+{node['offset']}" if node["kind"] == "data" else f"{node['file']} {node['kind']}"
        label = [what, *filter(None, (node["site"],))]
        lines.append(f"  {id_} [{_attributes({'label': label, **node})}];")
    for before, after, edge in network.edges(data=True):
        lines.append(f"  {before} -> {after} [{_attributes({'label': edge['rule'], **edge})}];")
    return "\n".join([*lines, "}"]) + "\n"


def _attributes(values: dict[str, object]) -> str:
    return ", ".join(f"{name}={_quoted(value)}" for name, value in values.items())


def _quoted(value: object) -> str:
    """A DOT string; a list is the lines of a label, in which a backslash is an escape of its own."""
    lines = value if isinstance(value, list) else [value]
    texts = [str(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return '"' + "\\n".join(texts) + '"'


def _printable(text: str) -> str:
    """Bytes of a name that are no UTF-8, and characters that XML or DOT cannot hold, as \\xNN or \\uNNNN."""
    return "".join(character if _is_plain(character) else _escape(ord(character)) for character in text)


def _is_plain(character: str) -> bool:
    code = ord(character)
    return 0x20 <= code < 0x7F or (code >= 0xA0 and not 0xD800 <= code < 0xE000 and code & 0xFFFE != 0xFFFE)


def _escape(code: int) -> str:
    byte = code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code  # os.fsdecode: a byte that is no UTF-8
    return f"\\x{byte:02x}" if byte < 0x100 else f"\\u{byte:04x}"

"""The report on delegation: the runner of each node, or the reason of a delegate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional


@dataclass(frozen=True)
class NodeReport:
    """One node.

    `runner` is `cpu`, `folded` (computed while preparing) or `delegate`; then `delegate` is its name, and `partition` the
    number of its partition. `rejections` has, for each delegate that rejected the node, its name, the kind of the reason and
    the reason.
    """

    index: int
    op: str
    version: int
    runner: str
    delegate: Optional[str]
    partition: Optional[int]
    rejections: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class PartitionReport:
    """Nodes that a delegate runs together. Inputs and outputs are tensor indices; `boundary_bytes` are their bytes."""

    delegate: str
    nodes: list[int]
    inputs: list[int]
    outputs: list[int]
    multiply_adds: int
    boundary_bytes: int


@dataclass(frozen=True)
class Report:
    """The runner of each node of the first subgraph. Prints as a table, also in notebooks.

    Memory is in bytes: `arena_bytes` of the interpreter, `weights_bytes` of constants, `device_bytes` of delegates.
    """

    delegates: list[str]
    nodes: list[NodeReport]
    partitions: list[PartitionReport]
    composites: list[dict[str, Any]]
    failures: list[tuple[str, str]]
    arena_bytes: int
    weights_bytes: int
    device_bytes: int

    @classmethod
    def _of(cls, raw: dict[str, Any]) -> "Report":
        values = dict(raw)
        values["nodes"] = [NodeReport(**node) for node in raw["nodes"]]
        values["partitions"] = [PartitionReport(**partition) for partition in raw["partitions"]]
        return cls(**values)

    @property
    def delegated_nodes(self) -> int:
        """The number of nodes that delegates run."""
        return sum(node.runner == "delegate" for node in self.nodes)

    def _rows(self) -> list[tuple[str, str, str, str]]:
        rows = []
        for node in self.nodes:
            runner = f"{node.delegate} [{node.partition}]" if node.runner == "delegate" else node.runner
            why = "; ".join(f"{name}: {reason}" for name, _, reason in node.rejections)
            rows.append((str(node.index), f"{node.op} v{node.version}", runner, "" if node.runner == "delegate" else why))
        return rows

    def _summary(self) -> str:
        nodes = len(self.nodes)
        runs = f"{self.delegated_nodes} of {nodes} {'node is' if nodes == 1 else 'nodes are'} delegated"
        count = len(self.partitions)
        return f"{runs}, in {count} partition{'' if count == 1 else 's'}" if count else runs

    def __str__(self) -> str:
        header = ("node", "op", "runs on", "why not")
        rows = self._rows()
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(3)]
        lines = [self._summary()]
        lines += [f"failed: {name}: {message}" for name, message in self.failures]
        for row in [header, *rows]:
            cells = [cell.ljust(width) for cell, width in zip(row, widths)]
            lines.append("  ".join([*cells, row[3]]).rstrip())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<delegraph.Report: {self._summary()}>"

    def _repr_html_(self) -> str:
        from html import escape

        failed = "".join(f"<p>failed: {escape(name)}: {escape(message)}</p>" for name, message in self.failures)
        head = "".join(f"<th>{title}</th>" for title in ("node", "op", "runs on", "why not"))
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self._rows())
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<p>{escape(self._summary())}</p>{failed}{table}"

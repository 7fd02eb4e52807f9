"""Event Mesh live: nodes that publish, subscribe and relay."""

from wirelake.peers.event_mesh.node import Handler, Node, Value, node
from wirelake.peers.event_mesh.options import DEFAULT_LIVE, Live, NodeMetrics

__all__ = ["DEFAULT_LIVE", "Handler", "Live", "Node", "NodeMetrics", "Value", "node"]

"""Event Mesh live: nodes that publish, subscribe and relay.

```
async with node("udp://127.0.0.1:0") as panel, node("udp://127.0.0.1:0", peers=[panel.address]) as sensor:
    events = panel.subscribe("plant.>")
    await sensor.publish("plant.boiler.temperature", 81.5)
    print(await anext(events))
```
"""

from wirelake.peers.event_mesh.node import Handler, Node, Value, node
from wirelake.peers.event_mesh.options import NodeMetrics, Options
from wirelake.protocols.event_mesh.events import Delivered, Dropped, Peer, PeerChanged
from wirelake.protocols.event_mesh.options import RelayRule
from wirelake.protocols.event_mesh.packet.builder import Credentials
from wirelake.protocols.event_mesh.security.trust import FirstKeys, Key, Policy, Trust, TrustStore

__all__ = [
    "Credentials",
    "Delivered",
    "Dropped",
    "FirstKeys",
    "Handler",
    "Key",
    "Node",
    "NodeMetrics",
    "Options",
    "Peer",
    "PeerChanged",
    "Policy",
    "RelayRule",
    "Trust",
    "TrustStore",
    "Value",
    "node",
]

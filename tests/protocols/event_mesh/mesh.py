"""A mesh in simulated time: sessions at places, datagrams that fly between them, clocks that can be set, dice that repeat themselves."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tests.protocols.event_mesh.speech import NODE, NOW, SECRET

from wirelake.protocols.event_mesh.events import Delivered, Dropped, PeerChanged
from wirelake.protocols.event_mesh.options import DEFAULT_OPTIONS, Options
from wirelake.protocols.event_mesh.packet.builder import Credentials
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore
from wirelake.protocols.event_mesh.session import Now, Session

AUTH = b"\0\0\0\1"


def credentials(name: str) -> Credentials:
    """Who a node of this name is, and its secret."""
    return Credentials(name.encode().ljust(16, b"."), AUTH, name.encode().ljust(32, b"!"))


def known(names: Iterable[str]) -> TrustStore:
    """A store that knows the secrets of these nodes."""
    return TrustStore(Key(one.node_id, one.auth_key_id, one.secret) for one in map(credentials, names))


def place(name: str) -> tuple[str, int]:
    return (name, 1)


class Mesh:
    """Nodes by name; `edges` says who was told of whom. Everybody knows everybody's secret unless told otherwise."""

    def __init__(self, edges: dict[str, str], options: Options = DEFAULT_OPTIONS, each: dict[str, Options] | None = None, seed: int = 1):
        self.dice = random.Random(seed)
        self.steady = 100.0
        self.wall = dict.fromkeys(edges, float(NOW))
        self.store = known(edges)
        self.nodes = {
            name: Session(
                credentials(name),
                (each or {}).get(name, options),
                draw=self.dice.randbytes,
                store=self.store,
                peers=[place(one) for one in others],
            )
            for name, others in edges.items()
        }
        self.events: dict[str, list] = {name: [] for name in edges}
        self.flown: list[tuple[str, str, bytes]] = []
        """Everything that was ever said: from whom, to whom, what."""
        self.cut: set[tuple[str, str]] = set()
        """Directed ways on which everything is lost."""

    def now(self, name: str) -> Now:
        return Now(self.steady, self.wall[name])

    def start(self) -> None:
        for name, node in self.nodes.items():
            node.start(self.now(name))
        self.settle()

    def settle(self) -> int:
        """Let fly what there is until nobody says anything more; gives how many datagrams that took."""
        count = 0
        while True:
            flying = [(name, to[0], data) for name, node in self.nodes.items() for data, to in node.output()]
            for name, node in self.nodes.items():
                self.events[name] += node.events()
            if not flying:
                return count
            count += len(flying)
            assert count < 100_000, "this does not end"
            for source, to, data in flying:
                self.flown.append((source, to, data))
                if to in self.nodes and (source, to) not in self.cut:
                    self.nodes[to].receive(data, place(source), self.now(to))

    def advance(self, seconds: float) -> None:
        """Let time pass; everybody is woken when they want to be."""
        until = self.steady + seconds
        while True:
            due = [(node.deadline, name) for name, node in self.nodes.items() if node.deadline is not None]
            when, name = min(due, default=(until + 1, ""))
            step = max(min(when, until) - self.steady, 0.0)
            self.steady += step
            self.wall = {one: wall + step for one, wall in self.wall.items()}
            if when > until:
                return
            self.nodes[name].tick(self.now(name))
            self.settle()

    def publish(self, name: str, event: str, *fields, **more) -> int:
        message_id = self.nodes[name].publish(event, fields, now=self.now(name), **more)
        self.settle()
        return message_id

    def heard(self, name: str) -> list[str | None]:
        """The names of events delivered to a node."""
        return [one.name for one in self.events[name] if isinstance(one, Delivered)]

    def dropped(self, name: str) -> list[Dropped]:
        return [one for one in self.events[name] if isinstance(one, Dropped)]

    def changes(self, name: str) -> list[tuple[bytes, str]]:
        """What a node learned of others: who, and what is known then."""
        return [(one.peer.node_id, one.peer.state.name) for one in self.events[name] if isinstance(one, PeerChanged)]


def balanced(node: Session) -> None:
    """Every datagram that arrived is in exactly one counter."""
    counted = node.metrics
    assert counted.received == counted.rate_limited + counted.own + counted.accepted + sum(counted.rejected.values())


HERE = Now(0.0, float(NOW))
THERE = ("there", 9)


def alone(options: Options | None = None, **more) -> Session:
    """One node that knows NODE's secret."""
    count = iter(range(1, 1 << 30))
    more = {"draw": lambda size: next(count).to_bytes(size), "store": TrustStore([Key(NODE, AUTH, SECRET)]), **more}
    return Session(credentials("me"), options or Options(), **more)

"""Sessions of any protocol whose streams have two sides, in a world whose time is a number; every step is followed by a check."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar


class Side:
    """A session with its owner: drains it after every step, keeps what came out, and checks it."""

    def __init__(self, session: Any, cut: int) -> None:
        self.session = session
        self.cut = cut
        self.now = 0.0
        self.heard: list[Any] = []
        self.started = False

    def start(self) -> None:
        self.session.start(self.now)
        self.started = True
        self.drain()

    def receive(self, data: bytes) -> None:
        """Bytes from the other side, in the pieces the link makes of them."""
        for at in range(0, len(data), self.cut):
            self.session.receive(data[at : at + self.cut], self.now)
            self.drain()

    def eof(self) -> None:
        self.session.receive_eof(self.now)
        self.drain()

    def tick(self) -> None:
        self.session.tick(self.now)
        self.drain()
        deadline = self.session.deadline
        assert deadline is None or deadline > self.now, "a timer that is due again at once"

    def wait(self, seconds: float) -> None:
        """Let time pass, waking the session whenever it asked for it."""
        until = self.now + seconds
        while (deadline := self.session.deadline) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.tick()
        self.now = until
        self.tick()

    def drain(self) -> None:
        """Take what the session says and tells, and check it."""
        self.take_output()
        self.heard += self.session.events()
        assert self.session.output() == b""
        assert self.session.events() == []
        self.check()

    def take_output(self) -> None:
        """Keep what the session says."""
        raise NotImplementedError

    def check(self) -> None:
        """What holds after every step."""
        raise NotImplementedError

    @property
    def ended(self) -> Any:
        """How the session ended, which it must have."""
        assert self.session.ended is not None
        return self.session.ended


S = TypeVar("S", bound=Side)


class Pair(Generic[S]):
    """A client and a server, and the link between them."""

    def __init__(self, client: S, server: S) -> None:
        self.client, self.server = client, server

    @property
    def sides(self) -> tuple[S, S]:
        return self.client, self.server

    def start(self) -> Self:
        for side in self.sides:
            side.start()
        self.settle()
        return self

    def settle(self) -> None:
        """Carry what was said until nothing is left to carry."""
        moved = True
        while moved:
            for side in self.sides:
                side.drain()
            moved = any([self.carry(*self.sides), self.carry(*self.sides[::-1])])

    def carry(self, one: S, other: S) -> bool:
        """Carry what one side said to the other; whether there was something."""
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """Let time pass for both, in the order of their deadlines."""
        until = self.client.now + seconds
        while True:
            deadlines = [side.session.deadline for side in self.sides if side.session.deadline is not None]
            now = min([until, *deadlines])
            for side in self.sides:
                side.now = max(side.now, now)
                side.tick()
            self.settle()
            if now >= until:
                return

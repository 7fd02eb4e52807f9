"""RELINK-25: timers of a connection: when a ping is due, and when a pong or packet is late."""

from __future__ import annotations

from collections import deque

from wirelake.protocols.relink.options import Options
from wirelake.protocols.reply_timer import postponed

__all__ = ["Keepalive"]


class Keepalive:
    """Whether the peer of one connection still answers."""

    def __init__(self, options: Options) -> None:
        self.pinged = 0
        """Pings sent so far."""
        self._options = options
        self._heard = 0.0
        self._ping_after: float | None = None
        self._pings: deque[float] = deque()
        """When each outstanding ping has to be answered."""
        self._pinged_at = 0.0
        self._packet_deadline: float | None = None
        self._paused = False

    @property
    def deadline(self) -> float | None:
        """When the next timer is due."""
        if self._pings:
            pong = None if self._paused else self._pings[0]
        else:
            pong = None if self._ping_after is None else self._heard + self._ping_after
        packet = self._packet_deadline
        return packet if pong is None else pong if packet is None else min(pong, packet)

    def open(self) -> None:
        """The handshake is done: idle pings begin."""
        self._ping_after = self.later(self._options.ping_interval)

    def close(self) -> None:
        """The connection is over: no timer runs."""
        self._packet_deadline = self._ping_after = None
        self._pings.clear()

    def later(self, seconds: float | None) -> float | None:
        """A timer, with jitter."""
        return None if seconds is None else seconds * (1 + self._options.jitter * self._options.random())

    def heard(self, now: float) -> None:
        """Bytes arrived."""
        self._heard = now

    def ping(self, now: float) -> int:
        """A ping was sent; return its number."""
        self.pinged += 1
        if not self._pings:
            self._pinged_at = now
        timeout = self.later(self._options.pong_timeout)
        self._pings.append(float("inf") if timeout is None else now + timeout)
        return self.pinged

    def pong(self) -> int | None:
        """A pong arrived; return the number of its ping, or None if none is outstanding."""
        if not self._pings:
            return None
        self._pings.popleft()
        return self.pinged - len(self._pings)

    def watch_packet(self, held: int, count: int, now: float) -> None:
        """After `count` bytes arrived, `held` bytes wait for the rest of their packet.

        The pong behind them is not late either.
        """
        if not held:
            self._packet_deadline = None
            return
        self._postpone(count, now, self._options.pong_timeout)
        timeout = self._options.packet_timeout
        if self._packet_deadline is not None and timeout is not None:
            self._packet_deadline = postponed(self._packet_deadline, count, now, timeout, self._options.min_rate)
        elif not self._paused:
            late = self.later(timeout)
            self._packet_deadline = None if late is None else now + late

    def drained(self, count: int, now: float) -> None:
        """Bytes before the last ping left us.

        Buffers on the way may hold as much again, so the time this took is granted once more.
        """
        timeout = self._options.pong_timeout
        self._postpone(count, now, None if timeout is None else timeout + now - self._pinged_at)

    def _postpone(self, count: int, now: float, timeout: float | None) -> None:
        if self._pings and timeout is not None:
            self._pings = deque(postponed(due, count, now, timeout, self._options.min_rate) for due in self._pings)

    def pause(self) -> None:
        """The owner does not read."""
        self._paused = True
        self._packet_deadline = None

    def resume(self, now: float) -> None:
        """The owner reads again."""
        self._paused = False
        self._heard = now
        timeout = self.later(self._options.pong_timeout)
        if timeout is not None:
            self._pings = deque(now + timeout for _ in self._pings)

    def is_packet_late(self, now: float) -> bool:
        """Whether a packet took too long to arrive."""
        return self._packet_deadline is not None and now >= self._packet_deadline

    def is_pong_late(self, now: float) -> bool:
        """Whether a pong took too long."""
        return bool(self._pings) and not self._paused and now >= self._pings[0]

    def wants_ping(self, now: float) -> bool:
        """Whether nothing was received for so long that a ping is due."""
        return self._ping_after is not None and not self._pings and now >= self._heard + self._ping_after

"""A listener's endpoints and the links on them: new links, resumed links, expired links.

The epoch and the link ids come from the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wirelake.errors import LocalProtocolError
from wirelake.protocols.relink.faults import Fault, Violation
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.messages import LAST_LINK_ID, HandshakeFlag, Request
from wirelake.protocols.relink.options import DEFAULT_OPTIONS, Endpoint, Options
from wirelake.protocols.relink.state_machine import Speaker

__all__ = ["Registry"]

_TRANSACTIONS = HandshakeFlag.CONNECTOR_TRANSACTIONS | HandshakeFlag.LISTENER_TRANSACTIONS


class Registry:
    """One listener instance: while it lives, its links can be resumed."""

    def __init__(self, endpoints: Iterable[Endpoint], epoch: int, draw_id: Callable[[], int], options: Options = DEFAULT_OPTIONS) -> None:
        self.endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self.options = options
        self.epoch = epoch
        """RELINK-9: microseconds since 1970, chosen once."""
        self.links: dict[int, LinkCore] = {}
        self._draw_id = draw_id
        if not 0 < epoch < 1 << 64:
            raise LocalProtocolError(Fault.EPOCH_ZERO, str(epoch))

    def admit(self, request: Request, remote: str = "") -> tuple[LinkCore | None, bool]:
        """RELINK-10: find or make the link of a request; return it and whether it is the old one.

        No link, if the request asks for an old one that is unknown. Raises Violation.
        """
        endpoint = self.endpoints.get(request.endpoint)
        if endpoint is None:
            raise Violation(Fault.ENDPOINT_UNKNOWN, repr(request.endpoint))
        sizes = (request.connector_id_size, request.listener_id_size)
        if sizes != endpoint.id_sizes or request.flags & _TRANSACTIONS != endpoint.flags:  # RELINK-3
            raise Violation(Fault.SETTINGS_DIFFER, f"id sizes {sizes}, flags {request.flags}")
        old = self.links.get(request.link_id) if request.epoch == self.epoch else None
        if old is not None and old.endpoint is endpoint:
            return old, True
        if request.flags & HandshakeFlag.REQUIRE_OLD_LINK:
            return None, False
        return self._make(endpoint, remote), False

    def _make(self, endpoint: Endpoint, remote: str) -> LinkCore:
        links = [link for link in self.links.values() if link.endpoint is endpoint]
        if len(links) >= self.options.max_links:
            raise Violation(Fault.LINKS_OVER_LIMIT, f"limit {self.options.max_links}")
        if sum(link.remote == remote for link in links) >= self.options.max_links_per_remote:  # RELINK-33
            raise Violation(Fault.LINKS_OVER_LIMIT, f"limit {self.options.max_links_per_remote} for {remote}")
        link_id = 0
        while not 0 < link_id <= LAST_LINK_ID or link_id in self.links:  # RELINK-8
            link_id = self._draw_id()
        link = LinkCore(Speaker.LISTENER, endpoint, self.options)
        link.epoch, link.id, link.remote = self.epoch, link_id, remote
        self.links[link_id] = link
        return link

    def release(self, link_id: int) -> None:
        """Forget the link of this id: it is over or lost."""
        self.links.pop(link_id, None)

    @property
    def deadline(self) -> float | None:
        """When the next link expires."""
        return min((link.expires for link in self.links.values() if link.expires is not None), default=None)

    def expire(self, now: float) -> list[LinkCore]:
        """RELINK-24: give up links without a connection for too long; their events say what was lost."""
        expired = [link for link in self.links.values() if link.expires is not None and link.expires <= now]
        for link in expired:
            self.release(link.id)
            link.lose(Fault.LINK_EXPIRED)
            link.is_over = True
        return expired

"""A receiver that knows one node, and what it makes of datagrams, with the scanner in both forms."""

from __future__ import annotations

from tests.protocols.event_mesh.speech import AUTH, NODE, NOW, PUBLIC, SECRET

from wirelake.protocols import kernel
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.security.trust import Key, Policy, TrustStore
from wirelake.protocols.event_mesh.security.verify import Receiver, Rejected, Verified

DEFAULT_SECRET = bytes(range(32, 64))


def store(*more: Key) -> TrustStore:
    return TrustStore([Key(NODE, AUTH, SECRET, PUBLIC), Key(NODE, None, DEFAULT_SECRET), *more])


def judged(
    *datagrams: bytes, policy: Policy | None = None, keys: TrustStore | None = None, now: float = NOW, **more
) -> Verified | Rejected:
    """What becomes of the last of these datagrams, received one after the other."""
    results = []
    switch = kernel._use_compiled
    try:
        for kernel._use_compiled in (False, True):
            receiver = Receiver(store() if keys is None else keys, policy or Policy(), **more)
            for one in datagrams:
                said = receiver.receive(one, now, b"here")
            results.append(said)
    finally:
        kernel._use_compiled = switch
    assert results[0] == results[1]
    return results[0]


def fault_of(*datagrams: bytes, **more) -> Fault | None:
    said = judged(*datagrams, **more)
    return said.fault if isinstance(said, Rejected) else None

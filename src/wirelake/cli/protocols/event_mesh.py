"""Event Mesh from the command line: `serve`, `listen` and `send`.

`serve` is a node that prints everything it receives, `listen` prints events, `send` publishes one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from wirelake.cli.commands import Commands
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import freshness_flag, limits_flag, trust_flag
from wirelake.cli.live import compile_scanner, emit, live_limits, recording, run, say, until_stopped
from wirelake.cli.live_flags import live_flags
from wirelake.errors import UsageError
from wirelake.peers import trust_file
from wirelake.protocols.event_mesh import PROTOCOL
from wirelake.protocols.event_mesh.messages import DEFAULT_PORT
from wirelake.protocols.event_mesh.options import Address, RelayRule
from wirelake.protocols.event_mesh.security.trust import FirstKeys, Policy, Trust
from wirelake.transports.address import parse

if TYPE_CHECKING:
    from wirelake.peers.event_mesh import Node, Options, Value
    from wirelake.protocols.event_mesh.events import Delivered, Dropped, PeerChanged

__all__ = ["COMMANDS", "listen", "send", "serve"]

F = TypeVar("F", bound=Callable[..., Any])


def _node_flags(command: F) -> F:
    """Flags of every node command."""
    command = live_flags(command)
    for option in (
        limits_flag("event-mesh"),
        click.option("--ca-file", "ca_file", type=click.Path(path_type=Path), help="Who signed the certificates of others, for quic://."),
        click.option("--cert-key", "cert_key", type=click.Path(path_type=Path), help="Its key, if it is not in the same file."),
        click.option("--cert", "cert", type=click.Path(path_type=Path), help="This node's certificate, for quic://."),
        click.option("--keys", "keys", type=click.Path(path_type=Path), help="The keys of others (see `wirelake keys`)."),
        click.option("--own", "own", type=click.Path(path_type=Path), help="This node's own keys (see `wirelake keys generate`)."),
    ):
        command = option(command)
    return command


def _hearing_flags(command: F) -> F:
    """Flags of commands whose node keeps running."""
    for option in (
        freshness_flag(default=True, help="Drop proven packets that are not of about now: over 300 s old, or 120 s ahead."),
        trust_flag(default=Trust.STORE.value, more=""),
        click.option("--proven", "proven", is_flag=True, help="Drop packets that carry neither HMAC nor signature."),
        click.option("--group", "groups", multiple=True, metavar="ADDRESS", help="A multicast group to listen and speak to; repeatable."),
        click.option("--peer", "peers", multiple=True, metavar="ADDRESS", help="A node to speak to from the start; repeatable."),
    ):
        command = option(command)
    return command


@click.command("event_mesh")
@click.argument("address", default=f"udp://127.0.0.1:{PROTOCOL.port}")
@_hearing_flags
@click.option(
    "--relay",
    "relay",
    multiple=True,
    metavar="RULE",
    help="Pass on what RULE says: as it is, once, never back; repeatable, the first rule that matches counts.",
)
@click.option("-q", "--quiet", "quiet", is_flag=True, help="Do not print what arrives.")
@_node_flags
def serve(address: str, peers: tuple[str, ...], groups: tuple[str, ...], relay: tuple[str, ...], quiet: bool, **more: Any) -> int:
    """Be a node: say hello and heartbeats, and print events, nodes that come and go, and packets that are dropped. Ctrl-C ends it.

    \b
    ADDRESS  Where to listen: udp://host:port or quic://host:port; port 0 is any free one.
    RULE     PATTERN [to=HOST:PORT,…] [from=HOST:PORT,…] [types=NUMBER,…] [unverified], such as '>' for the events of
             known senders to all peers, or 'plant.> to=10.0.0.7:5041'; hosts are IP addresses.
    """
    rules = tuple(map(_relay_rule, relay))
    compile_scanner("event_mesh")
    on_peer, on_drop = (None, None) if quiet else (_show_peer, _show_drop)
    run(_stay(address, peers, groups, ">", rules, None if quiet else _show_event, on_peer, on_drop, more))
    return ExitCode.OK


@click.command("event_mesh")
@click.argument("address", default=f"udp://127.0.0.1:{PROTOCOL.port}")
@click.argument("pattern", default=">")
@_hearing_flags
@_node_flags
def listen(address: str, pattern: str, peers: tuple[str, ...], groups: tuple[str, ...], **more: Any) -> int:
    """Print events, one JSON object per line, until Ctrl-C.

    \b
    ADDRESS  Where to listen: udp://host:port or quic://host:port; port 0 is any free one.
    PATTERN  Which events: plant.*.temperature has any one word at the star, plant.> anything below plant.
    """
    compile_scanner("event_mesh")
    run(_stay(address, peers, groups, pattern, (), _show_event, None, None, more))
    return ExitCode.OK


@click.command("event_mesh")
@click.argument("address")
@click.argument("name")
@click.argument("values", nargs=-1)
@click.option("--text", "as_text", is_flag=True, help="Send the values as text, whatever they look like.")
@click.option("--urgent", "urgent", is_flag=True, help="To be processed before others.")
@click.option("--compress", "compress", is_flag=True, help="Compress what the event carries.")
@_node_flags
def send(address: str, name: str, values: tuple[str, ...], as_text: bool, urgent: bool, compress: bool, **more: Any) -> int:
    """Publish one event, and print its message id. That it was sent does not say that it arrived.

    \b
    ADDRESS  The node to send to: udp://host:port or quic://host:port.
    NAME     The event's name, as plant.boiler.temperature.
    VALUES   What it carries: 42 is an integer, 4.2 a float, {"a": 1} JSON, x:00ff binary, all else text.
    """
    carried = [value if as_text else _value(value) for value in values]

    async def tell() -> int:
        from wirelake.peers.event_mesh import node  # noqa: PLC0415 - imported when it is used

        scheme, _, rest = address.partition("://")
        here = f"{scheme}://[::]:0" if rest.startswith("[") else f"{scheme}://0.0.0.0:0"
        with recording(more["record"], "event_mesh") as recorder:
            options = _options(more, here, hello_interval=None, heartbeat_interval=None, recorder=recorder)
            async with node(here, credentials=_credentials(more), options=options, peers=[address]) as one:
                message_id = await one.publish(name, *carried, urgent=urgent, compressed=compress)
                await _sent(one)
                return message_id

    print(f"{run(tell()):08x}")
    return ExitCode.OK


async def _sent(member: Node) -> None:
    """Wait until the one datagram is on its way, which over QUIC takes a handshake."""
    for _ in range(500):
        if member.target.scheme != "quic" or member.metrics.session.sent:
            break
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5 if member.target.scheme == "quic" else 0)


async def _stay(
    address: str,
    peers: tuple[str, ...],
    groups: tuple[str, ...],
    pattern: str,
    relay: tuple[RelayRule, ...],
    show: Callable[[Node, Delivered], None] | None,
    on_peer: Callable[[Node, PeerChanged], None] | None,
    on_drop: Callable[[Node, Dropped], None] | None,
    more: dict[str, Any],
) -> None:
    """Run a node until it is stopped."""
    from wirelake.peers.event_mesh import node  # noqa: PLC0415 - imported when it is used

    trust = Trust(more["trust"])
    policy = Policy(
        trust=trust,
        first_use=FirstKeys() if trust is Trust.FIRST_USE else None,
        freshness=more["freshness"],
        unauthenticated=not more["proven"],
    )
    with recording(more["record"], "event_mesh") as recorder:
        options = _options(
            more,
            address,
            policy=policy,
            relay=relay,
            recorder=recorder,
            on_peer=on_peer,
            on_drop=on_drop,
        )
        async with node(address, credentials=_credentials(more), options=options, peers=peers, groups=groups) as member:
            if show is not None:
                member.subscribe(pattern, show)
            say(f"node {_uuid(member.node_id)} at {member.address}; Ctrl-C ends it")
            await until_stopped()
            _tell(member)


def _tell(member: Node) -> None:
    """What was counted, for the person who ran it."""
    counted = member.metrics.session
    dropped = ", ".join(f"{count:,} {fault.reason}" for fault, count in sorted(counted.rejected.items())) or "none"
    say(
        f"{counted.received:,} packets received, {counted.delivered:,} events, {counted.sealed:,} sealed,"
        f" {counted.relayed:,} passed on, {counted.sent:,} sent;"
        f" dropped: {dropped}; too fast: {counted.rate_limited:,}; lost: {member.metrics.lost:,}"
    )


def _credentials(more: dict[str, Any]) -> Any:
    own = more["own"]
    return None if own is None else trust_file.load_credentials(own)


def _options(more: dict[str, Any], address: str, **settings: Any) -> Options:
    """Options of a node from flags and settings."""
    from wirelake.peers.event_mesh import Options  # noqa: PLC0415 - imported when it is used

    quic = None
    if address.startswith("quic://"):
        cert = more["cert"]
        if cert is None:
            raise UsageError("quic:// needs --cert: nodes are equals, and each shows the other who it is")
        from wirelake.transports.quic import Quic  # noqa: PLC0415 - an extra

        quic = Quic(cert, more["cert_key"] or cert, more["ca_file"])
    return Options(**live_limits("event_mesh", more["limits"]), trust_path=more["keys"], quic=quic, **settings)


def _relay_rule(text: str) -> RelayRule:
    """The rule of --relay."""
    pattern, *terms = text.split() or [""]
    if "://" in pattern:
        raise UsageError(f"--relay {text}: begin with a pattern, such as '>'")
    found: dict[str, Any] = {"pattern": pattern}
    for term in terms:
        name, _, values = term.partition("=")
        if term == "unverified":
            found["unverified"] = True
        elif name == "to" and values:
            found["to"] = tuple(_place(text, one) for one in values.split(","))
        elif name == "from" and values:
            found["sources"] = frozenset(_place(text, one) for one in values.split(","))
        elif name == "types" and values and all(one.isdecimal() and int(one) < 256 for one in values.split(",")):
            found["types"] = frozenset(map(int, values.split(",")))
        else:
            raise UsageError(f"--relay {text}: {term!r} is none of to=HOST:PORT, from=HOST:PORT, types=NUMBER, unverified")
    try:
        return RelayRule(**found)
    except UsageError as reason:
        raise UsageError(f"--relay {text}: {reason}") from None


def _place(rule: str, text: str) -> Address:
    """Where packets come from or go to: rules compare addresses, so that a name would never match."""
    target = parse(text, DEFAULT_PORT, ("udp", "quic"))
    try:
        return str(ipaddress.ip_address(target.host)), target.port
    except ValueError:
        raise UsageError(f"--relay {rule}: {target.host} is no IP address") from None


def _value(text: str) -> Value:
    """What a word on the command line means."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text.startswith("{"):
        try:
            found: dict[str, Any] = msgspec.json.decode(text, type=dict)
        except msgspec.DecodeError as reason:
            raise UsageError(f"{text}: not JSON: {reason}; --text sends it as it is") from None
        return found
    if text.startswith("x:"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise UsageError(f"{text}: not an even number of hex digits; --text sends it as it is") from None
    return text


def _show_event(_: Node, event: Delivered) -> None:
    who = event.identity
    emit(
        {
            "event": event.name,
            "content": [value.hex() if isinstance(value, bytes) else value for value in event.content],
            "urgent": event.urgent,
            "sealed": event.sealed,
            "node_id": _uuid(who.node_id),
            "verified": who.authenticated,
            "trust": who.trust.value,
            "time": event.time,
            "message_id": f"{event.message.message_id:08x}",
            "from": f"{event.source[0]}:{event.source[1]}",
        }
    )


def _show_peer(_: Node, change: PeerChanged) -> None:
    peer = change.peer
    emit({"node": _uuid(peer.node_id), "was": change.before.name.lower(), "is": peer.state.name.lower(), "proven": peer.proven})


def _show_drop(_: Node, dropped: Dropped) -> None:
    fault, source = dropped.fault, dropped.source
    emit({"dropped": fault.name, "clause": fault.clause, "text": fault.text, "from": f"{source[0]}:{source[1]}"})


def _uuid(node_id: bytes | None) -> str | None:
    return None if node_id is None else str(uuid.UUID(bytes=node_id))


COMMANDS: Final = Commands(serve=serve, listen=listen, send=send)

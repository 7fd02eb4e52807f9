"""Commands that need an extra, and the extra that each must name if it is missing. Used with and without pytest."""

CASES = (
    (("demo", "-o", "{tmp}/demo"), "lake"),
    (("ingest", "{tmp}/lake", "{tmp}/none.pcapng"), "lake"),
    (("query", "{tmp}/lake", "messages"), "lake"),
    (("report", "{tmp}/lake"), "lake"),
    (("explore", "{tmp}/lake"), "lake"),
    (("session", "{tmp}/lake", "00"), "lake"),
    (("bytes", "{tmp}/lake", "00"), "lake"),
    (("check", "{tmp}/lake", "--ledger"), "lake"),
    (("export", "{tmp}/lake", "-o", "{tmp}/all.csv"), "lake"),
    (("diff", "{tmp}/lake", "::kind:request"), "lake"),
    (("mcp", "{tmp}/lake"), "lake"),
    (("serve", "emp", "tcp://127.0.0.1:0", "--watch"), "lake"),
    (("serve", "yamp", "ws://127.0.0.1:0", "--record", "{tmp}/talk.pcapng"), "websocket"),
    (("call", "yamp", "ws://127.0.0.1:1", "echo", "--record", "{tmp}/talk.pcapng"), "websocket"),
    (("send", "yamp", "wss://127.0.0.1:1", "news"), "websocket"),
    (("listen", "yamp", "ws://127.0.0.1:1"), "websocket"),
    (("serve", "yamp", "tcp://127.0.0.1:0", "--serializer", "cbor", "--record", "{tmp}/talk.pcapng"), "formats"),
    (("call", "yamp", "tcp://127.0.0.1:1", "echo", "--serializer", "bson"), "formats"),
    (("send", "yamp", "tcp://127.0.0.1:1", "news", "--serializer", "xml"), "formats"),
    (("serve", "event-mesh", "quic://127.0.0.1:0", "--cert", "{tmp}/none.pem", "--record", "{tmp}/talk.pcapng"), "quic"),
    (("listen", "event-mesh", "quic://127.0.0.1:0"), "quic"),
    (("send", "event-mesh", "quic://127.0.0.1:1", "a.b"), "quic"),
    (("serve", "wolpertinger", "xmpp://a@example.org", "--record", "{tmp}/talk.pcapng"), "wolpertinger"),
    (("call", "wolpertinger", "xmpp://a@example.org/b@example.org", "Demo.Echo"), "wolpertinger"),
    (("listen", "wolpertinger", "xmpp://a@example.org/b@example.org"), "wolpertinger"),
)
"""Words of a command, with {tmp} for an empty folder, and the extra that it must name."""


def complaint(code: int, talk: str, extra: str) -> str:
    """Describe what is wrong with the output of a command; empty if nothing is."""
    if code != 78:
        return f"exit code {code}: {talk}"
    if talk.count("\n") != 1 or not talk.startswith("wirelake: ") or f"run `pip install 'wirelake[{extra}]'`" not in talk:
        return f"not one line that names {extra}: {talk}"
    return ""

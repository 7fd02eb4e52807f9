"""Small conversations of Relink that break one rule each, and legal neighbours of theirs: who says what, and what the lake has to find."""

from __future__ import annotations

from tests.protocols.relink.speech import GENERAL, control, message, reply, request

EPOCH = 1_800_000_000_000_000
NOTHING = (1 << 32) - 1
TRANSACTIONS, REQUIRE = 1, 4
CUT, CLOSED, TAKEOVER = ("cut", b""), ("closed", b""), ("takeover", b"")
A, B = b"a", b"b"


def sent(*ids):
    return ("client", message(ids, (b"x",), multicast=len(ids) > 1))


def commit(number=None, channel=A):
    return ("client", control(0 if number is None else 2, 0, (channel,), number))


def rollback(number=None, channel=A):
    return ("client", control(0 if number is None else 2, 1, (channel,), number))


def close(*ids):
    return ("client", control(0, 2, ids or (A,), multicast=len(ids) > 1))


def told(kind, number=None, channel=A):
    return (
        "server",
        control(1 if number is None else 3, ("received", "consumed", "committed", "uncommitted").index(kind), (channel,), number),
    )


def closed(channel=A):
    return ("server", control(1, 4, (channel,)))


def client(word):
    return ("client", GENERAL[word])


def server(word):
    return ("server", GENERAL[word])


def hello(link, flags=0, old=0, given=None):
    """A handshake: what is asked for and what is given; the link of a case is its number."""
    asked = request(b"demo", (1, 1), flags, EPOCH if old else 0, old)
    return [("client", bytes(8)), ("server", bytes(8)), ("client", asked), ("server", reply(EPOCH, link if given is None else given))]


def fresh(*steps, flags=0):
    return lambda link: [*hello(link, flags), *steps]


def resumed(before, after, flags=0):
    """Something was said, the connection was cut, and the link goes on."""
    return lambda link: [*hello(link, flags), *before, CUT, *hello(link, flags, old=link), *after]


def other(flags, old, given):
    """A handshake for itself, with whatever link is asked for and given."""
    return lambda link: hello(link, flags, link if old else 0, link + 500 if given else 0)


RESUME = (client("resume"), server("resume"))
END = (client("shutdown"), server("shutdown"), CLOSED)
TX = TRANSACTIONS

CASES = {
    # RELINK-10
    "a link is refused": (other(0, True, False), {("LINK_REFUSED", "to_client")}),
    "a required link is not known any more": (other(REQUIRE, True, False), set()),
    "a required link is replaced": (other(REQUIRE, True, True), {("LINK_REPLACED", "to_client")}),
    "a link is replaced": (other(0, True, True), set()),
    # RELINK-4
    "no reply": (lambda link: [*hello(link)[:3], ("wait", b""), CLOSED], {("HANDSHAKE_TIMEOUT", "to_client")}),
    "no request": (lambda link: [*hello(link)[:2], ("wait", b""), CLOSED], {("HANDSHAKE_TIMEOUT", "to_server")}),
    "a late reply": (lambda link: [*hello(link)[:3], ("wait", b""), hello(link)[3]], {("HANDSHAKE_TIMEOUT", "to_client")}),
    "gone before it is late": (lambda link: [*hello(link)[:3], CLOSED], set()),
    # RELINK-23
    "an orderly end": (fresh(sent(A), told("consumed", 0), close(), closed(), *END), set()),
    "closed without parting": (fresh(sent(A), told("consumed", 0), client("shutdown"), CLOSED), {("CLOSED_WITHOUT_PARTING", None)}),
    "cut, and taken up again": (resumed((sent(A),), (told("received", 0), *RESUME)), set()),
    "a breach is closed without a word": (
        fresh(told("consumed", 0), closed(), sent(A), closed(), CLOSED),
        {
            ("CHANNEL_UNKNOWN", "to_client"),
            ("CLOSED_UNASKED", "to_client"),
        },
    ),
    "a channel after shutdown": (fresh(sent(A), client("shutdown"), sent(A), sent(B)), {("CHANNEL_AFTER_SHUTDOWN", "to_server")}),
    "sent again after shutdown": (resumed((sent(A), client("shutdown")), (client("shutdown"), *RESUME, sent(A))), set()),
    # §3.2
    "an unnumbered result after a rollback": (
        fresh(sent(A), sent(A), rollback(0), commit(1), told("committed"), flags=TX),
        {("RESULT_UNNUMBERED", "to_client")},
    ),
    "an unnumbered result after a rollback that is consumed": (
        fresh(sent(A), rollback(0), told("consumed", 0), sent(A), commit(1), told("uncommitted"), flags=TX),
        {("RESULT_UNNUMBERED", "to_client")},
    ),
    "a numbered result after a rollback": (fresh(sent(A), sent(A), rollback(0), commit(1), told("committed", 1), flags=TX), set()),
    "unnumbered results": (fresh(sent(A), sent(A), commit(0), commit(1), told("committed"), told("uncommitted"), flags=TX), set()),
    # RELINK-20, RELINK-25
    "pongs": (fresh(client("ping"), client("ping"), server("pong"), server("pong"), server("pong")), {("PONG_UNSOLICITED", "to_client")}),
    "a pong of the connection before": (resumed((client("ping"),), (*RESUME, server("pong"))), {("PONG_UNSOLICITED", "to_client")}),
    "no pong in a minute": (fresh(client("ping"), *[("wait", b"")] * 6, server("nop")), {("PONG_MISSING", "to_client")}),
    "pings": (fresh(client("ping"), server("ping"), client("pong"), server("pong")), set()),
    "a resume on a fresh link": (fresh(server("resume")), {("RESUME_UNEXPECTED", "to_client")}),
    "a second resume": (resumed((), (*RESUME, client("resume"))), {("RESUME_UNEXPECTED", "to_server")}),
    # RELINK-21
    "a message before resume": (resumed((), (client("resume"), sent(A))), {("SPOKE_BEFORE_RESUME", "to_server")}),
    "a message once its channel is resumed": (
        resumed((sent(A), sent(A)), (client("resume"), told("received", 0), told("consumed", NOTHING), sent(A), server("resume"))),
        set(),
    ),
    "a forgotten channel": (resumed((sent(A), told("consumed", 0), sent(A)), (*RESUME, sent(A))), {("RESUME_INCONSISTENT", "to_client")}),
    "a closed channel may be forgotten": (resumed((sent(A), told("consumed", 0), close()), (*RESUME, sent(A), told("consumed", 0))), set()),
    "what was never acknowledged is sent again": (resumed((sent(A), sent(A)), (*RESUME, sent(A), sent(A), told("consumed", 1))), set()),
    "a message of the old connection comes late": (  # RELINK-11
        lambda link: [
            *(*hello(link), sent(A), told("consumed", 0), TAKEOVER, *hello(link, old=link)),
            *(told("received", 0), told("consumed", 0), *RESUME, ("late", sent(A)[1]), sent(A), told("consumed", 1)),
        ],
        set(),
    ),
    "an acknowledgement before its message is none": (
        resumed((told("received", 0), sent(A)), (*RESUME, sent(A), told("consumed"))),
        {("CHANNEL_UNKNOWN", "to_client")},
    ),
    # RELINK-13
    "a commit without transactions": (fresh(sent(A), commit()), {("TRANSACTIONS_OFF", "to_server")}),
    "a result without transactions": (fresh(sent(A), told("committed")), {("TRANSACTIONS_OFF", "to_client")}),
    "closed that nobody asked for": (fresh(sent(A), closed()), {("CLOSED_UNASKED", "to_client")}),
    "closed that nobody asked for, told": (
        resumed((sent(A),), (told("received", 0), told("consumed", 0), closed(), *RESUME)),
        {("CLOSED_UNASKED", "to_client")},
    ),
    "closed, of a channel that was not open": (fresh(close(B), closed(B), closed(B)), {("CHANNEL_UNKNOWN", "to_client")}),
    "an acknowledgement of nothing": (fresh(told("received", 0, B)), {("CHANNEL_UNKNOWN", "to_client")}),
    "a message after close": (fresh(sent(A), close(), sent(A)), {("CHANNEL_CLOSING", "to_server")}),
    "closed twice": (fresh(sent(A), close(), close()), {("CHANNEL_CLOSING", "to_server")}),
    "closed twice in one packet": (fresh(sent(A), close(A, A), told("consumed", 0), closed()), set()),
    "opened anew": (fresh(sent(A), sent(A), close(), closed(), sent(A), told("consumed", 0), close(), closed()), set()),
    "close is lost": (
        resumed((sent(A), close()), (told("received", NOTHING), *RESUME, sent(A), close(), told("consumed"), closed())),
        set(),
    ),
    "closed crosses the close that is repeated": (
        resumed(
            (sent(A), close()), (told("received", 0), told("consumed", NOTHING), *RESUME, closed(), close(), sent(A), told("consumed", 0))
        ),
        set(),
    ),
    # RELINK-15
    "acknowledged too much": (fresh(sent(A), sent(A), told("consumed", 2)), {("ACKNOWLEDGED_TOO_MUCH", "to_client")}),
    "the next, of none": (fresh(sent(A), told("consumed"), told("consumed")), {("ACKNOWLEDGED_TOO_MUCH", "to_client")}),
    "acknowledged backwards": (fresh(sent(A), sent(A), told("consumed", 1), told("consumed", 0)), {("ACKNOWLEDGED_TOO_MUCH", "to_client")}),
    "received behind consumed": (
        fresh(sent(A), sent(A), told("consumed", 1), told("received", 0)),
        {("ACKNOWLEDGED_TOO_MUCH", "to_client")},
    ),
    "acknowledged twice": (fresh(sent(A), told("received", 0), told("consumed", NOTHING), told("consumed"), told("consumed", 0)), set()),
    "of the life before": (
        fresh(sent(A), sent(A), close(), closed(), sent(A), told("consumed", 1)),
        {("ACKNOWLEDGED_TOO_MUCH", "to_client")},
    ),
    "told too much": (resumed((sent(A),), (told("received", 4), *RESUME)), {("ACKNOWLEDGED_TOO_MUCH", "to_client")}),
    "acknowledged too much after a reconnection": (
        resumed((sent(A), sent(A)), (told("received", 0), told("consumed", 0), *RESUME, sent(A), told("consumed", 2))),
        {("ACKNOWLEDGED_TOO_MUCH", "to_client")},
    ),
    "received, and consumed after a reconnection": (
        resumed(
            (sent(A), sent(A)), (told("received", 1), told("consumed", NOTHING), *RESUME, told("consumed"), sent(A), told("consumed", 2))
        ),
        set(),
    ),
    "a channel of before is told, though it lives anew": (
        resumed(
            (sent(A), sent(A), close(), closed(), sent(A)),
            (told("received", 1), told("consumed", 1), closed(), *RESUME, sent(A), told("consumed")),
        ),
        set(),
    ),
    "many channels": (fresh(sent(A, B, A), told("consumed", 1), told("consumed", 0, B)), set()),
    "one channel less": (fresh(sent(A, B), told("consumed", 0, B), told("consumed", 1)), {("ACKNOWLEDGED_TOO_MUCH", "to_client")}),
    # RELINK-22
    "consumed, then closed": (fresh(sent(A), sent(A), close(), told("consumed", 1), closed(), *END), set()),
    "results, consumed, then closed": (
        fresh(sent(A), sent(A), commit(0), rollback(1), close(), told("committed"), told("consumed", 1), closed(), *END, flags=TX),
        set(),
    ),
    "closed with an undecided message": (  # RELINK-29
        fresh(sent(A), commit(), told("committed"), sent(A), close(), closed(), *END, flags=TX),
        set(),
    ),
    # RELINK-26, RELINK-27
    "a result of the life before": (
        fresh(sent(A), commit(), told("committed"), close(), closed(), sent(A), told("committed"), flags=TX),
        {("ACKNOWLEDGED_TOO_MUCH", "to_client")},
    ),
    "decided too much": (fresh(sent(A), commit(1), flags=TX), {("DECIDED_TOO_MUCH", "to_server")}),
    "the next decision, of none": (fresh(sent(A), commit(), rollback(), flags=TX), {("DECIDED_TOO_MUCH", "to_server")}),
    "a decision about nothing": (fresh(commit(), flags=TX), {("DECIDED_TOO_MUCH", "to_server")}),
    "decided, and repeated": (fresh(sent(A), sent(A), commit(1), commit(0), told("committed", 1), flags=TX), set()),
    "a result before its decision": (
        fresh(sent(A), sent(A), commit(0), told("committed", 1), flags=TX),
        {("ACKNOWLEDGED_TOO_MUCH", "to_client")},
    ),
    "results and rollbacks": (
        fresh(sent(A, A, A), commit(), told("committed"), rollback(1), commit(2), told("uncommitted", 2), told("consumed", 2), flags=TX),
        set(),
    ),
    "decided on the connection before": (
        resumed(
            (sent(A), sent(A), commit(0), rollback(1)),
            (told("received", 1), told("consumed", NOTHING), *RESUME, told("committed", 0), commit(0), rollback(1), told("consumed", 1)),
            flags=TX,
        ),
        set(),
    ),
}
"""name -> (its link -> (who, bytes) …, what it breaks: rules, and whose fault they are)."""

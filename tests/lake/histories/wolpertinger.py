"""Random conversations of wolpertinger that break every rule that history can show, somewhere in 24 seeds.

A seed gives about 400 texts of a dozen connections, in several files. Connections change file, are cut, reset or left open, and two were
not captured from the beginning. Both sides keep to limits, beyond which SQL and analyzer differ on purpose: an id or a CallId is not used
again after four minutes, a CallId that was answered is only sent again in the same message, and messages in fragments, or with a payload
that cannot be opened, are sent once.
`KEYS` open some of the encrypted messages.
"""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

from tests.lake.wolpertinger_sessions import BLOB, IV, OTHER_KEYS, line, pieces, result
from tests.protocols.wolpertinger.pair import KEYS
from tests.protocols.wolpertinger.xml_documents import CALL_ID, CODE, COMPONENT, VECTORS, call, error, held

from wirelake.capture.record.connection import Connection
from wirelake.capture.record.exported_pdu import SENT
from wirelake.capture.record.recorder import Recorder
from wirelake.errors import DecodeError
from wirelake.protocols.wolpertinger import wire
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.layer2.documents import Rejected, decode
from wirelake.protocols.wolpertinger.layer2.values import Int32
from wirelake.protocols.wolpertinger.wire import Keys

SEEDS = range(24)
START_NS = 1_700_000_000 * 10**9
CONNECTIONS = 12
STEPS = 340
RECENT_NS = 240 * 10**9
"""How long ids are used again."""

_PAUSES = (0, 0, 1_000, 10_000, 1_000_000, 20_000_000, 100_000_000)
_LONG_PAUSES = (4, 19, 21, 31, 45)
_VALUES = (True, False, False, "tea", BLOB, Int32(7), None, 1.5, UUID(int=5))
_CODES = (100, 201, 202, 300, 303, 304, 305, 305, 306, 500)


def _is_unreadable(text: str) -> bool:
    try:
        wire.decode(text.encode())
    except DecodeError:
        return True
    return False


_UNREADABLE = (
    b"nonsense",
    b"",
    b"message_id;",
    b"message_id:1;co-lour:red;",
    b"message_id:1;colour:red;",
    b"message_id:1;message_id:2;",
    b"message_id:1;signature:abc;",
    b"gzip:5;aGVsbG8=",
    b"message_id:abc;aGVsbG8=",
    b"result:x;message_id:1;",
    b"result:0;message_id:1;gzip:1;",
    b"message_id:4;gzip:abc;H4sI",
    b"fragment_index:0;message_id:9;aGVs",
    b"fragment_index:0;fragment_count:4097;message_id:9;aGVs",
    *(vector["wire"][0].encode() for vector in VECTORS if vector["layer"] == 1 and _is_unreadable(vector["wire"][0])),
)
_DOCUMENTS = (
    *(vector["xml"].encode() for vector in VECTORS if vector["layer"] == 2 and isinstance(decode(vector["xml"].encode()), Rejected)),
    call().encode("utf-16"),
    call(held("list", "") * 3 + "<a>" * 100 + "</a>" * 100).encode(),
    error(COMPONENT + CODE.replace("303", "x") + CALL_ID).encode(),
    call(held("dateTime", "never")).encode(),
    call(held("directoryObjectDiff", "")).encode(),
)
_PAYLOADS = (b"!!!!", b"gzip:9;AAAA", b"encryption:des;aGVsbG8=", b"encryption:aes;aGVsbG8=")


class Side:
    """What one side of a connection said, and may say again."""

    def __init__(self) -> None:
        self.next_id = 1
        self.next_fragment_id = 100_000
        self.lines: list[tuple[int, int, bytes]] = []
        """(time, id, line) of unfragmented messages that may be sent again."""
        self.unconfirmed: list[tuple[int, int]] = []
        """(time, id)."""
        self.waiting: dict[str, Call] = {}
        """Calls without an answer."""
        self.parts: list[bytes] = []
        """Fragments that are not sent yet."""
        self.parts_since = 0


class Speaker:
    """Both sides of one connection."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.sides = {True: Side(), False: Side()}
        self.early: list[str] = []
        """CallIds that were answered before they were used."""
        self.seals: tuple[Keys | None, ...] = (None, None, None, None, KEYS, OTHER_KEYS)
        """Keys to choose from for the next message."""
        self.now = 0
        self.script: list[tuple[bool, bytes]] = []
        if dice.random() < 0.4:
            call_id = self.fresh()
            self.script = [
                (True, line(Call("Authentication", "KeyExchange", call_id, (BLOB, IV)), 90_001)),
                (False, result(90_001)),
                (False, line(Response("Authentication", call_id, BLOB), 90_001)),
                (True, result(90_001)),
            ]

    def next(self, now: int) -> tuple[bool, bytes]:
        """(by the client, bytes)."""
        self.now = now
        if self.script:
            return self.script.pop(0)
        by_client = self.dice.random() < 0.5
        for _ in range(20):
            said = self.dice.choices(_KINDS, _WEIGHTS)[0](self, self.sides[by_client], self.sides[not by_client])
            if said is not None:
                return by_client, said
        return by_client, result(77_777)

    def fresh(self) -> str:
        return str(UUID(bytes=self.dice.randbytes(16), version=4))

    # What a side may say; None if it cannot now.

    def call(self, own: Side, _other: Side) -> bytes:
        call_id = self.early.pop() if self.early and self.dice.random() < 0.5 else self.fresh()
        return self.said(own, self.any_call(own, call_id))

    def any_call(self, own: Side, call_id: str) -> Call:
        dice = self.dice
        trust = dice.choice(("Authentication", "authentication"))
        call = dice.choice(
            (
                Call("Sample", dice.choice(("Echo", "Add", "Void")), call_id, dice.choice(((), ("tea",), (Int32(1), True)))),
                Call("Sample", "Echo", call_id, ("x" * dice.randrange(200),)),
                Call(trust, dice.choice(("EstablishConnection", "ClusterAuthGetToken", "UserAuthGetToken")), call_id),
                Call(trust, "ClusterAuthVerify", call_id, dice.choice((("AAAA",), ("AAAA", "x"), (Int32(1),)))),
                Call(trust, "UserAuthVerify", call_id, ("me", "AAAA")),
                Call(trust, "AwardTrustLevel", call_id, (Int32(1),)),
                Call(trust, "KeyExchange", call_id, dice.choice(((BLOB, IV), ("AAAA", IV), (BLOB,)))),
                Call("Core", "Heartbeat", call_id),
                Call(dice.choice(("Core", "core")), dice.choice(("SendResetNotice", "Heartbeat", "Nothing")), call_id),
            )
        )
        own.waiting[call_id] = call
        return call

    def unfit_key(self, own: Side, _other: Side) -> bytes:
        """It has a CallId that is never used again."""
        iv = self.dice.choice(("AAAA", "", "????", "A" * 24))
        call = Call("Authentication", "KeyExchange", self.fresh(), (BLOB, iv))
        if self.dice.random() < 0.5:
            own.waiting[call.call_id] = call
        return line(call, self.number(own))

    def answer(self, _own: Side, other: Side) -> bytes | None:
        if not other.waiting:
            return None
        call_id = self.dice.choice(list(other.waiting))
        asked = other.waiting.pop(call_id)
        if asked.method == "KeyExchange" and self.dice.random() < 0.2:
            return self.said(_own, Error(asked.component, 300, call_id))
        return self.said(_own, self.any_answer(asked.component, call_id))

    def any_answer(self, component: str, call_id: str) -> Response | Error:
        if self.dice.random() < 0.6:
            return Response(component, call_id, self.dice.choice(_VALUES))
        return Error(component, self.dice.choice(_CODES), call_id)

    def early_answer(self, own: Side, _other: Side) -> bytes:
        call_id = self.fresh()
        if self.dice.random() < 0.6:
            self.early.append(call_id)
        return self.said(own, self.any_answer("Sample", call_id))

    def error(self, own: Side, _other: Side) -> bytes:
        return self.said(own, Error("Sample", self.dice.choice(_CODES)))

    def in_flight(self, own: Side, _other: Side) -> bytes | None:
        """Another call with the CallId of one that waits."""
        known = [call_id for call_id, call in own.waiting.items() if call.method != "KeyExchange"]
        if not known:
            return None
        call_id = self.dice.choice(known)
        method = self.dice.choice(("Echo", "Add", "Void"))
        return self.said(own, Call("Sample", method, call_id))

    def result(self, _own: Side, other: Side) -> bytes | None:
        recent = [one for one in other.unconfirmed if self.now - one[0] < RECENT_NS]
        if not recent:
            return None
        chosen = self.dice.choice(recent)
        if self.dice.random() < 0.9:
            other.unconfirmed.remove(chosen)
        said = result(chosen[1], self.dice.choice((0, 0, 0, 0, 0, 0, 1, 3, 4, 5, 77)))
        return said[:-1] + b"x\n" if self.dice.random() < 0.05 else said

    def unmatched_result(self, _own: Side, _other: Side) -> bytes:
        return result(self.dice.randrange(50_000, 50_010), self.dice.choice((0, 0, 4)))

    def again(self, own: Side, _other: Side) -> bytes | None:
        own.lines = [one for one in own.lines if self.now - one[0] < RECENT_NS]
        if not own.lines:
            return None
        at = self.dice.randrange(len(own.lines))
        _, number, said = own.lines[at]
        own.lines[at] = (self.now, number, said)
        own.unconfirmed.append((self.now, number))
        return said

    def fragments(self, own: Side, other: Side) -> bytes | None:
        """The next fragment, or the first of another message."""
        if own.parts and self.now - own.parts_since > RECENT_NS:
            own.parts = []
        if not own.parts:
            self.split(own, other)
        own.parts_since = self.now
        own.unconfirmed.append((self.now, own.next_fragment_id))
        return own.parts.pop(0)

    def split(self, own: Side, other: Side) -> None:
        dice = self.dice
        own.next_fragment_id += 1
        if other.waiting and dice.random() < 0.4:
            call_id = dice.choice(list(other.waiting))
            message = self.any_answer(other.waiting.pop(call_id).component, call_id)
        else:
            message = self.any_call(own, self.fresh())
        keys = dice.choice(self.seals)
        parts = pieces(message, own.next_fragment_id, dice.choice((100, 150, 100_000)), keys, compress=dice.random() < 0.3)
        chance = dice.random()
        if len(parts) > 1:
            first = parts[0]
            if chance < 0.5:
                dice.shuffle(parts)
            if 0.4 < chance < 0.6:
                parts.pop(dice.randrange(len(parts)))
            elif 0.6 < chance < 0.7:
                parts.insert(1, first)
            elif 0.7 < chance < 0.85:
                parts.insert(1, first[:-9] + b"AAAAAAAA\n")
        own.parts = parts

    def odd(self, own: Side, _other: Side) -> bytes:
        call = Call("Sample", "Echo", self.fresh(), ("tea",))
        number = self.number(own)
        return self.dice.choice(
            (
                line(call, number).replace(b"message_id", b"Message_ID"),
                line(call, number).replace(b"PF", b"P F"),
                line(call, number, self.dice.choice(self.seals) or OTHER_KEYS).replace(b"encryption:", b"secure:"),
            )
        )

    def unreadable(self, _own: Side, _other: Side) -> bytes:
        return self.dice.choice(_UNREADABLE) + b"\n"

    def bad_payload(self, own: Side, _other: Side) -> bytes:
        """It has an id of its own: a message that is not delivered is not recognised when it comes again."""
        own.next_id += 1
        own.unconfirmed.append((self.now, own.next_id))
        return b"message_id:%d;" % own.next_id + self.dice.choice(_PAYLOADS) + b"\n"

    def bad_document(self, own: Side, _other: Side) -> bytes:
        return line(self.dice.choice(_DOCUMENTS), self.number(own), self.dice.choice(self.seals))

    def number(self, own: Side) -> int:
        """The id of the next message; sometimes that of an earlier one."""
        if own.lines and self.dice.random() < 0.05 and self.now - own.lines[-1][0] < RECENT_NS:
            number = own.lines[-1][1]
        else:
            own.next_id += 1
            number = own.next_id
        own.unconfirmed.append((self.now, number))
        return number

    def said(self, own: Side, message: Call | Response | Error) -> bytes:
        number = self.number(own)
        keys = self.dice.choice(self.seals)
        document = documents.encode(message)
        if isinstance(message, Error) and self.dice.random() < 0.1:
            document = document.replace(b">%d<" % message.code, b">70000<")
        said = line(document, number, keys, compress=self.dice.random() < 0.1)
        own.lines = [one for one in own.lines if one[1] != number]
        own.lines.append((self.now, number, said))
        return said


_CHOICES = {
    Speaker.call: 20,
    Speaker.answer: 14,
    Speaker.result: 30,
    Speaker.fragments: 10,
    Speaker.again: 5,
    Speaker.in_flight: 3,
    Speaker.early_answer: 3,
    Speaker.unmatched_result: 2,
    Speaker.odd: 2,
    Speaker.unreadable: 3,
    Speaker.bad_payload: 2,
    Speaker.bad_document: 4,
    Speaker.unfit_key: 2,
    Speaker.error: 0.4,
}
_KINDS, _WEIGHTS = [*_CHOICES], [*_CHOICES.values()]


class Recorded:
    """One connection, and the file that it is recorded in now."""

    def __init__(self, recorder: Recorder, dice: random.Random, port: int, recorders: list[Recorder]) -> None:
        self.dice = dice
        self.recorders = recorders
        self.role = dice.choice(("client", "server"))
        self.name = dice.randbytes(8)
        ends = ("127.0.0.1", port), ("127.0.0.1", 4711)
        self.local, self.remote = ends if self.role == "client" else ends[::-1]
        self.speaker = Speaker(dice)
        self.connection = self.begin(recorder)
        self.is_open = True

    def begin(self, recorder: Recorder) -> Connection:
        return recorder.connection(role=self.role, local=self.local, remote=self.remote, connection_id=self.name)

    def say(self, by_client: bool, said: bytes) -> None:
        (self.connection.sent if by_client == (self.role == "client") else self.connection.received)(said)

    def step(self, now: int) -> None:
        """Say something, or end, or go on in another file."""
        chance = self.dice.random()
        if chance < 0.02:
            self.end()
        elif chance < 0.04 and self.recorders:
            self.connection = self.begin(self.dice.choice(self.recorders))
        else:
            self.say(*self.speaker.next(now))

    def end(self) -> None:
        self.is_open = False
        match self.dice.randrange(4):
            case 0:
                self.connection.finished(self.dice.choice(("client", "server")))
            case 1:
                self.connection._event(SENT, event="reset", by=self.dice.choice(("client", "server")))
            case 2:
                self.say(self.dice.random() < 0.5, result(1)[:9])
                self.connection.finished(self.dice.choice(("client", "server")))
            case _:
                self.say(True, line(Error("Sample", 500), 90_002))
        if self.dice.random() < 0.8:
            self.connection.closed(self.dice.choice(("bye", "eof")))


class _History:
    """The clock and the files of one seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.dice = random.Random(f"wolpertinger {seed}")
        self.now = START_NS + seed * 10**14

    def recorder(self, name: str, max_bytes: int | None = None) -> Recorder:
        path = self.folder / f"wolpertinger-{self.seed}-{name}.pcapng"
        return Recorder(path, protocol="wolpertinger", clock=lambda: self.now, flush_seconds=60, max_bytes=max_bytes, observer="")

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

    def special(self, recorder: Recorder, port: int) -> None:
        """A connection for rules that chance does not find."""
        one = Recorded(recorder, self.dice, port, [])
        match self.seed % 6:
            case 0 | 1 | 2:  # a question as the last word
                one.say(True, line(Call("Authentication", "EstablishConnection", one.speaker.fresh()), 1))
                self.wait(self.dice.choice((0, 1, 1)))
                one.say(False, result(1))
                self.wait(self.dice.choice((29, 31, 31)))
            case 3:  # more messages in pieces than are kept
                for number in range(258):
                    one.say(True, b"fragment_index:0;fragment_count:2;message_id:%d;AAAA\n" % number)
                self.wait(41)
            case 4 if self.seed < 12:
                one.say(True, line(b"<" + b" " * (65 << 20), 1, compress=True))
            case 5 if self.seed < 12:
                one.say(True, b"message_id:1;" + b"A" * (257 << 10) + b"\n")
            case _:  # a CallId that was answered
                call = Call("Sample", "Echo", one.speaker.fresh())
                for number in (1, 2):
                    one.say(True, line(call, number))
                    self.wait(1)
                    one.say(False, result(number) + line(Response("Sample", call.call_id), number))
                    self.wait(1)
                    one.say(True, result(number))
        one.connection.closed("eof")


def write(folder: Path, seed: int) -> list[Path]:
    """Record one random history; returns its files."""
    folder.mkdir(parents=True, exist_ok=True)
    history = _History(folder, seed)
    dice = history.dice
    whole = [history.recorder("a"), history.recorder("b")]
    late = history.recorder("late", max_bytes=8_000)
    first_port = 10_000 + seed * 100
    open_now = [Recorded(late, dice, first_port + CONNECTIONS + number, []) for number in range(2)]
    ports = iter(range(first_port, first_port + CONNECTIONS))
    for _ in range(STEPS):
        history.now += dice.choice(_PAUSES)
        if dice.random() < 0.03:
            history.wait(dice.choice(_LONG_PAUSES))
        if len(open_now) < 5 and (port := next(ports, None)) is not None:
            open_now.append(Recorded(dice.choice(whole), dice, port, whole))
        dice.choice(open_now).step(history.now)
        open_now = [one for one in open_now if one.is_open]
        if not open_now:
            break
    history.special(whole[0], first_port + 50)
    for one in (*whole, late):
        one.close()
    lost, *rest = late.paths
    lost.unlink()  # what was said first on two connections was not captured
    return [path for one in whole for path in one.paths] + rest

"""Documents of layer 2 for tests, as text: good ones, and parts to break them with."""

from __future__ import annotations

import json
from pathlib import Path

from wirelake.protocols.wolpertinger.layer2.documents import Rejected, decode

NAMESPACE = "http://nerdcave.eu/wolpertinger"
XMLNS = f' xmlns="{NAMESPACE}"'
ID = "F5AFEC97-5839-4666-B8D3-8C108B241720"
LOWER = ID.lower()
COMPONENT, CALL_ID, METHOD = "<ComponentName>Core</ComponentName>", f"<CallId>{ID}</CallId>", "<MethodName>m</MethodName>"
CODE = "<ErrorCode>303</ErrorCode>"
VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "wolpertinger.json").read_text())


def call(parameters: str = "", *, xmlns: str = XMLNS) -> str:
    return f"<RemoteMethodCall{xmlns}>{COMPONENT}{CALL_ID}{METHOD}<Parameters>{parameters}</Parameters></RemoteMethodCall>"


def response(value: str = "", *, xmlns: str = XMLNS) -> str:
    return f"<RemoteMethodResponse{xmlns}>{COMPONENT}{CALL_ID}<ResponseValue>{value}</ResponseValue></RemoteMethodResponse>"


def error(inside: str = COMPONENT + CODE + CALL_ID, *, xmlns: str = XMLNS) -> str:
    return f"<RemoteError{xmlns}>{inside}</RemoteError>"


def held(data_type: str, inside: str) -> str:
    return f'<object type="{data_type}">{inside}</object>'


def parameters(inside: str) -> tuple:
    """The parameters of a call with these objects; it must be one."""
    parsed = decode(call(inside).encode())
    assert not isinstance(parsed, Rejected), parsed
    return parsed.parameters


def rejected(document: str | bytes, **options) -> Rejected:
    parsed = decode(document.encode() if isinstance(document, str) else document, **options)
    assert isinstance(parsed, Rejected), parsed
    return parsed


def answered(document: str | bytes) -> int | None:
    """The code of the error that answers a document that is refused."""
    answer = rejected(document).answer
    return None if answer is None else answer.code

"""Errors fit Python: four of them are built-in errors too, and all survive copying and pickling."""

from __future__ import annotations

import inspect
import pickle

import pytest
from tests.cases import each

from wirelake import errors
from wirelake.protocols.emp.faults import Fault

BUILT_IN = {
    errors.RequestTimeout: TimeoutError,
    errors.ConnectFailed: OSError,
    errors.ConnectionLost: ConnectionError,
    errors.UsageError: ValueError,
    errors.MissingExtra: ValueError,
}
TYPES = [one for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, errors.WirelakeError)]
FAULT = next(iter(Fault))
ARGUMENTS = {
    errors.ProtocolError: (FAULT, "seen"),
    errors.LocalProtocolError: (FAULT, "seen"),
    errors.RemoteProtocolError: (FAULT, "seen"),
    errors.DecodeError: (FAULT, 7, "seen"),
    errors.Redirected: ("tcp://elsewhere", "the peer redirects"),
    errors.PeerError: ("error 3", "the peer reports error 3"),
    errors.RequestFailed: ({"why": "none left"}, "the request failed"),
    errors.DeliveryFailed: ("lost", "a message was lost"),
    errors.CaptureError: ("a.pcapng", 7, "cut"),
    errors.SourceChanged: ("a.pcapng", 7, "cut"),
    errors.MissingExtra: ("duckdb", "lake"),
    errors.StateError: ("damaged",),
    errors.TableFeature: ("lake/messages", ("deletionVectors",)),
}


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.__name__)
def test_is_a_built_in_error_too(kind: type[errors.WirelakeError]) -> None:
    with pytest.raises(BUILT_IN[kind]):
        raise kind(*ARGUMENTS.get(kind, ("what happened",)))


@each("kind", TYPES, ids=lambda kind: kind.__name__)
def test_survives_pickling_with_its_text(kind: type[errors.WirelakeError]) -> None:
    error = kind(*ARGUMENTS.get(kind, ("what happened",)))
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is kind
    assert (str(copy), copy.args) == (str(error), error.args)
    assert str(error)


@pytest.mark.parametrize("kind", [errors.ConnectFailed, errors.ConnectionLost, errors.RequestTimeout])
def test_an_operating_system_error_of_ours_has_a_text_and_no_number(kind: type[OSError]) -> None:
    error = kind("no answer in 3 s")
    assert str(error) == "no answer in 3 s"
    assert error.errno is None


def test_the_tree_in_the_docstring_is_complete() -> None:
    tree = errors.__doc__ or ""
    for kind in TYPES:
        assert f" {kind.__name__} " in tree or f"{kind.__name__}\n" in tree, kind
    assert set(errors.__all__) == {kind.__name__ for kind in TYPES} | {"ErrorCode", "FaultLike"}

"""What holds for the state machine of every protocol; what is special about one is tested in its own folder."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from itertools import product

import pytest

from wirelake import protocols
from wirelake.errors import UsageError
from wirelake.protocols import entry_points

MACHINES = {name: protocols.get(name).state_machine for name in entry_points.OURS}
every_machine = pytest.mark.parametrize(("name", "machine"), MACHINES.items(), ids=list(MACHINES))


@every_machine
def test_the_table_has_only_its_own_states_speakers_and_messages(name, machine):
    for (state, speaker, message), after in machine.transitions.items():
        assert {type(state), type(after)} == {machine.states}, (state, speaker, message)
        assert type(speaker) is machine.speakers, (state, speaker, message)
        assert message in machine.messages, (state, speaker, message)


@every_machine
def test_messages_have_names_of_their_own(name, machine):
    names = [message.__struct_config__.tag for message in machine.messages]
    assert len(set(names)) == len(names)


@every_machine
def test_every_state_is_reached_from_the_first(name, machine):
    silence = getattr(import_module(f"wirelake.protocols.{name}.state_machine"), "SILENCE", {})
    reached, fresh = set(), {machine.initial}
    while fresh:
        reached |= fresh
        after = {end for (state, _, _), end in machine.transitions.items() if state in fresh} | {silence.get(one, one) for one in fresh}
        fresh = after - reached
    assert reached == set(machine.states)


@every_machine
def test_a_message_that_the_table_lacks_breaks_a_rule_of_the_protocol(name, machine):
    """A rule that is not merely noted: a session that hears such a message refuses it."""
    forbidden = set(product(machine.states, machine.speakers, machine.messages)) - set(machine.transitions)
    for triple in forbidden:
        fault = machine.refusal(*triple)
        assert fault in protocols.get(name).faults, triple
        assert not fault.is_tolerated, triple
    if not forbidden:  # everything may be said at any time
        with pytest.raises(UsageError):
            machine.refusal(*next(iter(machine.transitions)))


@every_machine
def test_a_message_that_is_accepted_too_early_breaks_a_rule_all_the_same(name, machine):
    for triple, fault in machine.untimely.items():
        assert triple in machine.transitions, triple
        assert fault in protocols.get(name).faults, triple


@pytest.mark.parametrize("name", ["emp", "yamp", "wolpertinger"])
def test_the_state_changes_in_one_place_only(name):
    """`_advance` is the only method that assigns it after the constructor."""
    modules = [
        import_module(f"wirelake.protocols.{name}.{one}") for one in ("session", "base_session") if name != "emp" or one == "session"
    ]
    owners = {
        function.name
        for module in modules
        for function in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and node.attr == "state"
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    assert owners == {"__init__", "_advance"}

"""Descriptors: every protocol has one, they are found through entry points, and conflicts are clear errors."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from wirelake import protocols
from wirelake.cli.commands import Commands, commands
from wirelake.errors import UsageError
from wirelake.protocols import entry_points
from wirelake.protocols.entry_points import Entry
from wirelake.protocols.protocol import SessionKind

ROOT = Path(__file__).parents[2]
MODULES = ("messages", "faults", "scanner", "wire", "state_machine", "options", "events", "session", "columns", "notation")
NAMES = {"DEFAULT_PORT", "INITIAL", "MESSAGES", "PROTOCOL", "TRANSITIONS", "Fault", "Limits", "Options", "Session", "Speaker", "State"}
NAMES |= {"buffer", "decode", "encode", "find", "refusal", "scan", "sniff", "walk"}


def test_every_protocol_has_the_same_core_modules_and_exports_the_same_names():
    for name in entry_points.OURS:
        package = import_module(protocols.get(name).package)
        assert set(package.__all__) >= NAMES, name
        missing = [module for module in MODULES if not (Path(package.__file__).parent / f"{module}.py").exists()]
        assert missing == [], name


def test_every_descriptor_agrees_with_its_package():
    for name in entry_points.OURS:
        protocol = protocols.get(name)
        package = import_module(f"wirelake.protocols.{name}")
        assert (protocol.name, protocol.package, protocol.default_port) == (name, package.__name__, package.DEFAULT_PORT)
        assert set(protocol.dialects) | set(protocol.offline_limits) <= {one.name for one in msgspec.structs.fields(protocol.limits)}
        assert {one.name for one in protocol.state_machine.speakers} in ({"CLIENT", "SERVER"}, {"NODE"})
        assert protocol.state_machine.initial in protocol.state_machine.states
        columns = protocol.columns()
        assert all((one.metadata or {}).get(b"comment") for one in columns.SCHEMA), name
        if protocol.has_streams:
            assert protocol.cut().name == "MESSAGE_CUT"


def test_capabilities_are_those_of_the_specifications():
    having = {
        field: [name for name in entry_points.OURS if getattr(protocols.get(name), field)]
        for field in ("handshake", "body_serializers", "passive", "websocket", "xmpp", "dialects", "signatures", "is_stateful")
    }
    assert having == {
        "handshake": ["relink"],
        "body_serializers": ["yamp"],
        "passive": ["event_mesh", "wolpertinger"],
        "websocket": ["yamp"],
        "xmpp": ["wolpertinger"],
        "dialects": ["emp", "yamp"],
        "signatures": ["event_mesh"],
        "is_stateful": ["relink", "yamp", "wolpertinger"],
    }
    kinds = [protocols.get(name).session_kind for name in entry_points.OURS]
    assert kinds == [SessionKind.CONNECTION, SessionKind.NODE, SessionKind.LINK, SessionKind.CONNECTION, SessionKind.CONNECTION]


def test_entry_points_of_this_package_are_those_that_are_known_without_metadata():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for group, attribute in (("wirelake.protocols", "PROTOCOL"), ("wirelake.commands", "COMMANDS")):
        assert declared[group] == {name: entry_points.entry(group, name).value for name in entry_points.OURS}
        assert all(value.endswith(f":{attribute}") for value in declared[group].values())
    assert all(isinstance(commands(name), Commands) for name in entry_points.OURS)


def test_listing_names_imports_no_protocol_and_a_descriptor_neither_arrow_nor_numba():
    code = (
        "import sys; from wirelake import protocols; protocols.names(); "
        "assert not [name for name in sys.modules if name.startswith('wirelake.protocols.emp')]; "
        "[protocols.get(name) for name in protocols.names()]; "
        "assert not {'pyarrow', 'numba', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def offered(monkeypatch):
    """Lets a test add entries of other packages."""

    def add(*entries: Entry) -> None:
        real = entry_points.entries.__wrapped__

        def entries_with(group: str) -> dict[str, tuple[Entry, ...]]:
            found = {name: list(values) for name, values in real(group).items()}
            for entry in entries if group == "wirelake.protocols" else ():
                found.setdefault(entry.name, []).append(entry)
            return {name: tuple(values) for name, values in found.items()}

        monkeypatch.setattr(entry_points, "entries", entries_with)

    yield add
    for cached in (protocols._load, protocols._ports, protocols._all):
        cached.cache_clear()


def test_a_broken_package_is_an_error_only_where_its_protocol_is_used(offered):
    offered(Entry("broken", "no_such_module_of_anybody:PROTOCOL", "some-package"))
    assert protocols.names()[-1] == "broken"
    assert protocols.get("emp").name == "emp"
    with pytest.raises(UsageError, match=r"'broken' of the package some-package cannot be loaded .*no_such_module"):
        protocols.get("broken")


def test_an_entry_that_is_no_descriptor_is_named(offered):
    offered(Entry("dove", "json:dumps", "doves"), Entry("swan", "wirelake.protocols.emp:PROTOCOL", "swans"))
    with pytest.raises(UsageError, match="package doves declares json:dumps as the protocol 'dove', but it is a function"):
        protocols.get("dove")
    with pytest.raises(UsageError, match=r"package swans .* 'swan', but it is the protocol 'emp'"):
        protocols.get("swan")


def test_two_packages_with_one_name_are_both_named(offered):
    offered(Entry("dove", "one:PROTOCOL", "doves"), Entry("dove", "two:PROTOCOL", "more-doves"))
    with pytest.raises(UsageError, match=r"several packages offer the protocol 'dove': doves \(one:PROTOCOL\), more-doves"):
        protocols.get("dove")


def test_a_package_with_a_name_of_ours_is_named(offered):
    offered(Entry("emp", "one:PROTOCOL", "doves"))
    with pytest.raises(UsageError, match="package doves offers a protocol 'emp'"):
        protocols.names()


def test_two_protocols_with_one_port_are_both_named(offered, monkeypatch):
    twin = msgspec.structs.replace(protocols.get("emp"), name="dove")
    monkeypatch.setattr(sys.modules[__name__], "TWIN", twin, raising=False)
    offered(Entry("dove", f"{__name__}:TWIN", "doves"))
    protocols._ports.cache_clear()
    with pytest.raises(UsageError, match=r"port 5040: emp \(package wirelake\) and dove \(package doves\)"):
        protocols.ports()


def test_an_unknown_protocol_is_answered_with_the_choices():
    with pytest.raises(UsageError, match=r"unknown protocol 'carrier': choose one of emp, event_mesh, relink, yamp, wolpertinger"):
        protocols.get("carrier")
    assert protocols.get("event-mesh").name == "event_mesh"


def test_no_module_outside_the_protocols_compares_with_a_protocols_name():
    found = []
    for path in sorted((ROOT / "src/wirelake").rglob("*.py")):
        text = path.read_text()
        if path.is_relative_to(ROOT / "src/wirelake/protocols") or not any(f'"{name}"' in text for name in entry_points.OURS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Compare) and any(
                isinstance(one, ast.Constant) and one.value in entry_points.OURS for one in (node.left, *node.comparators)
            ):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


BORDER = {"wirelake.protocols", "wirelake.protocols.protocol", "wirelake.protocols.entry_points", "wirelake.protocols.faults"}
BORDER |= {"wirelake.protocols.kernel", "wirelake.protocols.buffer", "wirelake.protocols.dialects", "wirelake.protocols.json_fields"}
BORDER |= {f"wirelake.protocols.{name}" for name in entry_points.OURS}
BORDER |= {"wirelake.cli.commands", "wirelake.cli.flags", "wirelake.cli.decode", "wirelake.cli.encode", "wirelake.explore.captured"}
BORDER |= {f"wirelake.lake.decode.{path.stem}" for path in (ROOT / "src/wirelake/lake/decode").glob("*.py")}
BORDER -= {"wirelake.lake.decode.__init__", "wirelake.lake.decode.state"}  # the state handles its own dicts of several types alike
BORDER |= {"wirelake.protocols.state_table"}
TAKES_ANY_FUNCTION = {"wirelake.protocols.kernel", "wirelake.cli.flags"}
"""Decorators of functions with any parameters: `Callable[..., object]`, which mypy counts as an explicit `Any`."""


def path_of(module: str) -> Path:
    path = ROOT / "src" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_there_is_no_any_at_the_border_between_protocols_and_the_rest():
    """`make lint` runs mypy with these overrides; the names are looked for here as well."""
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    (strict,) = (set(one["module"]) for one in overrides if one.get("disallow_any_explicit"))
    assert strict == BORDER - TAKES_ANY_FUNCTION
    found = [
        f"{module}:{node.lineno}"
        for module in sorted(BORDER)
        for node in ast.walk(ast.parse(path_of(module).read_text()))
        if (isinstance(node, ast.Name) and node.id in ("Any", "ModuleType")) or (isinstance(node, ast.Attribute) and node.attr == "Any")
    ]
    assert found == []


def test_no_module_probes_capabilities_with_hasattr():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("src", "docs", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "hasattr" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name) and node.id == "hasattr"
    ]
    assert found == []


def test_decoding_imports_no_protocol_of_ours():
    ours = tuple(f"wirelake.protocols.{name}" for name in entry_points.OURS)
    files = [path_of("wirelake.cli.decode"), path_of("wirelake.explore.captured"), *(ROOT / "src/wirelake/lake/decode").rglob("*.py")]
    found = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            found += [f"{path.relative_to(ROOT)}:{node.lineno}" for name in names if name.startswith(ours)]
    assert found == []


def test_values_of_another_protocol_are_refused_when_they_come_back():
    alien = protocols.get("emp").limits()
    handshake, passive = protocols.get("relink").handshake, protocols.get("wolpertinger").passive
    for call in (
        lambda: handshake.restore(alien),
        lambda: handshake.scan_limits(alien, protocols.get("relink").limits()),
        lambda: passive.restore(alien),
        lambda: passive.columns().columns(None, None, None, None, True, 0, {0: alien}),
        lambda: passive.columns().passive(None, None, None, None, {0: alien}, None, None, 0),
        lambda: protocols.get("event_mesh").signatures.verify_rows(None, None, None, None, alien),
    ):
        with pytest.raises(TypeError, match=r"^internal error: \w+ is needed, not Limits"):
            call()
    assert handshake.scan_limits(None, protocols.get("relink").limits()) == ()

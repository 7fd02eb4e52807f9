"""Every vector of every file of the directory holds: see harness.py for which directory, and who runs which file."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.harness import RUNNERS, directory, files, vectors

from wirelake.protocols import names


def test_a_vector_holds(file, vector):
    RUNNERS[file.name](vector)


def test_a_file_has_a_runner_and_vectors(file):
    assert file.name in RUNNERS, f"nothing here runs the vectors of {file}: add a runner to tests/conformance/harness.py"
    assert vectors(file), f"{file} has no vectors"


def test_there_are_vectors():
    assert files(), f"no vectors in {directory()}"


def test_every_room_has_vectors():
    assert {room.replace("_", "-") for room in names()} <= {Path(name).stem for name in RUNNERS}

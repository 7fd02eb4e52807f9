"""Every vector of every file of the directory holds: see harness.py for which directory, and who runs which file."""

from __future__ import annotations

from tests.conformance.harness import RUNNERS, UNBUILT, directory, files, vectors

from wirelake.protocols import ROOMS


def test_a_vector_holds(file, vector):
    RUNNERS[file.name](vector)


def test_a_file_has_a_runner_and_vectors(file):
    assert file.name in RUNNERS, f"nothing here runs the vectors of {file}: add a runner to tests/conformance/harness.py"
    assert vectors(file), f"{file} has no vectors"


def test_there_are_vectors():
    assert files(), f"no vectors in {directory()}"


def test_only_rooms_that_are_not_built_are_passed_over():
    built = tuple(room.replace("_", "-") for room in ROOMS)
    assert [name for name in sorted(UNBUILT) if name.startswith(built)] == []
    assert not UNBUILT & set(RUNNERS)

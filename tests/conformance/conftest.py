"""One test per vector and one per file, found when tests are collected."""

from __future__ import annotations

from tests.conformance.harness import RUNNERS, files, label, vectors


def pytest_generate_tests(metafunc) -> None:
    if {"file", "vector"} <= set(metafunc.fixturenames):
        cases = [(path, index, one) for path in files() if path.name in RUNNERS for index, one in enumerate(vectors(path))]
        metafunc.parametrize(("file", "vector"), [(path, one) for path, _, one in cases], ids=[label(*case) for case in cases])
    elif "file" in metafunc.fixturenames:
        metafunc.parametrize("file", files(), ids=lambda path: path.name)

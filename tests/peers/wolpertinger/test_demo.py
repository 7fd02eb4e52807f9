"""The conversation of the demo: it ends, and its recording holds what it is meant to show."""

from __future__ import annotations

from tests.peers.wolpertinger.test_recording import lines_of
from tests.peers.world import log_of, run

from wirelake.peers.demo import wolpertinger


def test_the_show_is_recorded_with_calls_fragments_encryption_and_trouble(tmp_path):
    steps = []

    async def main():
        return await wolpertinger.record(tmp_path, 400, lambda done, total: steps.append((done, total)))

    with log_of("wirelake.wolpertinger"):
        (path,) = run(main)
    said = lines_of(path)
    to_server, to_client = b"\n".join(said[True]), b"\n".join(said[False])
    assert steps[-1] == (400, 400)
    assert len(said[True]) > 800
    for piece in (b"encryption:aes;", b"fragment_count:3;", b"signature:", b"not a message at all"):
        assert piece in to_server
    for answer in (b"result:0;", b"result:3;message_id:2;", b"result:4;message_id:3;", b"result:5;message_id:1;"):
        assert answer in to_client

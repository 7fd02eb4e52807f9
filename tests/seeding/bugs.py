"""Forty-two small bugs, spread over the code base, and the tests that should catch each.

Each bug is one replacement of a text that its file has exactly once. The tests named with it are those that know the rule best:
a run of all bugs stays affordable. At most six bugs need Spark.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["BUGS", "Bug"]


class Bug(NamedTuple):
    """One mistake that a programmer could make."""

    name: str
    file: str
    """Below `src/wirelake`."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Files, or files with a test's name, below `tests`."""
    needs_spark: bool = False


BUGS: Final = (
    # Scanners: offsets, limits, bits.
    Bug(
        "emp-limit-is-exclusive",
        "protocols/emp/scanner.py",
        "lost = size < HEADER or size > max_size",
        "lost = size < HEADER or size >= max_size",
        ("protocols/emp/test_scanner.py",),
    ),
    Bug(
        "emp-compressed-data-refused",
        "protocols/emp/scanner.py",
        "if kind < _DATA:  # EMP-15",
        "if kind <= _DATA:  # EMP-15",
        ("protocols/emp/test_scanner.py",),
    ),
    Bug(
        "mesh-character-across-pieces",
        "protocols/event_mesh/scanner.py",
        "if pending > 0 and stop - start < LONGEST_FIELD:",
        "if pending > 0 and stop - start <= LONGEST_FIELD:",
        ("protocols/event_mesh/test_scanner.py",),
    ),
    Bug(
        "relink-part-limit-is-exclusive",
        "protocols/relink/scanner.py",
        "if size_of_part < 0 or size_of_part > max_part:",
        "if size_of_part < 0 or size_of_part >= max_part:",
        ("protocols/relink/test_scanner.py",),
    ),
    Bug(
        "yamp-odd-bool-unnoticed",
        "protocols/yamp/scanner.py",
        "elif code > 1:  # YAMP-28",
        "elif code > 2:  # YAMP-28",
        ("protocols/yamp/test_scanner.py",),
    ),
    Bug(
        "websocket-mask-loses-its-turn",
        "protocols/websocket.py",
        "state[TURN] = (state[TURN] + size) & 3",
        "state[TURN] = size & 3",
        ("protocols/test_websocket.py",),
    ),
    # State machines.
    Bug(
        "emp-second-bye-does-not-close",
        "protocols/emp/state_machine.py",
        "(State.CLIENT_LEFT, SERVER, Bye): State.CLOSED,",
        "(State.CLIENT_LEFT, SERVER, Bye): State.CLIENT_LEFT,",
        ("protocols/emp/test_state_machine.py", "protocols/test_state_machines.py"),
    ),
    Bug(
        "relink-early-request-forgotten",
        "protocols/relink/state_machine.py",
        "(State.EARLY, LISTENER, Version): State.REQUESTED,",
        "(State.EARLY, LISTENER, Version): State.GREETED,",
        ("protocols/relink/test_state_machine.py", "protocols/test_state_machines.py", "protocols/relink/test_handshake.py"),
    ),
    Bug(
        "yamp-client-may-close-too-soon",
        "protocols/yamp/state_machine.py",
        "State.CLIENT_LEFT for state in (State.CLIENT_GREETED, State.OPEN)},",
        "State.CLIENT_LEFT for state in (State.CONNECTED, State.CLIENT_GREETED, State.OPEN)},",
        ("protocols/yamp/test_state_machine.py", "protocols/test_state_machines.py"),
    ),
    Bug(
        "wolpertinger-stays-encrypted",
        "protocols/wolpertinger/state_machine.py",
        "**{(State.ENCRYPTED, speaker, EncryptionError): State.CLEAR for speaker in Speaker},",
        "**{(State.ENCRYPTED, speaker, EncryptionError): State.ENCRYPTED for speaker in Speaker},",
        ("protocols/wolpertinger/test_state_machine.py", "protocols/test_state_machines.py"),
    ),
    # Sessions.
    Bug(
        "emp-handshake-times-out-late",
        "protocols/emp/session.py",
        "now >= self._handshake_deadline:",
        "now > self._handshake_deadline:",
        ("protocols/emp/test_faults.py", "protocols/emp/test_rulings.py"),
    ),
    Bug(
        "emp-answers-out-of-order",
        "protocols/emp/requests.py",
        "while self._order and self._order[0] in self._held:",
        "if self._order and self._order[0] in self._held:",
        ("protocols/emp/test_requests.py",),
    ),
    Bug(
        "mesh-replay-at-the-last-moment",
        "protocols/event_mesh/security/replay.py",
        "            if now <= until:\n                return Fault.REPLAY",
        "            if now < until:\n                return Fault.REPLAY",
        ("protocols/event_mesh/test_replay.py",),
    ),
    Bug(
        "mesh-key-id-is-ignored",
        "protocols/event_mesh/security/verify.py",
        "known = store.lookup(node_id, auth_key_id, now)",
        "known = store.lookup(node_id, None, now)",
        ("protocols/event_mesh/test_verify.py",),
    ),
    Bug(
        "relink-acknowledges-one-too-many",
        "protocols/relink/link/sequence.py",
        "if distance > most:",
        "if distance > most + 1:",
        ("protocols/relink/test_transactions.py", "protocols/relink/test_acknowledging.py"),
    ),
    Bug(
        "relink-decisions-are-not-repeated",
        "protocols/relink/link/outgoing_channel.py",
        "        yield from self.repeated_decisions()\n",
        "",
        ("protocols/relink/test_reconnect.py", "protocols/relink/test_transactions.py"),
    ),
    Bug(
        "relink-pings-pile-up",
        "protocols/relink/keepalive.py",
        "return self._ping_after is not None and not self._pings and now",
        "return self._ping_after is not None and now",
        ("protocols/relink/test_keepalive.py", "protocols/relink/test_closing.py", "protocols/relink/test_session_properties.py"),
    ),
    Bug(
        "yamp-progress-does-not-restart-the-timer",
        "protocols/yamp/session.py",
        "            self._requests.restart(uid, now)",
        "            pass",
        ("protocols/yamp/test_session_time.py", "protocols/yamp/test_rulings.py"),
    ),
    Bug(
        "wolpertinger-fragments-expire-early",
        "protocols/wolpertinger/layer1/fragments.py",
        "self._due.set(piece.message_id, now + self._timeout * count)",
        "self._due.set(piece.message_id, now + self._timeout)",
        ("protocols/wolpertinger/test_fragments.py", "protocols/wolpertinger/test_rulings_texts.py"),
    ),
    Bug(
        "wolpertinger-remembers-for-ever",
        "protocols/wolpertinger/layer1/confirmation.py",
        "return known is not None and known[0] == digest and now < known[1]",
        "return known is not None and known[0] == digest",
        ("protocols/wolpertinger/test_rulings_texts.py", "protocols/wolpertinger/test_hostile.py"),
    ),
    # Analyzers and faults.
    Bug(
        "emp-pong-timeout-counts-all-bytes",
        "protocols/emp/analyzer.py",
        "(self.carried - ping.carried) * _MICROS_A_BYTE",
        "self.carried * _MICROS_A_BYTE",
        ("protocols/emp/test_analyzer.py",),
    ),
    Bug(
        "relink-forgets-how-much-was-ever-sent",
        "protocols/relink/channel_analyzer.py",
        "self.sent_ever = sent if was_ever is None else max(was_ever, sent)",
        "self.sent_ever = sent",
        ("protocols/relink/test_analyzer.py", "protocols/test_analyzer.py"),
    ),
    Bug(
        "yamp-echo-of-another-version",
        "protocols/yamp/analyzer.py",
        "is_accepted = echo is not None and echo == wanted and echo.version == VERSION",
        "is_accepted = echo is not None and echo == wanted",
        ("protocols/yamp/test_analyzer.py",),
    ),
    # Peers.
    Bug(
        "peer-never-gives-up-a-stalled-reader",
        "peers/driver.py",
        "if self._gone > before or self._session.ended is not None:",
        "if self._gone >= before or self._session.ended is not None:",
        ("peers/test_pressure.py",),
    ),
    Bug(
        "client-stays-where-it-was-redirected-to",
        "peers/client.py",
        "            self.target, self._hops = self._home, 0",
        "            self._hops = 0",
        ("peers/yamp/test_redirects.py",),
    ),
    Bug(
        "server-counts-hosts-that-left",
        "peers/server.py",
        "        self._hosts[host] -= 1\n",
        "",
        ("peers/test_admission.py", "peers/test_hostile.py"),
    ),
    Bug(
        "server-evicts-proven-peers-first",
        "peers/admission.py",
        "key=lambda one: (one.is_proven, one.active_at), default=None",
        "key=lambda one: (not one.is_proven, one.active_at), default=None",
        ("peers/test_admission.py",),
    ),
    # Transports.
    Bug(
        "udp-client-hears-strangers",
        "transports/udp_stream.py",
        "if source == self.remote and data:",
        "if data:",
        ("transports/test_unix_and_udp.py", "transports/test_udp.py"),
    ),
    Bug(
        "websocket-fragment-never-ends",
        "transports/websocket.py",
        "last = (len(message) - 1) // FRAGMENT * FRAGMENT",
        "last = len(message) // FRAGMENT * FRAGMENT",
        ("transports/test_websocket.py",),
    ),
    # Captures.
    Bug(
        "tcp-gap-is-counted-twice",
        "capture/packets/tcp_stream.py",
        "            self._missing = 0\n            self._next = start + len(chunk)",
        "            self._next = start + len(chunk)",
        ("capture/test_tcp_reassembly.py",),
    ),
    Bug(
        "second-last-fragment-decides-the-size",
        "capture/packets/ip_fragments.py",
        "if is_last and datagram.total < 0:",
        "if is_last:",
        ("capture/test_ip_fragments.py",),
    ),
    Bug(
        "follower-counts-files-without-news",
        "capture/files/growing.py",
        "count -= moved.at > position.at",
        "count -= 1",
        ("capture/test_growing.py",),
    ),
    Bug(
        "recorder-truncates-a-file-that-is-there",
        "capture/record/recorder.py",
        "flags | os.O_CREAT | os.O_EXCL",
        "flags | os.O_CREAT | os.O_TRUNC",
        ("capture/test_recorder.py",),
    ),
    # The lake: decoding, store, gold, jobs.
    Bug(
        "gap-inside-a-message-is-not-subtracted",
        "lake/decode/streams.py",
        "owed = whole - len(left.data) - segment.missing",
        "owed = whole - len(left.data)",
        ("lake/test_gaps.py", "lake/test_decode.py"),
    ),
    Bug(
        "index-skips-the-batch-it-is-at",
        "lake/store/commit.py",
        "if before <= (delta.batch(lake, table) or 0) < prepared.batch:",
        "if before < (delta.batch(lake, table) or 0) < prepared.batch:",
        ("lake/test_gold_commit.py", "lake/test_index_rows.py"),
        needs_spark=True,
    ),
    Bug(
        "violation-at-the-last-word-is-judged-early",
        "lake/gold/fold/sessions.py",
        "finding.ts == NO_TIME or finding.ts >= last_word",
        "finding.ts == NO_TIME or finding.ts > last_word",
        ("lake/test_cuts.py", "lake/test_histories.py"),
    ),
    Bug(
        "old-rows-of-a-connection-are-not-affected",
        "lake/gold/incremental/affected.py",
        "    touched[connections[is_new]] = True\n",
        "",
        ("lake/test_affected.py", "lake/test_gold.py"),
        needs_spark=True,
    ),
    Bug(
        "micro-batch-forgets-unrecognised-bytes",
        "lake/jobs/micro_batch.py",
        "unknown.extend(rows.pop(unrecognised.TABLE.name, []))",
        "rows.pop(unrecognised.TABLE.name, [])",
        ("lake/test_micro_batches.py", "lake/test_unrecognised.py"),
    ),
    Bug(
        "abort-removes-published-files",
        "lake/jobs/sink.py",
        "if path not in referenced[name]:",
        "if path:",
        ("lake/test_failures.py",),
    ),
    # Explore and the command line.
    Bug(
        "filter-excludes-what-it-should-find",
        "explore/reading/matching.py",
        "return lambda values: not part(values)",
        "return part",
        ("explore/test_filters.py",),
    ),
    Bug(
        "query-reaches-other-files",
        "explore/query.py",
        '    connection.execute("SET enable_external_access = false")\n',
        "",
        ("explore/test_query.py",),
    ),
    Bug(
        "decode-counts-offsets-wrongly",
        "cli/decode.py",
        "base = 0 if datagrams else seen - len(buffer.rest)",
        "base = 0 if datagrams else seen",
        ("cli/test_decode.py",),
    ),
)

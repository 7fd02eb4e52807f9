"""Reasons why we and tshark differ: every line of `explained.jsonl` names one of these.

It refuses to know files: the list says which.
"""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    # Packets, bytes and times, against capinfos.
    "32 bits": "A fraction of more than a second, or a time after 2038: capinfos keeps seconds and nanoseconds in 32 signed bits, which "
    "wrap; we add fraction and seconds. `Counts.wrapped` computes what capinfos does, and is equal to it in each of these.",
    "far apart": "As above, and capinfos compares times that wrapped: its earliest and latest are not those of the file.",
    "pseudo header": "capinfos does not count the four bytes of the ATM pseudo header, and its nanoseconds wrap.",
    "zeros": "A record of nothing but zeros is a hole in the file to us, and 37 empty packets at the beginning of 1970 to capinfos.",
    "link type": "capinfos refuses a file whose link type it does not know; the container is sound. We count the packets, as other.",
    "version": "capinfos refuses the version. We put the header into quarantine if its major version is unknown, and look for packets.",
    "padding": "The length of a block does not count its padding: capinfos reads such blocks only if they are packet blocks. We read all.",
    "damaged": "No block of the file agrees with itself: neither of us reads anything.",
    # Streams, against tshark.
    "read on": "Bytes are missing, nobody acknowledged them, and the capture ends: tshark leaves out what comes behind, we read it.",
    "counted from a keep-alive": "A stream without a beginning: tshark counts from a keep-alive one byte before the first data seen.",
    "two streams": "tshark makes two streams of segments that follow each other on the same ports without a gap; we make one.",
    "two answers": "A second SYN-ACK says another sequence number, which the client ignores; so do we. tshark loses the stream.",
    "port used again": "A SYN-ACK without its SYN on ports used before: a second connection to us, the same to tshark. One segment claims "
    "to be longer than its packet: what is there of it is read.",
    "acknowledged before it is seen": "An acknowledgement was captured before the segment: tshark declares a gap, we wait and have none.",
    "tunnel": "TCP inside GTP or Geneve: what is inside other protocols' tunnels is not for us.",
    "damaged on purpose": "Sequence numbers were overwritten: where segments belong is anybody's guess.",
}

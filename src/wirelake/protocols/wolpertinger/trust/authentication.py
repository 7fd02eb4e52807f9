"""Authentication in both roles: answers to calls, and our own steps (WOLP-22 to WOLP-27).

The calls are those of the component Authentication. Functions return the calls and answers to send; `session.py` sends them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast
from uuid import UUID

import msgspec

from wirelake.errors import LocalProtocolError, RemoteProtocolError
from wirelake.protocols.rates import Buckets
from wirelake.protocols.wolpertinger.events import Step
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.values import Value
from wirelake.protocols.wolpertinger.options import HIGHEST_TRUST, Method, Options
from wirelake.protocols.wolpertinger.trust import key_agreement
from wirelake.protocols.wolpertinger.trust.key_agreement import Curve
from wirelake.protocols.wolpertinger.trust.state import TrustState
from wirelake.protocols.wolpertinger.wire import Keys

__all__ = ["METHODS", "Ask", "Authentication", "Draw", "Progress", "Verdict"]

Draw = Callable[[int], bytes]
"""Gives so many random bytes, as `os.urandom` does."""

METHODS: Final = {
    "EstablishConnection": Method((), trust=0),
    "KeyExchange": Method(("string", "string"), trust=1),
    "ClusterAuthGetToken": Method((), trust=2),
    "ClusterAuthVerify": Method(("string",), trust=2),
    # Only a proven member of the cluster may ask for a proof: else it could send us our own token, and use our answer.
    "ClusterAuthRequestVerification": Method(("string",), returns=False, trust=3),
    "ClusterAuthInitiate": Method(("string",), returns=False, trust=3),  # WOLP-26
    "UserAuthGetToken": Method((), trust=2),
    "UserAuthVerify": Method(("string", "string"), trust=2),
    "AwardTrustLevel": Method(("int32",), returns=False, trust=0),
}
"""The methods of the component Authentication."""

_RATE: Final = 1 / 6
_BURST: Final = 10
"""WOLP-25: proofs that are looked at, unless options say otherwise: 10, then 10 a minute."""


class Ask(msgspec.Struct, frozen=True):
    """A call to make."""

    step: Step
    method: str
    parameters: tuple[Value, ...] = ()
    returns: bool = True


class Verdict(msgspec.Struct, frozen=True):
    """The answer to a call of the peer, and what to do after it (WOLP-25)."""

    trust_state: TrustState
    value: Value | None = None
    fault: Fault | None = None
    """Instead of a value: the rule that the call breaks."""
    reset: bool = False
    ask: Ask | None = None


class Progress(msgspec.Struct, frozen=True):
    """The consequence of an answer to a call of ours."""

    trust_state: TrustState
    ask: Ask | None = None
    reached: int | None = None
    """The level that was asked for is there."""
    fault: Fault | None = None
    """A step failed: the connection is reset."""


class _Goal(msgspec.Struct):
    """The level that `authenticate` asked for, and the current step."""

    level: int
    user: str
    password: str
    step: Step
    waits_until: float | None = None
    """CLUSTER_BACK: the peer knows our token, and has so long to prove itself."""


class Authentication:
    """The state of trust that is not yet gained."""

    def __init__(self, options: Options, draw: Draw) -> None:
        self._options = options
        self._draw = draw
        self._attempts = Buckets(_RATE, _BURST, 1) if options.attempts is None else options.attempts
        self._tokens: dict[Step, tuple[bytes, float]] = {}
        self.goal: _Goal | None = None
        """The trust we want and do not have yet."""
        self.offer: tuple[key_agreement.PrivateKey, bytes] | None = None
        """WOLP-24: the key and IV of a KeyExchange of ours that is not answered yet.

        Other messages have to wait, because their keys are not known yet.
        """

    @property
    def step(self) -> Step | None:
        """Which step of ours is on its way."""
        return None if self.goal is None else self.goal.step

    @property
    def deadline(self) -> float | None:
        """When the peer's proof is late."""
        return None if self.goal is None else self.goal.waits_until

    def clear(self) -> Step | None:
        """WOLP-28: forget everything; gives the step that failed by that."""
        step = self.step
        self._tokens.clear()
        self.goal = self.offer = None
        return step

    # Calls of the peer.

    def answer(self, method: str, parameters: tuple[Value, ...], trust_state: TrustState, now: float) -> Verdict:
        """The answer to a call whose parameters and trust were checked."""
        if method == "EstablishConnection":  # WOLP-23
            admitted = self._options.admit
            return Verdict(trust_state.raised(granted=1, held=1) if admitted else trust_state, admitted)
        if method == "AwardTrustLevel":  # WOLP-27
            return Verdict(msgspec.structs.replace(trust_state, awarded=cast(int, parameters[0])))
        if method in ("ClusterAuthGetToken", "UserAuthGetToken"):
            step = Step.CLUSTER if method == "ClusterAuthGetToken" else Step.USER
            return Verdict(trust_state, key_agreement.to_text(self._token(step, now)))
        texts = [str(parameter) for parameter in parameters]
        try:
            if method == "KeyExchange":
                return self._exchange(texts[0], texts[1], trust_state)
            if method == "ClusterAuthVerify":
                return self._verify(
                    key_agreement.read_text(texts[0]), self._cluster_tokens(now), self._options.cluster_key, 3, trust_state, now
                )
            if method == "UserAuthVerify":
                return self._verify_user(texts[0], key_agreement.read_text(texts[1]), trust_state, now)
            return self._prove(key_agreement.read_text(texts[0]), trust_state)
        except RemoteProtocolError:
            return Verdict(trust_state, fault=Fault.KEY_INVALID)

    def _token(self, step: Step, now: float) -> bytes:
        """WOLP-25: 32 random bytes that can be used once, and not for long."""
        token = self._draw(key_agreement.TOKEN_SIZE)
        self._tokens[step] = (token, now + self._options.token_life)
        return token

    def _used(self, step: Step, now: float) -> bytes | None:
        """A token that was given out and is still good; it is not any more."""
        token, until = self._tokens.pop(step, (None, now))
        return token if now < until else None

    def _cluster_tokens(self, now: float) -> list[bytes]:
        """The token a member of the cluster may prove itself with: the one it asked for, or the one we sent."""
        tokens = (self._used(Step.CLUSTER, now), self._used(Step.CLUSTER_BACK, now))
        return [token for token in tokens if token is not None]

    def _exchange(self, blob: str, iv: str, trust_state: TrustState) -> Verdict:
        """WOLP-24: a fresh key on the caller's curve."""
        if self.offer is not None:
            return Verdict(trust_state, fault=Fault.KEYS_CROSSED)
        chosen = key_agreement.read_iv(iv)
        theirs = key_agreement.read_blob(key_agreement.read_text(blob))
        own = key_agreement.make_key(key_agreement.curve_of(theirs), self._draw)
        keys = Keys(key_agreement.session_key(own, theirs), chosen)
        return Verdict(trust_state.raised(granted=2, held=2, keys=keys), key_agreement.to_text(key_agreement.public_blob(own)))

    def _verify(
        self, proof: bytes, tokens: list[bytes], cluster_key: bytes | None, level: int, trust_state: TrustState, now: float
    ) -> Verdict:
        """WOLP-25: check a proof of the cluster key; the answer does not reveal what is wrong."""
        expected = [key_agreement.cluster_proof(cluster_key or b"", token) for token in tokens]
        return self._judged(proof, expected, cluster_key is not None, level, trust_state, now)

    def _verify_user(self, name: str, proof: bytes, trust_state: TrustState, now: float) -> Verdict:
        token = self._used(Step.USER, now)
        password = None if self._options.password_of is None else self._options.password_of(name.lower())
        expected = [] if token is None else [key_agreement.user_proof(password or "", token)]
        verdict = self._judged(proof, expected, password is not None, HIGHEST_TRUST, trust_state, now)
        if verdict.reset:
            return verdict
        return msgspec.structs.replace(verdict, trust_state=msgspec.structs.replace(verdict.trust_state, user=name.lower()))

    def _judged(self, proof: bytes, expected: list[bytes], possible: bool, level: int, trust_state: TrustState, now: float) -> Verdict:
        allowed = self._attempts.take(self._options.source, now)
        good = [key_agreement.is_same(proof, one) for one in expected]
        if allowed and possible and any(good):
            return Verdict(trust_state.raised(granted=level), True)
        return Verdict(trust_state, False, reset=True)

    def _prove(self, token: bytes, trust_state: TrustState) -> Verdict:
        """WOLP-26: prove to a member of the cluster that we are one."""
        if self._options.cluster_key is None or any(token == own for own, _ in self._tokens.values()):
            return Verdict(trust_state, reset=True)
        proof = key_agreement.cluster_proof(self._options.cluster_key, token)
        return Verdict(trust_state, ask=Ask(Step.CLUSTER_BACK, "ClusterAuthVerify", (key_agreement.to_text(proof),)))

    # Calls of ours.

    def begin(self, level: int, trust_state: TrustState, user: str, password: str, now: float) -> Progress:
        """The first step towards a level; raises LocalProtocolError if that cannot be wanted now."""
        if self.goal is not None or not 1 <= level <= HIGHEST_TRUST:
            raise LocalProtocolError(Fault.STEP_OUT_OF_ORDER, f"level {level}")
        if (level == 3 and self._options.cluster_key is None) or (level == HIGHEST_TRUST and not user):
            raise LocalProtocolError(Fault.STEP_OUT_OF_ORDER, f"level {level} needs a cluster key, or a user")
        self.goal = _Goal(level, user, password, Step.ESTABLISH)
        return self._next(trust_state, now)

    def answered(self, step: Step, method: str, value: Value | None, trust_state: TrustState, now: float) -> Progress:
        """The peer answered a call of ours; of a call without a response, that it arrived."""
        if step is Step.CLUSTER_BACK and method == "ClusterAuthVerify":  # the peer's goal, not ours
            return Progress(trust_state.raised(held=3)) if value is True else Progress(trust_state, fault=Fault.PROOF_WRONG)
        if self.goal is None:
            return Progress(trust_state)
        try:
            return self._went_on(step, method, value, trust_state, now)
        except RemoteProtocolError:
            return Progress(trust_state, fault=Fault.ANSWER_WRONG)

    def _went_on(self, step: Step, method: str, value: Value | None, trust_state: TrustState, now: float) -> Progress:
        if method in ("ClusterAuthGetToken", "UserAuthGetToken"):
            return Progress(trust_state, self._proof(step, key_agreement.read_text(value if isinstance(value, str) else "?")))
        if step is Step.ESTABLISH:
            if not _is_yes(value):
                return Progress(trust_state, fault=Fault.ANSWER_WRONG)
            trust_state = trust_state.raised(granted=1, held=1)
        elif step is Step.KEYS:
            own, iv = self.offer or (None, b"")
            self.offer = None
            if own is None or not isinstance(value, str):
                return Progress(trust_state, fault=Fault.ANSWER_WRONG)
            theirs = key_agreement.read_blob(key_agreement.read_text(value))
            trust_state = trust_state.raised(granted=2, held=2, keys=Keys(key_agreement.session_key(own, theirs), iv))
        elif step is not Step.CLUSTER_BACK:
            if value is not True:
                return Progress(trust_state, fault=Fault.PROOF_WRONG)
            trust_state = trust_state.raised(held=3 if step is Step.CLUSTER else HIGHEST_TRUST)
        elif trust_state.granted < 3:
            assert self.goal is not None  # noqa: S101 - see answered
            self.goal.waits_until = now + self._options.call_timeout
            return Progress(trust_state)
        return self._next(trust_state, now)

    def proven(self, trust_state: TrustState, now: float) -> Progress:
        """The peer proved itself: if that is what we waited for, the next step follows."""
        if self.goal is None or self.goal.waits_until is None or trust_state.granted < 3:
            return Progress(trust_state)
        return self._next(trust_state, now)

    def _next(self, trust_state: TrustState, now: float) -> Progress:
        """The next step towards our goal, or that it is reached."""
        goal = self.goal
        assert goal is not None  # noqa: S101 - every caller has checked
        goal.waits_until = None
        in_cluster = goal.level >= 3 and self._options.cluster_key is not None
        if trust_state.held < 1:
            ask = Ask(Step.ESTABLISH, "EstablishConnection")
        elif goal.level >= 2 and trust_state.keys is None:
            ask = self._offered()
        elif in_cluster and trust_state.held < 3:
            ask = Ask(Step.CLUSTER, "ClusterAuthGetToken")
        elif in_cluster and trust_state.granted < 3:
            token = key_agreement.to_text(self._token(Step.CLUSTER_BACK, now))
            ask = Ask(Step.CLUSTER_BACK, "ClusterAuthRequestVerification", (token,), returns=False)
        elif goal.level == HIGHEST_TRUST and trust_state.held < HIGHEST_TRUST:
            ask = Ask(Step.USER, "UserAuthGetToken")
        else:
            self.goal = None
            return Progress(trust_state, reached=goal.level)
        goal.step = ask.step
        return Progress(trust_state, ask)

    def _offered(self) -> Ask:
        """WOLP-24: a fresh key on P-521, and the IV of both directions."""
        own, iv = key_agreement.make_key(Curve.P521, self._draw), self._draw(key_agreement.IV_SIZE)
        self.offer = (own, iv)
        return Ask(Step.KEYS, "KeyExchange", (key_agreement.to_text(key_agreement.public_blob(own)), key_agreement.to_text(iv)))

    def _proof(self, step: Step, token: bytes) -> Ask:
        goal = self.goal
        assert goal is not None  # noqa: S101 - see answered
        if step is Step.USER:
            proof = key_agreement.to_text(key_agreement.user_proof(goal.password, token))
            return Ask(step, "UserAuthVerify", (goal.user, proof))
        proof = key_agreement.to_text(key_agreement.cluster_proof(self._options.cluster_key or b"", token))
        return Ask(step, "ClusterAuthVerify", (proof,))


def _is_yes(value: Value | None) -> bool:
    """WOLP-23: true, or the identifier of a resource that is not all zeros."""
    if isinstance(value, bool):
        return value
    try:
        return UUID(str(value)).int != 0 if isinstance(value, str | UUID) else False
    except ValueError:
        return False

"""Accountant: the memory that strangers make this side keep, by holder, host and server, and what happens beyond a budget.

It does not import protocols or sockets: holders report numbers, and do what a budget asks of them. The design is in
`docs/architecture.md`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Final, Protocol

__all__ = ["HANDLER", "UNREAD", "Account", "Accountant", "Holder"]

CONNECTION: Final = 32 * 1024
"""Bytes of memory that a connection takes by itself: session, driver, transport, task."""
HANDLER: Final = 2048
"""Bytes that a message with a handler takes beside its body: two coroutines, a task, entries in tables."""
UNREAD: Final = 256
"""Bytes that a message without a handler takes beside its body."""
STEP: Final = 4096
"""Bytes of change that an account passes on to its budgets at once."""
UNFINISHED_SHARE: Final = 8
"""Unfinished input is given up if it is at least this part of what is kept; otherwise the largest holder is closed."""
TRIM_FROM: Final = 16 * 1024 * 1024
"""Bytes that were freed since the last time, from which a sweep gives memory back to the system."""

_ORDER: Final = itertools.count(1)


class Holder(Protocol):
    """A connection, or a link without one: what an account belongs to."""

    @property
    def host(self) -> str:
        """Where it comes from."""

    def refresh(self) -> None:
        """Report to the account what changes without reads."""

    def balance(self) -> None:
        """Stop reading, or read again: the budgets of the account have become tight, or have space."""

    def refuse_oldest(self, reason: str) -> None:
        """Give up the oldest unfinished input of the peer, with the answer that the protocol has."""

    def evict(self, reason: str) -> None:
        """Close at once, and free what is kept."""


class Budget:
    """The accounts of one host, or of all hosts."""

    __slots__ = ("accounts", "host", "is_tight", "limit", "total")

    def __init__(self, limit: int, host: str = "") -> None:
        self.host = host
        self.limit = limit
        self.total = 0
        self.is_tight = False
        """Three quarters are used, and half is not free yet."""
        self.accounts: dict[Account, None] = {}


class Account:
    """The memory that is kept for one holder, in bytes. Without budgets it has no other limit than its own."""

    __slots__ = (
        "_accountant",
        "_holder",
        "_passed",
        "budgets",
        "inboxes",
        "max_memory",
        "since",
        "size",
        "tight",
        "unfinished",
        "unsent",
        "waiting",
    )

    def __init__(self, holder: Holder | None, max_memory: int) -> None:
        self._holder: Callable[[], Holder | None] = weakref.ref(holder) if holder is not None else _no_holder
        self.max_memory = max_memory
        """Bytes that may wait for handlers, and in inboxes."""
        self.waiting = 0
        """Messages with a handler or before one, and unread ones."""
        self.unfinished = 0
        """What only further input of the peer completes."""
        self.since = 0
        """The place of `unfinished` in the order of age: renewed when half of it is gone."""
        self.unsent = 0
        """Output that the peer does not read, and what it does not confirm."""
        self.inboxes = 0
        """Events for subscribers."""
        self.size = 0
        """All of it together."""
        self.budgets: tuple[Budget, ...] = ()
        self.tight = 0
        """How many of the budgets are tight."""
        self._passed = 0
        self._accountant: Accountant | None = None

    @property
    def holder(self) -> Holder | None:
        """What it belongs to; None when that is gone."""
        return self._holder()

    def is_full(self, *, was_full: bool = False) -> bool:
        """Whether to read no more, until handlers have freed memory: half of it, once it was full."""
        return self.waiting >= (self.max_memory // 2 if was_full else self.max_memory) or (self.tight > 0 and self.waiting > 0)

    def wait(self, size: int) -> None:
        """So much more waits for handlers and readers; less, if it is negative."""
        self.waiting += size
        self._add(size)

    def admits(self, size: int) -> bool:
        """Whether so much more fits into inboxes; if so, it is charged."""
        if self.inboxes + size > self.max_memory or self.tight:
            return False
        self.inboxes += size
        self._add(size)
        return True

    def taken(self, size: int) -> None:
        """So much was taken out of an inbox."""
        self.inboxes -= size
        self._add(-size)

    def report_unfinished(self, size: int) -> None:
        """So much is unfinished now."""
        before = self.unfinished
        if size != before:
            if not before or size * 2 < before:
                self.since = next(_ORDER)
            self.unfinished = size
            self._add(size - before)

    def report_unsent(self, size: int) -> None:
        """So much is unsent now."""
        before, self.unsent = self.unsent, size
        self._add(size - before)

    def close(self) -> None:
        """Nothing is kept any more."""
        if self._accountant is not None:
            self._accountant.close(self)
        self.waiting = self.unfinished = self.unsent = self.inboxes = self.size = 0

    def join(self, accountant: Accountant | None, budgets: tuple[Budget, ...]) -> None:
        """Be in these budgets from now on."""
        self._accountant, self.budgets, self._passed = accountant, budgets, 0
        self.tight = sum(budget.is_tight for budget in budgets)
        if accountant is not None:
            self._pass_on()

    def _add(self, size: int) -> None:
        self.size += size
        if not -STEP < self.size - self._passed < STEP and self._accountant is not None:
            self._pass_on()

    def _pass_on(self) -> None:
        change, self._passed = self.size - self._passed, self.size
        if self._accountant is not None:
            self._accountant.change(self.budgets, change)

    @property
    def passed(self) -> int:
        """What the budgets know of it."""
        return self._passed


def _no_holder() -> None:
    """For accounts that are in no budgets."""


class Accountant:
    """The budgets of a server: what all holders keep, and by host."""

    def __init__(self, max_memory: int, max_memory_per_host: int) -> None:
        self._max_memory_per_host = max_memory_per_host
        self._all = Budget(max_memory)
        self._hosts: dict[str, Budget] = {}
        self._is_enforcing = False
        self._freed = 0
        """Bytes that were freed since memory was given back to the system."""

    @property
    def total(self) -> int:
        """Bytes that are kept."""
        return self._all.total

    def open(self, account: Account, host: str) -> None:
        """Charge an account to its host from now on."""
        budget = self._hosts.get(host)
        if budget is None:
            budget = self._hosts[host] = Budget(self._max_memory_per_host, host)
        budget.accounts[account] = None
        self._all.accounts[account] = None
        account.size += CONNECTION
        account.join(self, (budget, self._all))

    def close(self, account: Account) -> None:
        """Take an account out of the budgets."""
        budgets, passed = account.budgets, account.passed
        account.join(None, ())
        for budget in budgets:
            budget.accounts.pop(account, None)
        self.change(budgets, -passed)
        if budgets and not budgets[0].accounts:
            self._hosts.pop(budgets[0].host, None)

    def change(self, budgets: tuple[Budget, ...], size: int) -> None:
        """So much more is kept; less, if it is negative."""
        if size < 0:
            self._freed -= size
        for budget in budgets:
            budget.total += size
        for budget in budgets:
            if budget.total > budget.limit:
                self._enforce(budget)
            is_tight = budget.total * 2 >= budget.limit if budget.is_tight else budget.total * 4 >= budget.limit * 3
            if is_tight is not budget.is_tight:
                self._tell(budget, is_tight)

    def sweep(self) -> None:
        """Look at what changes without reads, and give memory back to the system."""
        self._refresh(self._all.accounts)
        if self._freed >= TRIM_FROM:
            self._freed = 0
            _trim()

    # Inside.

    def _tell(self, budget: Budget, is_tight: bool) -> None:
        budget.is_tight = is_tight
        for account in list(budget.accounts):
            account.tight += 1 if is_tight else -1
            if (holder := account.holder) is not None and account.waiting:
                holder.balance()

    def _refresh(self, accounts: Iterable[Account]) -> None:
        for account in list(accounts):
            if (holder := account.holder) is not None:
                holder.refresh()

    def _enforce(self, budget: Budget) -> None:
        """Give up unfinished input, or close holders, until what is kept is within the limit."""
        if self._is_enforcing:
            return
        self._is_enforcing = True
        try:
            self._refresh([one for one in budget.accounts if one.unsent])
            while budget.total > budget.limit and budget.accounts:
                host = max(self._hosts.values(), key=lambda one: one.total) if budget is self._all else budget
                self._free(host)
        finally:
            self._is_enforcing = False

    def _free(self, host: Budget) -> None:
        """Free memory of one host: the oldest unfinished input, or all of the largest holder."""
        accounts, reason = host.accounts, f"connections of its host keep {host.total:,} bytes of memory together"
        unfinished = sum(one.unfinished for one in accounts)
        if unfinished * UNFINISHED_SHARE >= host.total:
            mean = unfinished / len(accounts)
            victim = min((one for one in accounts if one.unfinished >= mean), key=lambda one: one.since)
            before = victim.size
            if (holder := victim.holder) is not None:
                holder.refuse_oldest(reason)
            if victim.size < before:
                return
        else:
            victim = max(accounts, key=lambda one: one.size)
        if (holder := victim.holder) is not None:
            holder.evict(reason)
        victim.close()


def _trim() -> None:
    """Give free pages back to the system, where the C library can."""
    import ctypes  # noqa: PLC0415 - most processes never come here

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):  # not glibc
        return
    trim(0)

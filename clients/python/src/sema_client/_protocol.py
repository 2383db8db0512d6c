"""What a client says to the server, and what it makes of the answers.

There is no I/O here and no thread. Each function is a generator: it yields what is
to be done, a Request or a Pause, and is sent the Answer, or None where there was
none. So the client for threads and the one for asyncio behave the same.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

DEFAULT_URL = "http://127.0.0.1:7362"
LONGEST_WAIT = 3600.0  # seconds of one long poll
GRACE = 15.0  # seconds that the server has beyond a wait to answer

T = TypeVar("T")


class SemaError(Exception):
    """Any error of this package."""


class Unavailable(SemaError):
    """No permit was free in time. The semaphore is as it was."""


class Unreachable(SemaError):
    """The server, or what keeps its semaphores, did not answer for too long."""


class Refused(SemaError):
    """The request is wrong, or not allowed. Nothing was changed."""

    def __init__(self, status: int, kind: str, detail: str, at: dict[str, Any] | None = None) -> None:
        super().__init__(f"{detail} ({status} {kind})")
        self.status = status
        self.kind = kind  # such as "urn:sema:too-heavy"; stays the same for ever
        self.at = at  # what the request can never fit into: {"key": …, "cap": …} or {"pool": …, "limit": …}; None: the limit


class PermitLost(SemaError):
    """The permit is not held any more: somebody else may have it."""


def checked(what: str, value: Any, into: Callable[[Any], T], want: str) -> T:
    """The value, converted. An error says which value it is, as the server's do."""
    try:
        return into(value)
    except (TypeError, ValueError):
        raise Refused(400, "urn:sema:argument", f"{what} {value!r:.60}: want {want}") from None


def seconds(value: Any) -> float:
    if math.isnan(value):
        raise ValueError
    return float(value)


def amount(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError
    return value


def names(value: Any) -> list[str]:
    found = list(value)
    if not all(isinstance(name, str) for name in found):
        raise TypeError
    return found


def part_of_path(name: Any) -> str:
    """A name in a path, where . and .. would be directories."""
    part = quote(name, safe="")
    return part.replace(".", "%2E") if part in (".", "..") else part


def now() -> float:
    """Seconds of a clock that nobody sets, and that goes on while the machine sleeps where the system has one."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


@dataclass(frozen=True)
class Server:
    """Where the server is, and what it has to be shown."""

    url: str
    token: str | None

    @classmethod
    def find(cls, url: str | None, token: str | None) -> Server:
        url = url or os.environ.get("SEMA_URL") or DEFAULT_URL
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ValueError(f"sema: the URL of the server is {parts.scheme}://{parts.hostname or ''}…; want http://HOST:PORT or https://HOST")
        return cls(url.rstrip("/"), token or os.environ.get("SEMA_SERVER_TOKEN"))

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        return headers


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: dict[str, Any] | None
    timeout: float  # seconds


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Answer:
    status: int
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.body.get("type", "")).removeprefix("urn:sema:")

    def refused(self) -> Refused:
        return Refused(self.status, str(self.body.get("type", "")), str(self.body.get("detail", "no reason was given")), self.body.get("at"))

    def lost(self) -> PermitLost:
        return PermitLost(str(self.body.get("detail", "the permit is gone")))

    @property
    def again(self) -> float | None:
        """Seconds after which the same request may succeed; None: it will not."""
        if self.status not in (408, 425, 500, 502, 503, 504) and self.kind != "guessing":
            return None
        after = self.body.get("retryAfter")
        return min(5.0, max(0.1, after if isinstance(after, (int, float)) else 1.0))


Steps = Generator["Request | Pause", "Answer | None", Any]


@dataclass
class Wish:
    """What is asked for."""

    name: str
    limit: int
    lease: float = 30.0
    weight: int = 1
    label: str = ""
    slot: bool = False
    key: str | Sequence[str] = ""
    caps: tuple[int, ...] = ()
    pools: Mapping[str, int | str] = field(default_factory=dict)
    take: Mapping[str, int] = field(default_factory=dict)
    priority: float = 0.0
    timeout: float | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    pid: int = field(default_factory=os.getpid)  # the process that asks, whose the permit is

    def __post_init__(self) -> None:
        self.path = f"/v1/semaphores/{checked('name', self.name, part_of_path, 'a text')}/permits/{self.id}"
        if not isinstance(self.key, str):
            self.key = checked("key", self.key, names, "a name, or up to three names")
        self.take = checked("take", self.take, dict, 'amounts by pool, as in {"gpu": 1}')
        if self.timeout is not None:
            self.timeout = checked("timeout", self.timeout, seconds, "seconds, or None")
        for what in ("limit", "lease", "weight", "label", "slot", "key", "caps", "pools", "take", "priority"):
            checked(what, getattr(self, what), lambda value: json.dumps(value, allow_nan=False), "a value that JSON has")

    @property
    def foreign(self) -> PermitLost | None:
        """In a process that was forked from the one that asked: why the permit is not this process's."""
        if os.getpid() == self.pid:
            return None
        return PermitLost(f"the permit of {self.name!r} belongs to process {self.pid}, which forked this one")

    @property
    def margin(self) -> float:
        """So long before the lease ends the permit counts as lost."""
        return self.lease / 10


@dataclass
class Held:
    """A permit, and until when it may be trusted."""

    wish: Wish
    token: int
    slot: int | None
    permit: str  # as operators see it
    until: float  # by now()
    loss: PermitLost | None = None  # why it is gone
    released: bool = False
    says: dict[str, Any] = field(default_factory=dict)  # with its release

    def check(self) -> None:
        """Raises PermitLost if the permit cannot be trusted any more."""
        if self.loss is None and not self.released:
            self.loss = self.wish.foreign
            if self.loss is None and now() >= self.until:
                self.loss = PermitLost(f"the permit of {self.wish.name!r} could not be renewed in time")
        if self.loss is not None:
            raise self.loss


class Shown:
    """A permit as both kinds of clients show it."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def used(self, pool: str, n: int) -> None:
        """Says how much of a rate the work has used. It counts with the release: less than was taken comes back, more is a debt.
        Raises Refused if n is no whole number from 0 on; the permit stays as it was."""
        self._held.says.setdefault("used", {})[pool] = checked(f"used {pool}", n, amount, "a whole number, 0 to 2147483647")

    def retry_after(self, seconds: float) -> None:
        """Says with the release that nobody, in any process, is to begin before so many seconds have passed, ten minutes at
        the most: as a service does by 429 and Retry-After."""
        if seconds > 0:
            self._held.says["retry_after"] = max(self._held.says.get("retry_after", 0.0), min(float(seconds), 600.0))

    @property
    def id(self) -> str:
        """The id that this client gave it."""
        return self._held.wish.id

    @property
    def permit(self) -> str:
        """Its name to operators."""
        return self._held.permit

    @property
    def token(self) -> int:
        """The fencing token: it grows with each grant, so that storage can refuse a holder of the past."""
        return self._held.token

    @property
    def slot(self) -> int | None:
        """The index, if a slot was asked for."""
        return self._held.slot

    def check(self) -> None:
        """Raises PermitLost if the permit is lost."""
        self._held.check()

    @property
    def lost(self) -> bool:
        """Whether the permit is lost."""
        try:
            self._held.check()
        except PermitLost:
            return True
        return False

    def __reduce__(self) -> NoReturn:
        raise TypeError("sema: a permit belongs to the process that took it: it cannot be pickled or copied")


_warned: set[str] = set()


def warn_if_another(wish: Wish, holds: dict[str, Any]) -> None:
    """Says once that another limit, caps or pools hold than were asked for. Caps and pools that are empty ask for nothing."""
    said = {"limit": wish.limit} | ({"caps": list(wish.caps)} if wish.caps else {}) | ({"pools": dict(wish.pools)} if wish.pools else {})
    if others := {what: holds[what] for what, value in said.items() if what in holds and holds[what] != value}:
        text = f"{wish.name!r}: an operator, or another program, has set {others}, not {said}"
        if text not in _warned and len(_warned) < 1000:
            _warned.add(text)
            logging.getLogger("sema_client").warning("%s", text)


def acquiring(wish: Wish, patience: float) -> Generator[Request | Pause, Answer | None, Held]:
    """Asks for a permit until it is held, or timeout seconds have passed. The id is
    the same in every request, so that one more takes no second permit."""
    began = now()
    deadline = math.inf if wish.timeout is None else began + wish.timeout
    silent: float | None = None  # since when nothing was answered
    while True:
        if foreign := wish.foreign:
            raise foreign
        wait = max(0.0, min(deadline - now(), LONGEST_WAIT))
        body: dict[str, Any] = {"limit": wish.limit, "lease_seconds": wish.lease, "wait_seconds": wait}
        for field_name, value, usual in (
            ("weight", wish.weight, 1), ("label", wish.label, ""), ("slot", wish.slot, False),
            ("key", wish.key, ""), ("caps", list(wish.caps), []),
            ("pools", dict(wish.pools), {}), ("take", wish.take, {}), ("priority_seconds", wish.priority, 0.0),
        ):
            if value != usual:
                body[field_name] = value
        sent = now()
        answer = yield Request("PUT", wish.path, body, wait + GRACE)
        pause = 0.5
        if answer is not None:
            if answer.status == 200:
                warn_if_another(wish, answer.body)
                held = Held(wish, answer.body["token"], answer.body["slot"], answer.body["permit"], sent + answer.body["lease_seconds"] - wish.margin)
                if now() - sent < wish.lease / 3:
                    return held
                # It waited, and may have been granted at any moment since: a renewal tells until when it lasts.
                held.until = now() + answer.body["lease_seconds"]
                try:
                    yield from renewing(held)
                except PermitLost:
                    continue  # nobody has relied on it yet
                return held
            if answer.again is not None:
                pause = answer.again
            elif answer.status in (423, 429):
                if now() >= deadline:
                    raise Unavailable(str(answer.body.get("detail", "no permit was free in time")))
                pause = 0.0 if answer.kind == "unavailable" else 1.0  # that came only after the wait
            elif answer.status == 410:
                raise answer.lost()
            else:
                raise answer.refused()
        if answer is not None and answer.status < 500:
            silent = None
        elif now() - sent >= wait + GRACE:
            silent = sent if silent is None else silent  # nothing was heard in all that time
        elif silent is None or now() - sent > patience:
            silent = now()  # until then it was there: a long poll has no answer before its end
        if now() >= deadline or silent is not None and now() - silent > patience:
            raise Unreachable(f"no answer about {wish.name!r} for {now() - (silent or began):.1f} s" + ("" if answer is None else f": {answer.refused()}"))
        yield Pause(max(0.0, min(pause, deadline - now())))


def renewing(held: Held) -> Steps:
    """Renews a permit once, and tries until that has succeeded, or the permit is lost."""
    wish = held.wish
    while True:
        held.check()
        sent = now()
        left = held.until - sent
        answer = yield Request("POST", wish.path + "/renew", {"lease_seconds": wish.lease}, max(0.05, min(left, wish.lease / 3)))
        if answer is not None and answer.status == 200:
            if answer.body["token"] != held.token:
                held.loss = PermitLost("the permit was lost, and its id has another grant by now")
                raise held.loss
            held.until = sent + answer.body["lease_seconds"] - wish.margin
            return
        if answer is not None and answer.status == 410:
            held.loss = answer.lost()
            raise held.loss
        yield Pause(max(0.0, min(wish.lease / 20, 1.0, held.until - now())))


def keeping(held: Held) -> Steps:
    """Renews a permit until it is lost, which it raises."""
    while True:
        yield Pause(max(0.0, min(held.wish.lease / 3, held.until - now())))
        yield from renewing(held)


def releasing(held: Held) -> Steps:
    """Gives back a permit. It tries until the lease has ended by itself."""
    wish, first, says = held.wish, True, held.says or None
    end = held.until + wish.margin
    while True:
        if foreign := wish.foreign:
            raise foreign
        answer = yield Request("DELETE", wish.path, says, max(0.5, min(5.0, end - now())))
        if answer is not None and answer.status == 204:
            return
        if answer is not None and answer.status == 410:
            if first:  # else an earlier request, whose answer was lost, has given it back
                raise answer.lost()
            return
        if answer is not None and answer.again is None:
            if answer.status == 400 and says:  # what was said is wrong, but the work is over
                logging.getLogger("sema_client").warning("%r: what the release said does not count: %s", wish.name, answer.refused())
                says = None
                continue
            raise answer.refused()
        first = first and answer is not None and answer.body.get("notExecuted") is True
        if now() >= end:
            raise Unreachable(f"the permit of {wish.name!r} could not be given back; its lease has ended")
        yield Pause(min(0.5, max(0.0, end - now())))


def loss_of(error: SemaError) -> None:
    """Raises what a release says of the work that it ended: that the permit was lost meanwhile. Work that
    went well stays well if only the release failed."""
    if isinstance(error, PermitLost):
        raise error
    logging.getLogger("sema_client").warning("%s", error)


def abandoning(wish: Wish) -> Steps:
    """Gives back what may have been granted to a caller that went away."""
    for _ in range(3):
        if wish.foreign:
            return
        answer = yield Request("DELETE", wish.path, None, 2.0)
        if answer is not None and answer.again is None:
            return
        yield Pause(0.2)

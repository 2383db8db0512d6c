"""The client for threads. It needs the standard library only."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import threading
import weakref
from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlsplit

from ._protocol import Answer, Held, Pause, PermitLost, Request, SemaError, Server, Shown, Unavailable, Wish, abandoning, acquiring, checked, keeping, loss_of, now, releasing

T = TypeVar("T")


class Client:
    """A client of the server at url. It may be used by any number of threads.

    url: http://HOST:PORT or https://HOST. Default: $SEMA_URL, or else http://127.0.0.1:7362.
    token: NAME.SECRET. Default: $SEMA_SERVER_TOKEN.
    patience: so many seconds without an answer, and acquire raises Unreachable.
    context: for https, such as one with a certificate authority of your own.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, patience: float = 60.0, context: ssl.SSLContext | None = None) -> None:
        self._server = Server.find(url, token)
        self._patience = patience
        self._context = context

    def semaphore(self, name: str, limit: int, *, lease: float = 30.0, caps: Sequence[int] = (), pools: Mapping[str, int | str] | None = None) -> Semaphore:
        """The semaphore of that name. limit is stored if it has none yet. lease, in seconds, 0.1 … 31622400, is
        how long the server waits for a process that vanished; permits are renewed after a third of it.
        caps: how much each key may hold, see acquire: first each key of one name, then each of two and of three, as in
        (20, 4); stored with limit. 0, or none: as much as is free. pools: further limits beside this one, of which
        acquire takes some, as in {"gpu": 8}; stored with limit."""
        return Semaphore(self, name, limit, lease, caps, pools)

    def _run(self, steps: Generator[Request | Pause, Answer | None, T], stopped: threading.Event) -> T:
        """Does what the steps want, until they end, or stopped is set."""
        answer: Answer | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = None
            if isinstance(step, Pause):
                stopped.wait(step.seconds)
            else:
                answer = self._ask(step)
            if stopped.is_set():
                raise _Stopped

    def _ask(self, request: Request) -> Answer | None:
        url = urlsplit(self._server.url)
        assert url.hostname is not None
        if url.scheme == "https":
            c: http.client.HTTPConnection = http.client.HTTPSConnection(url.hostname, url.port, timeout=request.timeout, context=self._context)
        else:
            c = http.client.HTTPConnection(url.hostname, url.port, timeout=request.timeout)
        try:
            c.connect()
            _connections.add(c.sock)
            keep_alive(c.sock)
            body = None if request.body is None else json.dumps(request.body)
            c.request(request.method, url.path + request.path, body, self._server.headers)
            response = c.getresponse()
            return answer_of(response.status, response.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            c.close()


class _Stopped(BaseException):
    pass


_connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def disconnect(fd: int) -> None:
    """Replaces a connection that belongs to the process that forked this one. Otherwise the server would not see its end
    while this process lives, and an event loop here could read from it. Its owner here closes the number later, so the
    number stays taken."""
    if fd >= 0:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, fd, inheritable=False)
        os.close(null)


def _forked() -> None:
    for connection in list(_connections):
        disconnect(connection.fileno())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def answer_of(status: int, text: bytes) -> Answer:
    """An answer, whose body may be a proxy's."""
    try:
        body = json.loads(text or b"{}")
    except ValueError:
        body = None
    if not isinstance(body, dict) or status == 200 and not all(isinstance(body.get(field), (int, float)) for field in ("token", "lease_seconds")):
        return Answer(502 if status == 200 else status, {})
    return Answer(status, body)


def keep_alive(sock: socket.socket) -> None:
    """Has the system notice within a minute that the other host has vanished, during a long poll too."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)


def terms(caps: Sequence[int], pools: Mapping[str, int | str] | None) -> tuple[tuple[int, ...], dict[str, int]]:
    return checked("caps", caps, tuple, "numbers, as in (20, 4)"), checked("pools", pools or {}, dict, 'limits by name, as in {"gpu": 8}')


class Semaphore:
    """A semaphore of a server. Create it with Client.semaphore."""

    def __init__(self, client: Client, name: str, limit: int, lease: float, caps: Sequence[int] = (), pools: Mapping[str, int | str] | None = None) -> None:
        self._client = client
        self.name, self.limit, self.lease, self.caps, self.pools = name, limit, lease, *terms(caps, pools)

    def acquire(
        self, timeout: float | None = None, *, weight: int = 1, label: str = "", slot: bool = False, key: str | Sequence[str] = "",
        take: Mapping[str, int] | None = None, priority: float = 0.0,
    ) -> Permit:
        """Waits for a permit, first come, first served, and returns it. It is renewed until it is released:

            with semaphore.acquire(timeout=60) as permit:
                ...

        timeout: seconds; None: as long as it takes. weight: how much of the limit it takes.
        label: shown to operators. slot: have an index below the limit that nobody else with a slot has.
        key: whose the permit is, of those that share the semaphore: a tenant, or up to three names, such as an
        organisation and a user of it, ("acme", "alice"). The permit counts for each of them. The key that holds the
        least for its share goes first, and within a key the caller that came first. Take keys from authentication: a
        caller that makes up keys gets a share for each. take: how much of pools it takes, as in {"gpu": 1}, all at once with its weight.
        priority: seconds, 0 … 86400, that this caller counts as having come earlier, within its key.
        Raises Unavailable, Unreachable or Refused; nothing is held then.
        """
        wish = Wish(self.name, self.limit, self.lease, weight, label, slot, key, self.caps, self.pools, take or {}, priority, timeout)
        try:
            return Permit(self._client, self._client._run(acquiring(wish, self._client._patience), threading.Event()))
        except Unavailable:
            raise
        except BaseException:
            self._client._run(abandoning(wish), threading.Event())
            raise

    def try_acquire(self, *, weight: int = 1, label: str = "", slot: bool = False, key: str | Sequence[str] = "", take: Mapping[str, int] | None = None) -> Permit | None:
        """A permit if one is free now, else None. Raises as acquire does."""
        try:
            return self.acquire(0, weight=weight, label=label, slot=slot, key=key, take=take)
        except Unavailable:
            return None


class Permit(Shown):
    """A permit that is held, and renewed in the background. As a context manager it is
    released at the end; a block that ends well after the permit was lost raises PermitLost.
    A release that the server does not get is logged: the permit ends with its lease.

    Python cannot interrupt a thread, so long work asks from time to time: check() raises
    PermitLost once the permit cannot be trusted any more, by this process's own clock.
    """

    def __init__(self, client: Client, held: Held) -> None:
        super().__init__(held)
        self._client = client
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        threading.Thread(target=self._keep, name=f"sema {held.wish.name}", daemon=True).start()

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Waits until the permit is lost or released, for at most so many seconds, and says whether it is lost."""
        if self._held.wish.foreign:  # nobody notifies here, and the lock may be taken for ever
            return self.lost
        end = None if timeout is None else now() + timeout
        with self._changed:
            while not self.lost and not self._stopped.is_set():
                left = self._held.until - now()
                if end is not None:
                    if now() >= end:
                        break
                    left = min(left, end - now())
                self._changed.wait(max(0.0, left))
        return self.lost

    def release(self) -> None:
        """Gives the permit back. Whoever waits has it at once. Raises PermitLost if it was lost, and in another process
        than the one that took it; a second call does nothing."""
        if self._held.released:
            return
        if foreign := self._held.wish.foreign:
            raise foreign
        lost = self.lost  # by the clock too: whoever renews may be stuck
        self._end()
        if lost:
            self._held.check()
        self._client._run(releasing(self._held), threading.Event())

    def _end(self) -> None:
        self._held.released = True
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def _keep(self) -> None:
        try:
            self._client._run(keeping(self._held), self._stopped)
        except (_Stopped, PermitLost):
            pass
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> Permit:
        if foreign := self._held.wish.foreign:
            raise foreign
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._held.wish.foreign:
            return  # the process that took the permit releases it
        try:
            self.release()
        except SemaError as e:
            if error is None:
                loss_of(e)

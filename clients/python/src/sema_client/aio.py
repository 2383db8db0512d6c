"""The client for asyncio. It needs aiohttp: pip install './clients/python[aio]'.

    async with Client() as client:
        downloads = client.semaphore("downloads", limit=3)
        async with await downloads.acquire(timeout=600) as permit:
            ...  # cancelled if the permit is lost, and PermitLost is raised
"""

from __future__ import annotations

import asyncio
import os
import ssl
import weakref
from collections.abc import Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from ._protocol import (
    Answer, Held, Pause, PermitLost, Request, SemaError, Server, Shown, Unavailable, Unreachable, Wish, abandoning, acquiring, keeping, loss_of, releasing,
)
from ._sync import answer_of, disconnect, terms

T = TypeVar("T")

__all__ = ["Client", "Permit", "Semaphore"]


class Client:
    """A client of the server at url, for one event loop; close it, or use async with.

    url: http://HOST:PORT or https://HOST. Default: $SEMA_URL, or else http://127.0.0.1:7362.
    token: NAME.SECRET. Default: $SEMA_SERVER_TOKEN.
    patience: so many seconds without an answer, and acquire raises Unreachable.
    context: for https, such as one with a certificate authority of your own.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, patience: float = 60.0, context: ssl.SSLContext | None = None) -> None:
        self._server = Server.find(url, token)
        self._base = str(URL(self._server.url)).rstrip("/")
        self._patience = patience
        self._context = context
        self._session: aiohttp.ClientSession | None = None
        self._connections: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        _clients.add(self)

    def semaphore(self, name: str, limit: int, *, lease: float = 30.0, caps: Sequence[int] = (), pools: Mapping[str, int | str] | None = None) -> Semaphore:
        """The semaphore of that name. limit is stored if it has none yet. lease, in seconds, 0.1 … 31622400, is
        how long the server waits for a process that vanished; permits are renewed after a third of it.
        caps: how much each key may hold, see acquire: first each key of one name, then each of two and of three, as in
        (20, 4); stored with limit. 0, or none: as much as is free. pools: further limits beside this one, of which
        acquire takes some, as in {"gpu": 8}; stored with limit."""
        return Semaphore(self, name, limit, lease, caps, pools)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits for what is being given back, and closes all connections. Permits still held are left to their leases.
        Callers that wait leave the queue, and get Unreachable."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def _background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone: asyncio is to print nothing

    async def _run(self, steps: Generator[Request | Pause, Answer | None, T], waits: bool = False) -> T:
        answer: Answer | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            if waits and self._closed:
                raise Unreachable("the client is closed")
            answer = None
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                answer = await self._ask(step)

    async def _ask(self, request: Request) -> Answer | None:
        if self._closed:
            return None
        if self._session is None:  # a waiter has a connection of its own, so they are not bounded
            self._session = aiohttp.ClientSession(connector=_Connector(self._connections, limit=0, ssl=self._context or True))
        try:
            async with self._session.request(
                request.method, URL(self._base + request.path, encoded=True), json=request.body, headers=self._server.headers,
                timeout=aiohttp.ClientTimeout(total=request.timeout), allow_redirects=False,
            ) as response:
                return answer_of(response.status, await response.read())
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
            return None

    def _forked(self) -> None:
        """Leaves connections and tasks to the process that forked this one."""
        for connection in list(self._connections):
            if (sock := connection.get_extra_info("socket")) is not None:
                disconnect(sock.fileno())
        if self._session is not None:
            self._session.detach()  # which closes nothing
        self._session, self._tasks = None, set()


class _Connector(aiohttp.TCPConnector):
    """A connector that lists its connections, and that a forked process does not close."""

    def __init__(self, connections: weakref.WeakSet[asyncio.Transport], **options: Any) -> None:
        self._pid = os.getpid()
        self._connections = connections
        super().__init__(**options)

    async def _wrap_create_connection(self, *args: Any, **options: Any) -> Any:
        transport, protocol = await super()._wrap_create_connection(*args, **options)
        self._connections.add(transport)
        return transport, protocol

    def __del__(self, *args: Any) -> None:
        if os.getpid() == self._pid:
            super().__del__(*args)


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _forked() -> None:
    for client in list(_clients):
        client._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Semaphore:
    """A semaphore of a server. Create it with Client.semaphore."""

    def __init__(self, client: Client, name: str, limit: int, lease: float, caps: Sequence[int] = (), pools: Mapping[str, int | str] | None = None) -> None:
        self._client = client
        self.name, self.limit, self.lease, self.caps, self.pools = name, limit, lease, *terms(caps, pools)

    async def acquire(
        self, timeout: float | None = None, *, weight: int = 1, label: str = "", slot: bool = False, key: str | Sequence[str] = "",
        take: Mapping[str, int] | None = None, priority: float = 0.0,
    ) -> Permit:
        """Waits for a permit, first come, first served, and returns it. It is renewed until it is released:

            async with await semaphore.acquire(timeout=60) as permit:
                ...

        timeout: seconds; None: as long as it takes. weight: how much of the limit it takes.
        label: shown to operators. slot: have an index below the limit that nobody else with a slot has.
        key: whose the permit is, of those that share the semaphore: a tenant, or up to three names, such as an
        organisation and a user of it, ("acme", "alice"). The permit counts for each of them. The key that holds the
        least for its share goes first, and within a key the caller that came first. Take keys from authentication: a
        caller that makes up keys gets a share for each. take: how much of pools it takes, as in {"gpu": 1}, all at once with its weight.
        priority: seconds, 0 … 86400, that this caller counts as having come earlier, within its key.
        Raises Unavailable, Unreachable or Refused; nothing is held then, nor after a cancellation.
        """
        wish = Wish(self.name, self.limit, self.lease, weight, label, slot, key, self.caps, self.pools, take or {}, priority, timeout)
        try:
            held = await self._client._run(acquiring(wish, self._client._patience), waits=True)
        except Unavailable:
            raise
        except BaseException:
            if not self._client._closed and not wish.foreign:
                self._client._background(self._client._run(abandoning(wish)))
            raise
        return Permit(self._client, held)

    async def try_acquire(self, *, weight: int = 1, label: str = "", slot: bool = False, key: str | Sequence[str] = "", take: Mapping[str, int] | None = None) -> Permit | None:
        """A permit if one is free now, else None. Raises as acquire does."""
        try:
            return await self.acquire(0, weight=weight, label=label, slot=slot, key=key, take=take)
        except Unavailable:
            return None


class Permit(Shown):
    """A permit that is held, and renewed in the background. As a context manager it is
    released at the end. The task in the block is cancelled when the permit is lost, by
    this process's own clock, and the block raises PermitLost. A release that the server
    does not get is logged: the permit ends with its lease.
    """

    def __init__(self, client: Client, held: Held) -> None:
        super().__init__(held)
        self._client = client
        self._inside: asyncio.Task[Any] | None = None  # the task in the block
        self._before = 0  # cancellations of it before the block
        self._cancelled = False
        self._keeper = asyncio.create_task(self._keep())

    async def release(self) -> None:
        """Gives the permit back. Whoever waits has it at once. Raises PermitLost if it was lost; a second call does
        nothing. A cancelled release goes on in the background."""
        if self._held.released:
            return
        if foreign := self._held.wish.foreign:
            raise foreign
        lost = self.lost  # by the clock too: the event loop may have stood still
        self._held.released = True
        self._keeper.cancel()
        if lost:
            self._held.check()
        await asyncio.shield(self._client._background(self._client._run(releasing(self._held))))

    async def _keep(self) -> None:
        try:
            await self._client._run(keeping(self._held))
        except PermitLost:
            if self._inside is not None and not self._held.released:
                self._cancelled = True
                self._inside.cancel("the permit is lost")

    async def __aenter__(self) -> Permit:
        self.check()
        self._inside = asyncio.current_task()
        self._before = 0 if self._inside is None else self._inside.cancelling()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        inside, self._inside = self._inside, None
        if self._cancelled and inside is not None:
            others = inside.uncancel()  # somebody else's cancellation goes on
            if kind is asyncio.CancelledError and others <= self._before:
                assert self._held.loss is not None
                raise self._held.loss from error
        if self._held.wish.foreign:
            return  # the process that took the permit releases it
        try:
            await self.release()
        except SemaError as e:
            if error is None:
                loss_of(e)

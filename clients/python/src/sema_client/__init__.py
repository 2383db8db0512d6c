"""Distributed counting semaphores, over HTTP: a client of `sema serve`.

    from sema_client import Client

    downloads = Client().semaphore("downloads", limit=3)
    with downloads.acquire(timeout=600, label="nightly") as permit:
        ...

sema_client.aio is the same for asyncio.
"""

from ._protocol import PermitLost, Refused, SemaError, Unavailable, Unreachable
from ._sync import Client, Permit, Semaphore

__all__ = ["Client", "Permit", "PermitLost", "Refused", "SemaError", "Semaphore", "Unavailable", "Unreachable"]

import asyncio
import gc
import unittest

from serving import Serving

from sema_client import PermitLost, Refused, Unavailable, Unreachable
from sema_client.aio import Client

MINUTE = 60.0


class Aio(Serving, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.client = Client(self.url)
        self.addAsyncCleanup(self.client.close)
        self.semaphore = self.client.semaphore(self.name, limit=1, lease=30)

    async def test_one_at_a_time(self) -> None:
        held = most = 0

        async def work() -> None:
            nonlocal held, most
            async with await self.semaphore.acquire(MINUTE, label="asyncio"):
                held += 1
                most = max(most, held)
                await asyncio.sleep(0)
                held -= 1

        await asyncio.gather(*(work() for _ in range(200)))
        self.assertEqual(most, 1)

    async def test_keys_share_it(self) -> None:
        shared = self.client.semaphore(self.name, limit=3, caps=(1,))
        async with await shared.acquire(key="acme"), await shared.acquire(key="beta", priority=5):
            self.assertIsNone(await shared.try_acquire(key="acme"))
            self.assertIsNotNone(free := await shared.try_acquire(key="gamma"))
            assert free is not None
            await free.release()

    async def test_keys_of_several_names(self) -> None:
        shared = self.client.semaphore(self.name, limit=9, caps=[3, 2])
        async with await shared.acquire(key=("acme", "alice"), weight=2):
            waiting = asyncio.create_task(shared.acquire(MINUTE, key=("acme", "alice")))
            await asyncio.to_thread(self.waiting, 1)
            async with await shared.acquire(key=("acme", "bob")):  # alice waits for herself alone
                self.assertIsNone(await shared.try_acquire(key="acme"))
                async with await shared.acquire(key="beta", weight=3):
                    self.assertFalse(waiting.done())
        async with await waiting:
            pass
        with self.assertRaisesRegex(Refused, "acme/alice"):
            await shared.acquire(key=["acme", "alice"], weight=3)

    async def test_pools(self) -> None:
        shared = self.client.semaphore(self.name, limit=9, pools={"gpu": 1})
        async with await shared.acquire(take={"gpu": 1}):
            waiting = asyncio.create_task(shared.acquire(MINUTE, take={"gpu": 1}))
            await asyncio.to_thread(self.waiting, 1)
            async with await shared.acquire():
                self.assertIsNone(await shared.try_acquire(take={"gpu": 1}))
                self.assertFalse(waiting.done())
        async with await waiting:
            pass
        with self.assertRaisesRegex(Refused, "gpus"):
            await shared.acquire(take={"gpus": 1})

    async def test_arguments_of_another_type(self) -> None:
        for wish in ({"key": 5}, {"take": 5}, {"timeout": "5"}, {"weight": {1}}):
            with self.assertRaisesRegex(Refused, ": want "):
                await self.semaphore.acquire(**wish)  # type: ignore[arg-type]
        for terms in ({"caps": 5}, {"pools": 5}):
            with self.assertRaisesRegex(Refused, ": want "):
                self.client.semaphore(self.name, limit=1, **terms)  # type: ignore[arg-type]

    async def test_names_that_a_path_may_not_have(self) -> None:
        for name in (".", "..", "...", "a/../b", "/a", "../", "%2E", "%2e%2e", " ", "a b?c#d", "ä"):
            async with await self.client.semaphore(name, limit=1).acquire(MINUTE):
                self.assertIn(name, self.names())

    async def test_nothing_free(self) -> None:
        async with await self.semaphore.acquire():
            self.assertIsNone(await self.semaphore.try_acquire())
            with self.assertRaises(Unavailable):
                await self.semaphore.acquire(0.2)

    async def test_a_cancelled_wait_leaves_the_queue(self) -> None:
        first = await self.semaphore.acquire()
        waiting = asyncio.create_task(self.semaphore.acquire())
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting, 0.5)
        await first.release()
        async with await self.semaphore.acquire(MINUTE):
            pass

    async def test_a_loss_cancels_the_work(self) -> None:
        semaphore = self.client.semaphore(self.name, limit=1, lease=1)
        reached = False
        with self.assertRaises(PermitLost):
            async with await semaphore.acquire() as permit:
                self.revoke(permit.permit)
                await asyncio.sleep(MINUTE)
                reached = True
        self.assertFalse(reached)
        task = asyncio.current_task()
        assert task is not None
        self.assertEqual(task.cancelling(), 0)

    async def test_a_stopped_server_cancels_the_work(self) -> None:
        with self.assertRaises(PermitLost):
            async with await self.client.semaphore(self.name, limit=1, lease=2).acquire():
                self.stop()
                await asyncio.sleep(MINUTE)
        self.cont()

    async def test_work_that_went_well_stays_well(self) -> None:
        with self.assertLogs("sema_client", "WARNING"):
            async with await self.client.semaphore(self.name, limit=1, lease=3).acquire():
                self.kill()

    async def test_a_closed_client_ends_its_waits_quietly(self) -> None:
        said: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        async with await self.semaphore.acquire():
            other = Client(self.url)
            waits = [asyncio.create_task(other.semaphore(self.name, limit=1).acquire()) for _ in range(3)]
            await asyncio.to_thread(self.waiting, 3)
            await other.close()
            for outcome in await asyncio.gather(*waits, return_exceptions=True):
                self.assertIsInstance(outcome, Unreachable)
            await asyncio.to_thread(self.waiting, 0)
        gc.collect()
        await asyncio.sleep(0)
        self.assertEqual(said, [])

    async def test_a_loss_after_an_earlier_cancellation(self) -> None:
        semaphore = self.client.semaphore(self.name, limit=1, lease=1)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(MINUTE)
        except asyncio.CancelledError:  # as in a finally
            with self.assertRaises(PermitLost):
                async with await semaphore.acquire() as permit:
                    await asyncio.to_thread(self.revoke, permit.permit)
                    await asyncio.sleep(MINUTE)
        task.uncancel()

    async def test_a_loss_that_nobody_has_noticed_yet(self) -> None:
        with self.assertRaises(PermitLost):
            async with await self.semaphore.acquire() as permit:
                permit._held.until = 0

    async def test_somebody_elses_cancellation_stays_one(self) -> None:
        with self.assertRaises(asyncio.TimeoutError):
            async with asyncio.timeout(0.2), await self.semaphore.acquire():
                await asyncio.sleep(MINUTE)
        async with await self.semaphore.acquire(MINUTE):  # and it was given back
            pass

    async def test_a_permit_outlives_the_server(self) -> None:
        async with await self.semaphore.acquire():
            waiting = asyncio.create_task(self.semaphore.acquire(MINUTE))
            self.kill()
            self.start()
            self.assertFalse(waiting.done())
        await (await waiting).release()


if __name__ == "__main__":
    unittest.main()

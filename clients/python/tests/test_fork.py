"""A permit belongs to the process that took it, whatever a process does that was forked from that one."""

import asyncio
import copy
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import unittest
import warnings
from collections.abc import Callable
from typing import NoReturn

from serving import Serving

from sema_client import Client, Permit, PermitLost, Semaphore
from sema_client import aio
from sema_client._protocol import Answer, Request

MINUTE = 60.0


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, for a process with threads
        return os.fork()


def in_child(work: Callable[[], object]) -> str:
    """What a forked process says of work: what it returned or raised."""
    out, into = os.pipe()
    child = fork()
    if child == 0:
        try:
            said = f"{work()}"
        except BaseException as e:
            said = f"{type(e).__name__}: {e}"
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)
    with open(out, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def end(_: object = None) -> NoReturn:
    sys.exit(0)


def fail(_: Permit) -> NoReturn:
    raise ValueError("the child's")


def nothing(_: Permit) -> None:
    pass


class Fork(Serving):
    def setUp(self) -> None:
        super().setUp()
        self.semaphore = Client(self.url).semaphore(self.name, limit=1, lease=30)

    def held(self, permit: Permit | aio.Permit) -> None:
        self.assertFalse(permit.lost)
        self.assertIsNone(Client(self.url).semaphore(self.name, limit=1).try_acquire())

    def leaves(self, how: Callable[[Permit], object]) -> None:
        parent = os.getpid()
        try:
            with self.semaphore.acquire() as permit:
                child = fork()
                if child == 0:
                    how(permit)
                else:
                    self.assertEqual(os.waitpid(child, 0)[1], 0)
                    self.held(permit)
        except BaseException as e:
            if os.getpid() == parent:
                raise
            os._exit(0 if isinstance(e, (SystemExit, ValueError)) else 1)
        if os.getpid() != parent:
            os._exit(0)
        free = self.semaphore.try_acquire()  # the parent has released it
        assert free is not None
        free.release()

    def test_a_child_that_exits_keeps_its_parents_permit(self) -> None:
        self.leaves(end)

    def test_a_child_that_fails_keeps_its_parents_permit(self) -> None:
        self.leaves(fail)

    def test_a_child_that_goes_on_keeps_its_parents_permit(self) -> None:
        self.leaves(nothing)

    def test_an_inherited_permit_is_not_the_childs(self) -> None:
        with self.semaphore.acquire() as permit:
            why = f"PermitLost: the permit of {self.name!r} belongs to process {os.getpid()}, which forked this one"
            self.assertEqual(in_child(permit.release), why)
            self.assertEqual(in_child(permit.check), why)
            self.assertEqual(in_child(permit.__enter__), why)
            self.assertEqual(in_child(lambda: permit.lost), "True")
            self.held(permit)
        self.assertEqual(in_child(permit.release), "None")  # its parent gave it back before the fork

    def test_a_child_waits_for_no_loss_of_its_parents_permit(self) -> None:
        with self.semaphore.acquire() as permit:
            with permit._changed:  # what another thread of the parent may hold at the fork
                self.assertEqual(in_child(permit.wait_lost), "True")
                self.assertEqual(in_child(lambda: permit.__exit__(None, None, None)), "None")
            self.held(permit)

    def test_a_child_takes_permits_of_its_own(self) -> None:
        semaphore = Client(self.url).semaphore(self.name, limit=2)

        def own() -> bool:
            with semaphore.acquire(MINUTE, label="child") as permit:
                return permit.lost

        with semaphore.acquire() as permit:
            self.assertEqual(in_child(own), "False")
            self.assertFalse(permit.lost)

    def test_a_child_forgets_a_permit(self) -> None:
        permits = [self.semaphore.acquire()]

        def forget() -> None:
            permits.clear()
            gc.collect()

        self.assertEqual(in_child(forget), "None")
        self.held(permits[0])
        permits[0].release()

    def test_a_child_of_an_acquisition_that_exits_keeps_its_parents_permit(self) -> None:
        client = Client(self.url)
        parent, ask = os.getpid(), client._ask

        def forks(request: Request) -> Answer | None:  # as a signal handler may
            answer = ask(request)
            if request.method == "PUT":
                if (child := fork()) == 0:
                    sys.exit()
                os.waitpid(child, 0)
            return answer

        client._ask = forks  # type: ignore[method-assign]
        try:
            permit = client.semaphore(self.name, limit=1).acquire()
        except SystemExit:
            if os.getpid() != parent:
                os._exit(0)
            raise
        self.held(permit)
        permit.release()

    def test_a_killed_waiter_leaves_the_queue_although_its_child_lives(self) -> None:
        for program in (WAITS, AIO_WAITS):
            with self.subTest(program), self.semaphore.acquire():
                with subprocess.Popen([sys.executable, "-c", program, self.url, self.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as waiter:
                    assert waiter.stdin is not None and waiter.stdout is not None
                    self.waiting(1)
                    waiter.stdin.write("fork\n")
                    waiter.stdin.flush()
                    child = int(waiter.stdout.readline())
                    waiter.kill()
                    try:
                        self.waiting(0, MINUTE)
                    finally:
                        os.kill(child, signal.SIGKILL)

    def test_a_permit_is_not_sent_to_another_process(self) -> None:
        with self.semaphore.acquire() as permit:
            for method in ("spawn", "forkserver"):
                with self.assertRaisesRegex(TypeError, "the process that took it"):
                    multiprocessing.get_context(method).Process(target=nothing, args=(permit,)).start()  # type: ignore[attr-defined]
            for copied in (pickle.dumps, copy.copy, copy.deepcopy):
                with self.assertRaisesRegex(TypeError, "the process that took it"):
                    copied(permit)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                process = multiprocessing.get_context("fork").Process(target=releases, args=(permit,))
                process.start()
            process.join()
            self.assertEqual(process.exitcode, 7)
            self.held(permit)

    def test_a_spawned_process_takes_a_permit_of_its_own(self) -> None:
        for method in ("spawn", "forkserver", "fork"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                process = multiprocessing.get_context(method).Process(target=takes, args=(self.semaphore,))  # type: ignore[attr-defined]
                process.start()
            process.join()
            self.assertEqual(process.exitcode, 0)


def releases(permit: Permit) -> None:
    try:
        permit.release()
    except PermitLost:
        sys.exit(7)


def takes(semaphore: Semaphore) -> None:
    with semaphore.acquire(MINUTE):
        pass


# It waits for a permit, and forks a process when it is told to.
WAITS = """
import os, sys, threading, time
from sema_client import Client
semaphore = Client(sys.argv[1]).semaphore(sys.argv[2], limit=1)
threading.Thread(target=semaphore.acquire, daemon=True).start()
sys.stdin.readline()
if child := os.fork():
    print(child, flush=True)
time.sleep(1000)
"""

AIO_WAITS = """
import asyncio, os, sys
from sema_client.aio import Client
async def main():
    semaphore = Client(sys.argv[1]).semaphore(sys.argv[2], limit=1)
    waiting = asyncio.create_task(semaphore.acquire())
    await asyncio.to_thread(sys.stdin.readline)
    if child := os.fork():
        print(child, flush=True)
    while True:
        sys.stdin.read()
asyncio.run(main())
"""

# One task holds a permit, another one waits for the next, and a third one forks a process that leaves as it is told
# to. The event loop of that process cancels its copies of the other two as it ends.
AIO_LEAVES = """
import asyncio, os, sys
from sema_client.aio import Client

async def forks(how):
    child = os.fork()
    if child == 0:
        if how == "exit":
            sys.exit()
        raise ValueError if how == "fail" else KeyboardInterrupt
    os.waitpid(child, 0)

async def main():
    async with Client(sys.argv[1]) as client:
        semaphore = client.semaphore(sys.argv[2], limit=1)
        async with await semaphore.acquire() as permit:
            waiting = asyncio.create_task(semaphore.acquire())
            told = asyncio.Event()
            asyncio.get_running_loop().add_reader(0, told.set)
            print("waits", flush=True)
            await told.wait()
            asyncio.get_running_loop().remove_reader(0)
            await asyncio.create_task(forks(sys.argv[3]))
            permit.check()
            assert await asyncio.wait_for(semaphore.try_acquire(), 10) is None  # over a connection that is there already
        async with await asyncio.wait_for(waiting, 10) as second:
            second.check()
    print("released", flush=True)

asyncio.run(main())
"""


class AioFork(Serving, unittest.IsolatedAsyncioTestCase):
    def leaves(self, how: str) -> None:
        with subprocess.Popen([sys.executable, "-c", AIO_LEAVES, self.url, self.name, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            self.assertEqual(parent.stdout.readline(), "waits\n")
            self.waiting(1)
            said, errors = parent.communicate("fork\n", MINUTE)
            self.assertEqual((parent.returncode, said), (0, "released\n"), errors)

    def test_a_child_that_exits_keeps_its_parents_permit(self) -> None:
        self.leaves("exit")

    def test_a_child_that_fails_keeps_its_parents_permit(self) -> None:
        self.leaves("fail")

    def test_a_child_that_is_interrupted_keeps_its_parents_permit(self) -> None:
        self.leaves("interrupt")

    async def test_an_inherited_permit_is_not_the_childs(self) -> None:
        async with aio.Client(self.url) as client:
            async with await client.semaphore(self.name, limit=1).acquire() as permit:
                why = f"PermitLost: the permit of {self.name!r} belongs to process {os.getpid()}, which forked this one"
                self.assertEqual(in_child(lambda: asyncio.run(permit.release())), why)
                self.assertEqual(in_child(lambda: asyncio.run(permit.__aenter__())), why)
                self.assertEqual(in_child(lambda: asyncio.run(permit.__aexit__(None, None, None))), "None")
                self.assertEqual(in_child(permit.check), why)
                with self.assertRaisesRegex(TypeError, "the process that took it"):
                    pickle.dumps(permit)
                self.assertFalse(permit.lost)
                self.assertIsNone(Client(self.url).semaphore(self.name, limit=1).try_acquire())

    async def test_a_child_takes_permits_of_its_own(self) -> None:
        async with aio.Client(self.url) as client:
            semaphore = client.semaphore(self.name, limit=2)

            async def own() -> bool:
                async with client, await semaphore.acquire(MINUTE) as permit:
                    return permit.lost

            async with await semaphore.acquire() as permit:
                self.assertEqual(in_child(lambda: asyncio.run(own())), "False")
                self.assertFalse(permit.lost)
                async with await semaphore.acquire(MINUTE):  # by the connections that the child has closed for itself
                    pass


if __name__ == "__main__":
    unittest.main()

import re
import threading
import time
import unittest
import unittest.mock

from serving import Serving

from sema_client import Client, PermitLost, Refused, Unavailable, Unreachable
from sema_client._protocol import Answer, Pause, Request, Wish, acquiring
from sema_client._sync import answer_of

MINUTE = 60.0


class Sync(Serving):
    def setUp(self) -> None:
        super().setUp()
        self.client = Client(self.url)
        self.semaphore = self.client.semaphore(self.name, limit=1, lease=30)

    def test_one_at_a_time(self) -> None:
        held, most, lock = 0, 0, threading.Lock()

        def work() -> None:
            nonlocal held, most
            with self.semaphore.acquire(MINUTE, label="python"):
                with lock:
                    held += 1
                    most = max(most, held)
                with lock:
                    held -= 1

        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(most, 1)

    def test_what_a_permit_tells(self) -> None:
        with self.client.semaphore(self.name, limit=3).acquire(weight=2, slot=True) as permit:
            self.assertEqual(permit.slot, 0)
            self.assertGreater(permit.token, 0)
            self.assertFalse(permit.lost)
            with self.assertRaises(Refused) as refused:
                self.semaphore.acquire(weight=9)
            self.assertEqual(refused.exception.kind, "urn:sema:too-heavy")

    def test_another_limit_holds(self) -> None:
        with self.client.semaphore(self.name, limit=3, caps=(2, 1), pools={"gpu": 2}).acquire():
            pass
        with self.assertNoLogs("sema_client"), self.client.semaphore(self.name, limit=5).acquire(weight=5):
            pass
        with self.assertLogs("sema_client", "WARNING") as logs:
            for _ in range(2):
                with self.client.semaphore(self.name, limit=3, caps=(2, 1), pools={"gpu": 2}).acquire():
                    pass
        self.assertEqual(len(logs.output), 1)
        self.assertIn("{'limit': 5}", logs.output[0])

    def test_what_cannot_have_been_used_is_refused(self) -> None:
        rated = self.client.semaphore(self.name, limit=3, pools={"tpm": "100/1h"})
        with rated.acquire(take={"tpm": 100}) as permit:
            for wrong in (-1, 12.7, None, "5", 2**31, True, float("nan")):
                with self.assertRaisesRegex(Refused, "used tpm .*: want a whole number"):
                    permit.used("tpm", wrong)  # type: ignore[arg-type]
            permit.used("tpm", 40)
        with rated.acquire(0, take={"tpm": 60}):
            pass

    def test_a_key_as_a_text_has_no_slash(self) -> None:
        with self.assertRaisesRegex(Refused, r'\["acme","alice"\]') as refused:
            self.semaphore.acquire(key="acme/alice")
        self.assertEqual(refused.exception.kind, "urn:sema:argument")
        with self.semaphore.acquire(key=["acme/alice"]):
            pass
        with self.assertRaises(Refused):
            self.semaphore.acquire(key=5)  # type: ignore[arg-type]

    def test_keys_share_it(self) -> None:
        shared = self.client.semaphore(self.name, limit=3, caps=(1,))
        order: list[str] = []

        def wait(label: str, priority: float) -> None:
            with shared.acquire(MINUTE, key="acme", label=label, priority=priority):
                order.append(label)

        threads = [threading.Thread(target=wait, args=("late", 0.0)), threading.Thread(target=wait, args=("early", 3600.0))]
        with shared.acquire(key="beta"):
            with shared.acquire(key="acme"):
                self.assertIsNone(shared.try_acquire(key="acme"))
                for n, t in enumerate(threads):
                    t.start()
                    self.waiting(n + 1)
            for t in threads:
                t.join()
        self.assertEqual(order, ["early", "late"])
        with self.assertRaises(Refused) as refused:
            shared.acquire(key="acme", priority=1e9)
        self.assertEqual(refused.exception.kind, "urn:sema:argument")

    def test_keys_of_several_names(self) -> None:
        shared = self.client.semaphore(self.name, limit=9, caps=(3, 2))
        got: list[str] = []

        def wait() -> None:
            with shared.acquire(MINUTE, key=("acme", "alice")):
                got.append("alice")

        waiting = threading.Thread(target=wait)
        with shared.acquire(key=("acme", "alice"), weight=2) as permit:
            self.assertEqual(shared.caps, (3, 2))
            waiting.start()
            self.waiting(1)
            with shared.acquire(key=["acme", "bob"]):  # alice waits for herself alone
                self.assertIsNone(shared.try_acquire(key=("acme", "bob")))
                self.assertIsNone(shared.try_acquire(key="acme"))
                with shared.acquire(key=("beta", "alice")), shared.acquire(key=("beta",)), shared.acquire(key="beta"):
                    self.assertIsNone(shared.try_acquire(key="beta"))
                self.assertEqual(got, [])
                permit.release()
                waiting.join()
        self.assertEqual(got, ["alice"])
        with self.assertRaisesRegex(Refused, "acme/alice") as refused:
            shared.acquire(key=("acme", "alice"), weight=3)
        self.assertEqual(refused.exception.kind, "urn:sema:too-heavy")
        for key in (("a", ""), ("a", "b", "c", "d"), ("a\x01b",), "a\x01b", "n" * 256):
            with self.assertRaises(Refused) as refused:
                shared.acquire(key=key)
            self.assertEqual(refused.exception.kind, "urn:sema:argument")
        for caps in ((1, 2, 3, 4), (-1,)):
            with self.assertRaises(Refused) as refused:
                self.client.semaphore(self.name, limit=9, caps=caps).acquire()
            self.assertEqual(refused.exception.kind, "urn:sema:argument")

    def test_rates(self) -> None:
        shared = self.client.semaphore(self.name, limit=9, pools={"tpm": "100/1h"})
        with shared.acquire(take={"tpm": 100}) as permit:
            self.assertIsNone(shared.try_acquire(take={"tpm": 1}))
            permit.used("tpm", 40)
        with shared.acquire(take={"tpm": 60}) as permit:
            permit.retry_after(0.5)
        self.assertIsNone(shared.try_acquire())
        shared.acquire(MINUTE).release()

    def test_pools(self) -> None:
        shared = self.client.semaphore(self.name, limit=9, pools={"gpu": 2, "licence": 1})
        self.assertEqual(shared.pools, {"gpu": 2, "licence": 1})
        got: list[str] = []

        def wait() -> None:
            with shared.acquire(MINUTE, take={"gpu": 1}):
                got.append("gpu")

        waiting = threading.Thread(target=wait)
        with shared.acquire(take={"gpu": 2, "licence": 1}) as permit:
            self.assertIsNone(shared.try_acquire(take={"gpu": 1}))
            waiting.start()
            self.waiting(1)
            with shared.acquire():  # it takes no GPU
                self.assertEqual(got, [])
            permit.release()
            waiting.join()
        self.assertEqual(got, ["gpu"])
        with self.assertRaisesRegex(Refused, "gpu") as refused:
            shared.acquire(take={"gpu": 3})
        self.assertEqual(refused.exception.kind, "urn:sema:too-heavy")
        with self.assertRaisesRegex(Refused, "gpus") as refused:
            shared.acquire(take={"gpus": 1})
        self.assertEqual((refused.exception.status, refused.exception.kind), (404, "urn:sema:no-pool"))
        for take in ({"gpu": 0}, {"": 1}, {"a b": 1}, {"gpu": 2**31}, {"n" * 33: 1}):
            with self.assertRaises(Refused) as refused:
                shared.acquire(take=take)
            self.assertEqual(refused.exception.status, 400)

    def test_too_many_sets_of_pools(self) -> None:
        def take(sets: int) -> dict[str, int]:
            return {name: 1 for i, name in enumerate("abcde") if sets & (1 << i)}

        shared = self.client.semaphore(self.name, limit=1, pools=take(31))

        def use(sets: int) -> None:
            shared.acquire(MINUTE, take=take(sets)).release()

        with shared.acquire():
            threads = [threading.Thread(target=use, args=(sets,)) for sets in range(1, 17)]
            for t in threads:
                t.start()
            self.waiting(16)
            self.assertIsNone(shared.try_acquire(take=take(17)))
            threads.append(threading.Thread(target=use, args=(17,)))  # it asks again until there is room
            threads[-1].start()
        for t in threads:
            t.join()

    def test_what_does_not_fit(self) -> None:
        shared = self.client.semaphore(self.name, limit=9, caps=(3,), pools={"gpu": 2})
        for wish, at in (
            ({"key": "acme", "weight": 4}, {"key": "acme", "cap": 3}), ({"take": {"gpu": 3}}, {"pool": "gpu", "limit": 2}),
            ({"take": {"gpus": 1}}, {"pool": "gpus"}), ({"weight": 10}, None),
        ):
            with self.assertRaises(Refused) as refused:
                shared.acquire(**wish)  # type: ignore[arg-type]
            self.assertEqual(refused.exception.at, at)

    def test_arguments_of_another_type(self) -> None:
        nan = float("nan")
        for what, value in (
            ("key", 5), ("key", None), ("key", b"acme"), ("key", (b"acme",)), ("key", ({1},)), ("take", 5), ("take", {"gpu": {1}}), ("weight", {1}), ("weight", nan),
            ("label", b"me"), ("slot", {1}), ("priority", nan), ("timeout", nan), ("timeout", "5"),
        ):
            with self.subTest(what, value=value), self.assertRaisesRegex(Refused, f"^{what} {re.escape(repr(value))}: want ") as refused:
                self.semaphore.acquire(**{what: value})  # type: ignore[arg-type]
            self.assertEqual((refused.exception.status, refused.exception.kind), (400, "urn:sema:argument"))
        for what, value in (("name", 5), ("name", None), ("name", "\ud800"), ("limit", {1}), ("lease", nan), ("caps", 5), ("caps", ({1},)), ("pools", 5), ("pools", {"gpu": nan})):
            with self.subTest(what, value=value), self.assertRaisesRegex(Refused, f"^{what} {re.escape(repr(value))}: want "):
                self.client.semaphore(**{"name": self.name, "limit": 1} | {what: value}).acquire()  # type: ignore[arg-type]

    def test_names_that_a_path_may_not_have(self) -> None:
        for name in (".", "..", "...", "a/../b", "/a", "../", "%2E", "%2e%2e", " ", "a b?c#d", "ä"):
            with self.client.semaphore(name, limit=1).acquire(MINUTE) as permit:
                self.assertIn(name, self.names())
                permit.release()
        with self.assertRaises(Refused) as refused:
            self.client.semaphore("/", limit=1).acquire()
        self.assertEqual(refused.exception.status, 400)

    def test_nothing_free(self) -> None:
        with self.semaphore.acquire() as first:
            self.assertIsNone(self.semaphore.try_acquire())
            with self.assertRaises(Unavailable):
                self.semaphore.acquire(0.2)
        second = self.semaphore.try_acquire()
        assert second is not None
        self.assertGreater(second.token, first.token)
        second.release()
        second.release()

    def test_nobody_there(self) -> None:
        self.kill()
        with self.assertRaises(Unreachable):
            self.semaphore.acquire(0.2)
        with self.assertRaises(Unreachable):
            Client(self.url, patience=0.2).semaphore(self.name, limit=1).acquire()

    def test_a_permit_and_a_wait_outlive_the_server(self) -> None:
        first = self.semaphore.acquire()
        got: list[int] = []

        def wait() -> None:
            with self.semaphore.acquire(MINUTE) as permit:
                got.append(permit.token)

        waiting = threading.Thread(target=wait)
        waiting.start()
        self.kill()
        self.start()
        first.check()
        self.assertIsNone(self.semaphore.try_acquire())
        first.release()
        waiting.join(MINUTE)
        self.assertGreater(got[0], first.token)

    def test_renewals_outlast_the_lease(self) -> None:
        permit = self.client.semaphore(self.name, limit=1, lease=4).acquire()
        self.assertFalse(permit.wait_lost(5))
        self.assertIsNone(self.semaphore.try_acquire())
        permit.release()

    def test_a_stopped_server_is_a_loss_before_the_lease_ends(self) -> None:
        asked = time.monotonic()
        permit = self.client.semaphore(self.name, limit=1, lease=2).acquire()
        self.stop()
        self.assertTrue(permit.wait_lost(MINUTE))
        self.assertGreater(time.monotonic() - asked, 0.5)
        with self.assertRaises(PermitLost):
            permit.check()
        self.cont()
        with self.assertRaises(PermitLost):
            permit.release()

    def test_work_that_went_well_stays_well(self) -> None:
        with self.assertLogs("sema_client", "WARNING"):
            with self.client.semaphore(self.name, limit=1, lease=3).acquire():
                self.kill()

    def test_guessing_is_asked_again(self) -> None:
        ask, calls = self.client._ask, 0

        def guessing(request: Request) -> Answer | None:
            nonlocal calls
            calls += 1
            return Answer(429, {"type": "urn:sema:guessing", "retryAfter": 0.1}) if calls == 1 else ask(request)

        permit = self.semaphore.acquire(MINUTE)
        with unittest.mock.patch.object(self.client, "_ask", guessing):
            permit.release()

    def test_revoked(self) -> None:
        semaphore = self.client.semaphore(self.name, limit=1, lease=1)
        with self.assertRaises(PermitLost):
            with semaphore.acquire() as permit:
                self.revoke(permit.permit)
                self.assertTrue(permit.wait_lost(MINUTE))

    def test_a_renewal_of_another_grant_is_a_loss(self) -> None:
        ask = self.client._ask

        def later(request):  # type: ignore[no-untyped-def]
            answer = ask(request)
            if request.path.endswith("/renew") and answer is not None:
                answer.body["token"] += 1
            return answer

        permit = self.client.semaphore(self.name, limit=1, lease=3).acquire()
        with unittest.mock.patch.object(self.client, "_ask", later):
            self.assertTrue(permit.wait_lost(MINUTE))
        with self.assertRaisesRegex(PermitLost, "another grant"):
            permit.check()

    def test_a_lost_answer_takes_no_second_permit(self) -> None:
        ask, lost = self.client._ask, 0

        def lossy(request):  # type: ignore[no-untyped-def]
            nonlocal lost
            answer = ask(request)
            if request.method in ("PUT", "DELETE") and lost < 4 and lost % 2 == 0:
                lost += 1
                return None
            lost += 1
            return answer

        with unittest.mock.patch.object(self.client, "_ask", lossy):
            permit = self.semaphore.acquire(MINUTE)
            self.assertIsNone(Client(self.url).semaphore(self.name, limit=1).try_acquire())
            permit.release()
        again = self.semaphore.try_acquire()
        assert again is not None
        again.release()

    def test_a_long_poll_that_breaks_was_no_silence(self) -> None:
        for broken in (None, Answer(503, {"type": "urn:sema:closing"}), Answer(504, {"retryAfter": "soon"})):
            clock = 1000.0
            with unittest.mock.patch("sema_client._protocol.now", lambda: clock):
                steps = acquiring(Wish(self.name, 1, 30, 1, "", False, "", (), {}, {}, 0, 3600), 5)
                self.assertIsInstance(next(steps), Request)
                clock += 7  # in the queue, for longer than the patience
                self.assertIsInstance(steps.send(broken), Pause)
                for _ in range(3):
                    clock += 1
                    self.assertIsInstance(next(steps), Request)
                    self.assertIsInstance(steps.send(broken), Pause)
                clock += 6
                self.assertIsInstance(next(steps), Request)
                with self.assertRaises(Unreachable):
                    steps.send(broken)

    def test_a_loss_that_nobody_has_noticed_yet(self) -> None:
        with self.assertRaises(PermitLost), self.semaphore.acquire() as permit:
            permit._held.until = 0

    def test_what_is_no_permit_is_a_proxys(self) -> None:
        for text in (b"", b"{}", b"[]", b'"ok"', b"null", b'{"token": 1}', b"<html>"):
            self.assertEqual(answer_of(200, text).status, 502)

    def test_a_permit_without_a_thread_is_given_back(self) -> None:
        with unittest.mock.patch("threading.Thread.start", side_effect=RuntimeError), self.assertRaises(RuntimeError):
            self.semaphore.acquire()
        with self.semaphore.acquire(0):
            pass

    def test_a_release_that_says_nonsense_releases(self) -> None:
        with self.assertLogs("sema_client", "WARNING"), self.semaphore.acquire() as permit:
            permit.used("tokens per minute", 5)
        with self.semaphore.acquire(0):
            pass


if __name__ == "__main__":
    unittest.main()

"""A server of its own for a test: SEMA_BIN is the program, SEMA_ENGINE where the semaphores live."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import time
import unittest
import urllib.request
import uuid


class Serving(unittest.TestCase):
    def setUp(self) -> None:
        self.name = f"{self.id()}/{uuid.uuid4()}"
        self.port = 0
        self.start()
        self.addCleanup(self.kill)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the server, where it was before."""
        args = [os.environ["SEMA_BIN"], "serve", "--url", os.environ["SEMA_ENGINE"], "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(args, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"url=http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def stop(self) -> None:
        """Nothing is answered, and no connection breaks, until cont."""
        self.process.send_signal(signal.SIGSTOP)

    def cont(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def waiting(self, n: int, within: float = math.inf) -> None:
        """Returns once so many callers wait."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            with urllib.request.urlopen(f"{self.url}/v1/semaphores/{self.name.replace('/', '%2F')}") as answer:
                if json.load(answer)["waiting"] == n:
                    return
            time.sleep(0.02)  # a snapshot is asked for
        raise AssertionError(f"not {n} callers wait, after {within} s")

    def names(self) -> list[str]:
        """The names of all semaphores."""
        with urllib.request.urlopen(f"{self.url}/v1/semaphores?max=1000") as answer:
            return [semaphore["name"] for semaphore in json.load(answer)["semaphores"]]

    def revoke(self, permit: str, method: str = "POST", what: str = "/revoke") -> None:
        path = f"/v1/semaphores/{self.name.replace('/', '%2F')}/holders/{permit}{what}"
        with urllib.request.urlopen(urllib.request.Request(self.url + path, method=method)) as answer:
            self.assertEqual(answer.status, 204)

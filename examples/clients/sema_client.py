"""sema over HTTP in Python, with nothing to install. A permit is renewed while it is held.

    with permit("downloads", limit=3):
        ...
"""
import contextlib, json, os, threading, urllib.error, urllib.request, uuid
from urllib.parse import quote

URL = os.environ.get("SEMA_URL", "http://127.0.0.1:7362")
LEASE = 30.0


def call(method, path, body=None):
    request = urllib.request.Request(URL + path, method=method)
    request.add_header("Content-Type", "application/json")
    if "SEMA_SERVER_TOKEN" in os.environ:
        request.add_header("Authorization", "Bearer " + os.environ["SEMA_SERVER_TOKEN"])
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, data) as answer:  # raises HTTPError: 423, 429, 503, …
        return json.loads(answer.read() or "null")


@contextlib.contextmanager
def permit(name, limit, wait=3600.0, **more):
    path = f"/v1/semaphores/{quote(name, safe='')}/permits/{uuid.uuid4()}"
    held = call("PUT", path, {"limit": limit, "wait_seconds": wait, "lease_seconds": LEASE, **more})
    done, lost = threading.Event(), threading.Event()

    def renew():
        while not done.wait(LEASE / 3):
            try:
                call("POST", path + "/renew", {"lease_seconds": LEASE})
            except urllib.error.HTTPError as e:
                if e.code == 410:  # not held any more: stop the work
                    return lost.set()
            except OSError:
                pass  # the server may be back for the next renewal

    threading.Thread(target=renew, daemon=True).start()
    try:
        yield {**held, "lost": lost}
    finally:
        done.set()
        call("DELETE", path)

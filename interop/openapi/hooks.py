"""What schemathesis has to know of the API beyond its description."""
import re

import schemathesis
from schemathesis.specs.openapi.checks import use_after_free

PARTS = ("first", "second", "third")  # of a path with a key


@schemathesis.hook
def before_call(context, case, kwargs):
    """A long poll is short: nobody else gives back what it waits for. The names of a key fit together."""
    wait = case.body.get("wait_seconds") if isinstance(case.body, dict) else None
    if isinstance(wait, (int, float)) and not isinstance(wait, bool) and 0.1 < wait <= 3600:
        case.body["wait_seconds"] = 0.1
    path = case.path_parameters or {}
    parts = [part for part in PARTS if part in path]
    path.update(zip(parts, fitting([path[part] for part in parts])))
    if isinstance(case.body, dict) and isinstance(case.body.get("key"), list):
        case.body["key"] = fitting(case.body["key"])
    if isinstance(case.body, dict):
        pooled(case.body)


@schemathesis.hook
def filter_path_parameters(context, path_parameters):
    """JSON Schema counts characters; the server counts bytes."""
    longest = {"name": 255, "id": 128, "first": 255, "second": 255, "third": 255}
    return all(size(value) <= longest.get(name, 1000) for name, value in (path_parameters or {}).items())


@schemathesis.hook
def filter_body(context, body):
    if not isinstance(body, dict):
        return True
    key = body.get("key", "")
    return all(size(text) <= 255 for text in [body.get("label", ""), *(key if isinstance(key, list) else [key])])


def size(value):
    return len(str(value).encode("utf-8", "surrogatepass"))


def fitting(names):
    """JSON Schema bounds each name of a key. All together have at most 255 bytes, with one between two of them."""
    if all(isinstance(name, str) and size(name) <= 255 for name in names) and sum(size(name) + 1 for name in names) > 256:
        return [name[:20] for name in names]
    return names


def pooled(body):
    """A semaphore keeps the pools of earlier requests, and has 16 at the most: so they have the same names each time. A key and
    what is taken have 255 bytes together, which JSON Schema cannot say. What is wrong stays as it is."""
    for field in ("pools", "take"):
        amounts = body.get(field)
        if isinstance(amounts, dict) and len(amounts) <= 16 and all(re.fullmatch("[A-Za-z0-9._-]{1,32}", name) for name in amounts):
            body[field] = {f"p{i}": n for i, n in enumerate(amounts.values())}
    key, take = body.get("key", ""), body.get("take")
    if isinstance(take, dict) and all(re.fullmatch("p[0-9]+", name) and type(n) in (int, float) and n % 1 == 0 and 0 < n < 2**31 for name, n in take.items()):
        taken = "".join(f"{name}={n:.0f}," for name, n in take.items())
        if size(taken) + sum(size(name) + 1 for name in (key if isinstance(key, list) else [key])) > 255:
            del body["take"]


@schemathesis.deserializer("application/x-ndjson")
def lines(context, response):
    """The last line of a stream: each is an object of the same schema."""
    import json

    return [json.loads(line) for line in response.content.splitlines()][-1]


@schemathesis.check
def removed_until_acquired(ctx, response, case):
    """use_after_free knows that a PUT makes a resource anew. An acquire makes its semaphore anew as well, and is seen there."""
    semaphore = response.json() if response.status_code == 200 and "json" in str(response.headers.get("content-type")) else None
    if isinstance(semaphore, dict) and (semaphore.get("holders") or semaphore.get("waiters")):
        return None
    return use_after_free(ctx, response, case)

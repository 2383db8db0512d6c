"""What schemathesis has to know of the API beyond its description."""
import schemathesis
from schemathesis.specs.openapi.checks import use_after_free


@schemathesis.hook
def before_call(context, case, kwargs):
    """A long poll is short: nobody else gives back what it waits for."""
    wait = case.body.get("wait_seconds") if isinstance(case.body, dict) else None
    if isinstance(wait, (int, float)) and not isinstance(wait, bool) and 0.1 < wait <= 3600:
        case.body["wait_seconds"] = 0.1


@schemathesis.hook
def filter_path_parameters(context, path_parameters):
    """JSON Schema counts characters; the server counts bytes."""
    values = path_parameters or {}
    longest = {"name": 255, "id": 128}
    names = [values[part] for part in ("first", "second", "third") if part in values]
    return all(size(value) <= longest.get(name, 1000) for name, value in values.items()) and key_fits(names)


@schemathesis.hook
def filter_body(context, body):
    if not isinstance(body, dict):
        return True
    key = body.get("key", "")
    return size(body.get("label", "")) <= 255 and key_fits(key if isinstance(key, list) else [key])


def size(value):
    return len(str(value).encode("utf-8", "surrogatepass"))


def key_fits(names):
    """A key has at most 255 bytes in all, with one between two names."""
    return sum(size(name) + 1 for name in names) <= 256


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

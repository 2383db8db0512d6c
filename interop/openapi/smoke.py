"""A client that openapi-python-client has made of the description does what one does with a semaphore."""
import os
import sys

sys.path.insert(0, sys.argv[1])
from sema_client import AuthenticatedClient
from sema_client.api.default import acquire, list_, release, renew, set_key_2, set_limit, show
from sema_client.models import Acquire, KeyRule, Limit, Permit, Pools, Problem, Renew

client = AuthenticatedClient(base_url=os.environ["SEMA_URL"], token=os.environ["SEMA_SERVER_TOKEN"])
name = "down loads/ä"
held = acquire.sync(name, "job-17", client=client, body=Acquire(limit=1, label="made"))
assert isinstance(held, Permit) and held.weight == 1 and held.slot is None, held
again = acquire.sync(name, "job-17", client=client, body=Acquire(limit=1, label="made"))
assert isinstance(again, Permit) and again.token == held.token, again
full = acquire.sync(name, "job-18", client=client, body=Acquire(limit=1, wait_seconds=0.1))
assert isinstance(full, Problem) and full.status == 429, full
longer = renew.sync(name, "job-17", client=client, body=Renew(lease_seconds=60))
assert isinstance(longer, Permit) and longer.lease_seconds > 50, longer
assert set_limit.sync_detailed(name, client=client, body=Limit(limit=2)).status_code == 204
seen = show.sync(name, client=client)
assert seen.limit == 2 and [h.permit for h in seen.holders] == [held.permit], seen
assert [s.name for s in list_.sync(client=client, prefix="down").semaphores] == [name]
assert release.sync_detailed(name, "job-17", client=client).status_code == 204
assert show.sync(name, client=client).used == 0
alice = acquire.sync("api", "a1", client=client, body=Acquire(limit=9, caps=[3, 2], key=["acme", "alice"], weight=2))
assert isinstance(alice, Permit) and alice.key == ["acme", "alice"], alice
heavy = acquire.sync("api", "a2", client=client, body=Acquire(limit=9, caps=[3, 2], key="acme", weight=4))
assert isinstance(heavy, Problem) and heavy.at.key == "acme" and heavy.at.cap == 3, heavy
assert set_key_2.sync_detailed("api", "acme", "alice/b", client=client, body=KeyRule(cap=1)).status_code == 204
seen = show.sync("api", client=client)
assert seen.caps == [3, 2] and {str(k.key): k.held for k in seen.keys} == {"acme": 2, "['acme', 'alice']": 2, "['acme', 'alice/b']": 0}, seen
both = acquire.sync("ci", "b1", client=client, body=Acquire(limit=9, pools=Pools.from_dict({"gpu": 2, "licence": 1}), take=Pools.from_dict({"gpu": 2})))
assert isinstance(both, Permit) and both.takes["gpu"] == 2, both
none = acquire.sync("ci", "b2", client=client, body=Acquire(limit=9, take=Pools.from_dict({"gpus": 1})))
assert isinstance(none, Problem) and none.status == 404 and none.at.pool == "gpus", none
assert [(p.pool, p.limit, p.used) for p in show.sync("ci", client=client).pools] == [("gpu", 2, 2), ("licence", 1, 0)]
print("the client works")

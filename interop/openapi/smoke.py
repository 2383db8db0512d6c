"""A client that openapi-python-client has made of the description does what one does with a semaphore."""
import os
import sys

sys.path.insert(0, sys.argv[1])
from sema_client import AuthenticatedClient
from sema_client.api.default import acquire, list_, release, renew, set_limit, show
from sema_client.models import Acquire, Limit, Permit, Problem, Renew

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
print("the client works")

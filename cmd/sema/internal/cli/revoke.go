package cli

import "sema"

const revokeHelp = `Tell the holder of a permit to stop: at its next renewal it learns that it has
lost the permit, and "sema run" stops its command. The weight is free when the
holder has given it back, or when its lease has ended. "sema show NAME" lists
permits; "sema release NAME PERMIT" takes one back at once, unseen by its
holder until its next renewal.

--json prints an object:
  name, permit, revoked (true)`

var revokeVerb = permitVerb{
	name: "revoke", short: "Tell the holder of a permit to stop", help: revokeHelp,
	do: (*sema.Operator).Revoke, done: "revoked",
}

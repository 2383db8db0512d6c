package cli

import "sema"

const releaseHelp = `Give back a permit that "sema acquire" printed. The next waiter has it at once.

--json prints an object:
  name, permit, released (true)`

var releaseVerb = permitVerb{
	name: "release", short: "Give back a permit", help: releaseHelp,
	do: (*sema.Operator).Release, done: "released",
}

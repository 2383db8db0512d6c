package protocol

import "sema/internal/enum"

var (
	kindWords = []string{
		Ask: "ask", Renew: "renew", Release: "release", Revoke: "revoke", SetLimit: "set limit", UnsetLimit: "unset limit",
		Remove: "remove", Pause: "pause", Unpause: "unpause", SetKey: "set key", UnsetKey: "unset key", Report: "report", Cooldown: "cooldown",
	}
	statusWords = []string{
		Granted: "granted", Queued: "queued", Refused: "refused", Gone: "gone", Revoked: "revoked", TooHeavy: "too heavy",
		LimitDiffers: "limit differs", Done: "done", InUse: "in use", Pinned: "pinned", TooMany: "too many",
	}
)

// String names the operation, such as "set limit"; Kind(42) for a value that is none of
// the constants.
func (k Kind) String() string { return enum.Name("Kind", k, kindWords...) }

// String names the outcome, such as "limit differs"; Status(42) for a value that is none
// of the constants.
func (s Status) String() string { return enum.Name("Status", s, statusWords...) }

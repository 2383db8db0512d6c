package protocol

import (
	"fmt"
	"testing"
)

func TestEnumsHaveWords(t *testing.T) {
	for _, c := range []struct {
		value fmt.Stringer
		want  string
	}{
		{Kind(0), "Kind(0)"},
		{Ask, "ask"}, {Renew, "renew"}, {Release, "release"}, {Revoke, "revoke"}, {SetLimit, "set limit"},
		{UnsetLimit, "unset limit"}, {Remove, "remove"}, {Pause, "pause"}, {Unpause, "unpause"},
		{SetKey, "set key"}, {UnsetKey, "unset key"}, {Report, "report"}, {Cooldown, "cooldown"}, {Cooldown + 1, "Kind(14)"}, {Kind(255), "Kind(255)"},
		{Status(0), "Status(0)"},
		{Granted, "granted"}, {Queued, "queued"}, {Refused, "refused"}, {Gone, "gone"}, {Revoked, "revoked"},
		{TooHeavy, "too heavy"}, {LimitDiffers, "limit differs"}, {Done, "done"}, {InUse, "in use"},
		{Pinned, "pinned"}, {TooMany, "too many"}, {TooMany + 1, "Status(12)"}, {Status(42), "Status(42)"}, {Status(255), "Status(255)"},
	} {
		if got := c.value.String(); got != c.want {
			t.Errorf("%#v reads as %q, want %q", c.value, got, c.want)
		}
	}
}

package redisengine

import (
	"context"
	"encoding/binary"

	"github.com/redis/go-redis/v9"

	"sema/engine"
	"sema/internal/protocol"
)

// appendTotals appends t as TOTALS of lua/layout.lua.
func appendTotals(b []byte, t *protocol.Totals) []byte {
	return appendNumber(appendNumber(appendNumber(b, float64(t.Good)), float64(t.Bad)), float64(t.Waited))
}

// appendAuto appends a as AUTO of lua/layout.lua.
func appendAuto(b []byte, a *engine.Auto) []byte {
	for _, n := range []int{a.Min, a.Max, a.Bad} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// mark is MARK of lua/layout.lua.
const mark = "sem1"

// The sizes of stored reports, in bytes.
const (
	stateFlags = len(mark) + 10*8 // the offset of the flags in STATE
	reportSize = 32
	autoSize   = 20
)

// Reports implements protocol.Reporting.
func (s *session) Reports(ctx context.Context) (protocol.Reports, error) {
	r, err := cancellable(ctx, func() (protocol.Reports, error) {
		var now *redis.Cmd
		var state *redis.StringCmd
		var all *redis.MapStringStringCmd
		_, err := s.caller.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			now = p.Eval(ctx, clock, s.keys.all[:1])
			state = p.HGet(ctx, s.keys.state(), "")
			all = p.HGetAll(ctx, s.keys.reports())
			return nil
		})
		if err != nil && err != redis.Nil { // redis.Nil: there is no state
			return protocol.Reports{}, err
		}
		return decodeReports(integer(now.Val()), state.Val(), all.Val()), nil
	})
	if err != nil {
		return protocol.Reports{}, s.caller.wrap("reports", s.name, err)
	}
	return r, nil
}

// decodeAuto reads AUTO and its end. It returns nil if the end is not after
// now.
func decodeAuto(now int64, text string) *engine.Auto {
	if len(text) != autoSize || int64(numberAt(text[12:])) <= now {
		return nil
	}
	n := func(at int) int { return int(int32(binary.LittleEndian.Uint32([]byte(text[at:])))) }
	return &engine.Auto{Min: n(0), Max: n(4), Bad: n(8)}
}

// decodeReports reads the reports that have not ended at now. It skips entries
// that it does not understand.
func decodeReports(now int64, state string, all map[string]string) protocol.Reports {
	r := protocol.Reports{Totals: map[string]protocol.Totals{}}
	if len(state) > stateFlags {
		r.Limit, r.Pinned = int(numberAt(state[len(mark):])), state[stateFlags]&1 != 0
	}
	for client, text := range all {
		switch a := decodeAuto(now, text); {
		case client == "" && a != nil:
			r.Auto = *a
		case client != "" && len(text) == reportSize && int64(numberAt(text[24:])) > now:
			r.Totals[client] = protocol.Totals{Good: int64(numberAt(text)), Bad: int64(numberAt(text[8:])), Waited: int64(numberAt(text[16:]))}
		}
	}
	return r
}

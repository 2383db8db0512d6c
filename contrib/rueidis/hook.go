package semarueidis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// through sends the commands of a go-redis client through a rueidis client.
type through struct{ client rueidis.Client }

// keyAt says which word of a command is its key. Other commands go over
// connections of go-redis: they are rare, or, like WAIT, would block a shared
// connection.
var keyAt = map[string]int{"evalsha": 3, "eval": 3, "get": 1, "hscan": 1, "zmscore": 1}

// tries is how often a command is sent that go-redis would repeat, too.
const tries = 4

// DialHook implements redis.Hook.
func (through) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (t through) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !t.takes(cmd) {
			return next(ctx, cmd)
		}
		return t.send(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (t through) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !t.takes(cmds...) {
			return next(ctx, cmds)
		}
		return t.send(ctx, cmds...)
	}
}

func (through) takes(cmds ...redis.Cmder) bool {
	for _, cmd := range cmds {
		if at := keyAt[cmd.Name()]; at == 0 || len(cmd.Args()) <= at || setter(cmd) == nil {
			return false
		}
	}
	return true
}

// send sends commands in one go, and returns the first error.
func (t through) send(ctx context.Context, cmds ...redis.Cmder) error {
	if err := ctx.Err(); err != nil {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
	again := !slices.ContainsFunc(cmds, redis.Cmder.NoRetry)
	for try := 1; ; try++ {
		first, lost := t.sendOnce(ctx, cmds)
		if !lost || !again || try == tries || ctx.Err() != nil {
			return first
		}
	}
}

// sendOnce also reports whether an answer was lost.
func (t through) sendOnce(ctx context.Context, cmds []redis.Cmder) (first error, lost bool) {
	words := make([]rueidis.Completed, len(cmds))
	for i, cmd := range cmds {
		words[i] = t.command(cmd)
	}
	for i, result := range t.do(shared{ctx}, words) {
		err := setter(cmds[i])(result)
		lost = lost || err != nil && result.NonRedisError() != nil
		cmds[i].SetErr(translate(err))
		if first == nil {
			first = cmds[i].Err()
		}
	}
	return first, lost
}

func (t through) do(ctx context.Context, words []rueidis.Completed) []rueidis.RedisResult {
	if len(words) == 1 {
		return []rueidis.RedisResult{t.client.Do(ctx, words[0])}
	}
	return t.client.DoMulti(ctx, words...)
}

// command copies the words: rueidis may send them after the caller has gone.
func (t through) command(cmd redis.Cmder) rueidis.Completed {
	args := cmd.Args()
	words := make([]string, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case string:
			words[i] = a
		case *string:
			words[i] = *a
		case []byte:
			words[i] = string(a)
		default:
			words[i] = fmt.Sprint(a)
		}
	}
	key := keyAt[cmd.Name()]
	return t.client.B().Arbitrary(words[:key]...).Keys(words[key]).Args(words[key+1:]...).Build()
}

// shared is a context that hides its deadline; its Done still ends then. At a
// deadline rueidis would close the connection, and fail the calls of others on
// it.
type shared struct{ context.Context }

// Deadline implements context.Context.
func (shared) Deadline() (time.Time, bool) { return time.Time{}, false }

// setter is what puts a result into a command; nil if it is none of the few kinds
// of commands that the engine has.
func setter(cmd redis.Cmder) func(rueidis.RedisResult) error {
	switch c := cmd.(type) {
	case interface{ SetVal(string) }:
		return put(rueidis.RedisResult.ToString, c.SetVal)
	case interface{ SetVal([]float64) }:
		return put(rueidis.RedisResult.AsFloatSlice, c.SetVal)
	case interface{ SetVal(any) }:
		return put(rueidis.RedisResult.ToAny, c.SetVal)
	case interface{ SetVal([]string, uint64) }:
		return put(rueidis.RedisResult.AsScanEntry, func(e rueidis.ScanEntry) { c.SetVal(e.Elements, e.Cursor) })
	}
	return nil
}

func put[T any](read func(rueidis.RedisResult) (T, error), set func(T)) func(rueidis.RedisResult) error {
	return func(r rueidis.RedisResult) error {
		value, err := read(r)
		if err == nil {
			set(value)
		}
		return err
	}
}

// translate makes an error of rueidis one of go-redis, so that the engine knows
// what it means. Whatever the server has not said may have been carried out.
func translate(err error) error {
	var reply *rueidis.RedisError
	var network net.Error
	switch {
	case err == nil:
		return nil
	case rueidis.IsRedisNil(err):
		return redis.Nil
	case errors.As(err, &reply):
		text := reply.Error()
		if word, _, _ := strings.Cut(text, " "); word != strings.ToUpper(word) {
			text = "ERR " + text // which rueidis has cut off
		}
		return replyError(text)
	case errors.As(err, &network), errors.Is(err, context.Canceled), errors.Is(err, io.EOF):
		return fmt.Errorf("rueidis: %w", err) // the context's error alone would say that nothing was sent
	}
	return lost{err}
}

// replyError is what the server said.
type replyError string

// Error implements error.
func (e replyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (replyError) RedisError() {}

// lost is an error without an answer of the server: the client closes a
// connection, or knows no node for a slot. The outcome of the command is
// unknown.
type lost struct{ error }

// Unwrap is for errors.Is and errors.As.
func (l lost) Unwrap() error { return l.error }

// Timeout implements net.Error.
func (lost) Timeout() bool { return false }

// Temporary implements net.Error.
func (lost) Temporary() bool { return true }

package classic

import (
	"fmt"

	"github.com/redis/go-redis/v9"
)

// InputError is the error for an argument that no call can work with. It is
// returned before anything is sent to Redis.
type InputError struct {
	Field string // what was wrong: "name", "limit", "lease", …
	Value any    // the value as given
	Want  string // what it must be
}

// Error names the value and what it must be.
func (e *InputError) Error() string {
	if s, ok := e.Value.(string); ok {
		return fmt.Sprintf("classic: %s %q: must be %s", e.Field, s, e.Want)
	}
	return fmt.Sprintf("classic: %s %v: must be %s", e.Field, e.Value, e.Want)
}

// failed puts the operation and the semaphore's name in front of an error from
// Redis, and a hint behind the two that mean a wrong name.
func failed(op, name string, err error) error {
	hint := ""
	switch {
	case err == nil:
		return nil
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		hint = " (another kind of data has this name; try: another name)"
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		hint = " (on a cluster the name needs a hash tag; try: {" + name + "})"
	}
	return fmt.Errorf("classic: %s %q: %w%s", op, name, err, hint)
}

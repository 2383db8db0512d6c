package classic

import (
	"fmt"

	"sema/engine"
	"sema/internal/rediserror"
)

// ArgumentError says which value was refused and what would have been taken.
// Nothing was sent to Redis. Its Package is "classic".
type ArgumentError = engine.ArgumentError

func invalid(what string, value any, want string) error {
	return &ArgumentError{Package: "classic", What: what, Value: value, Want: want}
}

// failed puts the operation and the semaphore's name in front of an error from
// Redis or the network, and behind it what the user can try.
func failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if hint := rediserror.Sort(err).Hint; hint != "" {
		return fmt.Errorf("classic: %s %q: %w (%s)", op, name, err, hint)
	}
	return fmt.Errorf("classic: %s %q: %w", op, name, err)
}

package redisson

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// idBytes is the length of a permit id in Redis (Redisson 3.17 and later). Users
// see it as 32 hexadecimal digits.
const idBytes = 16

// maxIDs bounds how many permits one call of the expirable semaphore takes or
// returns, so that its script stays short.
const maxIDs = 1000

// newIDs makes n ids, as Redis keeps them.
func newIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		var raw [idBytes]byte
		_, _ = rand.Read(raw[:]) // never fails since Go 1.24
		ids[i] = string(raw[:])
	}
	return ids
}

// showIDs turns ids from Redis into those users see.
func showIDs(raw []string) []string {
	ids := make([]string, len(raw))
	for i, id := range raw {
		ids[i] = hex.EncodeToString([]byte(id))
	}
	return ids
}

// readIDs turns ids from users into those in Redis.
func readIDs(ids []string) ([]any, error) {
	if len(ids) == 0 || len(ids) > maxIDs {
		return nil, invalid("number of permit ids", len(ids), "1 to 1000")
	}
	raw := make([]any, len(ids))
	seen := make(map[string]bool, len(ids))
	for i, id := range ids {
		b, err := hex.DecodeString(id)
		if err != nil || len(b) != idBytes {
			return nil, invalid("permit id", id, "32 hexadecimal digits")
		}
		if seen[string(b)] {
			return nil, invalid("permit id", id, "each id only once")
		}
		seen[string(b)] = true
		raw[i] = string(b)
	}
	return raw, nil
}

// newHandleID names one handle's receipts.
func newHandleID() string {
	var raw [8]byte
	_, _ = rand.Read(raw[:])
	return fmt.Sprintf("%x", raw)
}

package redisson

import (
	"crypto/rand"
	"encoding/hex"
)

// idBytes is the length of a permit id in Redis (Redisson 3.17 and later). Users
// see it as 32 hexadecimal digits.
const idBytes = 16

// maxIDs bounds how many permits one call of the expirable semaphore takes or
// returns, so that its script stays short.
const maxIDs = 1000

func random(n int) []byte {
	raw := make([]byte, n)
	_, _ = rand.Read(raw) // never fails since Go 1.24
	return raw
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

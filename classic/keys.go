package classic

// All key names. The book's names are used as they are. With a prefix or hash
// tag of ours the book's own clients would not find the keys.

// lockKey holds the id of the lock's holder (string, with a TTL in seconds).
func lockKey(name string) string { return "lock:" + name }

// ownerKey is the ZSET of ids by counter value.
func ownerKey(name string) string { return name + ":owner" }

// counterKey is the number of tries so far (string; never removed).
func counterKey(name string) string { return name + ":counter" }

// holderKey lives as long as the lease of one permit of Clockless; its value
// is that lease in milliseconds. The book has no such key.
func holderKey(name, id string) string { return holderPrefix(name) + id }

func holderPrefix(name string) string { return name + ":holder:" }

package redisengine

// ReadBy has an engine read so many permits and tickets in one step.
func (e *Engine) ReadBy(n int) { e.caller.part = n }

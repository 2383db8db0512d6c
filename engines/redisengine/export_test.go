package redisengine

// ReadBy sets how many permits and tickets an engine reads in one step.
func (e *Engine) ReadBy(n int) { e.caller.readSize = n }

-- Counts available permits. A script and not GET, so that no client set-up
-- sends it to a replica that lags behind.
--
-- KEYS    counter, channel
-- Returns {permits available now, 0 without a semaphore}
return {value() or 0}

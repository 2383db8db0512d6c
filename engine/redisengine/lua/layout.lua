-- The state of a semaphore is one string: a mark, then limit, used, token,
-- arrival, keep, first, alarm, revoked, queued, pinned, slotted, listed, watcher.
-- step.lua says what they mean.
local MARK, LAYOUT = 'sem1', '<c4dddddddddBBBs'

-- The constants of the scripts: the data in the keys, and the formats of calls
-- and replies. Times are in microseconds. Numbers are packed as doubles, which
-- are exact up to 2^53. For times and tokens that suffices until the year 2255.
--
-- KEYS  1 state    hash  ''        -> the semaphore, see STATE
--                        permit id -> PERMIT or TICKET; a named one has a TAIL behind it
--       2 holders  zset  permit id -> end of the lease; KEEPER -> inf
--       3 waiters  zset  permit id -> place in the queue
--       4 slots    zset  permit id -> slot, of permits with a slot
--       5 fences   hash  client    -> FENCE
--       6 keepers  hash  client    -> KEPT: the client may keep released permits
--       7 client   string  the caller's description, in calls that send it. In other calls with
--                          further keys, the state takes its place
--       8 turn     zset    of a semaphore with keys, all with score 0. Runnable classes: the path above, a zero, TURN,
--                          the last name. Blocked ones: byte 255, epoch, the path
--       9 keys     hash    '' -> KEYED, common to all keys; k and a path -> KEY
--      10 lines    zset    path, a zero, place, id of the tickets of classes with a name, all with score 0
--
-- A path is the names of a key, with bytes 1 between. A path with a byte 1 at its end is that of the leaf where
-- the callers of a key queue beside others below it; in lines and behind permits they have the path of the key.
-- The tickets that want some of the same pools have classes of their own, whose paths begin with the names of the pools,
-- with commas between, and a byte 2. Behind a permit or ticket that takes some, a byte 2 and the amounts follow its path:
-- "gpu=1,licence=2", by name. If one of them is a rate, a byte 3 follows a permit's amounts, and for each until when that
-- counts as the permit's own, with blanks between.
--      11 reports  hash    client -> REPORT; '' -> AUTO and its end, of the last controller. Only
--                          in calls that report, or come from a controller
--
-- The state decides: without it the semaphore begins anew. The zsets only order
-- its entries. Each key has a time to live. Exceptions are state and keys of a
-- semaphore that is pinned, is paused, or has rules of keys.
--
-- ARGV of step
--       1 the calling client
--       2 CALL, then a RUN for each run of requests that differ only in their ids
--         and in what follows RUN for each request, such as ASKED or TOKEN. A run
--         of n asks, renewals, releases or revocations takes the next n ids.
--       3 … the ids, as many as CALL says
--       then, with KEYS[7], the description and its time to live in milliseconds
--
-- step returns one string: HEAD; a RECORD for each run of answers; the
-- notification for the caller, in lines. A late call gets a HEAD alone.
--       granted  token, slot, lease      the next of the run: token + 1
--       queued   ticket, ahead, 0        the next of the run: ahead + 1
--
-- A notification consists of lines. It is published to the client's inbox:
--       g id token slot ticket           the ticket has become a permit
--       a                                ask again for every ticket
--       n                                renew every permit: one is revoked
--       r time                           ask again for one ticket after that long
--       c                                you may no longer keep released permits
--
-- script.go replaces the constants that are numbers or strings by their values.
local MARK = 'sem1'

-- The error for a state with another mark. It names the key, the mark, and the release that wrote the state: a state
-- with a later mark has that release in the field 'release'.
local OTHER_VERSION = 'SEMAVERSION %s is kept in layout %.4s, by sema %s'
local HAS_KEYS = 'SEMAKEYED %s has keys, and the call does not name theirs'
local NOT_OURS = 'WRONGTYPE %s is not sema\'s'

-- KEEPER is a permanent member of holders: with it the key exists when nobody
-- holds a permit. The server stores small hashes and zsets as lists and searches
-- them from the start, unless an entry is longer than 64 bytes. So KEEPER and
-- STATE are longer.
local KEEPER = 'This member keeps the key, and is long so that the key is no list to be searched.'

-- STATE, the field '' of the state:
--   c4  MARK
--   d   limit
--   d   used: the weight held
--   d   token: the last one given out
--   d   keep: the keys live at least until then
--   d   first: no lease ends before
--   d   fenced: when the last FENCE ends
--   d   alarm: when the ticket watcher asks, because a lease ends
--   d   queued: tickets
--   d   keepers: until when the key keepers lives
--   d   keeps: when the last KEPT ends, or later
--   B   flags: 1 pinned, 2 has slots, 4 paused, 8 keyed, 16 a pool or a key is over what it may hold,
--       32 a COOLDOWN follows, 64 the limit is only watched, and an OBSERVED comes before that
--   s   watcher: the id of a ticket
local STATE = '<c4ddddddddddBs'

-- OBSERVED, behind the watcher: NAMED with how many would have waited, how many of those for the limit, and the most weight that was
-- held. Behind a semicolon there are the levels, and how many grants each was needed for: "12 8 40;1=7,2=9".
--
-- COOLDOWN, behind those: its end. Then, to the end, the description of who said so.
local COOLDOWN = '<d'

-- PERMIT, of a key with a name with 'H' or 'R', and its target and a zero behind it:
--   c1  'h' held, 'r' revoked
--   d   token
--   d   time of the grant
--   d   slot, or -1, or -WOULD_WAIT
local PERMIT = '<c1ddd'

-- TICKET, of a key with a name with 'Q', and its target and a zero behind it:
--   c1  'q'
--   d   end
--   d   place in the queue
--   I4  number of callers behind it in its process
--   B   1: it insists: it is granted in its order even if its client cannot be notified; 2: it is revoked
local TICKET = '<c1ddI4B'

-- TAIL, behind a named permit or ticket; then, to the end, the description of the caller that it is for:
--   s   the session that gets the notifications about it
--   s   the rival session, or ''
local TAIL = '<ss'
local PERMIT_SIZE, TICKET_SIZE = 25, 22 -- a longer value has a tail

-- KEYED, of all keys together. With pools there follow the amounts that there are, a zero, those in use, a zero, and the sets
-- that wait with their tickets: "gpu=3;gpu,licence=1". With rates a zero, and when all are back, and how much time permits have
-- given back: "rpm=1.7e15 0,tpm=1.7e15 250"; also of those that were rates while permits held some.
--   d d d  the caps of keys without a rule, by depth; 0: none
--   d   time: virtual, among the keys below the root
--   d   seq: the last one given
--   d   epoch: grows with each change of those caps
--   d   swept: the epoch at which all blocked classes were last looked at
--   d   rules: keys that have one
--   d   runnable: classes of leaves that are
--   d   over: keys that are marked so
local KEYED = '<dddddddddd'

-- KEY, of a key or a class. Then the head's id, if it is known; with pools a zero, the number of tickets in other
-- classes, a blank, and by pool the weight held of permits that have some.
--   d   held: weight
--   d   n: tickets
--   d   cap by its rule, or 0
--   d   share by its rule, or 0
--   B   1 ruled, 2 others are below it, 4 over its cap
--   B   state: 1 runnable, 2 blocked
--   d   start: virtual time since which it waits
--   d   seq: since when it waits, among equals; 0: nobody waits
--   d   level of one that is runnable, the epoch at which it was blocked of another
--   d   finish: virtual time at which its head will have been served
--   d   time: virtual, among the keys below it
--   d   place of the head
local KEY = '<ddddBBdddddd'
local KEY_SIZE, KEYED_SIZE = 82, 80

-- TURN orders what is runnable: level, finish, seq.
local TURN = '>I8I8I8'

-- KEPT: 1 if keys wait, and each is blocked by its cap; until when the client may keep.
local KEPT = '<Bd'

-- FENCE: the smallest number of a call that is carried out, and its end.
local FENCE = '<dd'

-- TOTALS of a REPORT: good and bad, each in weight * time held; grants that had waited.
local TOTALS = '<ddd'
local REPORT = '<dddd' -- TOTALS, end

-- AUTO: least and largest limit, bad part in thousandths, as numbers of 4 bytes.
local AUTO = '<c12'

-- CALL
--   d   number
--   B   1 fence, 2 must pass with full memory
--   I4  ids
--   d   keep: for how long the client would keep permits
local CALL = '<dBI4d'

-- RUN, of n requests; then n times what is particular to one
--   B   kind
--   B   flags: see below
--   I4  n
--   I4  limit; 2^31 more: it is only watched
--   I4  weight
--   d   lease
--   d   ticket: its life
local RUN = '<BBI4I4I4dd'
local ASKED = '<dI4'     -- of each ask: time waited, callers behind it in its process
local KEY_NAME = '<Bc0'  -- of each ask with a key: the key, and what it takes
local CAPS = '<I4I4I4'   -- of a run of asks with keys, by depth
local NAMED = '<I4c0'    -- of each ask for a named permit: the description of the caller; of each cooldown: that of who says so; and of a run: the pools
local TOKEN = '<d'       -- of each request, if flagged: the last token that the client knows of; with flag 64, NAMED of a release: what was used of rates

-- HEAD; then the caps of keys, and the size of the text of pools and the text
--   d   limit
--   d   recheck
--   B   1 the caller may keep permits, 4 unreachable, 8 recalled, 16 none is runnable, 32 caps follow, 64 pools follow, 128 the limit is
--       only watched
local HEAD = '<ddB'
local RECORD = '<BI4ddd' -- status, n, and three numbers
local ONE = '<ddBBI4ddd' -- HEAD and one RECORD

-- What is done with the ticket that is next, see judge.
local SERVE, DROP, REFUSE, BLOCKED_BY_KEY, BLOCKED_BY_LIMIT, BLOCKED_BY_POOL = 1, 2, 3, 4, 5, 6

-- Kinds and statuses are those of package engine. Flags of a run: 1 wait,
-- 2 unfair, 4 strict, 8 slot, 16 pin, newest or with tokens, 32 again or mine, 64 anew or auto,
-- 128 another client's or, of asks, named.
local ASK, RENEW, RELEASE, REVOKE, SET_LIMIT, UNSET_LIMIT, REMOVE, PAUSE, UNPAUSE, SET_KEY, UNSET_KEY, REPORT_KIND, COOL = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
local ASK_KEYED = 100 -- an ask with a key: the caps of keys follow RUN, the key follows each ask
local SET_CAPS = 105 -- SET_LIMIT with caps of keys: they follow RUN, each 1 more than it is, or 0 to leave it unchanged
local ASK_POOLED, SET_POOLS = 101, 106 -- as the two above; NAMED with the pools follows the caps
local GRANTED, QUEUED, REFUSED, GONE, REVOKED, TOO_HEAVY, LIMIT_DIFFERS, DONE, IN_USE, PINNED, TOO_MANY = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
local HELD, TICKETED = 104, 113 -- the first bytes of PERMIT and TICKET

-- MAX_BUDGET is the largest number of tickets that one step serves or drops: a step
-- must not block the server for long. The next step goes on. A ticket costs about
-- 20 µs, most of it for the message; an ended lease costs a tenth of that. The
-- other bounds have the same reason.
local MAX_BUDGET = 32
local MAX_ENDS = 128 -- leases that one step ends
local MAX_TOLD = 128 -- keepers that one step recalls
local CENTURY = 3155760000000000 -- how far ahead a rate can be used up, in microseconds
local MAX_SWEPT = 128 -- blocked classes that one step looks at after the caps of keys have changed
local MAX_SETS = 16 -- sets of pools that wait
local SETS_PER_COST = 4 -- for so many of them a ticket costs one more of the budget: the classes of each set are put into their lists again
local MAX_POOLS = 16
local MAX_LOOKED = 1000 -- tickets among which one step looks for another client's

local MAX_COOLDOWN = 600000000 -- longest time that one request stops all grants
local MIN_DUE = 5000 -- the shortest time after which a client asks what time has brought
local IDLE = 60000000     -- minimum time that the keys live beyond a lease
local FENCED = 1000000000 -- time after a fence in which late calls are refused: longer than a kernel repeats a packet
local REPORTED = 60000000 -- time that a report is kept

local WATCHED = 2147483648 -- is added to a limit that is only watched
local WOULD_WAIT = 2 -- less than 0, the slot of a permit that would have waited
local FINE_LEVELS = 32 -- see level_of

-- Lua's own conversion keeps 14 digits; microseconds have 16. %d is several
-- times as fast as %.0f, but some builds of Lua have only 32 bits for it.
local INTEGER = string.format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'

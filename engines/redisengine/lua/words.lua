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
--       8 turn     zset    of a semaphore with keys, all with score 0. Lanes in turn: the path above, a zero, level, tag
--                          and seq, the last name. Lanes aside: byte 255, epoch, the path
--       9 keys     hash    '' -> KEYED, common to all keys; k and a path -> KEY
--      10 lines    zset    path, a zero, place, id of the tickets of lanes with a name, all with score 0
--
-- A path is the names of a key, with bytes 1 between. A path with a byte 1 at its end is that of the leaf where
-- the callers of a key queue beside others below it; in lines and behind permits they have the path of the key.
-- The tickets that want some of the same pools have lanes of their own, whose paths begin with the names of the pools,
-- with commas between, and a byte 2. Behind a permit or ticket that takes some, a byte 2 and the amounts follow its path:
-- "gpu=1,licence=2", by name.
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
-- More on STATE: token is the last one given out. The keys live at least until keep.
-- The first lease ends at first or later, the last FENCE at fenced. The ticket
-- watcher asks at alarm, when a lease ends. The last KEPT ends at keeps or earlier; the key
-- keepers lives until keepers.
local STATE = '<c4ddddddddddBs'  -- MARK, limit, used, token, keep, first, fenced, alarm, queued, keepers, keeps, flags, watcher
local PERMIT = '<c1ddd'          -- 'h' held or 'r' revoked, token, time of the grant, slot or -1
local TICKET = '<c1ddI4B'        -- 'q' queued, end, place, number of callers behind it in its process, 1: it insists (granted in turn even if its client cannot be notified)
local TAIL = '<ss'               -- the session that gets the notifications about it, the rival session; then, to the end, the description of the caller that it is for
local PERMIT_SIZE, TICKET_SIZE = 25, 22 -- a longer value has a tail
local KEYED = '<dddddddddd'      -- the caps of keys without a rule, by depth; virtual time, the last seq, epoch, the epoch at which all lanes aside were last checked, number of rules, of leaves in turn, of keys over their caps; then, with pools, the amounts that there are, a zero, those in use, a zero, the sets that wait with their tickets: "gpu=3;gpu,licence=1"
local KEY = '<ddddBBdddddd'      -- held, tickets, cap, share, 1 ruled + 2 others are below it + 4 over its cap, 1 in turn 2 aside, base, seq (0: nobody waits), level or epoch, tag, virtual time of those below it, place of the head; then the head's id, if it is known; with pools a zero, the number of tickets in other lanes, a blank, and by pool the weight held of permits that have some
local KEY_SIZE, KEYED_SIZE = 82, 80
local TURN = '>I8I8I8'           -- level, tag, seq
local KEPT = '<Bd'               -- 1: keys wait, and all are at their caps; until when
local FENCE = '<dd'              -- smallest number of a call that is carried out, end
local TOTALS = '<ddd'            -- good and bad, each in weight * time held; number of grants that had waited
local REPORT = '<dddd'           -- TOTALS, end
local AUTO = '<c12'              -- least and largest limit, bad part in thousandths, as numbers of 4 bytes
local CALL = '<dBI4d'            -- number, 1 fence + 2 must pass with full memory, ids, keep
local RUN = '<BBI4I4I4dd'        -- kind, flags, n, limit, weight, lease, ticket; then n times
local ASKED = '<dI4'             -- of asks: time waited, callers behind it in its process
local KEY_NAME = '<Bc0'
local CAPS = '<I4I4I4'
local NAMED = '<I4c0'            -- of asks for named permits: the description of the caller; and of pools
local TOKEN = '<d'               -- if flagged: the last token that the client knows of
local HEAD = '<ddB'              -- limit, recheck; 1 the caller may keep permits + 4 unreachable + 8 recalled + 16 room + 32 the caps of keys follow, because one is not 0; + 64 the size of the text and the pools follow
local RECORD = '<BI4ddd'         -- status, n, and three numbers
local ONE = '<ddBBI4ddd'         -- HEAD and one RECORD

-- Kinds and statuses are those of package engine. Flags of a run: 1 wait,
-- 2 unfair, 4 strict, 8 slot, 16 pin, newest or with tokens, 32 again or mine, 64 anew or auto,
-- 128 another client's or, of asks, named. Flags of a state: 1 pinned, 2 has slots, 4 paused, 8 keyed, 16 more of a pool is in use than there is, or a key is over its cap.
local ASK, RENEW, RELEASE, REVOKE, SET_LIMIT, UNSET_LIMIT, REMOVE, PAUSE, UNPAUSE, SET_KEY, UNSET_KEY, REPORT_KIND = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
local ASK_KEYED = 100 -- an ask with a key: the caps of keys follow RUN, the key follows each ask
local SET_CAPS = 105 -- SET_LIMIT with caps of keys: they follow RUN, each 1 more than it is, or 0 to leave it unchanged
local ASK_POOLED, SET_POOLS = 101, 106 -- as the two above; NAMED with the pools follows the caps
local GRANTED, QUEUED, REFUSED, GONE, REVOKED, TOO_HEAVY, LIMIT_DIFFERS, DONE, IN_USE, PINNED, TOO_MANY = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
local HELD, TICKETED = 104, 113 -- the first bytes of PERMIT and TICKET

-- MAX_TURNS is the largest number of tickets that one step grants or drops: a step
-- must not block the server for long. The next step goes on. A ticket costs about
-- 20 µs, most of it for the message; an ended lease costs a tenth of that. The
-- other bounds have the same reason.
local MAX_TURNS = 32
local MAX_ENDS = 128 -- leases that one step ends
local MAX_TOLD = 128 -- keepers that one step recalls
local MAX_SWEPT = 128 -- keys aside that one step checks after the caps of keys have changed
local MAX_SETS = 16 -- sets of pools that wait
local SETS_PER_TURN = 4 -- for so many of them a ticket takes one turn more: each of their lanes is put to its place again
local MAX_POOLS = 16
local MAX_LOOKED = 1000 -- tickets among which one step looks for another client's

local IDLE = 60000000     -- minimum time that the keys live beyond a lease
local FENCED = 1000000000 -- time after a fence in which late calls are refused: longer than a kernel repeats a packet
local REPORTED = 60000000 -- time that a report is kept

-- Lua's own conversion keeps 14 digits; microseconds have 16. %d is several
-- times as fast as %.0f, but some builds of Lua have only 32 bits for it.
local INTEGER = string.format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'

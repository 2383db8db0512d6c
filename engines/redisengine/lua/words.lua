-- The words of the scripts: what the keys hold, what travels, how it is packed.
-- Times are microseconds. Numbers are packed as doubles, which are exact up to
-- 2^53: until the year 2255 for times and tokens.
--
-- KEYS  1 state    hash  ''        -> the semaphore, see STATE
--                        permit id -> its permit (PERMIT) or its ticket (TICKET); of a named one with a TAIL
--       2 holders  zset  permit id -> end of the lease; KEEPER -> inf
--       3 waiters  zset  permit id -> place in the queue
--       4 slots    zset  permit id -> slot, of permits with a slot
--       5 fences   hash  client    -> FENCE
--       6 keepers  hash  client    -> KEPT, of clients that were told what to do with released permits
--       7 client   string  who the caller is; only in calls that describe it. In others the
--                          state stands in its place, if more follow
--       8 turn     zset    of a semaphore with keys, those in turn: what goes before the name
--                          orders those of a level, which is the score. Those at their cap: name -> ASIDE + epoch
--       9 keys     hash    '' -> what all keys have in common, KEYED; k and a name -> KEY
--      10 lines    zset    name, place, id of the tickets of keys with a name, all with score 0
--      11 reports  hash    client -> REPORT; '' -> AUTO and its end, of the last controller. Only
--                          in calls that report, or are a controller's
--
-- The state is the truth: a semaphore without it begins anew. The zsets order
-- what is in it. Each key has a time to live, but for the state of a semaphore
-- whose limit is pinned.
--
-- ARGV of step
--       1 the calling client
--       2 CALL, then a RUN for each run of requests that differ in nothing but
--         the id and what is said of each: ASKED, or a TOKEN. A run of n asks,
--         renewals, releases or revocations takes the next n ids.
--       3 … the ids, as many as CALL says
--       then, with KEYS[7], the description and its time to live in milliseconds
--
-- step returns one string: HEAD; a RECORD for each run of answers; the
-- notification for the caller, in lines. A late call gets no records.
--       granted  token, slot, lease      the next of the run: token + 1
--       queued   ticket, ahead, 0        the next of the run: ahead + 1
--
-- A notification is lines, and is published to the client's inbox:
--       g id token slot ticket           the ticket has become a permit
--       a                                ask again for every ticket
--       n                                renew every permit: one is revoked
--       r time                           ask again for one ticket after that long
--       c how                            you may keep permits no longer (1), nor pass them on (2)
--
-- script.go puts what they mean in the place of the words that are numbers or strings.
local MARK = 'sem3'

-- What is said of a state with another mark: its key, the mark, and the release that wrote it, which is in the
-- state's field 'release' from the next mark on. Bytes behind STATE are signs between releases, which no write keeps:
-- a release that writes an older layout leaves one there, and sees when an older release has written since; and
-- a release that cannot read a state leaves its mark there, and is seen by those who can. See docs/compatibility.md.
local OTHER_VERSION = 'SEMAVERSION %s is kept in layout %.4s, by sema %s'
local HAS_KEYS = 'SEMAKEYED %s has keys, and the call does not name theirs'
local NOT_OURS = 'WRONGTYPE %s is not sema\'s'

-- KEEPER is a member of holders that stays, so that the key exists when nobody
-- holds anything. The server stores small hashes and zsets as lists that it
-- searches from the start, unless an entry is longer than 64 bytes: so KEEPER and
-- STATE are longer.
local KEEPER = 'This member keeps the key, and is long so that the key is no list to be searched.'
local STATE = '<c4ddddddddddBs'  -- MARK, limit, used, token, keep, first, fenced, alarm, queued, keepers, keeps, flags, watcher
local PERMIT = '<c1ddd'          -- 'h' held or 'r' revoked, token, time of the grant, slot or -1
local TICKET = '<c1ddI4B'        -- 'q' queued, end, place, how many callers are behind it in its process, 1: it insists
local TAIL = '<ss'               -- the session that is told what happens to it, its rival; behind them, to the end, whom it is for
local PERMIT_SIZE, TICKET_SIZE = 25, 22 -- what is longer than either has a tail
local KEYED = '<dddddd'          -- the cap of keys without a rule, virtual time, the last seq, epoch, the epoch of those aside, rules
local KEY = '<ddddBBddddd'       -- held, tickets, cap, share, 1 ruled, 1 in turn 2 aside, base, seq, level or epoch, tag, place of the head; then the id of that, if it is known
local KEY_SIZE = 74
local ASIDE = 2^50
local KEPT = '<Bd'               -- 1: may pass permits on, 2: may keep them, too; + 4: keys wait, and none in turn; until when
local FENCE = '<dd'              -- smallest number that counts, end
local TOTALS = '<ddd'            -- what went well and what did not, in weight * time held; how many grants had waited
local REPORT = '<dddd'           -- TOTALS, end
local AUTO = '<c12'              -- least and largest limit, bad part in thousandths, as numbers of 4 bytes
local CALL = '<dBI4d'            -- number, 1 fence + 2 must pass with full memory, ids, keep
local RUN = '<BBI4I4I4dd'        -- kind, flags, n, limit, weight, lease, ticket; then n times
local ASKED = '<dI4'             -- if asks: has waited, callers behind it in its process
local KEY_NAME = '<Bc0'
local NAMED = '<I4c0'            -- if of named permits: whom it is for
local TOKEN = '<d'               -- if flagged: the last token given out
local HEAD = '<ddB'              -- limit, recheck; what the caller may do as in KEPT + 4 deaf + 8 recalled + 16 room + 32: the cap of keys follows, if it is not 0
local RECORD = '<BI4ddd'         -- status, n, and three numbers
local ONE = '<ddBBI4ddd'         -- HEAD and one RECORD

-- Kinds and statuses are those of package engine. Flags of a run: 1 wait,
-- 2 unfair, 4 strict, 8 slot, 16 pin, newest or with tokens, 32 again or mine, 64 anew or auto,
-- 128 another client's or, of asks, named. Flags of a state: 1 pinned, 2 has slots, 4 paused, 8 keyed.
local ASK, RENEW, RELEASE, REVOKE, SET_LIMIT, UNSET_LIMIT, REMOVE, PAUSE, UNPAUSE, SET_KEY, UNSET_KEY, REPORT_KIND = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
local ASK_KEYED = 100 -- an ask that names a key: behind the run the cap of keys, behind each ask its key
local GRANTED, QUEUED, REFUSED, GONE, REVOKED, TOO_HEAVY, LIMIT_DIFFERS, DONE, IN_USE, PINNED = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local HELD, TICKETED = 104, 113 -- the first bytes of PERMIT and TICKET
local PASS_ON, KEEP_ON = 1, 2 -- what a client may do, as in KEPT

-- MAX_TURNS is how many tickets a step grants or drops at the most, so that
-- nobody keeps the server from others for long. The next step goes on. A turn costs
-- about 20 µs, most of it for a message, and the end of a lease a tenth of that.
local MAX_TURNS = 32
local MAX_ENDS = 128 -- so many leases
local MAX_TOLD = 128 -- so many keepers are told
local MAX_SWEPT = 128 -- so many keys look at a changed cap
local MAX_LOOKED = 1000 -- so many tickets are looked at for one of another client

local IDLE = 60000000     -- how long beyond a lease the keys live at the least
local FENCED = 3600000000 -- how long after a fence late calls are refused
local REPORTED = 60000000 -- how long what was reported is known

-- Lua's own conversion keeps 14 digits; microseconds have 16. %d is several
-- times as fast as %.0f, where it has them.
local INTEGER = string.format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'

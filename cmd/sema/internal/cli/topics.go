package cli

const enginesHelp = `An engine is where semaphores live. --url names it; without --url, $SEMA_URL does.

  (none)                                        files in /var/tmp/sema-UID, for this
                                                user on this host
  file:///dir                                   files in a directory on a local disk;
                                                file:///dir?shared is for all members
                                                of the directory's group
  redis://[user:password@]host[:port][/db]      Redis or Valkey; rediss:// with TLS
  redis+sentinel://host[:port],…/master[?db=n]  behind Sentinel; rediss+sentinel://
                                                with TLS
  redis+cluster://host[:port],…                 Redis Cluster; rediss+cluster:// with TLS
  postgres://[user@]host[:port]/database        a table that sema migrate makes
  http://host[:port]                            sema serve; https:// with TLS

Passwords. Other users of the host can read a command line. Put a URL with a
password into $SEMA_URL. PostgreSQL takes the password from $PGPASSWORD or
~/.pgpass as well. $SEMA_SERVER_TOKEN has the token of sema serve, NAME.SECRET.
Behind Sentinel, user:password@ is for the Redis servers, and
?sentinel_username=…&sentinel_password=… for the Sentinels.

Options. With ?replicas=N on Redis, a grant counts only when N replicas have it.
PostgreSQL takes sema_schema, sema_listen and sema_poll: see docs/postgres.md.

Outages. If the server does not answer, a command tries again for three seconds,
then fails. A command that waits for a permit waits for the server as well, for
as long as --wait allows.

Idle semaphores. The engine forgets a semaphore that nobody has used for two
leases and a minute or two. It forgets the limit too, unless somebody set the
limit with sema limit.`

const exitCodesHelp = `Exit codes:
  0      done
  1      there is no such semaphore; find: nobody was found
  64     a flag, name, limit, weight, duration or URL is wrong; nothing was done
  69     the engine cannot be reached, or refused the call
  74     standard output cannot be written
  75     run, acquire: no permit in time, or a newer run replaced this one
         (--conflict-exit-code changes it); rm: somebody uses the semaphore
  76     the permit was lost; renew, release, revoke, why: there is no such permit
  126    run: the command cannot be executed
  127    run: there is no such command
  128+n  signal n ended the command, and sema with it; or signal n ended sema
         while it waited
  other  run: the exit code of the command

With --json an error is an object too, on one line of standard error:
  error, try (what to do instead; may be ""), exit_code`

const runDetails = `Environment of the command:
  SEMA_NAME    the semaphore
  SEMA_PERMIT  the id of its permit
  SEMA_TOKEN   the fencing token: larger than that of any earlier permit
  SEMA_LIMIT   the limit as stored
  SEMA_SLOT    with --slots: an index from 0 to limit-1 that no other permit with
               a slot has; -1 beyond a limit that is only watched
  SEMA_HELD    the ids of all permits that the command runs under, the outermost
               first

Start. sema runs the command directly, without a shell: in the same process
group, with the same terminal, standard streams and other inherited files.
/bin/sh runs a script without #!. Messages of sema go to standard error. On a
terminal, a wait of more than a second shows a line with what it waits for,
elsewhere with --note or SEMA_NOTE=30s. A run inside a run of the same name that
could never get its permit, because the outer run has it, fails with exit code
64.

Signals. The command gets what the terminal or "kill %1" sends to the job; ^C,
^\, ^Z, bg and fg work as without sema. If INT, TERM, HUP, QUIT, USR1 or USR2
reaches sema alone, sema passes it on to the command's first process. If a
signal ends the command, the same signal ends sema, so loops and scripts stop.
While sema waits, any of these signals leaves the queue at once. A second signal
ends sema even if the engine does not answer. What was ignored when sema started
stays ignored of INT and QUIT, as in background jobs of a script, and of HUP, as
under nohup.

Loss. sema renews the permit while the command runs. If renewals fail for so
long that the lease may end, or if somebody revokes the permit, sema sends TERM
to all processes of the command, and KILL after --kill-after. KILL comes before
the lease can have ended. TERM comes at most a quarter of the lease before that,
so a --kill-after of 5 seconds needs a lease of at least 22 seconds. The exit
code is 76, whatever the command's was. With --on-lost=warn the command runs on
without a permit, and its own exit code counts.

Redis without its data. A Redis that restarted without persistence, was flushed,
or failed over to a replica that lagged behind has forgotten the permit. sema
learns of it at its next renewal, after at most a third of the lease. Until sema
has stopped the command, Redis can grant the permit again: for up to a third of
the lease and --kill-after, 15 seconds with the defaults. The exit code is 76
too if the command has ended meanwhile.

Processes on Linux. A small guard process is the command's parent. The guard
covers every process that the command started, in any group or session, daemons
included. If somebody kills sema (kill -9), the guard kills them all at once. On
one host the permit comes back only when the last of them has ended, even if the
guard was killed too. The guard also kills them if sema was stopped (SIGSTOP,
^Z) for longer than the lease. It cannot kill processes of another user (sudo, a
setuid program): it waits for them, and on one host they keep the permit until
its lease ends. When the command's first process ends by itself, sema gives the
permit back, and background processes run on without one. As the first process
of a container, sema reaps all orphans.

Processes elsewhere. On macOS and BSD the command has a process group of its
own, which gets the terminal. sema kills only that group, and the group runs on
if sema is killed. Windows has no process groups and signals: on loss sema kills
the command's first process.`

package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"sema/engine"
	"sema/watch"
)

// Sentence says in five seconds how a semaphore is: "Full for 52s: 300 of 300 held, 2,000 wait.".
type Sentence struct {
	Head, Held, Wait string
	More             []string // further sentences: the oldest holder, and what else the waiters need
}

// Known is what a single look does not tell.
type Known struct {
	Since        time.Duration // the age of the look
	Full, Paused time.Duration // how long the semaphore has been so at least
	By           string        // who paused it; "": unknown
	Usual        time.Duration // within this time nearly all waits end; 0: unknown
	Who          Who
}

// Who says who a client with this permit is, such as "order-17", "on web-1".
type Who func(c engine.Client, permit string) (name, where string)

// Head is the state in a few words.
func Head(s watch.Summary, k Known) string {
	full := k.Full
	if s.Waiting > 0 {
		full = max(full, s.Oldest+k.Since)
	}
	switch pool := out(s.Pools); {
	case s.Paused && k.By != "":
		return "Paused by " + k.By + lasting(k.Paused)
	case s.Paused:
		return "Paused" + lasting(k.Paused)
	case s.Cooldown != nil && s.Cooldown.Left > k.Since:
		return "Nobody begins for " + Brief(s.Cooldown.Left-k.Since) + ", said " + Says(s.Cooldown.By)
	case s.Observed != nil:
		return "Only watched"
	case s.Used > s.Limit:
		return Number(s.Used-s.Limit) + " above the limit"
	case s.Limit > 0 && s.Used == s.Limit:
		return "Full" + lasting(full)
	case pool != nil:
		return pool.Pool + " is out"
	case s.Used+s.Waiting == 0:
		return "Idle"
	}
	return "Open"
}

// Observes says what a limit that is only watched would have done.
func Observes(o *engine.Observed, limit int) string {
	text := fmt.Sprintf("%s of %s would have waited", Number(int(o.WouldWait)), Number(int(o.Grants)))
	if others := o.WouldWait - o.ForLimit; others > 0 {
		text += fmt.Sprintf(", %s of them for caps or pools alone", Number(int(others)))
	}
	if queue := o.Most - limit; queue > 0 {
		text += fmt.Sprintf(", up to %s at once", Number(queue))
	}
	if o.ForLimit > 0 {
		text += fmt.Sprintf("; a limit of %s is enough for 99 %%", Number(o.Enough))
	}
	return text
}

func lasting(d time.Duration) string {
	if d < time.Second {
		return ""
	}
	return " for " + Brief(d)
}

// out is the pool that most callers wait for of those that have nothing left.
func out(pools []engine.PoolState) (found *engine.PoolState) {
	for i, p := range pools {
		if p.Waiting > 0 && p.Used >= p.Limit && (found == nil || p.Waiting > found.Waiting) {
			found = &pools[i]
		}
	}
	return found
}

// Say describes the state of a look, whose Rows these are.
func (l Look) Say(s watch.Summary, rows []Key, k Known) Sentence {
	x := Sentence{Head: Head(s, k), Held: fmt.Sprintf("%s of %s held", Number(s.Used), Number(s.Limit)), Wait: waits(s.Waiting, "")}
	if x.Head == "Only watched" {
		x.More = append(x.More, Observes(s.Observed, s.Limit)+".")
	}
	oldest, pool, rated := "The oldest holder is ", "", false
	switch p := out(s.Pools); {
	case x.Head == "Idle":
		x.Held, x.Wait = "0 of "+Number(s.Limit)+" in use", "nobody waits"
	case x.Head == "Open":
		x.Held = fmt.Sprintf("%s of %s in use", Number(s.Used), Number(s.Limit))
	case p != nil && x.Head == p.Pool+" is out":
		pool, oldest, rated = p.Pool, "", p.Per > 0
		x.Held, x.Wait = fmt.Sprintf("%s of %s held", Number(p.Used), Number(p.Limit)), waits(p.Waiting, " for it")
		if p.Per > 0 {
			x.Held = fmt.Sprintf("%s of %s used, the next in %s", Number(p.Used), p.Amount(), Brief(max(0, p.Next-k.Since)))
		} else if by := l.HeldBy(Bound{Pool: p.Pool}, k.Who); by != "" {
			x.Held += " by " + by
		}
	}
	var first *engine.Holder
	for i, h := range l.Holders {
		if h.Token > 0 && (pool == "" || h.Takes.Of(pool) > 0 && !rated) && (first == nil || h.Token < first.Token) {
			first = &l.Holders[i]
		}
	}
	if h := first; h != nil {
		who, where := k.Who(h.Client, h.ID)
		if h.Key != "" {
			who += " of " + Title(h.Key)
		}
		if held := Brief(h.Age + k.Since); pool == "" {
			x.More = append(x.More, fmt.Sprintf("%s%s %s (%s).", oldest, who, where, held))
		} else {
			x.More = append(x.More, fmt.Sprintf("%s %s has held it for %s.", who, where, held))
		}
	}
	for _, w := range l.Waiters {
		if pool != "" && w.Takes.Of(pool) > 0 || x.Head != "Open" && pool == "" {
			continue
		}
		who, _ := k.Who(w.Client, w.ID)
		x.More = append(x.More, fmt.Sprintf("%s waits for: %s.", who, l.Why(w)))
		break
	}
	said := 0
	for _, key := range rows {
		if key.Full && key.Waiting > 0 && key.Key.Level() == 1 && x.Head != "Open" && said < 2 {
			x.More = append(x.More, fmt.Sprintf("%s wait for %s, which holds %s of its %s.", Number(key.Waiting), Title(key.Key), Number(key.Held), Number(key.Cap)))
			said++
		}
	}
	if k.Usual > 0 && s.Waiting > 0 {
		x.More = append(x.More, "Waits usually end within "+Brief(k.Usual)+".")
	}
	return x
}

// HeldBy names those who hold some of a bound, three at most.
func (l Look) HeldBy(b Bound, who Who) string {
	var names []string
	more := 0
	for _, h := range ByToken(l.Holders) {
		if b.Part(h.Key, h.Takes, h.Weight) == 0 {
			continue
		}
		if name, _ := who(h.Client, h.ID); len(names) < 3 {
			names = append(names, name)
		} else {
			more++
		}
	}
	if more > 0 {
		names = append(names, Number(more)+" more")
	}
	return strings.Join(names, ", ")
}

func waits(n int, what string) string {
	switch n {
	case 0:
		return "nobody waits" + what
	case 1:
		return "1 waits" + what
	}
	return Number(n) + " wait" + what
}

// Number is a number with commas between thousands.
func Number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Count is a number and what it counts.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Number(n) + " " + what + "s"
}

// Brief is a duration in whole units, the two largest.
func Brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd %02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

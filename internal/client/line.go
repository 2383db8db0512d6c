package client

// line is the callers that wait, in the order in which they came. Those before
// next have claims.
type line struct {
	first, last *Acquisition
	length      int
	next        *Acquisition // the first without a claim
	untold      *Acquisition // the first that has not been told that it waits
	weight      int          // of the claims
	ahead       int          // tickets ahead in the last answer
	mixed       bool         // callers of different weight are in line
	moved       bool         // some tickets are for other callers than the engine knows of
}

func (l *line) add(a *Acquisition) {
	a.waiting, a.earlier, a.later = true, l.last, nil
	if l.last == nil {
		l.first = a
	} else {
		l.last.later = a
	}
	l.last = a
	l.length++
}

func (l *line) remove(a *Acquisition) {
	if a.earlier == nil {
		l.first = a.later
	} else {
		a.earlier.later = a.later
	}
	if a.later == nil {
		l.last = a.earlier
	} else {
		a.later.earlier = a.earlier
	}
	a.waiting, a.earlier, a.later = false, nil, nil
	l.length--
}

// findNext moves next on to a caller without a claim.
func (l *line) findNext() {
	for l.next != nil && l.next.claim != nil {
		l.next = l.next.later
	}
}

// oldest is the caller of this weight that has waited longest.
func (l *line) oldest(weight int) *Acquisition {
	for a := l.first; a != nil; a = a.later {
		if a.weight == weight {
			return a
		}
		if a == l.next { // those behind it came later than any that has a ticket
			break
		}
	}
	return nil
}

// Behind is how many callers wait without a ticket.
func (m *Machine) Behind() int {
	if m.line.next == nil {
		return 0
	}
	with := 0
	for a := m.line.first; a != m.line.next; a = a.later {
		with++
	}
	return m.line.length - with
}

// fewTickets reports whether callers in line should have tickets by now. A client
// has as many as could be granted before its next call, twice the limit; it
// asks for more when half of them are gone, or when it calls anyway.
func (m *Machine) fewTickets() bool { return m.line.next != nil && m.line.weight <= m.limit() }

// join has a caller wait in line.
func (m *Machine) join(a *Acquisition) {
	l := &m.line
	if l.last != nil && l.last.weight != a.weight {
		l.mixed = true
		m.returnIdle(isTicket)
	}
	l.add(a)
	if l.next == nil {
		if c := m.takeSpare(a.weight); c != nil {
			m.move(a, c)
			return
		}
		m.returnIdle(isTicket) // of another weight: they would be before it in the queue
		l.next = a
	}
	if a.earlier != nil && a.earlier.state == Waiting && !m.fewTickets() {
		m.queued(a, l.ahead+1)
	} else if l.untold == nil {
		l.untold = a
	}
}

// leaveLine takes a caller out of the line.
func (m *Machine) leaveLine(a *Acquisition) {
	l := &m.line
	if !a.waiting {
		return
	}
	if l.untold == a {
		l.untold = a.later
	}
	if l.next == a {
		l.next = a.later
		l.findNext()
	}
	l.remove(a)
	l.mixed = l.mixed && l.length > 0
}

// tellQueued tells those that wait without a ticket that they do: the engine has
// answered since they came, and others of this process go first.
func (m *Machine) tellQueued() {
	if m.fewTickets() {
		return
	}
	for a := m.line.untold; a != nil; a = a.later {
		if a.claim == nil {
			m.queued(a, m.line.ahead+1)
		}
	}
	m.line.untold = nil
}

// queued tells a caller that it waits, and behind how many tickets.
func (m *Machine) queued(a *Acquisition, ahead int) {
	if a.state == Asking {
		a.state = Waiting
	}
	if a.ahead != ahead {
		a.ahead = ahead
		m.tell(Event{Kind: Queued, A: a, Ahead: ahead})
	}
}

// refuseLine refuses callers in line that have no ticket, for the same reason as
// one before them: their asks would hold up those behind, one after the other.
func (m *Machine) refuseLine(e Event, which func(*Acquisition) bool) {
	for a := m.line.next; a != nil; {
		later := a.later
		if a.claim == nil && which(a) {
			m.deny(a, e)
		}
		a = later
	}
}

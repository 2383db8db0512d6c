package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
	"sema/internal/view"
)

// completeTime is how long a shell may wait for what it offers: less than one
// notices.
const completeTime = time.Second

const (
	offerNothing = cobra.ShellCompDirectiveNoFileComp
	offerFiles   = cobra.ShellCompDirectiveDefault
)

// completeName offers the names of semaphores that exist.
func (p *program) completeName(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, offerNothing
	}
	engine, closing, err := p.engine(defaultLease)
	if err != nil {
		return nil, offerNothing
	}
	defer closing()
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	names, _ := engine.List(ctx) // an engine out of reach has nothing to offer
	return startingWith(names, start), offerNothing
}

// completeCommand offers a name, and behind it what the shell itself offers.
func (p *program) completeCommand(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, offerFiles
	}
	return p.completeName(cmd, args, start)
}

// completeNamePermit offers a name, then the held permits with their holders.
func (p *program) completeNamePermit(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return p.completeName(cmd, args, start)
	}
	return p.offerState(cmd, args[0], start, func(st sema.State, offer func(id string, c engine.Client)) {
		for _, h := range view.ByToken(st.Holders) {
			offer(h.ID, h.Client)
		}
	})
}

// completeNameWaiter offers a name, then the permits that are waited for.
func (p *program) completeNameWaiter(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return p.completeName(cmd, args, start)
	}
	return p.offerState(cmd, args[0], start, func(st sema.State, offer func(id string, c engine.Client)) {
		for _, w := range st.Waiters {
			offer(w.ID, w.Client)
		}
	})
}

func (p *program) offerState(cmd *cobra.Command, name, start string, list func(sema.State, func(string, engine.Client))) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	st, err := p.state(ctx, name)
	if err != nil {
		return nil, offerNothing
	}
	var offers []string
	list(st, func(id string, c engine.Client) {
		offers = append(offers, id+"\t"+printable(c.Label+" on "+c.Host, 60))
	})
	return startingWith(offers, start), offerNothing
}

func startingWith(all []string, start string) []string {
	var some []string
	for _, one := range all {
		if strings.HasPrefix(one, start) {
			some = append(some, one)
		}
	}
	return some
}

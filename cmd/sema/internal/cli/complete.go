package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sema/engine"
	"sema/internal/view"
)

// completeTime is how long a shell may wait for what it offers: less than one
// notices.
const completeTime = time.Second

const offerNothing = cobra.ShellCompDirectiveNoFileComp

// complete offers names of semaphores for NAME, the permits that are held for PERMIT behind
// it, and those that are waited for for [PERMIT].
func (p *program) complete(words string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, start string) (offers []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
		defer cancel()
		if len(args) == 0 {
			return startingWith(p.names(ctx), start), offerNothing
		}
		if _, permit, _ := strings.Cut(words, " "); len(args) == 1 && strings.Contains(permit, "PERMIT") {
			st, _ := p.state(ctx, args[0]) // an engine out of reach has nothing to offer
			offer := func(id string, c engine.Client) {
				offers = append(offers, id+"\t"+printable(c.Label+" on "+c.Host, 60))
			}
			if permit == "PERMIT" {
				for _, h := range view.ByToken(st.Holders) {
					offer(h.ID, h.Client)
				}
			} else {
				for _, w := range st.Waiters {
					offer(w.ID, w.Client)
				}
			}
		}
		return startingWith(offers, start), offerNothing
	}
}

// names are the semaphores that exist, as far as the engine tells within ctx.
func (p *program) names(ctx context.Context) []string {
	at, err := p.open(defaultLease)
	if err != nil {
		return nil
	}
	defer at.close()
	names, _ := at.Engine.List(ctx)
	return names
}

func startingWith(all []string, start string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return !strings.HasPrefix(one, start) })
}

package semariver

import (
	"context"
	"slices"

	"github.com/riverqueue/river/riverdriver"
)

// Driver is a driver with which a client takes no jobs of a kind while as many as
// may wait in this process for a permit do (see Limit.Wait). That needs
// river.Config.FetchOnlyKnownKinds, with which River leaves jobs of kinds that the
// client does not know to other clients; without it, River takes jobs of all kinds all
// the time. What River Pro's driver adds is not there.
//
// River says that its drivers' interface may change. If it has, the module does not
// compile with that version of River; the Limiter alone keeps the limit as well.
func Driver[TTx any](l *Limiter, driver riverdriver.Driver[TTx]) riverdriver.Driver[TTx] {
	return &limitedDriver[TTx]{driver, l}
}

type limitedDriver[TTx any] struct {
	riverdriver.Driver[TTx]
	limiter *Limiter
}

// GetExecutor implements riverdriver.Driver.
func (d *limitedDriver[TTx]) GetExecutor() riverdriver.Executor {
	return &executor{d.Driver.GetExecutor(), d.limiter}
}

type executor struct {
	riverdriver.Executor
	limiter *Limiter
}

// JobGetAvailable implements riverdriver.Executor.
func (e *executor) JobGetAvailable(ctx context.Context, params *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	l := e.limiter
	if l.limit.Key != nil {
		return e.Executor.JobGetAvailable(ctx, params)
	}
	if params.Kind != nil {
		some := *params
		some.Kind = slices.DeleteFunc(slices.Clone(params.Kind), func(kind string) bool { return l.jobs.Full(kind) })
		if len(some.Kind) == 0 {
			return &riverdriver.JobGetAvailableResult{}, nil
		}
		params = &some
	}
	return e.Executor.JobGetAvailable(ctx, params)
}

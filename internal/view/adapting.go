package view

import (
	"fmt"

	"sema/engine"
)

// Adapts says how a limit is found; "" if nobody finds it.
func Adapts(st engine.State) string {
	a := st.Auto
	if a == nil {
		return ""
	}
	return fmt.Sprintf("adapting %d…%d: %.1f %% of the time held was bad in the last window", a.Min, a.Max, float64(a.Bad)/10)
}

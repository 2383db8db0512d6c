package dashboard

import (
	"fmt"
	"html/template"
	"time"
)

// stamp is a time on a page: in UTC, and a script may make it local.
type stamp struct{ time.Time }

// UTC is the time for machines.
func (s stamp) UTC() string { return s.Time.UTC().Format(time.RFC3339) }

// Clock is the time of the day, and Minute is that without seconds.
func (s stamp) Clock() string  { return s.Time.UTC().Format("15:04:05") }
func (s stamp) Minute() string { return s.Time.UTC().Format("15:04") }

// bar is use against limit as a picture whose whole width is scale. The same is beside it in words.
func bar(used, limit, scale int) template.HTML {
	class := "fill"
	if used > limit { // a full one is no trouble
		class = "fill bad"
	}
	width := func(n int) float64 { return min(100, 100*float64(n)/float64(max(1, scale))) }
	text := fmt.Sprintf(`<svg class="bar" aria-hidden="true"><rect class="rail" width="%.1f%%" height="6" rx="3"/>`, width(limit))
	if used > 0 {
		text += fmt.Sprintf(`<rect class="%s" width="%.1f%%" height="6" rx="3"/>`, class, max(2, width(used)))
	}
	return template.HTML(text + `</svg>`)
}

// mostCells is the size of the largest pool that has a cell for each unit in its bar.
const mostCells = 12

// cells is the bar of a pool.
func cells(used, limit int, wanted bool) template.HTML {
	if limit < 1 || limit > mostCells || used > limit {
		return bar(used, limit, limit)
	}
	text := `<svg class="bar" aria-hidden="true">`
	for i := range limit {
		class := "rail"
		switch {
		case i < used && wanted && used == limit:
			class = "fill warn"
		case i < used:
			class = "fill"
		}
		text += fmt.Sprintf(`<rect class="%s" x="%.2f%%" width="%.2f%%" height="6" rx="3"/>`, class, 100*float64(i)/float64(limit), 100/float64(limit)-1)
	}
	return template.HTML(text + `</svg>`)
}

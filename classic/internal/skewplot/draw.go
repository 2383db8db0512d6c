package main

import (
	"fmt"
	"strings"

	"sema/classic/internal/measured"
)

// draw makes the picture: a group of bars for each type, a bar for each skew,
// its height the share of permits that were one too many.
func draw(s measured.Skew) string {
	const (
		top, bottom, left, right = 70, 70, 56, 16
		barWidth, gap            = 22, 26
		height                   = 260 // of the plot
	)
	shades := []string{"#c6dbef", "#6baed6", "#2171b5", "#08306b"}

	var groups [][]measured.SkewRun
	scale := 10 // per cent at the top, in steps of ten
	for _, r := range s.Spread {
		if n := len(groups); n == 0 || groups[n-1][0].Type != r.Type {
			groups = append(groups, nil)
		}
		n := len(groups) - 1
		groups[n] = append(groups[n], r)
		for share(r) > float64(scale) {
			scale += 10
		}
	}
	group := 0.0
	if len(groups) > 0 {
		group = float64(len(groups[0])*barWidth + gap)
	}
	width := left + right + int(group)*len(groups)
	y := func(percent float64) float64 { return top + height*(1-percent/float64(scale)) }

	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#222">`, width, top+height+bottom)
	p(`<title>Over-admission against clock skew</title>`)
	p(`<rect width="100%%" height="100%%" fill="#fff"/>`)
	p(`<text x="%d" y="22" font-size="15">Permits granted beyond the limit, per cent of all granted</text>`, left)
	for percent := 0; percent <= scale; percent += 10 {
		at := y(float64(percent))
		p(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>`, left, width-right, at, at)
		p(`<text x="%d" y="%.1f" text-anchor="end">%d %%</text>`, left-6, at+4, percent)
	}
	for g, runs := range groups {
		x := left + gap/2 + group*float64(g)
		most := 0
		for i, r := range runs {
			at := y(share(r))
			shade := shades[i%len(shades)]
			p(`<rect x="%.1f" y="%.1f" width="%d" height="%.1f" fill="%s"/>`, x, at, barWidth-3, top+height-at, shade)
			p(`<text x="%.1f" y="%.1f" text-anchor="middle" font-size="10">%s</text>`, x+barWidth/2-1.5, at-4, label(share(r)))
			if g == 0 { // the key, above the plot
				kx := left + 135*i
				p(`<rect x="%d" y="36" width="12" height="12" fill="%s"/>`, kx, shade)
				p(`<text x="%d" y="46">%d ms of skew</text>`, kx+18, r.SkewMS)
			}
			x += barWidth
			most = max(most, r.Most)
		}
		limit := s.Limit
		if strings.HasPrefix(runs[0].Type, "Lock") && runs[0].Type != "Locked" {
			limit = 1
		}
		middle := left + group*(float64(g)+.5)
		p(`<text x="%.1f" y="%d" text-anchor="middle" font-weight="bold">%s</text>`, middle, top+height+20, runs[0].Type)
		p(`<text x="%.1f" y="%d" text-anchor="middle" font-size="11">at most %d of %d</text>`, middle, top+height+38, most, limit)
	}
	p(`<text x="%d" y="%d" font-size="11" fill="#666">%d clients, permits held %d ms of a lease of %d s; drawn from measured runs by classic/internal/skewplot</text>`,
		left, top+height+60, s.Clients, s.HoldMS, s.LeaseMS/1000)
	p(`</svg>`)
	return b.String()
}

func share(r measured.SkewRun) float64 {
	if r.Acquired == 0 {
		return 0
	}
	return 100 * float64(r.Extra) / float64(r.Acquired)
}

func label(percent float64) string {
	if percent == 0 {
		return "0"
	}
	return fmt.Sprintf("%.0f", percent)
}

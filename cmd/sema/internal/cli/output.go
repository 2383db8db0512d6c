package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// writeJSON prints a value, indented. Its fields are a contract, described in
// the command's help: fields may be added, none changes its meaning.
func (p *program) writeJSON(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("json: %w", err)
	}
	return p.write("%s\n", text)
}

// aligned is what fill writes, with the cells of its lines, each ended by a tab, in columns.
func aligned(fill func(io.Writer)) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fill(t)
	_ = t.Flush() // into memory
	return b.String()
}

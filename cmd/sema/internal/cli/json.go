package cli

import (
	"encoding/json"
	"fmt"
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

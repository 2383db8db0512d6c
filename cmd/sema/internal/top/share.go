package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"sema/engine"
	"sema/internal/view"
)

// keyWidth is how wide the column of keys is.
const keyWidth = 20

// keyRow is a key in one line, a cell further to the right for each level.
func (m *model) keyRow(k view.Key) string {
	most, longest := "-", "-"
	if k.Cap > 0 {
		most = fmt.Sprint(k.Cap)
	}
	if k.Waiting > 0 {
		longest = Brief(time.Duration(k.Oldest * float64(time.Second)))
	}
	share := fmt.Sprint(k.Share)
	if k.Ruled {
		share += "*"
	}
	indent := k.Key.Level() - 1
	return m.keyColumns(strings.Repeat(" ", indent)+keyCell(k.Key, keyWidth-indent), fmt.Sprint(k.Waiting), longest, fmt.Sprint(k.Held), most, share, clean(k.Why))
}

func (m *model) keyColumns(key, waiting, longest, held, most, share, why string) string {
	return fmt.Sprintf("%s %7s %7s %6s %6s %6s  %s", pad(key, keyWidth), waiting, longest, held, most, share, why)
}

// keyDetail is what there is to say of the key that is selected, in two lines.
func (m *model) keyDetail() []string {
	k := m.one.keys[m.row]
	text := "nobody waits"
	if k.Why != "" {
		text = "waits: " + clean(k.Why)
	}
	if k.Ruled {
		text += "  (* cap or share of its own)"
	}
	return []string{m.line(plain, "key "+keyName(k.Key)), m.line(plain, text)}
}

// keyCell is a key in at most so many cells: of several names it keeps the end, as the names in front are in the rows above.
func keyCell(key engine.Key, width int) string {
	name := keyName(key)
	if over := ansi.StringWidth(name) - width; over > 0 && key.Level() > 1 {
		return ansi.TruncateLeft(name, over+1, "…")
	}
	return name
}

// keyName is a key for human eyes.
func keyName(key engine.Key) string { return clean(view.Title(key)) }

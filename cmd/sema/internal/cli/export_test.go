package cli

import tea "charm.land/bubbletea/v2"

// PanicOnKey has "sema top" panic when a key is pressed.
func PanicOnKey(key string) {
	topProgram = []tea.ProgramOption{tea.WithFilter(func(_ tea.Model, msg tea.Msg) tea.Msg {
		if k, ok := msg.(tea.KeyPressMsg); ok && k.String() == key {
			panic("a key that panics")
		}
		return msg
	})}
}

// Package enum names the values of enums.
package enum

import "fmt"

// Name is the name of a value: that of its number in names, or OF(42) where
// there is none, or an empty one.
func Name[E ~uint8](of string, value E, names ...string) string {
	if int(value) < len(names) && names[value] != "" {
		return names[value]
	}
	return fmt.Sprintf("%s(%d)", of, uint8(value))
}

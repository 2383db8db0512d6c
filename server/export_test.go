package server

import (
	"slices"
)

// Routes are all routes with their rights, sorted.
func Routes() []string {
	var list []string
	for _, one := range routes {
		list = append(list, one.method+" "+one.path+" "+one.right.String())
	}
	slices.Sort(list)
	return list
}

package server

import (
	"cmp"
	"slices"
	"strings"
)

// Routes are all public routes with their rights, sorted. Routes below /v1/engine are only
// for programs of sema.
func Routes() []string {
	var list []string
	for _, one := range routes {
		if strings.HasPrefix(one.path, "/v1/engine/") {
			continue
		}
		list = append(list, one.method+" "+one.path+" "+cmp.Or(one.right, "none"))
	}
	slices.Sort(list)
	return list
}

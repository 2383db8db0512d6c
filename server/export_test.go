package server

import (
	"slices"
	"strings"
)

// Routes are all routes for the public with their rights, sorted. What is below
// /v1/engine is between programs of sema.
func Routes() []string {
	var list []string
	for _, one := range routes {
		if strings.HasPrefix(one.path, "/v1/engine/") {
			continue
		}
		list = append(list, one.method+" "+one.path+" "+one.right.String())
	}
	slices.Sort(list)
	return list
}

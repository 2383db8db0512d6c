// Package release tries what make release-dry left in dist: each package is installed in a
// directory of its own and run there, and so is the image. It needs root, dpkg, rpm and buildah.
//
//	go test -tags release ./lab/release
package release

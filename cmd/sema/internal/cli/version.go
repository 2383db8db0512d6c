package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"sema/engine"
)

const versionHelp = `Print the version of sema.`

func (p *program) versionCommand() *cobra.Command {
	cmd := p.newCommand("version", "Print the version", versionHelp, func(*cobra.Command, []string) error {
		if p.json {
			return p.writeJSON(version())
		}
		return p.writeVersion()
	})
	p.jsonFlag(cmd, `version prints an object. What the build does not know is "":
  version, commit (of the source), date (of the commit, RFC 3339), go, os, arch`)
	return cmd
}

func (p *program) writeVersion() error {
	v := version()
	text := "sema " + v.Version
	if v.Commit != "" {
		text += " (" + v.Commit + ", " + v.Date + ")"
	}
	return p.write("%s %s %s/%s\n", text, v.Go, v.OS, v.Arch)
}

// A release sets these with -ldflags -X: what is built from a git worktree, or from an
// archive of the source, knows nothing of git.
var releaseVersion, releaseCommit, releaseDate string

type versionJSON struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Date    string `json:"date"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func version() versionJSON {
	v := versionJSON{Version: engine.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if releaseVersion != "" {
		v.Version, v.Commit, v.Date = releaseVersion, releaseCommit, releaseDate
		return v
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		}
	}
	return v
}

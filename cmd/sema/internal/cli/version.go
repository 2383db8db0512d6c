package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

const versionHelp = `Print the version of sema.

--json prints an object:
  version, revision (of the source, "" if unknown), go, os, arch`

func (p *program) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long:  versionHelp,
		Args:  needArgs(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			if p.json {
				return p.writeJSON(version())
			}
			return p.writeVersion()
		},
	}
	p.jsonFlag(cmd)
	return cmd
}

func (p *program) writeVersion() error {
	v := version()
	text := "sema " + v.Version
	if v.Revision != "" {
		text += " (" + v.Revision + ")"
	}
	return p.write("%s %s %s/%s\n", text, v.Go, v.OS, v.Arch)
}

type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func version() versionJSON {
	v := versionJSON{Version: "unknown", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}

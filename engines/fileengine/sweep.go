package fileengine

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	sweepEvery = time.Minute
	sweepMost  = 50
	sweptFile  = "swept"
)

// sweepSometimes sweeps if no process has for sweepEvery.
func (e *Engine) sweepSometimes() {
	info, err := os.Lstat(e.path(sweptFile))
	if err == nil && time.Since(info.ModTime()).Abs() < sweepEvery {
		return
	}
	if e.touch(e.path(sweptFile)) == nil {
		e.sweep()
	}
}

// sweep removes at most sweepMost files: pipes and temporary files of dead processes, and logs
// of ended semaphores.
func (e *Engine) sweep() {
	dir, err := os.Open(e.dir)
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	removed := 0
	for _, name := range names {
		info, err := os.Lstat(e.path(name))
		if err != nil || time.Since(info.ModTime()) < sweepEvery || removed >= sweepMost {
			continue // the process of a new file may not have opened it yet
		}
		gone := false
		switch filepath.Ext(name) {
		case lifeSuffix, tempSuffix:
			process, _, _ := strings.Cut(strings.TrimSuffix(name, lifeSuffix), "-")
			gone = !isAlive(e.pipePath(process)) && os.Remove(e.path(name)) == nil
		case logSuffix:
			gone = e.removeOver(name)
		}
		if gone {
			removed++
		}
	}
}

// removeOver removes the log of an ended semaphore. It ignores a log that another process
// has locked.
func (e *Engine) removeOver(file string) (removed bool) {
	path := e.path(file)
	f, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if ok, err := lockFile(f, false); !ok || err != nil {
		return false
	}
	defer unlockFile(f)
	if _, is := fileAt(path, f); !is {
		return false
	}
	m, ok := e.readUnlocked(file)
	return ok && e.over(m) && os.Remove(path) == nil
}

package fileengine

import (
	"os"
	"path/filepath"
	"strconv"
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

// sweep removes at most sweepMost files: pipes and temporary files of dead processes, logs
// of ended semaphores, and old form files.
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
		if n, ok := strings.CutPrefix(name, formPrefix); ok && time.Since(info.ModTime()) > knownFor {
			if _, err := strconv.Atoi(n); err == nil && os.Remove(e.path(name)) == nil {
				removed++
			}
			continue
		}
		process, _, _ := strings.Cut(strings.TrimSuffix(name, lifeSuffix), "-")
		switch filepath.Ext(name) {
		case lifeSuffix, tempSuffix:
			if !isAlive(e.pipePath(process)) && os.Remove(e.path(name)) == nil {
				removed++
			}
		case logSuffix:
			if m, ok := e.readUnlocked(name); ok && m.ledger.Over(e.timeOf(m)) && e.removeOver(m.Name) {
				removed++
			}
		}
	}
}

// removeOver locks the log of an ended semaphore, and removes it if no process has used
// it since.
func (e *Engine) removeOver(name string) (removed bool) {
	path := e.path(fileName(name))
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
	m, ok := e.readUnlocked(fileName(name))
	return ok && m.ledger.Over(e.timeOf(m)) && os.Remove(path) == nil
}

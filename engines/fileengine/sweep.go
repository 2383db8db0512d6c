package fileengine

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	sweepAge   = time.Minute // files younger than that are left alone
	sweepEach  = 8           // files looked at for each file created
	sweepBatch = 64          // the fewest looked at at a time, because to list the directory costs as much
)

// sweep removes pipes and temporary files of dead processes, and logs of ended semaphores. It looks at sweepEach files,
// wherever they are in the directory, for each file that this process has created since. So removable files become
// no more than a fraction of the others, however quickly they come.
func (e *Engine) sweep() {
	looks := sweepEach * int(e.created.Swap(0))
	if looks < sweepBatch {
		if rand.IntN(sweepBatch) >= looks {
			return
		}
		looks = sweepBatch
	}
	dir, err := os.Open(e.dir)
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	first := rand.IntN(max(1, len(names)))
	for i := range min(looks, len(names)) {
		name := names[(first+i)%len(names)]
		info, err := os.Lstat(e.path(name))
		if err != nil || time.Since(info.ModTime()) < sweepAge {
			continue // the process of a new file may not have opened it yet
		}
		switch filepath.Ext(name) {
		case lifeSuffix, tempSuffix:
			process, _, _ := strings.Cut(strings.TrimSuffix(name, lifeSuffix), "-")
			if !isAlive(e.pipePath(process)) {
				_ = os.Remove(e.path(name))
			}
		case logSuffix:
			e.removeOver(name)
		}
	}
}

// removeOver removes the log of an ended semaphore. It ignores a log that another process
// has locked.
func (e *Engine) removeOver(file string) {
	path := e.path(file)
	f, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if ok, err := lockFile(f, false); !ok || err != nil {
		return
	}
	defer unlockFile(f)
	if _, is := fileAt(path, f); !is {
		return
	}
	if m, ok := e.readUnlocked(file); ok && e.over(m) {
		_ = os.Remove(path)
	}
}

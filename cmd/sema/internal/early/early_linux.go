//go:build linux && (amd64 || arm64)

package early

import (
	"runtime"
	"unsafe"
)

// Limit is the soft and the hard limit of open files as this process found
// them; Known says whether they could be read.
var (
	Limit [2]uint64
	Known bool
)

// rawSyscall6 is syscall.RawSyscall6. To import syscall would be too late.
//
//go:linkname rawSyscall6 syscall.RawSyscall6
//go:noescape
func rawSyscall6(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2, err uintptr)

const nofile = 7 // RLIMIT_NOFILE

func init() {
	prlimit64 := uintptr(302)
	if runtime.GOARCH == "arm64" {
		prlimit64 = 261
	}
	_, _, err := rawSyscall6(prlimit64, 0, nofile, 0, address(&Limit), 0, 0)
	Known = err == 0
}

// address is where the kernel writes. The variable is global and stays there.
func address(limit *[2]uint64) uintptr { return uintptr(unsafe.Pointer(limit)) }

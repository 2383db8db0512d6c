package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// sample is what the server had done at a moment; without a server, what this
// process had. It counts the work of all its clients.
type sample struct {
	at     time.Time
	cpu    time.Duration // of the thread that runs commands; of this whole process
	script time.Duration // spent in scripts, with all that they called
	calls  int64         // of scripts
}

// sample looks at the server that a semaphore lives on.
func (b *bench) sample(ctx context.Context, name string) (sample, error) {
	if b.Redis == nil {
		cpu, _ := processCPU()
		return sample{at: time.Now(), cpu: cpu}, nil
	}
	server, err := master(ctx, b.Redis, name)
	if err != nil {
		return sample{}, err
	}
	var text [2]string
	for i, section := range []string{"cpu", "commandstats"} { // Redis 6.2 takes one section only
		if text[i], err = server.Info(ctx, section).Result(); err != nil {
			return sample{}, fmt.Errorf("INFO %s: %w", section, err)
		}
	}
	s, err := parseSample(text[0], text[1])
	s.at = time.Now()
	return s, err
}

// parseSample reads two sections of INFO.
func parseSample(cpu, commands string) (s sample, err error) {
	used := fields(cpu)
	for _, part := range []string{"user", "sys"} {
		text, ok := used["used_cpu_"+part+"_main_thread"]
		if !ok {
			text = used["used_cpu_"+part]
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return s, errors.New("INFO cpu has no CPU time")
		}
		s.cpu += time.Duration(f * float64(time.Second))
	}
	// What a script calls is in its time already, and counted once more under
	// the name of the command, so only the scripts themselves are added up.
	for name, value := range fields(commands) {
		switch name {
		case "cmdstat_eval", "cmdstat_evalsha", "cmdstat_eval_ro", "cmdstat_evalsha_ro", "cmdstat_fcall", "cmdstat_fcall_ro":
		default:
			continue
		}
		for pair := range strings.SplitSeq(value, ",") {
			key, number, _ := strings.Cut(pair, "=")
			n, _ := strconv.ParseInt(number, 10, 64) // others are fractions
			switch key {
			case "calls":
				s.calls += n
			case "usec":
				s.script += time.Duration(n) * time.Microsecond
			}
		}
	}
	return s, nil
}

// fields reads the lines of INFO.
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[key] = value
		}
	}
	return m
}

// ServerVersion is what INFO calls redis_version, of one server.
func ServerVersion(ctx context.Context, rdb redis.UniversalClient) (string, error) {
	text, err := rdb.Info(ctx, "server").Result()
	return fields(text)["redis_version"], err
}

// core is the CPU time between two samples, as a part of one core.
func core(a, b sample) float64 { return (b.cpu - a.cpu).Seconds() / b.at.Sub(a.at).Seconds() }

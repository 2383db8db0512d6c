package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/lab/faults"
)

// What a rule of today does not find is gone; what was looked for on the spot, and
// is in no record, stays.
func TestRecordsAreJudgedAgain(t *testing.T) {
	dir := t.TempDir()
	record, results := filepath.Join(dir, "record"), filepath.Join(dir, "results")
	var saved bytes.Buffer
	expect.OK(t, (&history.Round{Semaphores: []history.Semaphore{{Name: "x", Limit: 1}}}).Save(&saved))
	expect.OK(t, os.WriteFile(record, saved.Bytes(), 0o600))
	r := faults.Result{Ground: "file", History: record}
	r.Judged([]history.Breach{{Promise: history.PromiseOrder}, {Promise: history.PromiseLeak, Text: "a key"}, {Promise: history.PromiseLimit, Excused: "FLUSHALL"}})
	line, err := json.Marshal(r)
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(results, append(line, '\n'), 0o600))
	var log bytes.Buffer
	expect.OK(t, judgeAgain(results, &log))
	all, err := faults.ReadResults(results)
	expect.OK(t, err)
	if len(all) != 1 || all[0].Violations != 1 || all[0].Excused != 0 || len(all[0].Breaches) != 1 || all[0].Breaches[0].Text != "a key" {
		t.Errorf("judged %+v\n%s", all, log.String())
	}
}

package sema

import "context"

type labelKey struct{}

// WithLabel makes a context whose acquisitions are shown to operators under a label, beside the permit or the
// wait, in place of Options.Label: "job 7". At most MaxLabel bytes of printable UTF-8; an acquisition under another
// one fails with an *ArgumentError. The label of a permit stays as it was at its acquisition. Permits pass
// within a process, see Options.Keep, between callers of the same label only. Two callers of a process that the engine
// serves in the other order, because a message was late, may be shown under each other's labels. On Redis an
// acquisition with a label takes the server about as long as one that waits.
func WithLabel(ctx context.Context, label string) context.Context {
	return context.WithValue(ctx, labelKey{}, label)
}

// labelOf is what WithLabel set; "": nothing.
func labelOf(ctx context.Context) string {
	label, _ := ctx.Value(labelKey{}).(string)
	return label
}

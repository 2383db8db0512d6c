// Package metrics counts what happens to semaphores, and offers the figures to
// Prometheus and to whatever else collects metrics.
//
// There are two sources, for two questions:
//
//   - A [Recorder] sees what the callers of this process experience: how long
//     they wait, how long they hold, what becomes of their acquisitions. It
//     listens as the Observer of a Semaphore.
//   - A [Watch] sees the engine, and so all processes at once: limits, what is
//     held, how many wait and for how long. One process of a fleet has it, such
//     as a server.
//
// Held weight is never counted by adding and subtracting events: such a count
// drifts from the truth with the first lost message. It is read from the engine.
// How much one process held on average is rate(sema_lease_duration_seconds_sum)
// in Prometheus.
//
// [Handler] serves sources in Prometheus' text format. The format is written
// here, in a page, so that neither programs that count nor the program
// "sema" carry a client library for it. A program that has a registry of
// Prometheus' Go client registers the collector of the module
// sema/contrib/prometheus; for OpenTelemetry there is sema/contrib/otel.
//
// The names are OpenTelemetry's, in the shape of aspnetcore.rate_limiting.*.
// For Prometheus, dots become underscores and units are appended:
// sema.acquire.wait is sema_acquire_wait_seconds. Every series has the label
// sema.name. No series names a holder.
package metrics

module sema/lab/adaptive/others

go 1.26.0

require sema v0.0.0

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/influxdata/tdigest v0.0.1 // indirect
)

replace sema => ../../..

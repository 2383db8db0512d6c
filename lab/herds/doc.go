// Package herds has many processes come at one moment, on a busy host: as cron starts them.
package herds

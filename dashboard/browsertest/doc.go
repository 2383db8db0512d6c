// Package browsertest holds the dashboard against a real browser, headless
// Chromium. It is a module of its own, so that users of sema do not get the
// browser's driver.
package browsertest

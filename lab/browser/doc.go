// Package browser holds the dashboard against a real browser, headless Chromium.
package browser

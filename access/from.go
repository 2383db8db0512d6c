package access

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Proxies are the proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.
type Proxies []netip.Prefix

// ParseProxies reads a list such as "10.0.0.0/8,::1": networks and single addresses,
// with commas between.
func ParseProxies(text string) (Proxies, error) {
	var list Proxies
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		one, err := netip.ParsePrefix(word)
		if err != nil {
			address, err := netip.ParseAddr(word)
			if err != nil {
				return nil, fmt.Errorf("sema: %q is no network and no address: want such as 10.0.0.0/8 or 192.0.2.1", word)
			}
			one = netip.PrefixFrom(address, address.BitLen())
		}
		list = append(list, one)
	}
	return list, nil
}

func (p Proxies) has(a netip.Addr) bool {
	for _, one := range p {
		if one.Contains(a) {
			return true
		}
	}
	return false
}

type viaTLS struct{}

// Resolve is a request as its sender sent it to the first of the proxies: RemoteAddr
// is from X-Forwarded-For, and Secure goes by X-Forwarded-Proto. A request that comes
// from no proxy is left as it is.
func (p Proxies) Resolve(r *http.Request) *http.Request {
	from, ok := addressOf(r.RemoteAddr)
	if !ok || !p.has(from) {
		return r
	}
	words := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(words) - 1; i >= 0 && p.has(from); i-- { // each is what the one behind it saw
		one, ok := addressOf(strings.TrimSpace(words[i]))
		if !ok {
			break
		}
		from = one
	}
	secure := false
	if protos := r.Header.Values("X-Forwarded-Proto"); len(protos) > 0 {
		secure = strings.EqualFold(protos[len(protos)-1], "https")
	}
	r = r.WithContext(context.WithValue(r.Context(), viaTLS{}, secure))
	r.RemoteAddr = from.String()
	return r
}

// Secure reports whether a request came by TLS, to us or to the proxy that has
// resolved it.
func Secure(r *http.Request) bool {
	secure, _ := r.Context().Value(viaTLS{}).(bool)
	return secure || r.TLS != nil
}

// Origins tells requests that our own pages sent from those of other sites. Ours come
// from the origin that the request was sent to, or from that of public, the address that
// users know; nil: there is none. path is the path of public, without the slash at its end.
// The error says why public is no address of a site.
func Origins(public *url.URL) (origins *http.CrossOriginProtection, path string, err error) {
	origins = http.NewCrossOriginProtection()
	if public == nil {
		return origins, "", nil
	}
	if public.Scheme != "http" && public.Scheme != "https" || public.Hostname() == "" || public.RawQuery != "" || public.Fragment != "" || public.User != nil {
		return nil, "", fmt.Errorf("sema: %q is no address of a site: want such as https://sema.example.org/path", public.Redacted())
	}
	return origins, strings.TrimRight(public.Path, "/"), origins.AddTrustedOrigin(public.Scheme + "://" + public.Host)
}

// Host is the address that a request comes from, without a port.
func Host(r *http.Request) string { return hostOf(r.RemoteAddr) }

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address[:min(len(address), 60)]
}

// addressOf reads an address, with a port or without.
func addressOf(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(strings.Trim(hostOf(text), "[]"))
	return a.Unmap(), err == nil
}

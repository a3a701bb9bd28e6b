/* url.c: see url.h. What goes into the head of a request is checked here once, so that the
 * generator can never be made to send a second header line by an argument. */
#include "load/url.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static int copy(const char *from, size_t n, char *out, size_t room)
{
    if (n >= room)
        return WEIR_TOO_LARGE;
    memcpy(out, from, n);
    out[n] = 0;
    return 0;
}

static bool printable(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] <= ' ' || p[i] == 0x7f)
            return false;
    return true;
}

static int bad(struct diag *diag, const char *text, const char *why)
{
    return diag_set(diag, WEIR_INVALID,
                    "--url %.200s: %s; give http://HOST[:PORT][/PATH], as in "
                    "http://127.0.0.1:8080/v1/streams/events",
                    text, why);
}

static int parse_port(const char *p, size_t n, char out[6])
{
    unsigned port = 0;
    if (n == 0 || n > 5)
        return WEIR_INVALID;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return WEIR_INVALID;
        port = port * 10 + (unsigned)(p[i] - '0');
    }
    if (port == 0 || port > 65535)
        return WEIR_INVALID;
    snprintf(out, 6, "%u", port);
    return 0;
}

int load_url_parse(const char *text, struct load_url *out, struct diag *diag)
{
    static const char scheme[] = "http://";
    if (!printable(text, strlen(text)))
        return bad(diag, "(not shown)", "it holds white space or control characters");
    if (strncmp(text, "https://", 8) == 0)
        return diag_set(diag, WEIR_UNSUPPORTED,
                        "--url %.200s: TLS is not spoken here; load the plain listener", text);
    if (strncmp(text, scheme, sizeof(scheme) - 1) != 0)
        return bad(diag, text, "it does not begin with http://");

    struct load_url url = {0};
    const char *authority = text + sizeof(scheme) - 1;
    size_t authority_n = strcspn(authority, "/?#");
    const char *host = authority, *end = authority + authority_n, *host_end;
    if (memchr(authority, '@', authority_n))
        return bad(diag, text, "a user name is not taken here (--token carries a token)");
    if (host < end && *host == '[') {
        host++;
        host_end = memchr(host, ']', (size_t)(end - host));
        if (!host_end)
            return bad(diag, text, "the bracket of the IPv6 address is not closed");
        end = host_end + 1;
    } else {
        host_end = memchr(host, ':', authority_n);
        if (!host_end)
            host_end = end;
        end = host_end;
    }
    if (host_end == host)
        return bad(diag, text, "the host is missing");
    if (copy(host, (size_t)(host_end - host), url.host, sizeof(url.host)) != 0)
        return bad(diag, text, "the host is too long");
    size_t rest = (size_t)(authority + authority_n - end);
    if (rest == 0)
        memcpy(url.port, "80", 3);
    else if (*end != ':' || parse_port(end + 1, rest - 1, url.port) != 0)
        return bad(diag, text, "the port is not a number from 1 to 65535");
    if (copy(authority, authority_n, url.authority, sizeof(url.authority)) != 0)
        return bad(diag, text, "the host is too long");

    const char *target = authority + authority_n;
    size_t target_n = strcspn(target, "#");
    int err;
    if (target_n == 0 || (target_n == 1 && *target == '/')) {
        err = copy(URL_DEFAULT_TARGET, sizeof(URL_DEFAULT_TARGET) - 1, url.target,
                   sizeof(url.target));
    } else if (*target == '?') {
        size_t n = sizeof(URL_DEFAULT_TARGET) - 1;
        memcpy(url.target, URL_DEFAULT_TARGET, n);
        err = copy(target, target_n, url.target + n, sizeof(url.target) - n);
    } else {
        err = copy(target, target_n, url.target, sizeof(url.target));
    }
    if (err)
        return bad(diag, text, "the path is too long");
    *out = url;
    return 0;
}

struct slice load_url_stream(const struct load_url *url)
{
    static const char prefix[] = "/v1/streams/";
    if (strncmp(url->target, prefix, sizeof(prefix) - 1) != 0)
        return SLICE_LIT("");
    const char *name = url->target + sizeof(prefix) - 1;
    return (struct slice){name, strcspn(name, "/?")};
}

int load_url_add_query(struct load_url *url, const char *name, const char *value, struct diag *diag)
{
    size_t n = strlen(url->target);
    int more = snprintf(url->target + n, sizeof(url->target) - n, "%c%s=%s",
                        strchr(url->target, '?') ? '&' : '?', name, value);
    if (more < 0 || (size_t)more >= sizeof(url->target) - n) {
        url->target[n] = 0;
        return diag_set(diag, WEIR_INVALID, "--url: the path is too long");
    }
    return 0;
}

int load_url_resolve(const struct load_url *url, struct addrinfo **out, struct diag *diag)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(url->host, url->port, &hints, &list);
    if (rc == EAI_BADFLAGS || rc == EAI_NONAME || rc == EAI_ADDRFAMILY) {
        /* AI_ADDRCONFIG hides ::1 on a machine that has no other IPv6 address. */
        hints.ai_flags = AI_NUMERICSERV;
        rc = getaddrinfo(url->host, url->port, &hints, &list);
    }
    if (rc != 0)
        return diag_set(diag, WEIR_UNAVAILABLE, "the name %s cannot be resolved: %s", url->host,
                        gai_strerror(rc));
    *out = list;
    return 0;
}

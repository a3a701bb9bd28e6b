/* text.c: status texts, percent-encoding, and looking things up in a request. */
#include "http/parse.h"
#include "http/server.h"
#include "weir/err.h"

const char *http_status_text(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 201:
        return "Created";
    case 202:
        return "Accepted";
    case 204:
        return "No Content";
    case 206:
        return "Partial Content";
    case 207:
        return "Multi-Status";
    case 301:
        return "Moved Permanently";
    case 302:
        return "Found";
    case 303:
        return "See Other";
    case 304:
        return "Not Modified";
    case 307:
        return "Temporary Redirect";
    case 308:
        return "Permanent Redirect";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 406:
        return "Not Acceptable";
    case 408:
        return "Request Timeout";
    case 409:
        return "Conflict";
    case 410:
        return "Gone";
    case 411:
        return "Length Required";
    case 412:
        return "Precondition Failed";
    case 413:
        return "Content Too Large";
    case 414:
        return "URI Too Long";
    case 415:
        return "Unsupported Media Type";
    case 417:
        return "Expectation Failed";
    case 422:
        return "Unprocessable Content";
    case 425:
        return "Too Early";
    case 428:
        return "Precondition Required";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 500:
        return "Internal Server Error";
    case 501:
        return "Not Implemented";
    case 502:
        return "Bad Gateway";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    case 505:
        return "HTTP Version Not Supported";
    case 507:
        return "Insufficient Storage";
    default:
        return "Unknown";
    }
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int http_percent_decode(struct slice s, char *out, size_t *out_n)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '%') {
            out[n++] = s.p[i];
            continue;
        }
        if (s.n - i < 3 || hex_value(s.p[i + 1]) < 0 || hex_value(s.p[i + 2]) < 0)
            return WEIR_SYNTAX;
        out[n++] = (char)(hex_value(s.p[i + 1]) << 4 | hex_value(s.p[i + 2]));
        i += 2;
    }
    *out_n = n;
    return 0;
}

struct slice http_header(const struct http_request *request, const char *name)
{
    size_t n = strlen(name);
    for (unsigned i = 0; i < request->n_headers; i++) {
        const struct http_header *header = &request->headers[i];
        if (header->name.n == n && parse_same(header->name, name))
            return header->value;
    }
    return (struct slice){NULL, 0};
}

struct slice http_query(const struct http_request *request, const char *name)
{
    struct slice rest = request->query;
    size_t n = strlen(name);
    while (rest.n) {
        const char *end = memchr(rest.p, '&', rest.n);
        size_t pair = end ? (size_t)(end - rest.p) : rest.n;
        if (pair >= n && memcmp(rest.p, name, n) == 0 && (pair == n || rest.p[n] == '=')) {
            size_t skip = pair == n ? n : n + 1;
            return (struct slice){rest.p + skip, pair - skip};
        }
        pair += end != NULL;
        rest = (struct slice){rest.p + pair, rest.n - pair};
    }
    return (struct slice){NULL, 0};
}

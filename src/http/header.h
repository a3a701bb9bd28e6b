/* header.h: a header field of a request or an answer. */
#ifndef WEIR_HTTP_HEADER_H
#define WEIR_HTTP_HEADER_H

#include "base/slice.h"

struct http_header {
    struct slice name;  /* as sent; compare with http_header() which ignores case */
    struct slice value; /* without white space around it */
};

#endif

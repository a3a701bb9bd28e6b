/* err.c: names and texts of the error codes (see weir/err.h). */
#include "weir/err.h"

const char *weir_err_name(int err)
{
    switch (err) {
    case WEIR_OK:
        return "ok";
#define X(code, value, name, text)                                                                 \
    case value:                                                                                    \
        return name;
        WEIR_ERR_MAP(X)
#undef X
    default:
        return "unknown_code";
    }
}

const char *weir_err_text(int err)
{
    switch (err) {
    case WEIR_OK:
        return "done";
#define X(code, value, name, text)                                                                 \
    case value:                                                                                    \
        return text;
        WEIR_ERR_MAP(X)
#undef X
    default:
        return "an error code that is not in err.h";
    }
}

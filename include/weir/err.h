/* err.h: the one list of error codes.
 *
 * Functions return 0 or one of these negative codes. weir_err_name() gives the
 * stable machine name ("full"), weir_err_text() a short sentence for people. */
#ifndef WEIR_ERR_H
#define WEIR_ERR_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(code, value, name, text) */
#define WEIR_ERR_MAP(X)                                                                            \
    X(INVALID, -1, "invalid", "the argument or the configuration is not valid")                    \
    X(SYNTAX, -2, "syntax", "the input is malformed")                                              \
    X(TOO_LARGE, -3, "too_large", "the input is larger than the limit")                            \
    X(FULL, -4, "full", "a queue, a budget or the log is full; try again later")                   \
    X(AGAIN, -5, "again", "the call would have to wait")                                           \
    X(TIMEOUT, -6, "timeout", "it did not happen in time")                                         \
    X(CANCELLED, -7, "cancelled", "cancelled before it ran")                                       \
    X(CLOSED, -8, "closed", "it is closed or closing")                                             \
    X(NOT_FOUND, -9, "not_found", "there is no such thing")                                        \
    X(EXISTS, -10, "exists", "it is there already")                                                \
    X(DENIED, -11, "denied", "not allowed")                                                        \
    X(IO, -12, "io", "reading or writing failed")                                                  \
    X(NO_SPACE, -13, "no_space", "no space is left on the device")                                 \
    X(CORRUPT, -14, "corrupt", "the data on disk is damaged")                                      \
    X(NEWER, -15, "newer", "the data was written by a newer version")                              \
    X(LOCKED, -16, "locked", "another process holds it")                                           \
    X(UNAVAILABLE, -17, "unavailable", "the store cannot be used right now")                       \
    X(REFUSED, -18, "refused", "the store will never accept this data")                            \
    X(UNKNOWN, -19, "unknown", "it is not known whether it happened")                              \
    X(NO_MEMORY, -20, "no_memory", "out of memory")                                                \
    X(UNSUPPORTED, -21, "unsupported", "not supported here")                                       \
    X(POISONED, -22, "poisoned", "an earlier sync failed; acknowledgement ended until restart")    \
    X(DEADLOCK, -23, "deadlock", "it would wait for itself")                                       \
    X(NET, -24, "net", "the network connection failed")                                            \
    X(END, -25, "end", "nothing is left")

enum weir_err {
    WEIR_OK = 0,
#define X(code, value, name, text) WEIR_##code = (value),
    WEIR_ERR_MAP(X)
#undef X
};

/* Both accept any int and never return NULL. Any thread. */
const char *weir_err_name(int err);
const char *weir_err_text(int err);

#ifdef __cplusplus
}
#endif
#endif

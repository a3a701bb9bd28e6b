/* config.h: the configuration file, read and checked whole: every mistake is named with its line, a
 * misspelled name with the nearest known one. Immutable once read; config_destroy frees it. */
#ifndef WEIR_GATEWAY_CONFIG_H
#define WEIR_GATEWAY_CONFIG_H

#include "http/server.h"
#include "record/record.h"
#include "sink/sink.h"

#define CONFIG_SINKS_MAX 64

enum config_scope { SCOPE_READ = 1, SCOPE_WRITE = 2, SCOPE_ADMIN = 4 };

struct config_token {
    char *token; /* never printed */
    unsigned scopes;
};

struct config_sink {
    char *name;
    unsigned line;
    const struct sink_ops *ops;
    struct sink_option *options; /* ends with name == NULL; for sink_ops.open */
    struct {
        unsigned threads; /* 1 where the sink has one writer, else 4 */
        unsigned queue;   /* 1000 */
        unsigned split;   /* 1 to 64; 1 */
    } lane;
    bool ordered; /* order: key (default) | none */
    unsigned batch_records;
    uint64_t batch_bytes;
    uint64_t retry_min_ms, retry_max_ms;
};

struct config_stream {
    char *name;
    unsigned line;
    char *id;         /* JSON Pointer, or NULL: Idempotency-Key, else UUIDv7 */
    bool id_optional; /* the default stream: a missing id is given, not refused */
    char *key;        /* JSON Pointer, or NULL: the id */
    enum ack_level ack;
    uint64_t ack_timeout_ms; /* 10 s */
    unsigned primary;        /* index of the primary sink */
    uint64_t sinks;          /* bit i: sinks[i] */
};

struct config {
    char *path;   /* where it was read from; NULL: the built-in default */
    char *listen; /* "127.0.0.1:8080" */
    char *data;   /* "./weir-data" */
    bool insecure;
    char *tokens_file;
    struct config_token *tokens;
    size_t n_tokens;
    unsigned loops; /* 0: chosen by the CPU count */
    struct {
        char *kind;
        unsigned partitions;
        uint64_t segment_bytes, max_bytes;
    } log;
    struct {
        uint64_t body_bytes;   /* the largest body: 16 MiB */
        uint64_t memory_bytes; /* the budget for bodies and ring: 64 MiB */
        uint64_t records;      /* records in one body at most: 100000 */
        uint64_t lag_records;  /* refuse when a consumer is further behind; 0: only the log's size
                                  counts */
        uint64_t dead_bytes;   /* cap of each dead letter file: 1 GiB */
        uint64_t drain_timeout_ms; /* 30 s */
        struct http_limits http;
    } limits;
    struct config_sink *sinks;
    size_t n_sinks;
    struct config_stream *streams;
    size_t n_streams;
};

/* Mistakes, as many as there are. */
struct config_problems {
    struct config_problem {
        unsigned line; /* 0: no one line */
        char text[400];
    } * list;
    size_t n;
};
void config_problems_fini(struct config_problems *problems);

/* Reads a file. On any problem: WEIR_INVALID (or WEIR_IO) and the list. Connects to nothing. */
int config_read(const char *path, struct config **out, struct config_problems *problems);
/* The built-in default: journal + SQLite under `data`, stream "events", id at /id where the record
 * has one. */
struct config *config_default(const char *data);
/* Overrides from the command line; checked like the file's ("--listen beyond loopback needs
 * tokens"). */
int config_override(struct config *config, const char *listen, const char *data, struct diag *diag);
void config_destroy(struct config *config);

#endif

/* config_default.c: the built-in default, which is also what a file's left-out names mean, and the
 * memory of a configuration (see config.h). */
#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "gateway/config_reader.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct config *config_blank(const char *data)
{
    struct config *config = mem_zalloc(sizeof *config);
    config->listen = mem_strdup("127.0.0.1:8080");
    config->data = mem_strdup(data ? data : "./weir-data");
    config->log.kind = mem_strdup("journal");
    config->log.partitions = 4;
    config->log.segment_bytes = 64 * MIB;
    config->log.max_bytes = 10 * GIB;
    config->limits.body_bytes = 16 * MIB;
    config->limits.memory_bytes = 64 * MIB;
    config->limits.records = 100000;
    config->limits.dead_bytes = GIB;
    config->limits.drain_timeout_ms = 30000;
    http_limits_default(&config->limits.http);
    config_share_limits(config);
    return config;
}

void config_share_limits(struct config *config)
{
    config->limits.http.body_bytes = config->limits.body_bytes;
    /* What the server holds while it reads comes on top of the budget for what was read. */
    config->limits.http.body_memory = 2 * config->limits.memory_bytes;
}

struct config_sink *config_add_sink(struct config *config, const char *name, unsigned line)
{
    config->sinks = mem_realloc(config->sinks, (config->n_sinks + 1) * sizeof *config->sinks);
    struct config_sink *sink = &config->sinks[config->n_sinks++];
    *sink = (struct config_sink){.name = mem_strdup(name),
                                 .line = line,
                                 .options = mem_zalloc(sizeof(struct sink_option)),
                                 .ordered = true,
                                 .batch_records = 500,
                                 .batch_bytes = 4 * MIB,
                                 .retry_min_ms = 50,
                                 .retry_max_ms = 10000};
    sink->lane.queue = 1000;
    sink->lane.split = 1;
    return sink;
}

struct config_stream *config_add_stream(struct config *config, const char *name, unsigned line)
{
    config->streams =
        mem_realloc(config->streams, (config->n_streams + 1) * sizeof *config->streams);
    struct config_stream *stream = &config->streams[config->n_streams++];
    *stream = (struct config_stream){
        .name = mem_strdup(name), .line = line, .ack = ACK_DURABLE, .ack_timeout_ms = 10000};
    return stream;
}

void config_add_default_sink(struct config *config)
{
    struct config_sink *sink = config_add_sink(config, "main", 0);
    sink->ops = sink_find("sqlite");
    assert(sink->ops);
    sink->lane.threads = 1;
}

void config_add_default_stream(struct config *config)
{
    struct config_stream *stream = config_add_stream(config, "events", 0);
    stream->id = mem_strdup("/id");
    stream->id_optional = true;
    stream->sinks = config->n_sinks >= 64 ? UINT64_MAX : ((uint64_t)1 << config->n_sinks) - 1;
}

struct config *config_default(const char *data)
{
    struct config *config = config_blank(data);
    config_add_default_sink(config);
    config_add_default_stream(config);
    return config;
}

void config_destroy(struct config *config)
{
    if (!config)
        return;
    for (size_t i = 0; i < config->n_sinks; i++) {
        struct config_sink *sink = &config->sinks[i];
        for (struct sink_option *option = sink->options; option->name; option++) {
            /* A value may hold a password. */
            explicit_bzero((char *)option->value, strlen(option->value));
            mem_free((char *)option->name);
            mem_free((char *)option->value);
        }
        mem_free(sink->options);
        mem_free(sink->name);
    }
    for (size_t i = 0; i < config->n_streams; i++) {
        mem_free(config->streams[i].name);
        mem_free(config->streams[i].id);
        mem_free(config->streams[i].key);
    }
    tokens_free(config->tokens, config->n_tokens);
    mem_free(config->sinks);
    mem_free(config->streams);
    mem_free(config->tokens_file);
    mem_free(config->log.kind);
    mem_free(config->listen);
    mem_free(config->data);
    mem_free(config->path);
    mem_free(config);
}

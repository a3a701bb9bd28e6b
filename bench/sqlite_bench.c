/* sqlite_bench.c: the SQLite sink against a hand-written insert loop, and what decided its schema
 * and settings, in one run.
 *
 *     sqlite_bench [--dir DIR] [--records N] [--rounds N] [--record BYTES] [--variants]
 *
 * For ids that rise and for random ids, and batches of 500 and 2000:
 *   one         the floor of work: plain INSERTs in a single transaction
 *   floor       plain INSERTs, a transaction a batch, synced (WAL, synchronous=FULL, SQLite's own
 *               checkpoints every 1000 pages)
 *   sink        the sink, its upsert and all its checks
 * and with --variants the sink's statement over other schemas and settings. Arms are interleaved;
 * prints a JSON line a round, then the medians and their ratios. */
#include <errno.h>
#include <getopt.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sink/sink.h"

#define ROUNDS_MAX 32

struct arm {
    const char *name;
    bool sink, one; /* the real sink; one transaction in all */
    bool upsert, without_rowid;
    unsigned page, cache_kib, checkpoint_pages, mmap_mib;
};

static const struct arm basic[] = {
    {"one", .one = true, .page = 4096, .cache_kib = 16000, .checkpoint_pages = 4000},
    {"floor", .page = 4096, .cache_kib = 2000, .checkpoint_pages = 1000},
    {"sink", .sink = true},
};

static const struct arm variants[] = {
    {"rowid", .upsert = true, .page = 4096, .cache_kib = 16000, .checkpoint_pages = 4000},
    {"without rowid", .upsert = true, .without_rowid = true, .page = 4096, .cache_kib = 16000,
     .checkpoint_pages = 4000},
    {"cache 2 MiB", .upsert = true, .page = 4096, .cache_kib = 2000, .checkpoint_pages = 4000},
    {"page 8192", .upsert = true, .page = 8192, .cache_kib = 16000, .checkpoint_pages = 2000},
    {"checkpoint 1000", .upsert = true, .page = 4096, .cache_kib = 16000, .checkpoint_pages = 1000},
    {"checkpoint 16000", .upsert = true, .page = 4096, .cache_kib = 16000,
     .checkpoint_pages = 16000},
    {"mmap 1 GiB", .upsert = true, .page = 4096, .cache_kib = 16000, .checkpoint_pages = 4000,
     .mmap_mib = 1024},
};

#define N_BASIC    (sizeof basic / sizeof basic[0])
#define N_VARIANTS (sizeof variants / sizeof variants[0])

struct plan {
    const char *dir;
    size_t records, record_bytes, batch;
    bool random;
};

struct figures {
    double per_s, cpu_us, p50_ms, p99_ms, max_ms;
};

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double cpu_s(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* The batches are made before the clock starts. */
static struct batch *make_batches(const struct plan *plan, size_t *out_n)
{
    size_t n = (plan->records + plan->batch - 1) / plan->batch;
    struct batch *batches = mem_zalloc(n * sizeof *batches);
    uint64_t state = 42;
    for (size_t b = 0, made = 0; b < n; b++) {
        batch_init(&batches[b]);
        struct chunk *chunk = chunk_create(plan->batch * (plan->record_bytes + 128));
        char *p = chunk->data;
        for (size_t i = 0; i < plan->batch && made < plan->records; i++, made++) {
            uint64_t r = next_random(&state);
            struct record record = {.version = made + 1};
            int id_n = plan->random ? sprintf(p, "%016llx%016llx", (unsigned long long)r,
                                              (unsigned long long)next_random(&state))
                                    : sprintf(p, "0193%08zx-%020llx", made, (unsigned long long)r);
            record.id = (struct slice){p, (size_t)id_n};
            p += id_n;
            record.key =
                (struct slice){p, (size_t)sprintf(p, "%llu", (unsigned long long)r % 100000)};
            p += record.key.n;
            int doc_n = sprintf(p, "{\"order_no\":\"%.*s\",\"pad\":\"", id_n, record.id.p);
            while ((size_t)doc_n < plan->record_bytes - 2)
                p[doc_n++] = 'x';
            p[doc_n++] = '"';
            p[doc_n++] = '}';
            record.doc = (struct slice){p, (size_t)doc_n};
            p += doc_n;
            batch_add(&batches[b], &record, chunk);
        }
        chunk_unref(chunk);
    }
    *out_n = n;
    return batches;
}

static void must(sqlite3 *db, int rc)
{
    if (rc != SQLITE_OK && rc != SQLITE_DONE) {
        fprintf(stderr, "sqlite_bench: %s\n", sqlite3_errmsg(db));
        exit(3);
    }
}

static sqlite3_stmt *open_raw(const struct arm *arm, const char *path, sqlite3 **out)
{
    sqlite3 *db = NULL;
    must(db,
         sqlite3_open_v2(path, &db,
                         SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL));
    char *sql = mem_printf(
        "PRAGMA page_size=%u; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA "
        "cache_size=-%u; PRAGMA wal_autocheckpoint=%u; PRAGMA mmap_size=%llu;"
        "CREATE TABLE events(id TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL, version INTEGER NOT "
        "NULL, doc TEXT NOT NULL, attributes TEXT)%s",
        arm->page, arm->cache_kib, arm->checkpoint_pages, (unsigned long long)arm->mmap_mib << 20,
        arm->without_rowid ? " WITHOUT ROWID" : "");
    must(db, sqlite3_exec(db, sql, NULL, NULL, NULL));
    mem_free(sql);
    sqlite3_stmt *insert;
    must(db, sqlite3_prepare_v3(
                 db,
                 arm->upsert ? "INSERT INTO events VALUES(?1, ?2, ?3, ?4, NULL) ON CONFLICT(id) DO "
                               "UPDATE SET key=excluded.key, version=excluded.version, "
                               "doc=excluded.doc, attributes=excluded.attributes WHERE "
                               "excluded.version >= version"
                             : "INSERT INTO events VALUES(?1, ?2, ?3, ?4, NULL)",
                 -1, SQLITE_PREPARE_PERSISTENT, &insert, NULL));
    *out = db;
    return insert;
}

static void write_raw(const struct arm *arm, sqlite3 *db, sqlite3_stmt *insert,
                      const struct batch *batch, bool first, bool last)
{
    if (!arm->one || first)
        must(db, sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL));
    for (size_t i = 0; i < batch->n; i++) {
        const struct record *r = &batch->records[i];
        sqlite3_bind_text(insert, 1, r->id.p, (int)r->id.n, SQLITE_STATIC);
        sqlite3_bind_text(insert, 2, r->key.p, (int)r->key.n, SQLITE_STATIC);
        sqlite3_bind_int64(insert, 3, (sqlite3_int64)r->version);
        sqlite3_bind_text(insert, 4, r->doc.p, (int)r->doc.n, SQLITE_STATIC);
        must(db, sqlite3_step(insert));
        sqlite3_reset(insert);
    }
    if (!arm->one || last)
        must(db, sqlite3_exec(db, "COMMIT", NULL, NULL, NULL));
}

static void write_sink(struct sink_session *session, const struct batch *batch,
                       struct sink_result *results)
{
    struct diag diag;
    if (session->ops->write(session, batch, results, &diag) != 0) {
        fprintf(stderr, "sqlite_bench: %s\n", diag.text);
        exit(3);
    }
    for (size_t i = 0; i < batch->n; i++) {
        if (results[i].outcome != OUTCOME_STORED) {
            fprintf(stderr, "sqlite_bench: not stored: %s\n", results[i].reason);
            exit(3);
        }
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct figures run(const struct arm *arm, const struct plan *plan,
                          const struct batch *batches, size_t n_batches)
{
    char *folder = mem_printf("%s/weir-bench-XXXXXX", plan->dir);
    if (!mkdtemp(folder)) {
        fprintf(stderr, "sqlite_bench: %s: %s\n", plan->dir, strerror(errno));
        exit(3);
    }
    char *path = mem_printf("%s/main.db", folder);
    sqlite3 *db = NULL;
    sqlite3_stmt *insert = NULL;
    struct sink *sink = NULL;
    struct sink_session *session = NULL;
    struct sink_result *results = mem_alloc(plan->batch * sizeof *results);
    if (arm->sink) {
        const struct sink_stream stream = {0, "events"};
        const struct sink_option none = {0};
        struct sink_config config = {.name = "main",
                                     .options = &none,
                                     .streams = &stream,
                                     .n_streams = 1,
                                     .fs = fs_posix(),
                                     .data = folder};
        struct diag diag;
        const struct sink_ops *ops = sink_find("sqlite");
        if (ops->open(&config, &sink, &diag) || ops->session_open(sink, false, &session, &diag)) {
            fprintf(stderr, "sqlite_bench: %s\n", diag.text);
            exit(3);
        }
    } else {
        insert = open_raw(arm, path, &db);
    }
    double *took_ms = mem_alloc(n_batches * sizeof *took_ms);
    uint64_t start = clock_mono_ns();
    double cpu = cpu_s();
    for (size_t b = 0; b < n_batches; b++) {
        uint64_t before = clock_mono_ns();
        if (arm->sink)
            write_sink(session, &batches[b], results);
        else
            write_raw(arm, db, insert, &batches[b], b == 0, b + 1 == n_batches);
        took_ms[b] = (double)(clock_mono_ns() - before) / 1e6;
    }
    double seconds = (double)(clock_mono_ns() - start) / 1e9;
    cpu = cpu_s() - cpu;
    if (arm->sink) {
        session->ops->session_close(session);
        sink->ops->close(sink);
    } else {
        sqlite3_finalize(insert);
        sqlite3_close(db);
    }
    qsort(took_ms, n_batches, sizeof *took_ms, by_value);
    struct figures figures = {
        .per_s = (double)plan->records / seconds,
        .cpu_us = cpu * 1e6 / (double)plan->records,
        .p50_ms = took_ms[n_batches / 2],
        .p99_ms = took_ms[n_batches * 99 / 100],
        .max_ms = took_ms[n_batches - 1],
    };
    mem_free(took_ms);
    mem_free(results);
    unlink(path);
    rmdir(folder);
    mem_free(path);
    mem_free(folder);
    return figures;
}

static double median(const struct figures *rounds, size_t n, size_t offset)
{
    double values[ROUNDS_MAX];
    for (size_t i = 0; i < n; i++)
        memcpy(&values[i], (const char *)&rounds[i] + offset, sizeof(double));
    qsort(values, n, sizeof values[0], by_value);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

static void compare(const struct plan *plan, const struct arm *arms, size_t n_arms, size_t rounds)
{
    static struct figures figures[N_BASIC + N_VARIANTS][ROUNDS_MAX];
    size_t n_batches;
    struct batch *batches = make_batches(plan, &n_batches);
    const char *ids = plan->random ? "random" : "rising";
    for (size_t r = 0; r < rounds; r++) {
        for (size_t a = 0; a < n_arms; a++) {
            struct figures *f = &figures[a][r];
            *f = run(&arms[a], plan, batches, n_batches);
            printf("{\"bench\":\"sqlite\",\"arm\":\"%s\",\"ids\":\"%s\",\"batch\":%zu,\"records\":"
                   "%zu,\"record_bytes\":%zu,\"round\":%zu,\"records_per_s\":%.0f,"
                   "\"cpu_us_per_record\":%.3f,\"batch_p50_ms\":%.2f,\"batch_p99_ms\":%.2f,"
                   "\"batch_max_ms\":%.2f}\n",
                   arms[a].name, ids, plan->batch, plan->records, plan->record_bytes, r, f->per_s,
                   f->cpu_us, f->p50_ms, f->p99_ms, f->max_ms);
            fflush(stdout);
        }
    }
    fprintf(stderr, "\n%s ids, batches of %zu, %zu records of %zu bytes, medians of %zu rounds\n",
            ids, plan->batch, plan->records, plan->record_bytes, rounds);
    fprintf(stderr, "%-18s %11s %8s %9s %9s %9s %8s\n", "", "records/s", "cpu us", "p50 ms",
            "p99 ms", "max ms", "of floor");
    double floor = median(figures[1], rounds, offsetof(struct figures, per_s));
    for (size_t a = 0; a < n_arms; a++) {
        double per_s = median(figures[a], rounds, offsetof(struct figures, per_s));
        fprintf(stderr, "%-18s %11.0f %8.2f %9.2f %9.2f %9.2f %8.2f\n", arms[a].name, per_s,
                median(figures[a], rounds, offsetof(struct figures, cpu_us)),
                median(figures[a], rounds, offsetof(struct figures, p50_ms)),
                median(figures[a], rounds, offsetof(struct figures, p99_ms)),
                median(figures[a], rounds, offsetof(struct figures, max_ms)), per_s / floor);
    }
    for (size_t b = 0; b < n_batches; b++)
        batch_fini(&batches[b]);
    mem_free(batches);
}

int main(int argc, char **argv)
{
    struct plan plan = {.dir = "/tmp", .records = 200000, .record_bytes = 170};
    size_t rounds = 3, n_arms = N_BASIC;
    static const struct option options[] = {
        {"dir", required_argument, NULL, 'd'},    {"records", required_argument, NULL, 'n'},
        {"rounds", required_argument, NULL, 'r'}, {"record", required_argument, NULL, 'b'},
        {"variants", no_argument, NULL, 'v'},     {0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'd')
            plan.dir = optarg;
        else if (c == 'n')
            plan.records = strtoul(optarg, NULL, 10);
        else if (c == 'r')
            rounds = strtoul(optarg, NULL, 10);
        else if (c == 'b')
            plan.record_bytes = strtoul(optarg, NULL, 10);
        else if (c == 'v')
            n_arms = N_BASIC + N_VARIANTS;
        else
            return 2;
    }
    if (plan.records == 0 || rounds == 0 || rounds > ROUNDS_MAX || plan.record_bytes < 80) {
        fprintf(stderr, "sqlite_bench: at least 1 record of 80 bytes, 1 to %d rounds\n",
                ROUNDS_MAX);
        return 2;
    }
    struct arm arms[N_BASIC + N_VARIANTS];
    memcpy(arms, basic, sizeof basic);
    memcpy(arms + N_BASIC, variants, sizeof variants);
    static const size_t batches[] = {500, 2000};
    for (int random = 0; random < 2; random++) {
        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
            plan.random = random;
            plan.batch = batches[b];
            compare(&plan, arms, n_arms, rounds);
        }
    }
    return 0;
}

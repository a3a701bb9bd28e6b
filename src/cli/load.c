/* load.c: `weir load`: options to a struct load_config, a result to text, JSON and exit code; and
 * `weir load merge`. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/units.h"
#include "cli/cli.h"
#include "load/load.h"
#include "load/report.h"
#include "os/fs.h"
#include "record/record.h"

#define TEMPLATE_FILE_MAX (64u << 20)

static const char usage[] =
    "usage: weir load --url URL [options]\n"
    "       weir load merge [--json] FILE...\n"
    "\n"
    "Sends records to URL (http://HOST[:PORT][/PATH]; without a path: /v1/streams/events) and "
    "says\n"
    "how many were answered, how fast, and who was the limit.\n"
    "\n"
    "  --closed              each connection sends its next request when the last is answered\n"
    "                        (the default)\n"
    "  --rate R              open loop: R requests a second on a fixed schedule; latency counts "
    "from\n"
    "                        the intended time, so a server that stalls shows\n"
    "  -n N                  so many requests in all\n"
    "  --duration S          so many seconds (or 500ms, 2m); 10 s when -n is not given either\n"
    "  -c, --connections N   keep-alive connections, 64\n"
    "  -t, --threads N       half the CPUs\n"
    "  --batch N             N records a request, as NDJSON; 1: a JSON object\n"
    "  --template T          the record: a file, or text that begins with { or [; placeholders\n"
    "                        {id} {seq} {key} {rand} {ms} {pad:N}, with digits as in {key:8};\n"
    "                        {{ is a brace; left out: a shop's order of 170 bytes\n"
    "  --random-ids          ids that are not ordered by time\n"
    "  --keys N --zipf S     {key} is 0 to N - 1 (1000000), uniform, or Zipf with exponent S\n"
    "  --seed N              the same records again, but for ids and times\n"
    "  --ack LEVEL           received, durable, stored, everywhere; left out: the stream's\n"
    "  --token T             bearer token; or WEIR_TOKEN in the environment\n"
    "  --timeout S           of a request and of connecting, 10\n"
    "  --reconnect           keep trying while the server refuses connections\n"
    "  --start-at T          begin at T seconds since 1970, like other generators do\n"
    "  --ids FILE            id, version and content hash of every acknowledged record, for\n"
    "                        weir reconcile --ids FILE\n"
    "  --hist FILE           counters and whole histograms, for weir load merge\n"
    "  --json                one JSON document; latencies in microseconds\n"
    "\n"
    "Exit codes: 0 at least one answer was 2xx; 1 none was; 2 usage; 3 nothing could be sent, or "
    "a\n"
    "file could not be written. An interrupt ends the sending; the report is still printed.\n";

enum { /* options without a letter */
       OPT_URL = 256,
       OPT_CLOSED,
       OPT_RATE,
       OPT_DURATION,
       OPT_BATCH,
       OPT_TEMPLATE,
       OPT_RANDOM_IDS,
       OPT_KEYS,
       OPT_ZIPF,
       OPT_SEED,
       OPT_ACK,
       OPT_TOKEN,
       OPT_TIMEOUT,
       OPT_RECONNECT,
       OPT_START_AT,
       OPT_IDS,
       OPT_HIST,
       OPT_JSON,
};

static const struct option long_options[] = {
    {"url", required_argument, NULL, OPT_URL},
    {"closed", no_argument, NULL, OPT_CLOSED},
    {"rate", required_argument, NULL, OPT_RATE},
    {"requests", required_argument, NULL, 'n'},
    {"duration", required_argument, NULL, OPT_DURATION},
    {"connections", required_argument, NULL, 'c'},
    {"threads", required_argument, NULL, 't'},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"template", required_argument, NULL, OPT_TEMPLATE},
    {"random-ids", no_argument, NULL, OPT_RANDOM_IDS},
    {"keys", required_argument, NULL, OPT_KEYS},
    {"zipf", required_argument, NULL, OPT_ZIPF},
    {"seed", required_argument, NULL, OPT_SEED},
    {"ack", required_argument, NULL, OPT_ACK},
    {"token", required_argument, NULL, OPT_TOKEN},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"reconnect", no_argument, NULL, OPT_RECONNECT},
    {"start-at", required_argument, NULL, OPT_START_AT},
    {"ids", required_argument, NULL, OPT_IDS},
    {"hist", required_argument, NULL, OPT_HIST},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct options {
    struct load_config load;
    const char *hist;
    char *template; /* read from a file */
    bool json, closed, help;
};

static atomic_bool stop;

static void on_signal(int signal)
{
    (void)signal;
    /* Relaxed: only the flag itself is read. The next signal ends the process (SA_RESETHAND). */
    atomic_store_explicit(&stop, true, memory_order_relaxed);
}

static int bad_value(struct diag *diag, const char *option, const char *value, const char *want)
{
    return diag_set(diag, WEIR_INVALID, "%s %.100s: give %s", option, value, want);
}

static int parse_count(const char *option, const char *text, uint64_t least, uint64_t most,
                       uint64_t *out, struct diag *diag)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || v < least || v > most)
        return diag_set(diag, WEIR_INVALID, "%s %.100s: give a whole number from %llu to %llu",
                        option, text, (unsigned long long)least, (unsigned long long)most);
    *out = v;
    return 0;
}

static int parse_number(const char *option, const char *text, double *out, struct diag *diag)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (((*text < '0' || *text > '9') && *text != '.') || *end || errno || !isfinite(v) ||
        strpbrk(text, "xX")) /* strtod reads hexadecimal, too */
        return bad_value(diag, option, text, "a number");
    *out = v;
    return 0;
}

/* Seconds as a bare number, or with a unit. */
static int parse_time(const char *option, const char *text, uint64_t *out_ms, struct diag *diag)
{
    double seconds;
    if (units_parse_duration(slice_of(text), out_ms) != 0) {
        if (parse_number(option, text, &seconds, NULL) != 0 || seconds > 1e9)
            return bad_value(diag, option, text, "seconds, or a time such as 500ms or 2m");
        *out_ms = (uint64_t)(seconds * 1000 + 0.5);
    }
    if (*out_ms == 0)
        return bad_value(diag, option, text, "more than 0");
    return 0;
}

static int read_template(struct options *options, const char *text, struct diag *diag)
{
    size_t n;
    if (*text == '{' || *text == '[') {
        options->load.template = text;
        return 0;
    }
    mem_free(options->template);
    options->template = NULL;
    int err = fs_read_file(fs_posix(), text, TEMPLATE_FILE_MAX, &options->template, &n);
    if (err)
        return diag_set(diag, WEIR_INVALID, "--template %.200s: cannot be read: %s", text,
                        err == WEIR_TOO_LARGE ? "over 64 MiB" : strerror(errno));
    if (memchr(options->template, 0, n))
        return diag_set(diag, WEIR_INVALID, "--template %.200s: it holds a NUL byte", text);
    options->load.template = options->template;
    return 0;
}

static int take(struct options *options, int option, const char *value, struct diag *diag)
{
    struct load_config *load = &options->load;
    enum ack_level level;
    uint64_t count = 0;
    int err;
    switch (option) {
    case OPT_URL:
        load->url = value;
        return 0;
    case OPT_CLOSED:
        options->closed = true;
        return 0;
    case OPT_RATE:
        err = parse_number("--rate", value, &load->rate_per_s, diag);
        if (!err && (load->rate_per_s < 0.001 || load->rate_per_s > 1e9))
            err = bad_value(diag, "--rate", value, "a number from 0.001 to 1000000000");
        return err;
    case 'n':
        return parse_count("-n", value, 1, UINT64_MAX / 2, &load->requests, diag);
    case OPT_DURATION:
        return parse_time("--duration", value, &load->duration_ms, diag);
    case 'c':
        err = parse_count("--connections", value, 1, LOAD_CONNECTIONS_MAX, &count, diag);
        load->connections = (unsigned)count;
        return err;
    case 't':
        err = parse_count("--threads", value, 1, LOAD_THREADS_MAX, &count, diag);
        load->threads = (unsigned)count;
        return err;
    case OPT_BATCH:
        return parse_count("--batch", value, 1, 1000000, &load->batch, diag);
    case OPT_TEMPLATE:
        return read_template(options, value, diag);
    case OPT_RANDOM_IDS:
        load->random_ids = true;
        return 0;
    case OPT_KEYS:
        return parse_count("--keys", value, 1, (uint64_t)1 << 53, &load->keys, diag);
    case OPT_ZIPF:
        err = parse_number("--zipf", value, &load->zipf, diag);
        if (!err && (load->zipf <= 0 || load->zipf > 20))
            err = bad_value(diag, "--zipf", value, "an exponent over 0, at most 20");
        return err;
    case OPT_SEED:
        return parse_count("--seed", value, 0, UINT64_MAX, &load->seed, diag);
    case OPT_ACK:
        load->ack = value;
        if (ack_level_parse(slice_of(value), &level) != 0)
            return bad_value(diag, "--ack", value, "received, durable, stored or everywhere");
        return 0;
    case OPT_TOKEN:
        load->token = value;
        return 0;
    case OPT_TIMEOUT:
        return parse_time("--timeout", value, &load->timeout_ms, diag);
    case OPT_RECONNECT:
        load->reconnect = true;
        return 0;
    case OPT_START_AT:
        return parse_number("--start-at", value, &load->start_at, diag);
    case OPT_IDS:
        load->ids_path = value;
        return 0;
    case OPT_HIST:
        options->hist = value;
        return 0;
    case OPT_JSON:
        options->json = true;
        return 0;
    case 'h':
        options->help = true;
        return 0;
    default:
        return diag_set(diag, WEIR_INVALID, "see weir load --help");
    }
}

static int parse_options(int argc, char **argv, struct options *options, struct diag *diag)
{
    int option, err = 0;
    optind = 1;
    while (!err && (option = getopt_long(argc, argv, "n:c:t:h", long_options, NULL)) != -1)
        err = take(options, option, optarg, diag);
    if (err || options->help)
        return err;
    if (optind < argc)
        return diag_set(diag, WEIR_INVALID, "%.100s: not understood; see weir load --help",
                        argv[optind]);
    if (!options->load.url)
        return diag_set(diag, WEIR_INVALID, "--url is missing, as in --url http://127.0.0.1:8080");
    if (options->closed && options->load.rate_per_s > 0)
        return diag_set(diag, WEIR_INVALID, "--closed and --rate exclude each other");
    if (!options->load.token)
        options->load.token = getenv("WEIR_TOKEN");
    return 0;
}

static int print(const struct load_result *result, bool json)
{
    struct buf out = {0};
    if (json)
        report_json(result, &out);
    else
        report_text(result, &out);
    bool whole = fwrite(out.p, 1, out.n, stdout) == out.n && fflush(stdout) == 0;
    buf_fini(&out);
    return whole ? CLI_DONE : CLI_CANNOT;
}

static int fail(const struct diag *diag)
{
    fprintf(stderr, "weir load: %s\n", diag->text);
    return diag->code == WEIR_INVALID || diag->code == WEIR_SYNTAX || diag->code == WEIR_UNSUPPORTED
               ? CLI_USAGE
               : CLI_CANNOT;
}

static int merge(int argc, char **argv)
{
    struct load_result sum;
    struct diag diag = {0};
    bool json = false;
    int code = CLI_DONE, files = 0;
    load_result_init(&sum);
    for (int i = 1; i < argc && code == CLI_DONE; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            goto out;
        } else if (strncmp(argv[i], "--", 2) == 0) {
            fprintf(stderr, "weir load merge: %s: not understood\n%s", argv[i], usage);
            code = CLI_USAGE;
        } else if (report_merge(argv[i], &sum, &diag) != 0) {
            code = fail(&diag);
        } else {
            files++;
        }
    }
    if (code == CLI_DONE && files == 0) {
        fprintf(stderr, "weir load merge: give files of weir load --hist\n");
        code = CLI_USAGE;
    }
    if (code == CLI_DONE)
        code = print(&sum, json);
    if (code == CLI_DONE && sum.ok == 0)
        code = CLI_DOES_NOT_HOLD;
out:
    load_result_fini(&sum);
    return code;
}

int cli_load(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "merge") == 0)
        return merge(argc - 1, argv + 1);

    struct options options = {0};
    struct diag diag = {0};
    int code = CLI_DONE;
    if (parse_options(argc, argv, &options, &diag) != 0) {
        code = fail(&diag);
        goto out;
    }
    if (options.help) {
        fputs(usage, stdout);
        goto out;
    }

    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    options.load.stop = &stop;
    options.load.progress = isatty(STDERR_FILENO);

    struct load_result result;
    load_result_init(&result);
    if (load_run(&options.load, &result, &diag) != 0)
        code = fail(&diag);
    else if (options.hist && report_save(&result, options.hist, &diag) != 0)
        code = fail(&diag);
    if (code == CLI_DONE ||
        result.sent > 0) { /* what was measured is shown, whatever failed after */
        int printed = print(&result, options.json);
        if (code == CLI_DONE)
            code = printed ? printed : result.ok > 0 ? CLI_DONE : CLI_DOES_NOT_HOLD;
    }
    load_result_fini(&result);
out:
    mem_free(options.template);
    return code;
}

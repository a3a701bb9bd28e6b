/* journal.c: `weir journal verify|dump`: reads a journal, beside a gateway or without one. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "gateway/meta.h"
#include "log/journal/verify.h"
#include "log/log.h"
#include "record/attributes.h"

static const char usage[] =
    "usage: weir journal verify [--json] DIR\n"
    "       weir journal dump [--from POSITION] DIR\n"
    "\n"
    "DIR is a data directory (the one that holds META and journal/). Both only read, and work "
    "beside\n"
    "a running gateway.\n"
    "\n"
    "verify reads every segment, group and record, and names each damage with its file and byte.\n"
    "dump prints one JSON object a line for each record, in the order of the log.\n"
    "\n"
    "  --json             verify: one JSON document on standard output\n"
    "  --from POSITION    dump: begin here (a position as answers and dumps give it)\n"
    "\n"
    "Exit codes: 0 done; 1 damage was found; 2 usage; 3 it cannot be read.\n";

static const struct option long_options[] = {
    {"json", no_argument, NULL, 'j'},
    {"from", required_argument, NULL, 'f'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

/* --- verify ------------------------------------------------------------------------------------
 */

struct verify_output {
    bool json;
    struct buf damages, remarks; /* as JSON strings, comma separated */
};

static void found(void *context, bool damage, const char *text)
{
    struct verify_output *output = context;
    if (!output->json) {
        printf("%s%s\n", damage ? "DAMAGE " : "note   ", text);
        return;
    }
    struct buf *list = damage ? &output->damages : &output->remarks;
    if (list->n)
        buf_put_char(list, ',');
    buf_put_json_string(list, slice_of(text));
}

static void print_verify_json(const struct journal_verify *verify, struct verify_output *output)
{
    printf("{\"sound\":%s,\"segments\":%" PRIu64 ",\"groups\":%" PRIu64 ",\"units\":%" PRIu64
           ",\"records\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"first_offset\":%" PRIu64
           ",\"end_offset\":%" PRIu64 ",\"damages\":[%s],\"remarks\":[%s]}\n",
           verify->damages ? "false" : "true", verify->segments, verify->groups, verify->units,
           verify->records, verify->bytes, verify->first_offset, verify->end_offset,
           buf_str(&output->damages), buf_str(&output->remarks));
}

static int run_verify(const char *data, bool json)
{
    struct verify_output output = {.json = json};
    struct journal_verify verify = {
        .fs = fs_current(), .data = data, .context = &output, .found = found};
    struct diag diag = {0};
    int rc = journal_verify(&verify, &diag);
    if (rc) {
        fprintf(stderr, "weir journal verify: %s\n", diag.text);
    } else if (json) {
        print_verify_json(&verify, &output);
    } else {
        printf("%" PRIu64 " segment%s, %" PRIu64 " groups, %" PRIu64 " records, offsets %" PRIu64
               " to %" PRIu64 ": ",
               verify.segments, verify.segments == 1 ? "" : "s", verify.groups, verify.records,
               verify.first_offset, verify.end_offset);
        if (verify.damages)
            printf("%" PRIu64 " damaged place%s\n", verify.damages, verify.damages == 1 ? "" : "s");
        else
            puts("sound");
    }
    buf_fini(&output.damages);
    buf_fini(&output.remarks);
    return rc ? CLI_CANNOT : verify.damages ? CLI_DOES_NOT_HOLD : CLI_DONE;
}

/* --- dump --------------------------------------------------------------------------------------
 */

struct dump {
    struct log *log;
    struct meta meta; /* may be empty: streams then have numbers only */
    struct buf line;
};

/* JSON on one line: a line end can only be white space between its tokens. */
static void put_doc(struct buf *line, struct slice doc)
{
    size_t from = line->n;
    buf_put_slice(line, doc);
    for (size_t i = from; i < line->n; i++)
        if (line->p[i] == '\n' || line->p[i] == '\r')
            line->p[i] = ' ';
}

static int print_record(void *context, const struct record *record)
{
    struct dump *dump = context;
    struct buf *line = &dump->line;
    char position[64];
    log_position_text(dump->log, record->partition, record->offset, position);
    buf_clear(line);
    buf_printf(line, "{\"position\":\"%s\",\"stream\":", position);
    if (record->stream < dump->meta.n_streams)
        buf_put_json_string(line, slice_of(dump->meta.streams[record->stream]));
    else
        buf_printf(line, "%" PRIu32, record->stream);
    buf_put_str(line, ",\"id\":");
    buf_put_json_string(line, record->id);
    buf_put_str(line, ",\"key\":");
    buf_put_json_string(line, record->key);
    buf_printf(line, ",\"version\":%" PRIu64, record->version);
    if (record->attributes.n && attributes_check(record->attributes) == 0) {
        buf_put_str(line, ",\"attributes\":");
        attributes_to_json(record->attributes, line);
    }
    buf_put_str(line, ",\"record\":");
    put_doc(line, record->doc);
    buf_put_str(line, "}\n");
    return fwrite(line->p, 1, line->n, stdout) == line->n ? 0 : WEIR_IO;
}

static int run_dump(const char *data, uint64_t from)
{
    struct dump dump = {0};
    struct diag diag = {0};
    const struct fs *fs = fs_current();
    bool named = meta_read(fs, data, &dump.meta, NULL) == 0;
    struct log_config config = {
        .fs = fs, .data = data, .partitions = named ? dump.meta.partitions : 1, .read_only = true};
    int rc = log_open("journal", &config, &dump.log, &diag);
    if (rc == 0)
        rc = log_scan(dump.log, from, print_record, &dump, &diag);
    if (fflush(stdout) != 0 || ferror(stdout))
        rc = diag_set(&diag, WEIR_IO, "standard output: %s", strerror(errno));
    if (rc)
        fprintf(stderr, "weir journal dump: %s\n", diag.text);
    log_close(dump.log);
    buf_fini(&dump.line);
    if (named)
        meta_fini(&dump.meta);
    return rc == WEIR_CORRUPT ? CLI_DOES_NOT_HOLD : rc ? CLI_CANNOT : CLI_DONE;
}

/* "2-4160" or "4160". */
static bool parse_position(const char *text, uint64_t *offset)
{
    const char *dash = strchr(text, '-');
    const char *number = dash ? dash + 1 : text;
    char *end;
    errno = 0;
    if (*number < '0' || *number > '9')
        return false;
    *offset = strtoull(number, &end, 10);
    return errno == 0 && *end == 0;
}

static void name_seen(void *context, const char *name)
{
    if (strcmp(name, "journal") == 0)
        *(bool *)context = true;
}

/* Whether a journal can be there; if not, that is said. */
static bool is_data(const char *data)
{
    bool seen = false;
    const struct fs *fs = fs_current();
    int rc = fs->list(fs, data, name_seen, &seen);
    if (rc)
        fprintf(stderr, "weir journal: %s: cannot be listed: %s\n", data, strerror(errno));
    else if (!seen)
        fprintf(stderr, "weir journal: %s is no data directory: there is no journal/ in it\n",
                data);
    return rc == 0 && seen;
}

static int misused(const char *what)
{
    fprintf(stderr, "weir journal: %s\n%s", what, usage);
    return CLI_USAGE;
}

int cli_journal(int argc, char **argv)
{
    bool json = false, has_from = false;
    uint64_t from = 0;
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (option) {
        case 'h':
            fputs(usage, stdout);
            return CLI_DONE;
        case 'j':
            json = true;
            break;
        case 'f':
            has_from = true;
            if (!parse_position(optarg, &from))
                return misused("--from takes a position, as answers give it: 2-4160");
            break;
        default:
            fputs(usage, stderr);
            return CLI_USAGE;
        }
    }
    if (argc - optind != 2)
        return misused(optind == argc ? "verify or dump?" : "one data directory is expected");
    const char *what = argv[optind], *data = argv[optind + 1];
    bool verify = strcmp(what, "verify") == 0;
    if (!verify && strcmp(what, "dump") != 0)
        return misused("verify or dump?");
    if (verify && has_from)
        return misused("--from is for dump");
    if (!verify && json)
        return misused("dump prints JSON lines always");
    if (!is_data(data))
        return CLI_CANNOT;
    return verify ? run_verify(data, json) : run_dump(data, from);
}

/* dead.c: `weir dead`: arguments, and list and show, which only read the files (beside a gateway or
 * without one). */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/dead.h"
#include "delivery/dead.h"
#include "gateway/meta.h"
#include "record/attributes.h"

#define DATA_DEFAULT "./weir-data"

static const char usage[] =
    "usage: weir dead list   [--sink NAME] [--json] [-c FILE] [--data DIR]\n"
    "       weir dead show   [--sink NAME] [--json] [-c FILE] [--data DIR] NUMBER...|--all\n"
    "       weir dead replay [--sink NAME] [--json] [-c FILE] [--data DIR] NUMBER...|--all\n"
    "       weir dead drop   [--sink NAME] [--json] [-c FILE] [--data DIR] NUMBER...|--all\n"
    "\n"
    "Dead letters are the records that a sink refused. list and show read them; replay writes "
    "each\n"
    "to its sink once more and drops it when it is stored; drop forgets it. replay and drop go\n"
    "through a running gateway's socket, and work on the files themselves when none runs.\n"
    "\n"
    "      --sink NAME     of this sink; may be left out where there is only one, and with --all\n"
    "      --all           every dead letter\n"
    "      --json          one JSON document on standard output\n"
    "  -c, --config FILE   the gateway's configuration\n"
    "      --data DIR      its data directory (./weir-data)\n"
    "\n"
    "Exit codes: 0 done; 1 a letter is not there, or was refused again; 2 usage or configuration;\n"
    "3 it could not be done (the store is down).\n";

static const struct option long_options[] = {
    {"config", required_argument, NULL, 'c'},
    {"data", required_argument, NULL, 'd'},
    {"sink", required_argument, NULL, 's'},
    {"all", no_argument, NULL, 'a'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

/* ---- list and show ---- */

struct reading {
    const struct dead_command *command;
    struct buf out;
    bool full; /* show: with the record */
    uint64_t letters;
};

static void put_json(struct reading *reading, const struct dead_letter *letter)
{
    struct buf *out = &reading->out;
    const struct record *r = &letter->record;
    char time[25];
    clock_format_wall(letter->time_ms, time);
    buf_put_str(out, reading->letters ? ",\n" : "\n");
    buf_put_str(out, "{\"sink\":");
    buf_put_json_string(out, slice_of(letter->sink));
    buf_printf(out, ",\"number\":%" PRIu64 ",\"time\":\"%s\",\"stream\":", letter->number, time);
    buf_put_json_string(out, slice_of(letter->stream_name));
    buf_put_str(out, ",\"id\":");
    buf_put_json_string(out, r->id);
    buf_put_str(out, ",\"key\":");
    buf_put_json_string(out, r->key);
    buf_printf(out, ",\"version\":%" PRIu64 ",\"position\":", r->version);
    buf_put_json_string(out, slice_of(letter->position));
    buf_put_str(out, ",\"reason\":");
    buf_put_json_string(out, slice_of(letter->reason));
    if (reading->full) {
        buf_put_str(out, ",\"attributes\":");
        attributes_to_json(attributes_check(r->attributes) ? (struct slice){0} : r->attributes,
                           out);
        buf_put_str(out, ",\"record\":");
        buf_put_slice(out, r->doc);
    }
    buf_put_char(out, '}');
}

/* Ids and reasons are strangers' text: quoted, so that they cannot play with the terminal. */
static void put_line(struct reading *reading, const struct dead_letter *letter)
{
    struct buf *out = &reading->out;
    char time[25];
    clock_format_wall(letter->time_ms, time);
    buf_printf(out, "%s %" PRIu64 "  %s  %s ", letter->sink, letter->number, time,
               letter->stream_name);
    buf_put_json_string(out, letter->record.id);
    buf_put_str(out, "  ");
    buf_put_json_string(out, slice_of(letter->reason));
    buf_put_char(out, '\n');
}

static void put_whole(struct reading *reading, const struct dead_letter *letter)
{
    struct buf *out = &reading->out;
    const struct record *r = &letter->record;
    char time[25];
    clock_format_wall(letter->time_ms, time);
    buf_printf(
        out,
        "%ssink        %s\nnumber      %" PRIu64 "\ntime        %s\nstream      %s\nid          ",
        reading->letters ? "\n" : "", letter->sink, letter->number, time, letter->stream_name);
    buf_put_json_string(out, r->id);
    buf_put_str(out, "\nkey         ");
    buf_put_json_string(out, r->key);
    buf_printf(out, "\nversion     %" PRIu64 "\nposition    %s\nreason      ", r->version,
               letter->position);
    buf_put_json_string(out, slice_of(letter->reason));
    if (r->attributes.n && attributes_check(r->attributes) == 0) {
        buf_put_str(out, "\nattributes  ");
        attributes_to_json(r->attributes, out);
    }
    buf_put_str(out, "\nrecord      ");
    buf_put_slice(out, r->doc);
    buf_put_char(out, '\n');
}

static int put_letter(void *context, const struct dead_letter *letter)
{
    struct reading *reading = context;
    buf_clear(&reading->out);
    if (reading->command->json)
        put_json(reading, letter);
    else if (reading->full)
        put_whole(reading, letter);
    else
        put_line(reading, letter);
    reading->letters++;
    return fwrite(reading->out.p, 1, reading->out.n, stdout) == reading->out.n ? 0 : WEIR_IO;
}

static int read_sink(struct reading *reading, const char *sink)
{
    const struct dead_command *command = reading->command;
    struct dead *dead;
    struct diag diag = {0};
    char damage[400];
    int code = CLI_DONE;
    if (dead_open(fs_current(), command->data, sink, UINT64_MAX, true, &dead, &diag)) {
        fprintf(stderr, "weir dead: %s\n", diag.text);
        return CLI_CANNOT;
    }
    if (dead_damaged(dead, damage, sizeof(damage)))
        fprintf(stderr, "weir dead: %s\n", damage);
    if (!command->n_numbers && dead_scan(dead, put_letter, reading, &diag)) {
        fprintf(stderr, "weir dead: %s\n", diag.text);
        code = CLI_CANNOT;
    }
    for (size_t i = 0; i < command->n_numbers; i++) {
        int rc = dead_get(dead, command->numbers[i], put_letter, reading, &diag);
        if (rc) {
            fprintf(stderr, "weir dead: %s\n", diag.text);
            code = rc == WEIR_NOT_FOUND || rc == WEIR_CORRUPT ? CLI_DOES_NOT_HOLD : CLI_CANNOT;
        }
    }
    dead_close(dead);
    return code;
}

static int run_read(const struct dead_command *command, bool full)
{
    struct reading reading = {.command = command, .full = full};
    int code = CLI_DONE;
    if (command->json)
        fputs("{\"letters\":[", stdout);
    for (char **sink = command->sinks; *sink; sink++) {
        int one = read_sink(&reading, *sink);
        code = one > code ? one : code;
    }
    if (command->json)
        puts("\n]}");
    else if (!full && !reading.letters && code == CLI_DONE)
        puts("no dead letters");
    buf_fini(&reading.out);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "weir dead: standard output: %s\n", strerror(errno));
        return CLI_CANNOT;
    }
    return code;
}

/* ---- which sinks ---- */

struct names {
    char **list;
    size_t n;
};

static void add_name(struct names *names, const char *name)
{
    names->list = mem_realloc(names->list, (names->n + 2) * sizeof(char *));
    names->list[names->n++] = mem_strdup(name);
    names->list[names->n] = NULL;
}

static void add_file(void *context, const char *name)
{
    if (name[0] && name[0] != '.' && !strchr(name, '~'))
        add_name(context, name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        mem_free(names->list[i]);
    mem_free(names->list);
}

static void see_nothing(void *context, const char *name)
{
    (void)context;
    (void)name;
}

/* Letters are read without META too, should only they be left. */
static bool anything_there(const char *data)
{
    struct meta meta;
    char *folder = mem_printf("%s/dead", data);
    int rc = meta_read(fs_current(), data, &meta, NULL);
    if (rc == 0)
        meta_fini(&meta);
    bool there = rc != WEIR_NOT_FOUND ||
                 fs_current()->list(fs_current(), folder, see_nothing, NULL) != WEIR_NOT_FOUND;
    if (!there)
        fprintf(stderr, "weir dead: %s: no gateway has run here (there is no META)\n", data);
    mem_free(folder);
    return there;
}

/* The sinks of the configuration; without one, those that have a file of dead letters. */
static int find_sinks(const struct dead_command *command, const char *wanted, struct names *names)
{
    names->list = mem_zalloc(sizeof(char *));
    if (command->config) {
        for (size_t i = 0; i < command->config->n_sinks; i++)
            add_name(names, command->config->sinks[i].name);
    } else {
        char *folder = mem_printf("%s/dead", command->data);
        int rc = fs_current()->list(fs_current(), folder, add_file, names);
        if (rc && rc != WEIR_NOT_FOUND)
            fprintf(stderr, "weir dead: %s: %s\n", folder, strerror(errno));
        mem_free(folder);
        if (rc && rc != WEIR_NOT_FOUND)
            return CLI_CANNOT;
        qsort(names->list, names->n, sizeof(char *), by_name);
    }
    if (!wanted)
        return CLI_DONE;
    bool known = false;
    for (size_t i = 0; i < names->n; i++)
        known = known || strcmp(names->list[i], wanted) == 0;
    if (!known && command->config) {
        fprintf(stderr, "weir dead: there is no sink %s in %s\n", wanted, command->config->path);
        return CLI_USAGE;
    }
    /* Without a configuration only its files tell of a sink, and the first comes with its first
     * record: no mistake then, but worth a word. */
    char *cursor = mem_printf("%s/cursors/%s", command->data, wanted);
    struct fs_file *file;
    if (!known && fs_open(fs_current(), cursor, FS_READ, &file) == 0) {
        known = true;
        fs_close(file);
    }
    mem_free(cursor);
    if (!known)
        fprintf(stderr, "weir dead: nothing in %s tells of a sink %s\n", command->data, wanted);
    free_names(names);
    *names = (struct names){0};
    add_name(names, wanted);
    return CLI_DONE;
}

/* ---- arguments ---- */

static int misused(const char *what)
{
    fprintf(stderr, "weir dead: %s\n%s", what, usage);
    return CLI_USAGE;
}

static int read_numbers(struct dead_command *command, int n, char **texts)
{
    command->numbers = mem_alloc(((size_t)n + 1) * sizeof(*command->numbers));
    for (int i = 0; i < n; i++) {
        char *end;
        errno = 0;
        uint64_t number = strtoull(texts[i], &end, 10);
        if (texts[i][0] < '0' || texts[i][0] > '9' || *end || errno || !number)
            return WEIR_SYNTAX;
        command->numbers[command->n_numbers++] = number;
    }
    return 0;
}

static int read_config(struct dead_command *command, const char *path, const char *data)
{
    command->data = data ? data : DATA_DEFAULT;
    if (!path)
        return CLI_DONE;
    struct config_problems problems = {0};
    struct diag diag = {0};
    int rc = config_read(path, &command->config, &problems);
    if (rc)
        cli_print_problems(path, &problems);
    config_problems_fini(&problems);
    if (rc == 0 && data && (rc = config_override(command->config, NULL, data, &diag)) != 0)
        fprintf(stderr, "weir dead: %s\n", diag.text);
    if (rc)
        return CLI_USAGE;
    command->data = command->config->data;
    return CLI_DONE;
}

static int run(struct dead_command *command, const char *verb, const char *sink, int n_texts,
               char **texts)
{
    bool list = strcmp(verb, "list") == 0, show = strcmp(verb, "show") == 0;
    command->replay = strcmp(verb, "replay") == 0;
    if (!list && !show && !command->replay && strcmp(verb, "drop") != 0)
        return misused("list, show, replay or drop?");
    if (read_numbers(command, n_texts, texts))
        return misused("dead letters are named by their numbers, from 1");
    if (list ? command->all || n_texts : command->all == (n_texts > 0))
        return misused(list ? "list takes no numbers" : "numbers, or --all?");
    if (!anything_there(command->data))
        return CLI_CANNOT;
    struct names names = {0};
    int code = find_sinks(command, sink, &names);
    command->sinks = names.list;
    if (code == CLI_DONE && n_texts && names.n == 0) {
        fprintf(stderr, "weir dead: there are no dead letters in %s\n", command->data);
        code = CLI_DOES_NOT_HOLD;
    }
    if (code == CLI_DONE && n_texts && names.n != 1)
        code = misused("which sink's? Numbers are each sink's own: --sink NAME");
    if (code == CLI_DONE)
        code = list || show ? run_read(command, show) : dead_change(command);
    free_names(&names);
    return code;
}

int cli_dead(int argc, char **argv)
{
    struct dead_command command = {0};
    const char *config = NULL, *data = NULL, *sink = NULL;
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, "c:h", long_options, NULL)) != -1) {
        switch (option) {
        case 'c':
            config = optarg;
            break;
        case 'd':
            data = optarg;
            break;
        case 's':
            sink = optarg;
            break;
        case 'a':
            command.all = true;
            break;
        case 'j':
            command.json = true;
            break;
        case 'h':
            fputs(usage, stdout);
            return CLI_DONE;
        default:
            fputs(usage, stderr);
            return CLI_USAGE;
        }
    }
    if (optind == argc)
        return misused("list, show, replay or drop?");
    int code = read_config(&command, config, data);
    if (code == CLI_DONE)
        code = run(&command, argv[optind], sink, argc - optind - 1, argv + optind + 1);
    mem_free(command.numbers);
    config_destroy(command.config);
    return code;
}

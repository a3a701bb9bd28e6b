/* cli.c: the table of commands. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "base/yaml.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"serve", cli_serve, "run the gateway (without a file: journal and SQLite in ./weir-data)"},
    {"check", cli_check, "validate a configuration"},
    {"status", cli_status, "what runs, what waits, what is wrong"},
    {"load", cli_load, "send records and measure"},
    {"reconcile", cli_reconcile, "compare every sink by id, version and content; repair"},
    {"dead", cli_dead, "dead letters: list, show, replay, drop"},
    {"journal", cli_journal, "verify or dump a journal"},
    {"version", cli_version, "version, compiler, libraries, CPU count as weir sees it"},
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void usage(FILE *to)
{
    fputs("usage: weir COMMAND [options]\n\n", to);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].what);
    fputs("\nweir COMMAND --help (or weir help COMMAND) says more.\n"
          "Exit codes: 0 done, 1 what was checked does not hold, 2 usage or configuration, "
          "3 could not do it.\n",
          to);
}

/* What getopt prints begins with argv[0]. */
static int run(const struct command *command, int argc, char **argv)
{
    char name[32];
    snprintf(name, sizeof(name), "weir %s", command->name);
    argv[0] = name;
    return command->run(argc, argv);
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int unknown(const char *name)
{
    const char *names[N_COMMANDS + 1] = {0};
    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].name;
    const char *nearest = yaml_nearest(slice_of(name), names);
    fprintf(stderr, "weir: there is no command %s", name);
    if (nearest)
        fprintf(stderr, "; did you mean %s?", nearest);
    fputs("\n\n", stderr);
    usage(stderr);
    return CLI_USAGE;
}

static int help(int argc, char **argv)
{
    char option[] = "--help";
    if (argc < 2) {
        usage(stdout);
        return CLI_DONE;
    }
    const struct command *command = find(argv[1]);
    if (!command)
        return unknown(argv[1]);
    char *arguments[] = {argv[1], option, NULL};
    return run(command, 2, arguments);
}

int cli_main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(argc - 1, argv + 1);
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const struct command *command = find(name);
    return command ? run(command, argc - 1, argv + 1) : unknown(name);
}

/* cli.h: the commands of `weir`, one file each. A command gets "weir NAME" as argv[0] and returns
 * its exit code. Each knows --help: usage on standard output, 0. */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include "gateway/config.h"

enum cli_exit {
    CLI_DONE = 0,
    CLI_DOES_NOT_HOLD = 1, /* the thing checked does not hold */
    CLI_USAGE = 2,         /* usage or configuration */
    CLI_CANNOT = 3,        /* could not do it: a store is down */
};

/* Finds the command and runs it; without one: usage on standard error, 2. */
int cli_main(int argc, char **argv);

int cli_serve(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_load(int argc, char **argv);
int cli_reconcile(int argc, char **argv);
int cli_dead(int argc, char **argv);
int cli_journal(int argc, char **argv);
int cli_version(int argc, char **argv);

/* "FILE:LINE: text" for each mistake, on standard error. */
void cli_print_problems(const char *path, const struct config_problems *problems);

#endif

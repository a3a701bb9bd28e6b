/* dead.h: the halves of `weir dead`: dead.c reads (list, show), dead_change.c changes (replay,
 * drop). */
#ifndef WEIR_CLI_DEAD_H
#define WEIR_CLI_DEAD_H

#include "cli/cli.h"

struct dead_command {
    struct config *config; /* NULL: only --data was given */
    const char *data;
    char **sinks; /* those asked for; ends with NULL */
    uint64_t *numbers;
    size_t n_numbers;
    bool all, json, replay;
};

/* Replays or drops, over the gateway's socket while one runs, else directly. An exit code. */
int dead_change(const struct dead_command *command);

#endif

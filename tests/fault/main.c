/* main.c: `weir-fault`: the program `weir` on a file system that fails as WEIR_FAULT says
 * (os/fs_fault.h). Only the tests build it. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "os/fs.h"
#include "os/fs_fault.h"

int main(int argc, char **argv)
{
    const char *plan = getenv("WEIR_FAULT");
    if (plan) {
        struct diag diag = {0};
        const struct fs *fs = fs_fault_install(fs_posix(), plan, &diag);
        if (!fs) {
            fprintf(stderr, "weir-fault: WEIR_FAULT: %s\n", diag.text);
            return CLI_USAGE;
        }
        fs_use(fs);
    }
    return cli_main(argc, argv);
}

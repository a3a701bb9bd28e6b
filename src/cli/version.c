/* version.c: `weir version`. */
#include <gnu/libc-version.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include <yaml.h>
#include <zlib.h>

#include "base/json.h"
#include "cli/cli.h"
#include "os/cpu.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

int cli_version(int argc, char **argv)
{
    struct cpu_count cpus;
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        puts("usage: weir version\n\nVersion, compiler, libraries, CPU count as weir sees it.");
        return CLI_DONE;
    }
    if (argc > 1) {
        fprintf(stderr, "weir version: %s is not expected\n", argv[1]);
        return CLI_USAGE;
    }
    cpu_count(&cpus);
    unsigned xxh = XXH_versionNumber();
    printf("weir " WEIR_VERSION "\n"
           "compiler   " COMPILER "\n"
           "libraries  glibc %s, simdjson %s, libyaml %s, sqlite %s, xxhash %u.%u.%u, zlib %s\n",
           gnu_get_libc_version(), json_library(), yaml_get_version_string(), sqlite3_libversion(),
           xxh / 10000, xxh / 100 % 100, xxh % 100, zlibVersion());
    printf("cpus       %u (online %u, affinity %u, cgroup quota ", cpus.usable, cpus.online,
           cpus.affinity);
    if (cpus.quota > 0)
        printf("%.2f)\n", cpus.quota);
    else
        printf("none)\n");
    return CLI_DONE;
}

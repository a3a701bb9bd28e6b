/* option.c: what the kinds share: options, paths, results (see kinds.h). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "sink/kinds.h"

const struct sink_option *sink_option(const struct sink_config *config, const char *name)
{
    for (const struct sink_option *o = config->options; o && o->name; o++) {
        if (strcmp(o->name, name) == 0)
            return o;
    }
    return NULL;
}

int sink_option_bad(const struct sink_option *option, struct diag *diag, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (option->line == 0)
        return diag_set(diag, WEIR_INVALID, "%s: %s", option->name, text);
    return diag_set(diag, WEIR_INVALID, "line %u: %s: %s", option->line, option->name, text);
}

char *sink_path(const struct sink_config *config, const char *path)
{
    if (path[0] == '/')
        return mem_strdup(path);
    /* Never a name that begins with "file:" or ':', which SQLite would read as something else. */
    const char *data = config->data && config->data[0] ? config->data : ".";
    const char *here = data[0] == '/' || data[0] == '.' ? "" : "./";
    const char *slash = data[strlen(data) - 1] == '/' ? "" : "/";
    return mem_printf("%s%s%s%s", here, data, slash, path);
}

void sink_result_set(struct sink_result *result, enum outcome outcome, const char *reason)
{
    result->outcome = outcome;
    size_t n = strlen(reason);
    if (n >= sizeof result->reason) {
        n = sizeof result->reason - 1;
        while (n > 0 && ((unsigned char)reason[n] & 0xC0) == 0x80)
            n--;
    }
    memcpy(result->reason, reason, n);
    result->reason[n] = '\0';
}

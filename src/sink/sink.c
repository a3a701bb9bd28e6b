/* sink.c: the list of sink kinds. A new kind is one line here. */
#include <string.h>

#include "sink/kinds.h"
#include "sink/sink.h"

static const struct sink_ops *const kinds[] = {&sink_sqlite, &sink_null};

#define N_KINDS (sizeof kinds / sizeof kinds[0])

const struct sink_ops *sink_find(const char *kind)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        if (strcmp(kinds[i]->kind, kind) == 0)
            return kinds[i];
    }
    return NULL;
}

const char *const *sink_kinds(void)
{
    static const char *const names[] = {"sqlite", "null", NULL};
    return names;
}

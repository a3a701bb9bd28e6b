/* mem.c: allocation that does not return NULL (see mem.h).
 *
 * The message for an exhausted process is written with write(2): nothing here may allocate by
 * then. abort() and not exit(): no handler may run on a heap that is full. */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void out_of_memory(size_t size) __attribute__((noreturn));

static void out_of_memory(size_t size)
{
    char text[128];
    int n =
        snprintf(text, sizeof text,
                 "weir: out of memory: %zu bytes could not be allocated; the process ends\n", size);
    if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0) {
        /* There is nobody left to tell. */
    }
    abort();
}

/* malloc(0) may return NULL, which would look like a failure. */
static size_t at_least_one(size_t size)
{
    return size ? size : 1;
}

void *mem_alloc(size_t size)
{
    void *p = malloc(at_least_one(size));
    if (!p)
        out_of_memory(size);
    return p;
}

void *mem_zalloc(size_t size)
{
    void *p = calloc(1, at_least_one(size));
    if (!p)
        out_of_memory(size);
    return p;
}

void *mem_realloc(void *old, size_t size)
{
    void *p = realloc(old, at_least_one(size));
    if (!p)
        out_of_memory(size);
    return p;
}

void *mem_dup(const void *p, size_t size)
{
    void *copy = mem_alloc(size);
    if (size)
        memcpy(copy, p, size);
    return copy;
}

char *mem_strdup(const char *s)
{
    return mem_dup(s, strlen(s) + 1);
}

char *mem_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = NULL;
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        out_of_memory(0);
    return text;
}

void *mem_try_alloc(size_t size)
{
    return malloc(at_least_one(size));
}

void mem_free(void *p)
{
    free(p);
}

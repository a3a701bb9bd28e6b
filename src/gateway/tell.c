/* tell.c: see tell.h. */
#include "gateway/tell.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"

#define KINDS     64
#define BURST     5
#define PERIOD_NS UINT64_C(10000000000)

static struct kind {
    uint64_t hash, since_ns;
    unsigned printed, held_back;
    char begin[80]; /* of the last text held back */
} kinds[KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void print_line(const char *text)
{
    char line[1200], when[25];
    clock_format_wall(clock_wall_ms(), when);
    int n = snprintf(line, sizeof(line), "%s weir: %s\n", when, text);
    if (n < 0)
        return;
    if ((size_t)n >= sizeof(line)) {
        n = sizeof(line) - 1;
        line[n - 1] = '\n';
    }
    /* Whoever closed standard error does not want to be told. */
    ssize_t written = write(STDERR_FILENO, line, (size_t)n);
    (void)written;
}

static uint64_t kind_of(const char *text)
{
    char without_digits[256];
    size_t n = 0;
    for (; *text && n < sizeof(without_digits); text++)
        if (*text < '0' || *text > '9')
            without_digits[n++] = *text;
    return hash64(without_digits, n);
}

static void tell_held_back(const struct kind *kind)
{
    char text[160];
    snprintf(text, sizeof(text), "%u more like \"%s...\"", kind->held_back, kind->begin);
    print_line(text);
}

void tell_text(const char *text)
{
    uint64_t hash = kind_of(text), now = clock_mono_ns();
    pthread_mutex_lock(&lock);
    struct kind *kind = &kinds[hash % KINDS];
    struct kind told = {0};
    if (kind->hash != hash || now - kind->since_ns > PERIOD_NS) {
        told = *kind;
        *kind = (struct kind){.hash = hash, .since_ns = now};
    }
    bool print = kind->printed < BURST;
    if (print) {
        kind->printed++;
    } else {
        kind->held_back++;
        snprintf(kind->begin, sizeof(kind->begin), "%s", text);
    }
    pthread_mutex_unlock(&lock);
    /* Outside the lock: a terminal or a pipe may block. */
    if (told.held_back)
        tell_held_back(&told);
    if (print)
        print_line(text);
}

void tell(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    tell_text(text);
}

void tell_flush(void)
{
    uint64_t now = clock_mono_ns();
    for (unsigned i = 0; i < KINDS; i++) {
        struct kind told = {0};
        pthread_mutex_lock(&lock);
        if (kinds[i].held_back && now - kinds[i].since_ns > PERIOD_NS) {
            told = kinds[i];
            kinds[i].held_back = 0;
        }
        pthread_mutex_unlock(&lock);
        if (told.held_back)
            tell_held_back(&told);
    }
}

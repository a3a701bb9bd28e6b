/* thread.c: threads with a name, a known stack and no signals (see thread.h). */
#include <assert.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/thread.h"
#include "weir/err.h"

#define STACK_DEFAULT (512u << 10)
#define NAME_BYTES    16 /* with its terminator: the kernel's TASK_COMM_LEN */

struct birth { /* handed to the new thread, which frees it */
    void *(*run)(void *argument);
    void *argument;
    char name[NAME_BYTES];
};

static void *born(void *p)
{
    struct birth birth = *(struct birth *)p;
    mem_free(p);
    pthread_setname_np(pthread_self(), birth.name);
    return birth.run(birth.argument);
}

static void cut_name(char out[NAME_BYTES], const char *name)
{
    size_t n = strlen(name);
    if (n >= NAME_BYTES) {
        n = NAME_BYTES - 1;
        while (n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80)
            n--; /* not in the middle of a character */
    }
    memcpy(out, name, n);
    out[n] = 0;
}

static size_t stack_size(size_t wanted)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t least = (size_t)PTHREAD_STACK_MIN;
    size_t size = wanted ? wanted : STACK_DEFAULT;
    if (size < least)
        size = least;
    return (size + page - 1) / page * page;
}

int thread_start(pthread_t *out, const char *name, size_t stack_bytes, void *(*run)(void *),
                 void *argument)
{
    struct birth *birth = mem_alloc(sizeof *birth);
    birth->run = run;
    birth->argument = argument;
    cut_name(birth->name, name);

    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        mem_free(birth);
        return WEIR_NO_MEMORY;
    }
    pthread_t thread;
    int error = pthread_attr_setstacksize(&attributes, stack_size(stack_bytes));
    if (error == 0) {
        /* A thread inherits the mask, so that no signal can reach it before it has its own. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        error = pthread_create(&thread, &attributes, born, birth);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attributes);
    if (error) {
        mem_free(birth);
        return WEIR_NO_MEMORY;
    }
    *out = thread;
    return 0;
}

void thread_join(pthread_t thread)
{
    int error = pthread_join(thread, NULL);
    assert(error == 0); /* joined twice, detached, or by itself */
    (void)error;
}

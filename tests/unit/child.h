/* child.h: runs a function in a child process, as a power cut ends the process it happens in. */
#ifndef WEIR_TESTS_CHILD_H
#define WEIR_TESTS_CHILD_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child needs, in its own words: a check that fails ends it with status 99. */
#define child_check(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(1, "%s:%d: in the child: %s\n", __FILE__, __LINE__, #condition);               \
            _exit(99);                                                                             \
        }                                                                                          \
    } while (0)

/* Its exit status (137 after a power cut), or 1000 + the signal that ended it. Its standard error
 * is dropped unless WEIR_VERBOSE is set. */
static inline int child_run(void (*body)(void *context), void *context)
{
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (!getenv("WEIR_VERBOSE"))
            dup2(null, 2);
        body(context);
        _exit(0);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        abort();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#endif

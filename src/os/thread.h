/* thread.h: threads with a name and a known stack size. */
#ifndef WEIR_OS_THREAD_H
#define WEIR_OS_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Starts a thread named `name` (cut to 15 bytes, as the kernel keeps it) with all signals blocked
 * and a 512 KiB stack (stack_bytes 0) or another size. WEIR_NO_MEMORY when the system gives none.
 */
int thread_start(pthread_t *out, const char *name, size_t stack_bytes, void *(*run)(void *),
                 void *argument);
void thread_join(pthread_t thread);

#endif

/* wait.h: the one way in which work on a lane waits. On a thread lane these poll and sleep;
 * on a fiber lane they will park the fiber and not its thread. */
#ifndef WEIR_EXEC_WAIT_H
#define WEIR_EXEC_WAIT_H

#include <stdint.h>

/* Waits until fd has any of `events` (POLLIN, POLLOUT). 0, WEIR_TIMEOUT or WEIR_IO. timeout_ms < 0:
 * for ever. */
int exec_wait_fd(int fd, short events, int timeout_ms);
void exec_sleep(uint32_t ms);

#endif

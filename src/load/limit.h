/* limit.h: who was the limit, the generator or the server. */
#ifndef WEIR_LOAD_LIMIT_H
#define WEIR_LOAD_LIMIT_H

#include "load/load.h"

/* Sets limited_by_generator and limit_reason from the rest of the result:
 *
 *   the busiest thread ran for over LIMIT_BUSY of the time                        generator
 *   it ran or waited for a CPU for over LIMIT_BUSY of the time (others use them)  generator
 *   open loop: over 1% were sent late although a connection was free              generator
 *   open loop: over 1% found all connections busy, and
 *       the rate asked needs more connections even at the server's fastest answer generator
 *       else                                                                      server
 *
 * The last one is Little's law: c connections carry at most c / (time of service) a second. */
#define LIMIT_BUSY 0.88
void limit_judge(struct load_result *result);

#endif

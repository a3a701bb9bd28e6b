/* replay.h: writes a dead letter to its own sink once more, and drops it when it is stored.
 *
 * What the gateway does for `weir dead replay` over its socket, and the command itself when no
 * gateway runs. The record keeps its version: if something newer is there, that stays, and the
 * letter counts as stored. Blocking; any thread, one per session. */
#ifndef WEIR_DELIVERY_REPLAY_H
#define WEIR_DELIVERY_REPLAY_H

#include "delivery/dead.h"
#include "sink/sink.h"

/* 0: stored, and the letter is durably gone. WEIR_NOT_FOUND; WEIR_REFUSED: the sink refused it
 * again, it stays, *diag says why; else (WEIR_UNAVAILABLE, WEIR_IO ...) it stays, try again later.
 */
int dead_replay(struct dead *dead, uint64_t number, struct sink_session *session,
                struct diag *diag);

#endif

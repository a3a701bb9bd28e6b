/* repair.h: records that go into a sink as a repair, through a running gateway.
 *
 * `weir reconcile --repair` posts them to the gateway's socket, because while a gateway runs only
 * it writes. The body has a line for each record (NDJSON):
 *   {"id":"...","key":"...","version":N,"doc":"{\"as\":\"text\"}","attributes":{"name":"value"}}
 * where `doc` is the record's text in a string, so that it comes through byte for byte, and
 * `attributes` may be left out. The answer has an outcome for each, in the same order:
 *   {"stored":N,"refused":N,"retry":N,"results":["stored",{"refused":"why"},{"retry":"why"}]}
 *
 * The gateway's side is: repair_parse, repair_write with a session of the sink, repair_answer.
 * Blocking where a session is; any thread. */
#ifndef WEIR_DELIVERY_REPAIR_H
#define WEIR_DELIVERY_REPAIR_H

#include "sink/sink.h"

void repair_line(struct buf *body, const struct record *record);

/* Fills `out` (initialised by the caller, emptied on failure): each id once, with its stream.
 * WEIR_SYNTAX: *diag names the line. */
int repair_parse(struct slice body, uint32_t stream, struct batch *out, struct diag *diag);

/* Writes the batch, results[i] for batch->records[i]; what is refused as a whole is halved, so that
 * only the record at fault is refused. Nothing is retried: what could not be written now says
 * so as OUTCOME_RETRY. */
void repair_write(struct sink_session *session, const struct batch *batch,
                  struct sink_result *results);

void repair_answer(const struct sink_result *results, size_t n, struct buf *out);
/* The client's side of repair_answer; WEIR_SYNTAX when it is not the answer for n records. */
int repair_answer_read(struct slice answer, struct sink_result *results, size_t n);

#endif

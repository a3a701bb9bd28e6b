/* trace.h: W3C Trace Context (https://www.w3.org/TR/trace-context/): the headers that a record
 * keeps as attributes. Pure. */
#ifndef WEIR_GATEWAY_TRACE_H
#define WEIR_GATEWAY_TRACE_H

#include "base/buf.h"

bool trace_parent_valid(struct slice traceparent);

/* Adds traceparent, and tracestate where there is one, to the encoded attributes. What is not valid
 * is left out, as the standard asks. */
void trace_attributes(struct slice traceparent, struct slice tracestate, struct buf *encoded);

#endif

/* tell.h: what a person should know, on standard error: "2026-11-30T16:22:43.123Z weir: ...".
 *
 * Texts that differ only in their digits are one kind; a kind is printed five times in ten seconds
 * at most, then how many were held back. Any thread (one mutex; a line is one write). */
#ifndef WEIR_GATEWAY_TELL_H
#define WEIR_GATEWAY_TELL_H

void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
void tell_text(const char *text); /* already formatted */
/* Prints how many were held back and have not been told yet; the housekeeping thread calls it. */
void tell_flush(void);

#endif

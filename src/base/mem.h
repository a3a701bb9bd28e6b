/* mem.h: allocation.
 *
 * mem_* never return NULL: they end the process with a message when memory is
 * out, because everything that grows with what clients send is held under a
 * byte budget and refused long before. mem_try_alloc is for sizes that
 * a client chooses: it returns NULL. All are freed with mem_free. Any thread. */
#ifndef WEIR_BASE_MEM_H
#define WEIR_BASE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t size) __attribute__((malloc, returns_nonnull));
void *mem_zalloc(size_t size) __attribute__((malloc, returns_nonnull)); /* zeroed */
void *mem_realloc(void *p, size_t size) __attribute__((returns_nonnull));
void *mem_dup(const void *p, size_t size) __attribute__((returns_nonnull));
char *mem_strdup(const char *s) __attribute__((returns_nonnull));
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2), returns_nonnull));
void *mem_try_alloc(size_t size); /* NULL when there is none */
void mem_free(void *p);           /* NULL is fine */

#endif

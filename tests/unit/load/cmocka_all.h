/* cmocka_all.h: cmocka with what it wants before it. */
#ifndef WEIR_TESTS_LOAD_CMOCKA_ALL_H
#define WEIR_TESTS_LOAD_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmocka 2 gives assert_in_range() a name for each type and warns of the old one; cmocka 1 has the
 * old one only.
 */
#ifndef TESTS_UNIT_CMOCKA_NAMES_H
#define TESTS_UNIT_CMOCKA_NAMES_H

#include <cmocka.h>

#ifndef assert_uint_in_range
#define assert_uint_in_range(value, minimum, maximum) assert_in_range(value, minimum, maximum)
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A format that keeps nothing and holds the caller to the contract of decode/writer/writer.h: on
 * each track time does not go back, what ends has begun, and at the end nothing is open. It aborts
 * where that does not hold.
 */
#pragma once

#include "decode/writer/writer.h"

int check_writer_new(struct writer **ret);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job of the decoder, from JOB to RESULT: takes the descriptors apart, sets up the writer and
 * its threads, enters the sandbox, and only then reads what others wrote.
 */
#pragma once

/* Serves the one job that comes over `link`. The exit status: 0 where a RESULT was sent. */
int job_serve(int link);

// SPDX-License-Identifier: Apache-2.0
/*
 * tracerd-decode: turns a recording into a trace. It has no command line of its own: tracerd and
 * tracectl start it with a link on descriptor 3 and send it a job.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/log.h"
#include "common/decoder/protocol.h"
#include "decode/job/job.h"

#ifdef SANITIZERS
/* To look for leaks at the end they would have to trace us, which the sandbox forbids. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

int main(int argc, char **argv)
{
	int type;
	socklen_t len = sizeof(type);

	log_init("tracerd-decode", LOG_L_INFO);
	if (argc > 1 && strcmp(argv[1], "--version") == 0) {
		(void)printf("tracerd-decode %s\n", PACKAGE_VERSION);
		return 0;
	}
	if (argc > 1 || getsockopt(DECODER_PROTOCOL_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 ||
		type != SOCK_SEQPACKET) {
		log_error("tracectl and tracerd start this program: use \"tracectl decode\"");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	return job_serve(DECODER_PROTOCOL_FD);
}

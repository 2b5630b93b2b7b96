// SPDX-License-Identifier: Apache-2.0
/*
 * A program with events that does what it is told on its standard input, a line at a time, and answers each line
 * with one line.
 *
 *	start [no-thread] [KEY=NUMBER...]   tracerd_start(); keys: threads, events, names, flags, size
 *	stop, stats, snapshot [REASON]
 *	open NAME, shut    a region around the lines between them
 *	instant NAME, region NAME MS, log TEXT, thread NAME (an instant on a new thread)
 *	fork, _fork        the child answers with its pid and takes the lines from here on ...
 *	exit               ... until it is told this; then its parent goes on (or ends)
 *	exec               this program again, from the beginning
 *	filter kill|errno NAME...  forbids all its threads all system calls but these; says their number
 *	close-all          every descriptor above 2, as some daemons do
 *	load FILE, unload  a plug-in, of which plugin_work() is called
 *
 * With "no-thread" the loop that reads the lines dispatches, too.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tracerd.h>

static const char *self;
static void *plugin;
static tracerd_region opened;

static void say(const char *text)
{
	(void)printf("%s\n", text);
	(void)fflush(stdout);
}

static void say_result(int r)
{
	say(tracerd_error_name(r));
}

static void do_start(char *words)
{
	tracerd_options o = {.size = sizeof(o)};

	for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) {
		char *value = strchr(w, '=');
		uint32_t number = value ? (uint32_t)strtoul(value + 1, NULL, 0) : 0;

		if (!strcmp(w, "no-thread"))
			o.flags |= TRACERD_NO_THREAD;
		else if (!strncmp(w, "threads=", 8))
			o.threads = number;
		else if (!strncmp(w, "events=", 7))
			o.events = number;
		else if (!strncmp(w, "names=", 6))
			o.names = number;
		else if (!strncmp(w, "flags=", 6))
			o.flags |= number;
		else if (!strncmp(w, "size=", 5))
			o.size = number;
	}
	say_result(tracerd_start(&o));
}

static void do_stats(void)
{
	tracerd_event_stats s = {.size = sizeof(s)};

	tracerd_get_event_stats(&s);
	(void)printf("{\"enabled\": %u, \"connected\": %u, \"rings_used\": %u, \"names\": %u, \"events_lost\": %llu, "
		     "\"names_lost\": %llu, \"texts_cut\": %llu, \"registrations\": %llu, \"last_error\": \"%s\"}\n",
		s.enabled, s.connected, s.rings_used, s.names, (unsigned long long)s.events_lost,
		(unsigned long long)s.names_lost, (unsigned long long)s.texts_cut, (unsigned long long)s.registrations,
		tracerd_error_name(s.last_error));
	(void)fflush(stdout);
}

static void do_region(char *words)
{
	char *name = strtok(words, " "), *ms = strtok(NULL, " ");
	long n = ms ? strtol(ms, NULL, 10) : 0;
	struct timespec pause = {.tv_sec = n / 1000, .tv_nsec = n % 1000 * 1000000};
	tracerd_region r = tracerd_region_begin(tracerd_intern(name ? name : ""));

	(void)nanosleep(&pause, NULL);
	tracerd_region_end(r);
	say(r.begin ? "ok" : "off");
}

static void *thread_main(void *arg)
{
	tracerd_instant(tracerd_intern(arg));
	return NULL;
}

static void do_thread(char *name)
{
	pthread_t t;

	if (pthread_create(&t, NULL, thread_main, name) == 0)
		(void)pthread_join(t, NULL);
	say("ok");
}

static void do_fork(int raw)
{
	pid_t pid;
	int status = 0;

	pid = raw ? _Fork() : fork();
	if (pid == 0) {
		(void)printf("%d\n", (int)getpid());
		(void)fflush(stdout);
		return;
	}
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	(void)printf("parent %d %d\n", (int)getpid(), status);
	(void)fflush(stdout);
}

static void do_load(const char *path)
{
	void (*work)(void);
	void *symbol;

	plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	symbol = plugin ? dlsym(plugin, "plugin_work") : NULL;
	if (!symbol) {
		say(dlerror());
		return;
	}
	memcpy(&work, &symbol, sizeof(work));
	work();
	say("ok");
}

static void do_filter(char *words)
{
	const char *how = strtok(words, " "), *name;
	scmp_filter_ctx filter = seccomp_init(how && !strcmp(how, "kill") ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(EPERM));
	int n = 0;

	while (filter && (name = strtok(NULL, " ")) != NULL)
		n += seccomp_rule_add(filter, SCMP_ACT_ALLOW, seccomp_syscall_resolve_name(name), 0) == 0;
	if (!filter || seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1) < 0 || seccomp_load(filter) < 0)
		n = -1;
	(void)printf("%d\n", n);
	(void)fflush(stdout);
}

static void do_line(char *line)
{
	char *rest = strchr(line, ' ');

	if (rest)
		*rest++ = 0;
	else
		rest = line + strlen(line);
	if (!strcmp(line, "start")) {
		do_start(rest);
	} else if (!strcmp(line, "stop")) {
		tracerd_stop();
		say("ok");
	} else if (!strcmp(line, "stats")) {
		do_stats();
	} else if (!strcmp(line, "snapshot")) {
		say_result(tracerd_snapshot(*rest ? rest : NULL));
	} else if (!strcmp(line, "instant")) {
		tracerd_instant(tracerd_intern(rest));
		say(tracerd_enabled() ? "ok" : "off");
	} else if (!strcmp(line, "region")) {
		do_region(rest);
	} else if (!strcmp(line, "open")) {
		opened = tracerd_region_begin(tracerd_intern(rest));
		say(opened.begin ? "ok" : "off");
	} else if (!strcmp(line, "shut")) {
		tracerd_region_end(opened);
		say("ok");
	} else if (!strcmp(line, "log")) {
		tracerd_log(TRACERD_INFO, "told: %s", rest);
		say("ok");
	} else if (!strcmp(line, "thread")) {
		do_thread(rest);
	} else if (!strcmp(line, "fork") || !strcmp(line, "_fork")) {
		do_fork(*line == '_');
	} else if (!strcmp(line, "exit")) {
		_exit(0);
	} else if (!strcmp(line, "exec")) {
		(void)execl(self, self, (char *)NULL);
		say(strerror(errno));
	} else if (!strcmp(line, "filter")) {
		do_filter(rest);
	} else if (!strcmp(line, "close-all")) {
		closefrom(3);
		say("ok");
	} else if (!strcmp(line, "load")) {
		do_load(rest);
	} else if (!strcmp(line, "unload")) {
		say(plugin && dlclose(plugin) == 0 ? "ok" : "no");
		plugin = NULL;
	} else {
		say("what?");
	}
}

/* Byte by byte: what follows a line may be for a child. */
static int read_line(char *line, size_t size)
{
	size_t n = 0;

	while (n + 1 < size) {
		struct pollfd p[2] = {{.fd = 0, .events = POLLIN}, {.fd = tracerd_fd(), .events = POLLIN}};

		/* not poll(), which the library's thread has to have for itself under a filter */
		if (ppoll(p, 2, NULL, NULL) < 0 && errno != EINTR)
			return -1;
		if (p[1].fd >= 0 && p[1].revents)
			(void)tracerd_dispatch();
		if (!p[0].revents)
			continue;
		if (read(0, line + n, 1) != 1)
			return -1;
		if (line[n] == '\n')
			break;
		n++;
	}
	line[n] = 0;
	return 0;
}

int main(int argc, char **argv)
{
	char line[1024];

	self = argv[0];
	say("ready");
	while (read_line(line, sizeof(line)) == 0)
		do_line(line);
	return 0;
}

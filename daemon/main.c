// SPDX-License-Identifier: Apache-2.0
/* tracerd: options, configuration and environment. daemon.c does the rest. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/control/protocol.h"
#include "daemon/base/copier.h"
#include "daemon/config.h"
#include "daemon/daemon.h"

#define DEFAULT_CONFIG TRACERD_SYSCONFDIR "/tracerd.conf"

extern char **environ;

static const struct option_doc {
	struct option option;
	const char *arg, *doc;
} options[] = {
	{{"foreground", no_argument, NULL, 'f'},
	 "",
	 "ignored: tracerd always runs in the foreground"},
	{{"config", required_argument, NULL, 'c'},
	 "FILE",
	 "configuration file, default " DEFAULT_CONFIG},
	{{"runtime-dir", required_argument, NULL, 'r'}, "DIR", "directory of the sockets"},
	{{"state-dir", required_argument, NULL, 's'}, "DIR", "directory of the snapshots"},
	{{"log-level", required_argument, NULL, 'l'},
	 "LEVEL",
	 "error, warning, notice, info or debug"},
	{{"print-config", no_argument, NULL, 'p'},
	 "",
	 "print the configuration with the meaning of each key, and exit"},
	{{"print-schema", no_argument, NULL, 'P'},
	 "",
	 "print the schema of the control protocol and exit"},
	{{"version", no_argument, NULL, 'V'}, "", "print the version and exit"},
	{{"help", no_argument, NULL, 'h'}, "", "print this and exit"},
};

struct arguments {
	const char *config, *runtime_dir, *state_dir, *log_level;
	bool print_config, print_schema, print_version, help;
};

static void print_help(void)
{
	(void)printf(
		"Usage: tracerd [OPTION...]\nThe flight recorder for running programs; tracectl(1) talks to it.\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		char name[40];

		(void)snprintf(name, sizeof(name), "--%s%s%s", options[i].option.name,
			       options[i].arg[0] ? " " : "", options[i].arg);
		(void)printf("  %-22s %s\n", name, options[i].doc);
	}
	(void)printf("\nSIGTERM and SIGINT stop it in an orderly way.\n");
}

/* 0, or -EINVAL after getopt has said what is wrong. */
static int parse_arguments(int argc, char **argv, struct arguments *a)
{
	struct option table[ARRAY_SIZE(options) + 1] = {0};
	int c;

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		table[i] = options[i].option;
	while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
		switch (c) {
		case 'f':
			break;
		case 'c':
			a->config = optarg;
			break;
		case 'r':
			a->runtime_dir = optarg;
			break;
		case 's':
			a->state_dir = optarg;
			break;
		case 'l':
			a->log_level = optarg;
			break;
		case 'p':
			a->print_config = true;
			break;
		case 'P':
			a->print_schema = true;
			break;
		case 'V':
			a->print_version = true;
			break;
		case 'h':
			a->help = true;
			break;
		default:
			return -EINVAL;
		}
	}
	if (optind < argc) {
		(void)fprintf(stderr, "tracerd: unexpected argument: %s\n", argv[optind]);
		return -EINVAL;
	}
	return 0;
}

static int override(struct config *c, const char *key, const char *value)
{
	_cleanup_free_ char *full = NULL;
	char why[160] = "";
	int r;

	if (!value)
		return 0;
	/* On a command line a path may be relative; nobody changes directory here. */
	if (strcmp(key, "log_level") != 0 && value[0] != '/') {
		_cleanup_free_ char *cwd = getcwd(NULL, 0);

		if (!cwd || asprintf(&full, "%s/%s", cwd, value) < 0) {
			full = NULL;
			return -ENOMEM;
		}
		value = full;
	}
	r = config_set(c, NULL, key, value, why, sizeof(why));
	if (r < 0)
		log_error("%s", why[0] ? why : strerror(-r));
	return r;
}

static int load_config(const struct arguments *a, struct config *c)
{
	const char *path = a->config ? a->config : DEFAULT_CONFIG;
	char why[200] = "";
	int r;

	r = config_load(c, path, why, sizeof(why));
	if (r == -ENOENT && !a->config)
		r = 0;
	if (r < 0) {
		log_error("%s: %s", path, why[0] ? why : strerror(-r));
		return r;
	}
	r = override(c, "runtime_dir", a->runtime_dir);
	if (r == 0)
		r = override(c, "state_dir", a->state_dir);
	if (r == 0)
		r = override(c, "log_level", a->log_level);
	return r;
}

/*
 * Nothing that we or our libraries do may depend on the environment of whoever started us, but
 * for the service manager's own words and the language of messages.
 */
static int clean_environment(void)
{
	static const char *const allowed[] = {"NOTIFY_SOCKET",
					      "WATCHDOG_USEC",
					      "WATCHDOG_PID",
					      "LISTEN_PID",
					      "LISTEN_FDS",
					      "LISTEN_FDNAMES",
					      "JOURNAL_STREAM",
					      "INVOCATION_ID",
					      "LANG",
					      "LC_ALL",
					      "TZ"};
	char *kept[ARRAY_SIZE(allowed)] = {0};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++) {
		const char *v = getenv(allowed[i]);

		kept[i] = v ? strdup(v) : NULL;
		if (v && !kept[i])
			r = -ENOMEM;
	}
	(void)clearenv();
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++) {
		if (kept[i] && setenv(allowed[i], kept[i], 1) < 0)
			r = -ENOMEM;
		free(kept[i]);
	}
	return r;
}

static int print_schema(void)
{
	_cleanup_json_ struct json_object *o = protocol_schema();
	const char *text = json_text_styled(o, JSON_SPACED, NULL);

	return text && puts(text) >= 0 && fflush(stdout) == 0 ? 0 : 1;
}

static int serve(struct config *c)
{
	struct daemon *d = NULL;
	int r;

	(void)umask(077);
	if (clean_environment() < 0) {
		log_error("out of memory");
		return 1;
	}
	r = daemon_new(c, &d);
	if (r < 0)
		return 1;
	r = daemon_run(d);
	daemon_free(d);
	/* Nothing that exit() does may meet a thread that was left to what it waits for. */
	if (copiers_left() > 0)
		_exit(r < 0 ? 1 : 0);
	return r < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct arguments a = {0};
	enum log_level level = LOG_L_INFO;
	struct config config;
	int r;

	log_init("tracerd", LOG_L_INFO);
	if (parse_arguments(argc, argv, &a) < 0) {
		(void)fprintf(stderr, "Try 'tracerd --help'.\n");
		return 2;
	}
	if (a.help) {
		print_help();
		return 0;
	}
	if (a.print_version) {
		(void)printf("tracerd %s\n", PACKAGE_VERSION);
		return 0;
	}
	if (a.print_schema)
		return print_schema();
	if (config_init(&config) < 0) {
		log_error("out of memory");
		return 2;
	}
	if (load_config(&a, &config) < 0)
		return 2;
	(void)log_level_from_string(config.log_level, &level);
	log_init("tracerd", level);
	r = a.print_config ? config_print(&config, stdout) < 0 : serve(&config);
	config_fini(&config);
	return r;
}

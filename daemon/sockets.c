// SPDX-License-Identifier: Apache-2.0
#include "daemon/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "common/base/log.h"
#include "daemon/base/dir.h"
#include "daemon/base/lock.h"
#include "daemon/config.h"

/* Two daemons must not fight over one socket. */
static int lock_runtime_dir(const char *path, int *ret_fd)
{
	_cleanup_close_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dir < 0 ? -errno : lock_file(dir, "lock", ret_fd);
}

static int make_socket(const struct sockets_context *c, const char *name, unsigned int mode,
		       listener_accept accept, struct listener **ret)
{
	struct listener_place place = {.dir = c->config->runtime_dir,
				       .name = name,
				       .mode = mode,
				       .gid = c->admin_gid};
	_cleanup_close_ int fd = -1;
	char path[128];
	int r;

	r = listener_bind(&place, &fd);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%s/%s", place.dir, name);
	r = listener_new(c->base, fd, path, accept, c->arg, ret);
	if (r == 0)
		(void)take_fd(&fd);
	return r;
}

/* Sockets that systemd hands over, by their names. Others are not ours to keep open. */
static int take_sockets(const struct sockets_context *c, struct sockets *s)
{
	char **names = NULL;
	int n = sd_listen_fds_with_names(1, &names), r = 0;

	for (int i = 0; i < n; i++) {
		int fd = SD_LISTEN_FDS_START + i;
		bool control = strcmp(names[i], "control") == 0,
		     status = strcmp(names[i], "status") == 0;
		struct listener **slot = control ? &s->control : &s->status;

		if (r < 0 || !(control || status) || *slot) {
			if (r == 0)
				log_warning(
					"ignoring socket \"%s\" of the service manager: its name is neither control nor status",
					names[i]);
			(void)close_fd(fd);
			continue;
		}
		r = listener_new(c->base, fd, NULL, control ? c->on_control : c->on_status, c->arg,
				 slot);
		if (r < 0)
			(void)close_fd(fd);
	}
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
	return n < 0 ? n : r;
}

static int fail(int r, const char *what)
{
	log_error("%s: %s", what, strerror(-r));
	return r;
}

int sockets_open(const struct sockets_context *c, struct sockets *s)
{
	const char *dir = c->config->runtime_dir;
	int r;

	*s = (struct sockets){.lock_fd = -1};
	r = take_sockets(c, s);
	if (r < 0)
		return fail(r, "sockets from the service manager");
	r = dir_make(dir, 0755);
	if (r == 0)
		r = lock_runtime_dir(dir, &s->lock_fd);
	/* Sockets of the service manager need no place of ours, but nobody else may take theirs. */
	if (r == -EBUSY || (r < 0 && !(s->control && s->status))) {
		log_error("%s: %s", dir, r == -EBUSY ? "another tracerd runs here" : strerror(-r));
		return r;
	}
	r = 0;
	if (!s->control)
		r = make_socket(c, "control.sock", c->config->socket_mode, c->on_control,
				&s->control);
	if (r == 0 && !s->status)
		r = make_socket(c, "status.sock", c->config->status_mode, c->on_status, &s->status);
	return r < 0 ? fail(r, "sockets") : 0;
}

void sockets_resume(struct sockets *s)
{
	listener_resume(s->control);
	listener_resume(s->status);
}

void sockets_close(struct sockets *s)
{
	s->control = listener_free(s->control);
	s->status = listener_free(s->status);
}

void sockets_unlock(struct sockets *s)
{
	s->lock_fd = close_fd(s->lock_fd);
}

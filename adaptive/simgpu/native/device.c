/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvidiactl as a FUSE file. Restricted ioctls: the kernel copies the outer structure, inner pointers are read from the
 * caller's memory. An ioctl that costs time on the GPU is answered later; other callers are served meanwhile.
 */
#define FUSE_USE_VERSION 35
#include "simgpud.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define INO_DEVICE 2
#define NAME "nvidiactl"
#define MAX_OUTER 64

struct reply {
	struct reply *next;
	fuse_req_t req;
	uint64_t when;
	size_t size;
	char data[MAX_OUTER];
};

static struct reply *replies; /* by time */
static uint64_t files;	      /* open files so far: their identity */

static void fill_stat(fuse_ino_t ino, struct stat *st)
{
	*st = (struct stat){.st_ino = ino, .st_nlink = 1};
	st->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0666;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry = {.ino = INO_DEVICE, .attr_timeout = 60, .entry_timeout = 60};

	if (parent != FUSE_ROOT_ID || strcmp(name, NAME)) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	fill_stat(INO_DEVICE, &entry.attr);
	fuse_reply_entry(req, &entry);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	fill_stat(ino, &st);
	fuse_reply_attr(req, &st, 60);
}

static void on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	char entries[128];
	struct stat st;

	(void)fi;
	fill_stat(INO_DEVICE, &st);
	if (ino != FUSE_ROOT_ID || offset > 0) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	size_t n = fuse_add_direntry(req, entries, sizeof(entries), NAME, &st, 1);
	fuse_reply_buf(req, entries, n < size ? n : size);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (ino != INO_DEVICE) {
		fuse_reply_err(req, EISDIR);
		return;
	}
	fi->fh = ++files;
	fi->direct_io = 1;
	fuse_reply_open(req, fi);
}

static void on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct server *server = fuse_req_userdata(req);

	(void)ino;
	rm_release(server->rm, fi->fh);
	fuse_reply_err(req, 0);
}

static void reply_later(fuse_req_t req, uint64_t when, const void *data, size_t size)
{
	struct reply *reply = calloc(1, sizeof(*reply));
	struct reply **link = &replies;

	if (!reply) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	reply->req = req;
	reply->when = when;
	reply->size = size;
	if (size)
		memcpy(reply->data, data, size);
	while (*link && (*link)->when <= when)
		link = &(*link)->next;
	reply->next = *link;
	*link = reply;
}

static void on_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg, struct fuse_file_info *fi,
		     unsigned int flags, const void *in, size_t in_size, size_t out_size)
{
	struct server *server = fuse_req_userdata(req);
	union {
		uint64_t align;
		char bytes[MAX_OUTER];
	} outer = {0};
	uint64_t when;

	(void)arg;
	if (ino != INO_DEVICE || flags & FUSE_IOCTL_COMPAT || in_size > MAX_OUTER || out_size != in_size) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	if (in_size)
		memcpy(outer.bytes, in, in_size);
	int error = rm_ioctl(server->rm, fi->fh, fuse_req_ctx(req)->pid, cmd, &outer, in_size, &when);
	if (error)
		fuse_reply_err(req, error);
	else if (when <= engine_now(server->engine))
		fuse_reply_ioctl(req, 0, outer.bytes, out_size);
	else
		reply_later(req, when, outer.bytes, out_size);
}

uint64_t device_reply_due(struct server *server, uint64_t now)
{
	(void)server;
	while (replies && replies->when <= now) {
		struct reply *reply = replies;

		replies = reply->next;
		fuse_reply_ioctl(reply->req, 0, reply->data, reply->size);
		free(reply);
	}
	return replies ? replies->when : ENGINE_NEVER;
}

static const struct fuse_lowlevel_ops OPS = {
    .lookup = on_lookup,
    .getattr = on_getattr,
    .readdir = on_readdir,
    .open = on_open,
    .release = on_release,
    .ioctl = on_ioctl,
};

struct fuse_session *device_mount(struct server *server, const char *directory)
{
	char *argv[] = {"simgpud", "-o", "allow_other,fsname=gpsched-simgpu", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse_session *fuse = fuse_session_new(&args, &OPS, sizeof(OPS), server);

	fuse_opt_free_args(&args);
	if (!fuse || fuse_session_mount(fuse, directory)) {
		fprintf(stderr, "simgpud: cannot mount on %s: %s; /dev/fuse and root are needed\n", directory,
			strerror(errno));
		return NULL;
	}
	fcntl(fuse_session_fd(fuse), F_SETFL, O_NONBLOCK);
	return fuse;
}

void device_read(struct server *server, struct fuse_session *fuse)
{
	static struct fuse_buf buffer;

	(void)server;
	/* Bounded, so that a caller in a loop cannot keep the others waiting. */
	for (int i = 0; i < 64; i++) {
		int n = fuse_session_receive_buf(fuse, &buffer);

		if (n == -EINTR)
			continue;
		if (n <= 0)
			return;
		fuse_session_process_buf(fuse, &buffer);
	}
}

void device_unmount(struct fuse_session *fuse)
{
	device_reply_due(NULL, ENGINE_NEVER);
	fuse_session_unmount(fuse);
	fuse_session_destroy(fuse);
}

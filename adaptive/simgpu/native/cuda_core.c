/* SPDX-License-Identifier: Apache-2.0 */
/* Start, and the two ways to the server: nvidiactl and the socket. */
#define _GNU_SOURCE
#include "cuda_sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct sim_shared *sim_shared;
pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	bool ready;
	int nvidiactl, socket, devices;
	int instance[MAX_DEVICES]; /* of the resource manager, by CUDA's ordinal */
	double scale;
	uint32_t root, next_handle;
} sim = {.nvidiactl = -1, .socket = -1};

struct nvos54 {
	uint32_t client, object, cmd, flags;
	uint64_t params;
	uint32_t params_size, status;
};

struct nvos64 {
	uint32_t root, parent, object, class_id;
	uint64_t params, rights;
	uint32_t params_size, flags, status, pad;
};

struct nvos00 {
	uint32_t root, parent, object, status;
};

uint64_t sim_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)(((double)t.tv_sec * 1e9 + (double)t.tv_nsec) / sim.scale);
}

uint32_t rm_root(void)
{
	return sim.root;
}

int device_count(void)
{
	return sim.devices;
}

int device_instance(CUdevice device)
{
	return sim.instance[device];
}

/* Handles are chosen here, as the real library does: 0x5c000000 + k. */
uint32_t rm_alloc(uint32_t parent, uint32_t class_id, const void *params, uint32_t size, uint32_t *handle)
{
	struct nvos64 a = {.root = sim.root,
			   .parent = parent,
			   .object = sim.root ? 0x5c000000u + sim.next_handle++ : 0,
			   .class_id = class_id,
			   .params = (uintptr_t)params,
			   .params_size = size};

	if (ioctl(sim.nvidiactl, 0xc030462bul, &a))
		return UINT32_MAX;
	*handle = a.object;
	return a.status;
}

void rm_free(uint32_t parent, uint32_t handle)
{
	struct nvos00 a = {.root = sim.root, .parent = parent, .object = handle};

	ioctl(sim.nvidiactl, 0xc0104629ul, &a);
}

uint32_t rm_control(uint32_t object, uint32_t cmd, void *params, uint32_t size)
{
	struct nvos54 a = {
	    .client = sim.root, .object = object, .cmd = cmd, .params = (uintptr_t)params, .params_size = size};

	return ioctl(sim.nvidiactl, 0xc020462aul, &a) ? UINT32_MAX : a.status;
}

void sim_send(struct sim_message *message, uint32_t count)
{
	message->time_ns = sim_now();
	message->count = count;
	while (send(sim.socket, message, SIM_MESSAGE_SIZE(count), MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

bool server_alive(void)
{
	struct pollfd p = {.fd = sim.socket, .events = POLLIN};

	return poll(&p, 1, 0) == 0;
}

static int connect_server(const char *directory)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%.80s/%s", directory, SIM_SOCKET);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Gives the server the memory in which it announces completions. */
static bool share_memory(void)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct sim_message hello = {.type = SIM_HELLO};
	struct iovec iov = {&hello, SIM_MESSAGE_SIZE(0)};
	struct msghdr header = {
	    .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&header);
	int fd = memfd_create("gpsched-sim", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, sizeof(*sim_shared)) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		return false;
	sim_shared = mmap(NULL, sizeof(*sim_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	bool sent = sim_shared != MAP_FAILED && sendmsg(sim.socket, &header, MSG_NOSIGNAL) > 0;
	close(fd);
	return sent;
}

/* As many device instances as the resource manager knows. */
static int count_devices(void)
{
	for (uint32_t i = 0; i < MAX_DEVICES; i++) {
		uint32_t params[14] = {i}, handle;

		if (rm_alloc(sim.root, 0x80, params, sizeof(params), &handle))
			return (int)i;
		rm_free(sim.root, handle);
	}
	return MAX_DEVICES;
}

/* CUDA_VISIBLE_DEVICES as the real library reads it: ordinals, up to the first that is not valid. */
static void choose_devices(int present)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	char *end;

	sim.devices = 0;
	if (!list) {
		for (; sim.devices < present; sim.devices++)
			sim.instance[sim.devices] = sim.devices;
		return;
	}
	while (sim.devices < MAX_DEVICES) {
		long instance = strtol(list, &end, 10);

		if (end == list || instance < 0 || instance >= present)
			return;
		sim.instance[sim.devices++] = (int)instance;
		if (*end != ',')
			return;
		list = end + 1;
	}
}

/* A forked child has no GPU state: it may start anew, and must not touch its parent's. */
static void forget_in_child(void)
{
	if (sim.socket >= 0)
		close(sim.socket);
	if (sim.nvidiactl >= 0)
		close(sim.nvidiactl);
	sim.socket = sim.nvidiactl = -1;
	sim.ready = false;
	sim.root = sim.next_handle = 0;
	pthread_mutex_init(&sim_lock, NULL);
	contexts_forget();
	streams_forget();
	effects_forget();
}

static CUresult start(void)
{
	const char *directory = getenv("GPSCHED_SIM_DIR"), *scale = getenv("GPSCHED_TIME_SCALE");
	static bool forks_watched;
	char path[4096];

	if (!directory)
		return CUDA_ERROR_NO_DEVICE;
	sim.scale = scale && atof(scale) > 0 ? atof(scale) : 1;
	snprintf(path, sizeof(path), "%s/dev/nvidiactl", directory);
	sim.nvidiactl = open(path, O_RDWR | O_CLOEXEC);
	sim.socket = sim.nvidiactl < 0 ? -1 : connect_server(directory);
	if (sim.socket < 0 || !share_memory() || rm_alloc(0, 0x41, NULL, 0, &sim.root))
		return CUDA_ERROR_SYSTEM_NOT_READY;
	choose_devices(count_devices());
	if (!sim.devices)
		return CUDA_ERROR_NO_DEVICE;
	if (!forks_watched)
		pthread_atfork(NULL, NULL, forget_in_child);
	forks_watched = true;
	sim.ready = true;
	return CUDA_SUCCESS;
}

static void inject(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");
	void *library = path && *path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
	int (*initialize)(void) = NULL;

	if (library)
		*(void **)&initialize = dlsym(library, "InitializeInjection");
	if (initialize)
		initialize();
	else if (path && *path)
		fprintf(stderr, "libcuda (simulated): cannot inject %s: %s\n", path, dlerror());
}

static CUresult initialize(unsigned int flags)
{
	CUresult result = CUDA_SUCCESS;
	bool first = false;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	if (!sim.ready) {
		result = start();
		first = result == CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim_lock);
	/* Not under the lock: the injected library may call CUDA. */
	if (first)
		inject();
	return result;
}

CUresult ensure_ready(void)
{
	return sim.ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CALL(cuInit, (unsigned int flags), initialize(flags))

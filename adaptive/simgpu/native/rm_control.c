/* SPDX-License-Identifier: Apache-2.0 */
/* RM controls: exact parameter sizes, privileges, and what each asks of the engine. */
#include "rm_internal.h"

#include <string.h>

#define CAP_SYS_NICE 23
#define MAX_PARAMS 2048
#define MAX_DISABLE 64
#define LONGEST_SLICE_US 4294967295u
#define UNIQUE_ID_CHANNELS 128 /* NV2080_CTRL_CMD_FIFO_MAX_CHANNELS_PER_TSG */

enum {
	CMD_HANDLE_INFO = 0xd02,
	CMD_SCHEDULE = 0xa06c0101,
	CMD_SET_TIMESLICE = 0xa06c0103,
	CMD_GET_TIMESLICE = 0xa06c0104,
	CMD_PREEMPT = 0xa06c0105,
	CMD_GET_INFO = 0xa06c0106,
	CMD_INTERLEAVE = 0xa06c0107,
	CMD_REALTIME = 0xa06c0110,
	CMD_RESTART = 0xa06f0111,
	CMD_DISABLE_CHANNELS = 0x2080110b,
	CMD_WORK_SUBMIT_TOKEN = 0xc36f0108,
	CMD_CLASS_ENGINEID = 0x906f0101,
	CMD_GPU_GET_ID = 0x20800142,
	CMD_UNIQUE_ID = 0x20801123
};

/* ctrl2080fifo.h: NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS */
struct disable_channels {
	uint8_t disable, pad0[3];
	uint32_t count;
	uint8_t only_scheduling, rewind, pad1[6];
	uint64_t event;
	uint32_t client[MAX_DISABLE], channel[MAX_DISABLE];
};

/* ctrl0000client.h: NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS */
struct handle_info {
	uint32_t object, index;
	uint64_t result;
};

enum { HANDLE_INFO_PARENT = 1, HANDLE_INFO_CLASS = 2 };

/* ctrl906f.h: NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS */
struct class_engineid {
	uint32_t object, class_engine_id, class_id, engine_id;
};

/* ctrl2080fifo.h: NV2080_CTRL_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO_PARAMS */
struct unique_id {
	uint32_t client, handle, tsg, count;
	uint32_t channel[UNIQUE_ID_CHANNELS], address_space[UNIQUE_ID_CHANNELS], veid[UNIQUE_ID_CHANNELS];
};

/* The target of one control. */
struct call {
	struct rm *rm;
	const struct client *client;
	const struct object *object;
	uint8_t *params;
	uint64_t *reply_at;
};

static uint32_t start(const struct call *c, uint32_t kind, uint64_t value)
{
	const struct resource *r = c->object->resource;

	*c->reply_at = engine_control(c->rm->engine, r->gpu, kind, &r->engine_id, 1, value);
	return NV_OK;
}

static uint32_t do_schedule(const struct call *c)
{
	return start(c, CTL_SCHEDULE, c->params[0]);
}

static uint32_t do_set_timeslice(const struct call *c)
{
	uint64_t us;

	memcpy(&us, c->params, sizeof(us));
	return us > LONGEST_SLICE_US ? NV_ERR_INVALID_ARGUMENT : start(c, CTL_SET_TIMESLICE, us);
}

static uint32_t do_get_timeslice(const struct call *c)
{
	uint64_t us = engine_timeslice(c->rm->engine, c->object->resource->engine_id);

	memcpy(c->params, &us, sizeof(us));
	return NV_OK;
}

static uint32_t do_preempt(const struct call *c)
{
	return start(c, c->params[0] ? CTL_PREEMPT_WAIT : CTL_PREEMPT, 0);
}

static uint32_t do_id(const struct call *c)
{
	uint32_t id = (uint32_t)c->object->resource->engine_id;

	memcpy(c->params, &id, sizeof(id));
	return NV_OK;
}

static uint32_t do_interleave(const struct call *c)
{
	uint32_t level;

	memcpy(&level, c->params, sizeof(level));
	return level > 2 ? NV_ERR_INVALID_ARGUMENT : start(c, CTL_INTERLEAVE, level);
}

static uint32_t do_realtime(const struct call *c)
{
	return start(c, CTL_REALTIME, c->params[0]);
}

static uint32_t do_restart(const struct call *c)
{
	return start(c, CTL_RESTART, 0);
}

static uint32_t do_disable_channels(const struct call *c)
{
	static const uint32_t kinds[2][2] = {{CTL_ENABLE, CTL_ENABLE_SCHEDULING},
					     {CTL_DISABLE, CTL_DISABLE_SCHEDULING}};
	const struct disable_channels *p = (const void *)c->params;
	int ids[MAX_DISABLE], gpu = c->object->resource->gpu;

	if (p->count > MAX_DISABLE || p->event)
		return NV_ERR_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < p->count; i++) {
		const struct client *owner = rm_client(c->rm, p->client[i]);
		const struct object *o = owner ? client_object(owner, p->channel[i]) : NULL;

		if (!o || o->resource->class_id != CLASS_CHANNEL || o->resource->gpu != gpu)
			return NV_ERR_INVALID_CHANNEL;
		ids[i] = o->resource->engine_id;
	}
	*c->reply_at =
	    engine_control(c->rm->engine, gpu, kinds[!!p->disable][!!p->only_scheduling], ids, (int)p->count, 0);
	return NV_OK;
}

static uint32_t do_class_engineid(const struct call *c)
{
	struct class_engineid *p = (void *)c->params;
	const struct object *o = client_object(c->client, p->object);

	if (!o || o->parent != c->object->handle)
		return NV_ERR_OBJECT_NOT_FOUND;
	p->class_id = o->resource->class_id;
	p->engine_id = p->class_id == CLASS_COMPUTE ? 1 : 9; /* NV2080_ENGINE_TYPE_GR0, _COPY0 */
	p->class_engine_id = p->engine_id;
	return NV_OK;
}

static uint32_t do_gpu_id(const struct call *c)
{
	uint32_t id = ((uint32_t)c->object->resource->gpu + 1) << 8;

	memcpy(c->params, &id, sizeof(id));
	return NV_OK;
}

static uint32_t do_unique_id(const struct call *c)
{
	struct unique_id *p = (void *)c->params;
	const struct client *owner = rm_client(c->rm, p->client);
	const struct object *o = owner ? client_object(owner, p->handle) : NULL;

	if (!o || (o->resource->class_id != CLASS_GROUP && o->resource->class_id != CLASS_CHANNEL))
		return NV_ERR_OBJECT_NOT_FOUND;
	p->count = 0;
	p->tsg = (uint32_t)(o->resource->class_id == CLASS_GROUP ? o->resource->engine_id : 0);
	for (const struct object *child = owner->objects; child && p->count < UNIQUE_ID_CHANNELS; child = child->next)
		if (child == o ? o->resource->class_id == CLASS_CHANNEL
			       : child->parent == o->handle && child->resource->class_id == CLASS_CHANNEL)
			p->channel[p->count++] = (uint32_t)child->resource->engine_id;
	return NV_OK;
}

struct command {
	uint32_t cmd, class_id, size;
	bool nice, answers;
	uint32_t (*run)(const struct call *c);
};

/* facts: ctrla06c.h, ctrla06fgpfifo.h, ctrl2080fifo.h, ctrlc36f.h, ctrl906f.h, ctrl2080gpu.h */
static const struct command COMMANDS[] = {
    {CMD_SCHEDULE, CLASS_GROUP, 3, false, false, do_schedule},
    {CMD_SET_TIMESLICE, CLASS_GROUP, 8, false, false, do_set_timeslice},
    {CMD_GET_TIMESLICE, CLASS_GROUP, 8, false, true, do_get_timeslice},
    {CMD_PREEMPT, CLASS_GROUP, 8, false, false, do_preempt},
    {CMD_GET_INFO, CLASS_GROUP, 4, false, true, do_id},
    {CMD_INTERLEAVE, CLASS_GROUP, 4, true, false, do_interleave},
    {CMD_REALTIME, CLASS_GROUP, 1, true, false, do_realtime},
    {CMD_RESTART, CLASS_CHANNEL, 2, true, false, do_restart},
    {CMD_WORK_SUBMIT_TOKEN, CLASS_CHANNEL, 4, false, true, do_id},
    {CMD_CLASS_ENGINEID, CLASS_CHANNEL, sizeof(struct class_engineid), false, true, do_class_engineid},
    {CMD_DISABLE_CHANNELS, CLASS_SUBDEVICE, sizeof(struct disable_channels), false, false, do_disable_channels},
    {CMD_GPU_GET_ID, CLASS_SUBDEVICE, 4, false, true, do_gpu_id},
    {CMD_UNIQUE_ID, CLASS_SUBDEVICE, sizeof(struct unique_id), false, true, do_unique_id},
};

static bool caller_is_nice(pid_t tid)
{
	return caller_status(tid, "CapEff: %llx") >> CAP_SYS_NICE & 1;
}

static const struct command *find_command(uint32_t cmd)
{
	for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(COMMANDS[0]); i++)
		if (COMMANDS[i].cmd == cmd)
			return &COMMANDS[i];
	return NULL;
}

/* The client is an object too; of its controls only the one that describes a handle is modelled. */
static uint32_t client_control(const struct client *client, pid_t tid, const struct nvos54 *call)
{
	struct handle_info info;

	if (call->cmd != CMD_HANDLE_INFO)
		return NV_ERR_NOT_SUPPORTED;
	if (call->params_size != sizeof(info))
		return NV_ERR_INVALID_PARAM_STRUCT;
	if (!caller_read(tid, call->params, &info, sizeof(info)))
		return NV_ERR_INVALID_POINTER;
	const struct object *object = client_object(client, info.object);
	if (!object && info.object != client->handle)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (info.index != HANDLE_INFO_PARENT && info.index != HANDLE_INFO_CLASS)
		return NV_ERR_INVALID_ARGUMENT;
	if (info.index == HANDLE_INFO_PARENT)
		info.result = object ? object->parent : 0;
	else
		info.result = object ? object->resource->class_id : CLASS_CLIENT;
	return caller_write(tid, call->params, &info, sizeof(info)) ? NV_OK : NV_ERR_INVALID_POINTER;
}

uint32_t rm_control(struct rm *rm, uint64_t file, pid_t tid, const struct nvos54 *call, uint64_t *reply_at)
{
	union {
		uint64_t align;
		uint8_t bytes[MAX_PARAMS];
	} params;
	struct client *client = rm_client(rm, call->client);
	const struct command *command = find_command(call->cmd);

	if (!client || client->file != file)
		return NV_ERR_INVALID_CLIENT;
	if (call->object == client->handle)
		return client_control(client, tid, call);
	struct object *object = client_object(client, call->object);
	if (!object)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!command || command->class_id != object->resource->class_id)
		return NV_ERR_NOT_SUPPORTED;
	if (command->size != call->params_size || !call->params)
		return NV_ERR_INVALID_PARAM_STRUCT;
	if (command->nice && !caller_is_nice(tid))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	if (!caller_read(tid, call->params, params.bytes, command->size))
		return NV_ERR_INVALID_POINTER;
	struct call c = {rm, client, object, params.bytes, reply_at};
	uint32_t status = command->run(&c);
	if (!status && command->answers && !caller_write(tid, call->params, params.bytes, command->size))
		status = NV_ERR_INVALID_POINTER;
	return status;
}

// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * What BPF programs may call and attach to. Look-ups and plan requests work in any context; the _sync variants call
 * the RM and are for sleepable programs. BPF can only begin and end what a privileged controller prepared.
 *
 * gpsched_on_group() and gpsched_on_done() do nothing: they are attach points whose names and arguments stay the same
 * while the driver's own functions change from branch to branch.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/module.h>

#include "internal.h"

bool gs_kfuncs_registered;

noinline void gpsched_on_group(const struct gpsched_group *group, u32 added)
{
	barrier_data(group);
}

noinline void gpsched_on_done(u32 portid, u64 cookie, int error)
{
	barrier();
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0) && IS_ENABLED(CONFIG_DEBUG_INFO_BTF_MODULES)

#ifndef __bpf_kfunc
#define __bpf_kfunc __used noinline
#endif

__diag_push();
__diag_ignore_all("-Wmissing-prototypes", "called by BPF programs only");
#ifdef __clang__
#pragma clang diagnostic ignored "-Wmissing-declarations"
#else
#pragma GCC diagnostic ignored "-Wmissing-declarations"
#endif

/* The group of a process (engine: enum gs_engine, 0 for any). Fills id, pid, engine, device and disabled. */
__bpf_kfunc int gpsched_group_of_pid(u32 pid, u32 engine, struct gpsched_group *out, u32 out__sz)
{
	if (out__sz != sizeof(*out))
		return -EINVAL;
	return gs_group_of_pid(pid, engine, out) ? 0 : -ESRCH;
}

__bpf_kfunc int gpsched_plan_begin(u32 plan)
{
	return gs_plan_request(plan, GS_CMD_PLAN_BEGIN);
}

__bpf_kfunc int gpsched_plan_end(u32 plan)
{
	return gs_plan_request(plan, GS_CMD_PLAN_END);
}

static int run_now(u32 plan, enum gs_cmd what)
{
	int error;

	mutex_lock(&gs_control_mutex);
	error = gs_plan_run(plan, NULL, what);
	mutex_unlock(&gs_control_mutex);
	return error;
}

__bpf_kfunc int gpsched_plan_begin_sync(u32 plan)
{
	return run_now(plan, GS_CMD_PLAN_BEGIN);
}

__bpf_kfunc int gpsched_plan_end_sync(u32 plan)
{
	return run_now(plan, GS_CMD_PLAN_END);
}

__diag_pop();

/* 6.9 (6f3189f38a3e) wants kfunc sets marked as such. */
#ifdef BTF_KFUNCS_START
BTF_KFUNCS_START(gpsched_kfuncs)
#else
BTF_SET8_START(gpsched_kfuncs)
#endif
BTF_ID_FLAGS(func, gpsched_group_of_pid)
BTF_ID_FLAGS(func, gpsched_plan_begin)
BTF_ID_FLAGS(func, gpsched_plan_end)
BTF_ID_FLAGS(func, gpsched_plan_begin_sync, KF_SLEEPABLE)
BTF_ID_FLAGS(func, gpsched_plan_end_sync, KF_SLEEPABLE)
#ifdef BTF_KFUNCS_START
BTF_KFUNCS_END(gpsched_kfuncs)
#else
BTF_SET8_END(gpsched_kfuncs)
#endif

static const struct btf_kfunc_id_set kfunc_set = {
    .owner = THIS_MODULE,
    .set = &gpsched_kfuncs,
};

/*
 * Once for each hook, not for each program type: TRACING, TRACEPOINT, PERF_EVENT and LSM share one, and a second
 * registration makes the kernel forget all of them.
 */
int gs_kfunc_init(void)
{
	int error = register_btf_kfunc_id_set(BPF_PROG_TYPE_TRACING, &kfunc_set);

	error = error ?: register_btf_kfunc_id_set(BPF_PROG_TYPE_SYSCALL, &kfunc_set);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0) /* BTF_KFUNC_HOOK_KPROBE; older: -EINVAL and the set is lost */
	error = error ?: register_btf_kfunc_id_set(BPF_PROG_TYPE_KPROBE, &kfunc_set);
#endif
	/* A module without BTF gets 0 too, and no kfuncs: an ID that was resolved is the proof. */
	gs_kfuncs_registered = !error && gpsched_kfuncs.cnt && gpsched_kfuncs.pairs[0].id;
	return error;
}
#else
int gs_kfunc_init(void)
{
	return -EOPNOTSUPP;
}
#endif

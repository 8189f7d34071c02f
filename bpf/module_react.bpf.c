/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Begins and ends a prepared plan of the patched driver module from inside the kernel, at the trigger itself: no
 * wake-up of the actuator, no netlink message. The daemon prepares plans (adaptive/driver/module_link.py) and puts
 * their numbers into the map `plans`, keyed by the thread group whose event is the trigger. A plan has a lease, so an
 * end that never comes is no harm.
 *
 * Compiled with clang and loaded by libbpf: bcc cannot call a module's kernel functions. Which program types may do so
 * depends on the kernel: fexit from 6.1 on, kprobe and uprobe from 6.12 on. The loader loads what the kernel takes.
 * The begin and end requests only set a word; the module's worker issues the controls.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define GS_MAX_TRIGGERS 1024

struct gs_reaction {
	__u32 plan;  /* number that the module gave */
	__u32 begun; /* how often this program asked for it */
	__u32 ended;
	__s32 error; /* the module's last refusal */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GS_MAX_TRIGGERS);
	__type(key, __u32);
	__type(value, struct gs_reaction);
} plans SEC(".maps");

extern int gpsched_plan_begin(__u32 plan) __ksym;
extern int gpsched_plan_end(__u32 plan) __ksym;
extern int gpsched_plan_begin_sync(__u32 plan) __ksym;
extern int gpsched_plan_end_sync(__u32 plan) __ksym;

static struct gs_reaction *reaction_of_current(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	return bpf_map_lookup_elem(&plans, &pid);
}

static void begin(void)
{
	struct gs_reaction *reaction = reaction_of_current();
	int error;

	if (!reaction)
		return;
	error = gpsched_plan_begin(reaction->plan);
	if (error)
		reaction->error = error;
	else
		__sync_fetch_and_add(&reaction->begun, 1);
}

static void end(void)
{
	struct gs_reaction *reaction = reaction_of_current();
	int error;

	if (!reaction)
		return;
	error = gpsched_plan_end(reaction->plan);
	if (error)
		reaction->error = error;
	else
		__sync_fetch_and_add(&reaction->ended, 1);
}

struct socket;
struct msghdr;

/* A request arrived: sock_recvmsg() returns to the LC with data. Below every read() and recv() of a socket. */
SEC("fexit/sock_recvmsg")
int BPF_PROG(begin_on_receive, struct socket *sock, struct msghdr *msg, int flags, int received)
{
	if (received > 0)
		begin();
	return 0;
}

/* For any function of the program or of libcuda: the loader says which. */
SEC("uprobe")
int begin_on_call(void *context)
{
	begin();
	return 0;
}

SEC("uretprobe")
int end_on_return(void *context)
{
	end();
	return 0;
}

/* By test-run: tells at once, and as the module's own error, whether a plan can be begun and ended from BPF. */
SEC("syscall")
int try_plan(__u32 *plan)
{
	int error = gpsched_plan_begin_sync(*plan);

	return error ? error : gpsched_plan_end_sync(*plan);
}

char LICENSE[] SEC("license") = "GPL";

/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The registry from BPF: what the attach points tell, and the look-up of the process that runs. For the tests. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct gpsched_group { /* kmod_patches/gpsched/internal.h */
	__u64 id;
	__u64 cgroup;
	__u32 client, handle;
	__u32 pid, uid;
	__u32 engine, device;
	__u32 gpu, subdevice;
	__u32 channels, disabled;
};

struct seen {
	__u64 added, removed, last;
	__u64 done;
	__s64 error;
	__u64 found; /* group of the running process with the compute engine */
	__s64 lookup;
	__s64 wrong_size;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} seen SEC(".maps");

extern int gpsched_group_of_pid(__u32 pid, __u32 engine, struct gpsched_group *out, __u32 out__sz) __ksym;

static struct seen *record(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&seen, &zero);
}

SEC("fentry/gpsched_on_group")
int BPF_PROG(on_group, const struct gpsched_group *group, __u32 added)
{
	struct seen *to = record();

	if (!to)
		return 0;
	if (added)
		to->added++;
	else
		to->removed++;
	to->last = group->id;
	return 0;
}

SEC("fentry/gpsched_on_done")
int BPF_PROG(on_done, __u32 portid, __u64 cookie, int error)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct gpsched_group group = {};
	struct seen *to = record();

	if (!to)
		return 0;
	to->done = cookie;
	to->error = error;
	to->lookup = gpsched_group_of_pid(pid, 3, &group, sizeof(group));
	to->found = group.id;
	to->wrong_size = gpsched_group_of_pid(pid, 3, &group, sizeof(group) - 8);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

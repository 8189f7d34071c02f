/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
 *
 * What a thread waits in: the registers with which it entered the kernel, and what a descriptor is.
 *
 * What a descriptor is, is read from the kernel's own file at each event: a cache would have to follow close, dup,
 * accept and descriptor passing.
 */

#define FILE_TYPE 0170000
#define FILE_SOCKET 0140000
#define FILE_REGULAR 0100000
#define FILE_FIFO 0010000

/* The first eight letters of a name, as a little-endian number. */
#define LETTER(c, n) ((u64)(c) << 8 * (n))
#define NAME(a, b, c, d, e, f, g, h)                                                                                   \
	(LETTER(a, 0) | LETTER(b, 1) | LETTER(c, 2) | LETTER(d, 3) | LETTER(e, 4) | LETTER(f, 5) | LETTER(g, 6) |      \
	 LETTER(h, 7))

/* From the beginning of a stack, in bytes; 0 until the first wake. */
BPF_ARRAY(place_of_registers, u64, 1);

/* ---- arguments */

#if defined(__TARGET_ARCH_arm64)
#define ARGUMENT_OFFSET(number) ((number) ? 8 * (number) : offsetof(struct pt_regs, orig_x0))
#define SYSCALL_OFFSET (8 * 8)
#else
#define SYSCALL_OFFSET offsetof(struct pt_regs, orig_ax)
#define ARGUMENT_OFFSET(number)                                                                                        \
	((number) == 0	 ? offsetof(struct pt_regs, di)                                                                \
	 : (number) == 1 ? offsetof(struct pt_regs, si)                                                                \
	 : (number) == 2 ? offsetof(struct pt_regs, dx)                                                                \
			 : offsetof(struct pt_regs, r10))
#endif

static __always_inline u64 word_at(u64 address)
{
	u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)address);
	return word;
}

static __always_inline u64 current_registers(void)
{
	return task_registers(bpf_get_current_task_btf());
}

/*
 * A program's registers are at the same place of each of its threads' stacks; what runs now is of no help where an
 * interrupt wakes a thread, for the idle task has none. The verifier knows differences of numbers only.
 */
static __always_inline void learn_place_of_registers(void)
{
	u64 registers = current_registers();
	u32 zero = 0;
	u64 *place = place_of_registers.lookup(&zero);

	if (place && !*place)
		*place = word_at((u64)&registers) - word_at(bpf_get_current_task() + GS_TASK_STACK);
}

/* 0: not known yet. */
static __always_inline u64 registers_of(u64 task)
{
	u32 zero = 0;
	u64 *place = place_of_registers.lookup(&zero);

	return place && *place ? word_at(task + GS_TASK_STACK) + *place : 0;
}

/* Number 0 to 3 of the system call that is returning. */
static __always_inline u64 syscall_argument(u32 number)
{
	return word_at(current_registers() + ARGUMENT_OFFSET(number));
}

/* ---- descriptors */

static __always_inline u64 file_of(u64 task, u32 descriptor)
{
	u64 files = word_at(task + GS_TASK_FILES);
	u64 table = word_at(files + GS_FILES_FDT);
	u32 size = 0;

	bpf_probe_read_kernel(&size, sizeof(size), (void *)(table + GS_FDTABLE_MAX_FDS));
	if (descriptor >= size)
		return 0;
	return word_at(word_at(table + GS_FDTABLE_FD) + 8ull * descriptor);
}

/* Files without a place in a file system have the name of what they are. */
static __always_inline u32 kind_by_name(u64 file)
{
	u64 dentry = word_at(file + GS_FILE_F_PATH + GS_PATH_DENTRY);

	switch (word_at(word_at(dentry + GS_DENTRY_D_NAME + GS_QSTR_NAME))) {
	case NAME('[', 'e', 'v', 'e', 'n', 't', 'f', 'd'):
		return GS_WAKE_EVENTFD;
	case NAME('[', 't', 'i', 'm', 'e', 'r', 'f', 'd'):
		return GS_WAKE_TIMER;
	default:
		return 0;
	}
}

/* What a read of the descriptor announces; 0 for files, terminals and what else never waits for others. */
static __always_inline u32 kind_of(u64 task, u32 descriptor)
{
	u64 file = file_of(task, descriptor);
	u16 mode = 0;

	if (!file)
		return 0;
	bpf_probe_read_kernel(&mode, sizeof(mode), (void *)(word_at(file + GS_FILE_F_INODE) + GS_INODE_I_MODE));
	switch (mode & FILE_TYPE) {
	case FILE_SOCKET:
		return GS_WAKE_SOCKET_READ;
	case FILE_FIFO:
		return GS_WAKE_PIPE;
	case 0: /* without a type of its own, before Linux 6.16 */
	case FILE_REGULAR:
		return kind_by_name(file);
	default:
		return 0;
	}
}

/* ---- system calls */

struct waiting {
	u32 kind;
	u64 handle;
};

/* What a thread that is being woken waits in. A futex's wakes are too many, and mostly not for the GPU. */
static __always_inline struct waiting waiting_in(u64 task)
{
	u64 registers = registers_of(task);
	struct waiting in = {};

	if (!registers)
		return in;
	in.handle = (u32)word_at(registers + ARGUMENT_OFFSET(0));
	switch (word_at(registers + SYSCALL_OFFSET)) {
	case __NR_read:
	case __NR_readv:
		in.kind = kind_of(task, in.handle);
		break;
	case __NR_recvfrom:
	case __NR_recvmsg:
	case __NR_recvmmsg:
		in.kind = GS_WAKE_SOCKET_READ;
		break;
	case __NR_accept:
	case __NR_accept4:
		in.kind = GS_WAKE_ACCEPT;
		break;
	case __NR_epoll_pwait:
	case __NR_epoll_pwait2:
	case __NR_io_uring_enter:
#ifdef __NR_epoll_wait
	case __NR_epoll_wait:
#endif
		in.kind = GS_WAKE_EPOLL;
		break;
	case __NR_ppoll:
	case __NR_pselect6:
#ifdef __NR_poll
	case __NR_poll:
	case __NR_select:
#endif
		in.kind = GS_WAKE_EPOLL;
		in.handle = GS_UNKNOWN;
		break;
	case __NR_nanosleep:
	case __NR_clock_nanosleep:
		in.kind = GS_WAKE_SLEEP;
		in.handle = GS_UNKNOWN;
		break;
	default:
		break;
	}
	return in;
}

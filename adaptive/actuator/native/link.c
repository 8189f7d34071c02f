/* SPDX-License-Identifier: Apache-2.0 */
#include "link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int link_receive(int fd, struct ga_message *message, int *descriptor)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec body = {.iov_base = message, .iov_len = sizeof(*message)};
	struct msghdr header = {
	    .msg_iov = &body, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	struct cmsghdr *first;
	ssize_t size = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*descriptor = -1;
	if (size < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	first = CMSG_FIRSTHDR(&header);
	if (first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS)
		memcpy(descriptor, CMSG_DATA(first), sizeof(*descriptor));
	if (size == sizeof(*message))
		return 1;
	if (*descriptor >= 0)
		close(*descriptor);
	return -1; /* the end, or a daemon of another version */
}

void link_answer(int fd, const struct ga_message *message, int error)
{
	struct ga_message answer = {
	    .type = message->type, .slot = message->slot, .kind = (__u32)-error, .generation = message->generation};

	/* A daemon that does not read its answers must not stop us; its death is seen on the next receive. */
	(void)!send(fd, &answer, sizeof(answer), MSG_DONTWAIT | MSG_NOSIGNAL);
}

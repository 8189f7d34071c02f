/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define HTTP_BYTES 8192 /* headers and body of one message */

/* Headers and body leave in one segment. */
static bool send_http(int fd, const char *start, const void *body, size_t bytes)
{
	char head[256];
	int length = snprintf(head, sizeof(head), "%s\r\nContent-Length: %zu\r\n\r\n", start, bytes);
	struct iovec parts[] = {{head, (size_t)length}, {(void *)(uintptr_t)body, bytes}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

	return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)(bytes + (size_t)length);
}

/* The value of Content-Length, 0 without one, -1 when it is no number or too large. */
static long content_length(const char *head)
{
	const char *field = strcasestr(head, "\r\nContent-Length:");
	char *end;
	long length;

	if (!field)
		return 0;
	length = strtol(field + strlen("\r\nContent-Length:"), &end, 10);
	return *end == '\r' && length >= 0 && length < HTTP_BYTES ? length : -1;
}

/* Receives one message into `text` (ended by a zero byte) and finds its body. A peer sends its next message only after
 * our answer, so that what follows the body is an error. */
static bool receive_http(int fd, char text[HTTP_BYTES], char **body, size_t *bytes)
{
	size_t got = 0;

	for (;;) {
		ssize_t more = recv(fd, text + got, HTTP_BYTES - 1 - got, 0);
		char *end;
		long length;

		if (more <= 0)
			return false;
		got += (size_t)more;
		text[got] = '\0';
		end = strstr(text, "\r\n\r\n");
		if (!end)
			continue;
		*body = end + 4;
		end[2] = '\0'; /* the search for a field stays within the headers */
		length = content_length(text);
		end[2] = '\r';
		*bytes = (size_t)length;
		if (length < 0 || got > (size_t)(*body - text) + *bytes)
			return false;
		if (got == (size_t)(*body - text) + *bytes)
			return true;
	}
}

bool wire_send_request(int fd, const struct request *request, bool http)
{
	if (http)
		return send_http(fd,
				 "POST /infer HTTP/1.1\r\nHost: 127.0.0.1\r\n"
				 "Content-Type: application/octet-stream",
				 request, sizeof(*request));
	return send(fd, request, sizeof(*request), MSG_NOSIGNAL) == sizeof(*request);
}

bool wire_receive_request(int fd, struct request *request, bool http)
{
	char text[HTTP_BYTES], *body;
	size_t bytes;

	if (!http)
		return recv(fd, request, sizeof(*request), MSG_WAITALL) == sizeof(*request);
	*request = (struct request){0};
	if (!receive_http(fd, text, &body, &bytes))
		return false;
	if (bytes == sizeof(*request))
		memcpy(request, body, bytes);
	return true;
}

bool wire_send_reply(int fd, const struct reply *reply, bool http)
{
	char json[128];
	int length;

	if (!http)
		return send(fd, reply, sizeof(*reply), MSG_NOSIGNAL) == sizeof(*reply);
	length = snprintf(json, sizeof(json), "{\"sequence\":%llu,\"server_us\":%.1f,\"gpu_us\":%.1f}",
			  (unsigned long long)reply->sequence, reply->server_us, reply->gpu_us);
	return send_http(fd, "HTTP/1.1 200 OK\r\nContent-Type: application/json", json, (size_t)length);
}

bool wire_receive_reply(int fd, struct reply *reply, bool http)
{
	char text[HTTP_BYTES], *body;
	unsigned long long sequence;
	size_t bytes;

	if (!http)
		return recv(fd, reply, sizeof(*reply), MSG_WAITALL) == sizeof(*reply);
	if (!receive_http(fd, text, &body, &bytes) || strncmp(text, "HTTP/1.1 200 ", 13))
		return false;
	if (sscanf(body, "{\"sequence\":%llu,\"server_us\":%lf,\"gpu_us\":%lf}", &sequence, &reply->server_us,
		   &reply->gpu_us) != 3)
		return false;
	reply->sequence = sequence;
	return true;
}

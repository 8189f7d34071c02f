/* SPDX-License-Identifier: Apache-2.0
 *
 * A file nvidiactl whose every ioctl succeeds and gives back what it got: the status is the one that the caller wrote.
 * usage: fakectl MOUNTPOINT (in the foreground)
 */
#define FUSE_USE_VERSION 35
#include <errno.h>
#include <fuse.h>
#include <string.h>
#include <sys/stat.h>

static int get_attributes(const char *path, struct stat *status, struct fuse_file_info *info)
{
	(void)info;
	status->st_mode = strcmp(path, "/") ? S_IFREG | 0666 : S_IFDIR | 0755;
	status->st_nlink = 1;
	return strcmp(path, "/") && strcmp(path, "/nvidiactl") ? -ENOENT : 0;
}

static int answer(const char *path, unsigned int command, void *argument, struct fuse_file_info *info,
		  unsigned int flags, void *data)
{
	(void)path, (void)command, (void)argument, (void)info, (void)flags, (void)data;
	return 0;
}

int main(int argc, char **argv)
{
	char *foreground[] = {argv[0], "-f", "-s", argv[argc - 1], NULL};
	struct fuse_operations operations = {.getattr = get_attributes, .ioctl = answer};

	return fuse_main(4, foreground, &operations, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the driver file that it is given, allocates a client, waits for a line, gives a hint, waits for another.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include "../../../adaptive/hints/include/gpsched_hint.h"

#define CLIENT 0xc1d00001u

int main(int count, char **arguments)
{
	uint32_t allocation[8] = {CLIENT, CLIENT, CLIENT, 0x41};
	char line[16];
	int file = count > 1 ? open(arguments[1], O_RDWR) : -1;

	if (file < 0 || ioctl(file, 0xc020462b, allocation) < 0)
		return 1;
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	gpsched_hint(1, 0);
	return fgets(line, sizeof(line), stdin) ? 0 : 1;
}

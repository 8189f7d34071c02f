/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress: the newest variant of a name that the asked version knows, as a CUDA runtime uses it. */
#define _GNU_SOURCE
#include "cuda_sim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define FLAG_PER_THREAD 2 /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

/* Variants in the order of preference, with the version (1000 x major + 10 x minor) that brought each. */
static const struct {
	const char *suffix;
	int since;
} VARIANTS[] = {{"_v4", 12050}, {"_v3", 11040}, {"_v2", 3020}, {"", 0}};

static void *find(void *self, const char *name, const char *variant, bool per_thread)
{
	static const char *const threads[] = {"_ptsz", "_ptds", ""};
	char symbol[256];
	void *found = NULL;

	for (int i = per_thread ? 0 : 2; i < 3 && !found; i++) {
		snprintf(symbol, sizeof(symbol), "%s%s%s", name, variant, threads[i]);
		found = dlsym(self, symbol);
	}
	return found;
}

static CUresult lookup(const char *name, void **to, int version, uint64_t flags, int *status)
{
	Dl_info info;

	if (!name || !to)
		return CUDA_ERROR_INVALID_VALUE;
	*to = NULL;
	void *self = dladdr((void *)find, &info) ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	for (size_t i = 0; self && !*to && i < sizeof(VARIANTS) / sizeof(VARIANTS[0]); i++)
		if (version >= VARIANTS[i].since)
			*to = find(self, name, VARIANTS[i].suffix, flags & FLAG_PER_THREAD);
	if (self)
		dlclose(self);
	if (status)
		*status = *to ? 0 : 1;
	return *to ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CALL(cuGetProcAddress, (const char *name, void **to, int version, uint64_t flags),
     lookup(name, to, version, flags, NULL))
CALL(cuGetProcAddress_v2, (const char *name, void **to, int version, uint64_t flags, int *status),
     lookup(name, to, version, flags, status))

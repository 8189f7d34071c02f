/* SPDX-License-Identifier: Apache-2.0 */
/* Exit codes of the sample programs; --help prints them. */
#ifndef GPSCHED_BENCH_EXIT_CODES_H
#define GPSCHED_BENCH_EXIT_CODES_H

enum {
	EXIT_CORRUPTED = 1,  /* the state on the GPU is not what the launched kernels make of it */
	EXIT_USAGE = 2,	     /* bad argument */
	EXIT_CUDA = 3,	     /* a CUDA call failed */
	EXIT_LOAD = 4,	     /* the load generator lost the service */
	EXIT_NO_DEVICE = 77, /* no libcuda.so.1, or no GPU */
};

#define EXIT_CODES_HELP                                                                                                \
	"Exit codes: 0 success, 1 corrupted state, 2 bad argument, 3 CUDA call failed, 4 service lost,\n"              \
	"77 no libcuda.so.1 or no GPU.\n"

#endif

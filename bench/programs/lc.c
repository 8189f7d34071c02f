/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpsched-lc: a latency-critical service. Each request: recv, host preparation, copy to the GPU, a chain of kernels
 * (one CUDA graph, or launches one by one), copy back, synchronise, reply. The load generator is a child process that
 * is forked before CUDA is initialised: the process that was started is the service itself, as it would be in
 * production.
 */
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chain.h"
#include "clock.h"
#include "cuda_driver.h"
#include "exit_codes.h"
#include "gpsched_hint.h"
#include "loadgen.h"
#include "options.h"
#include "service.h"
#include "switchboard.h"
#include "work.h"

static const char help[] =
    "Usage: gpsched-lc [OPTION]...\n"
    "A latency-critical GPU service on loopback TCP, with its own load generator.\n\n"
    "Service:\n"
    "  --port P            0 = any free one, printed (0)\n"
    "  --prep-us US        host preparation between recv and the first copy (200)\n"
    "  --kernels N         kernels a request (20)\n"
    "  --kernel-us US      length of each (8)\n"
    "  --chain FILE        kernels of these lengths instead, in us, one a line\n"
    "  --mode M            graph: one CUDA graph, eager: launches one by one (graph)\n"
    "  --gap-us US         host work between two eager launches (0)\n"
    "  --steps N           copy, kernels, copy and synchronisation N times a request, as in token by token decoding "
    "(1)\n"
    "  --step-gap-us US    host work between two steps (0)\n"
    "  --switchboard FILE  obey the switches in this file: use the GPU in turn with all others that share it;\n"
    "                      announce each request to gpsched\n"
    "  --http              speak HTTP/1.1: POST anything, JSON comes back\n"
    "  --blocks N          blocks of 256 threads a kernel (264)\n"
    "  --gpu-time          time each request on the GPU's own clock too, by two events\n"
    "  --iters-per-us N    do not measure the GPU's speed\n"
    "  --gpu N             number of the GPU (0)\n"
    "  --own-context       make a context instead of using the primary one, as some libraries do\n"
    "Load (without --load and --commands it only serves, until SIGTERM):\n"
    "  --load RATE         send RATE requests/s, print the result, end\n"
    "  --requests N        how many (1000)\n"
    "  --arrival A         constant, poisson, bursty (5 at a time) or jitter (0.5 to 1.5 periods) (constant)\n"
    "  --seed N            of the arrivals (1)\n"
    "  --connections N     at most one request outstanding on each (1)\n"
    "  --commands          obey lines on standard input: run REQUESTS RATE [ARRIVAL [SEED [PHASE]]], replay FILE, "
    "quit\n"
    "  --connect P         no service, no GPU: send the load to the service on port P\n"
    "  --help              this text\n\n"
    "Prints a JSON line when ready and for every run: latency_us counts from sending a request, scheduled_us from "
    "when\n"
    "it was due, server_us inside the service. Times are program time: real time divided by "
    "GPSCHED_TIME_SCALE.\n" EXIT_CODES_HELP;

struct options {
	double prep_us, kernel_us, gap_us, step_gap_us, iters_per_us;
	int port, connect, kernels, steps, gpu, connections;
	uint32_t blocks;
	bool eager, gpu_time, commands, http, own_context;
	const char *chain, *switchboard;
	struct load load; /* rate 0 = no --load */
};

struct service {
	const struct options *options;
	struct work work;
	CUstream stream;
	struct chain chain;
	CUevent start, end;
	void *host; /* pinned, as large as the state */
};

enum {
	PORT = 256,
	PREP,
	KERNELS,
	KERNEL,
	CHAIN,
	MODE,
	GAP,
	STEPS,
	STEP_GAP,
	SWITCHBOARD,
	HTTP,
	BLOCKS,
	GPU_TIME,
	ITERS,
	GPU,
	OWN_CONTEXT,
	LOAD,
	REQUESTS,
	ARRIVAL,
	SEED,
	CONNECTIONS,
	COMMANDS,
	CONNECT,
	HELP,
};

static const struct option known[] = {
    {"port", 1, NULL, PORT},
    {"prep-us", 1, NULL, PREP},
    {"kernels", 1, NULL, KERNELS},
    {"kernel-us", 1, NULL, KERNEL},
    {"chain", 1, NULL, CHAIN},
    {"mode", 1, NULL, MODE},
    {"gap-us", 1, NULL, GAP},
    {"steps", 1, NULL, STEPS},
    {"step-gap-us", 1, NULL, STEP_GAP},
    {"switchboard", 1, NULL, SWITCHBOARD},
    {"http", 0, NULL, HTTP},
    {"blocks", 1, NULL, BLOCKS},
    {"gpu-time", 0, NULL, GPU_TIME},
    {"iters-per-us", 1, NULL, ITERS},
    {"gpu", 1, NULL, GPU},
    {"own-context", 0, NULL, OWN_CONTEXT},
    {"load", 1, NULL, LOAD},
    {"requests", 1, NULL, REQUESTS},
    {"arrival", 1, NULL, ARRIVAL},
    {"seed", 1, NULL, SEED},
    {"connections", 1, NULL, CONNECTIONS},
    {"commands", 0, NULL, COMMANDS},
    {"connect", 1, NULL, CONNECT},
    {"help", 0, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static void set_option(struct options *options, int option, const char *value)
{
	static const char *const modes[] = {"graph", "eager", NULL};

	switch (option) {
	case PORT:
		options->port = (int)option_integer("--port", value, 0, 65535);
		break;
	case PREP:
		options->prep_us = option_number("--prep-us", value, 0, 1e6);
		break;
	case KERNELS:
		options->kernels = (int)option_integer("--kernels", value, 1, 10000);
		break;
	case KERNEL:
		options->kernel_us = option_number("--kernel-us", value, 0.1, 1e6);
		break;
	case CHAIN:
		options->chain = value;
		break;
	case MODE:
		options->eager = option_choice("--mode", value, modes);
		break;
	case GAP:
		options->gap_us = option_number("--gap-us", value, 0, 1e6);
		break;
	case STEPS:
		options->steps = (int)option_integer("--steps", value, 1, 10000);
		break;
	case STEP_GAP:
		options->step_gap_us = option_number("--step-gap-us", value, 0, 1e6);
		break;
	case SWITCHBOARD:
		options->switchboard = value;
		break;
	case HTTP:
		options->http = true;
		break;
	case BLOCKS:
		options->blocks = (uint32_t)option_integer("--blocks", value, 1, 1 << 20);
		break;
	case GPU_TIME:
		options->gpu_time = true;
		break;
	case ITERS:
		options->iters_per_us = option_number("--iters-per-us", value, 1e-3, 1e6);
		break;
	case GPU:
		options->gpu = (int)option_integer("--gpu", value, 0, 1023);
		break;
	case OWN_CONTEXT:
		options->own_context = true;
		break;
	case LOAD:
		options->load.rate = option_number("--load", value, 1e-3, 1e6);
		break;
	case REQUESTS:
		options->load.requests = option_integer("--requests", value, 1, 1000000);
		break;
	case ARRIVAL:
		options->load.arrival = (enum arrival)option_choice("--arrival", value, arrival_names);
		break;
	case SEED:
		options->load.seed = option_integer("--seed", value, 0, 0x7fffffff);
		break;
	case CONNECTIONS:
		options->connections = (int)option_integer("--connections", value, 1, MAX_CONNECTIONS);
		break;
	case COMMANDS:
		options->commands = true;
		break;
	case CONNECT:
		options->connect = (int)option_integer("--connect", value, 1, 65535);
		break;
	case HELP:
		fputs(help, stdout);
		exit(EXIT_SUCCESS);
	default: /* getopt has printed the line */
		exit(EXIT_USAGE);
	}
}

static struct options parse(int argc, char **argv)
{
	struct options options = {
	    .prep_us = 200,
	    .kernel_us = 8,
	    .kernels = 20,
	    .steps = 1,
	    .blocks = 264,
	    .connections = 1,
	    .load = {.requests = 1000, .seed = 1, .phase = -1},
	};

	for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;)
		set_option(&options, option, optarg);
	if (optind < argc)
		usage_error("unexpected argument '%s'", argv[optind]);
	if (options.load.rate > 0 && options.commands)
		usage_error("--load and --commands exclude each other");
	if (options.connect && !(options.load.rate > 0) && !options.commands)
		usage_error("--connect needs --load or --commands");
	return options;
}

/* One burst: what a model does with one input. */
static void step(struct service *service)
{
	size_t bytes = (size_t)service->work.n * sizeof(float);
	int turn = seq_take();

	CHECK(cuMemcpyHtoDAsync_v2(service->work.state, service->host, bytes, service->stream));
	chain_launch(&service->chain, &service->work, service->stream, service->options->gap_us);
	CHECK(cuMemcpyDtoHAsync_v2(service->host, service->work.state, bytes, service->stream));
	if (service->options->gpu_time)
		CHECK(cuEventRecord(service->end, service->stream));
	CHECK(cuStreamSynchronize(service->stream));
	seq_give(turn);
}

/* gpsched's clock is the real one. */
static void announce(double us)
{
	struct timespec lead = clock_real(us);

	gpsched_reserve_in((uint64_t)lead.tv_sec * 1000000 + (uint64_t)lead.tv_nsec / 1000);
}

static void handle(void *context, double received_us, struct reply *reply)
{
	struct service *service = context;
	const struct options *options = service->options;
	float milliseconds = 0;

	if (hints_wanted())
		announce(options->prep_us);
	if (options->prep_us > 0)
		clock_work_until(received_us + options->prep_us);
	if (options->gpu_time)
		CHECK(cuEventRecord(service->start, service->stream));
	for (int i = 0; i < options->steps; i++) {
		if (i && options->step_gap_us > 0)
			clock_work_until(clock_now_us() + options->step_gap_us);
		step(service);
	}
	if (options->gpu_time)
		CHECK(cuEventElapsedTime(&milliseconds, service->start, service->end));
	reply->gpu_us = milliseconds * 1e3;
}

static void setup(struct service *service, const struct options *options)
{
	struct reply warm_up;

	*service = (struct service){.options = options};
	cuda_open(options->gpu, options->own_context);
	work_setup(&service->work, options->blocks, options->iters_per_us);
	chain_setup(&service->chain, &service->work, options->chain, options->kernels, options->kernel_us);
	CHECK(cuMemAllocHost_v2(&service->host, (size_t)service->work.n * sizeof(float)));
	CHECK(cuMemcpyDtoH_v2(service->host, service->work.state, (size_t)service->work.n * sizeof(float)));
	CHECK(cuStreamCreate(&service->stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&service->start, CU_EVENT_DEFAULT));
	CHECK(cuEventCreate(&service->end, CU_EVENT_DEFAULT));
	if (!options->eager)
		chain_capture(&service->chain, &service->work, service->stream);
	for (int i = 0; i < 20; i++)
		handle(service, clock_now_us() - options->prep_us, &warm_up);
}

static void generate(const struct options *options, int port)
{
	loadgen_connect(port, options->connections, options->http);
	if (options->commands)
		loadgen_obey();
	else
		loadgen_run(&options->load);
}

/* The child waits for a byte on `owner`: the service is ready. It ends with the service, and the service with it. */
static void generator_process(const struct options *options, int port, int owner, pid_t service)
{
	char ready;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != service || read(owner, &ready, 1) != 1)
		exit(EXIT_LOAD);
	generate(options, port);
	exit(EXIT_SUCCESS);
}

static pid_t fork_generator(const struct options *options, int port, int *owner)
{
	int pair[2];
	pid_t service = getpid(), child;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) || (child = fork()) < 0) {
		perror("cannot start the load generator");
		exit(EXIT_LOAD);
	}
	if (child == 0) {
		close(pair[0]);
		generator_process(options, port, pair[1], service);
	}
	close(pair[1]);
	*owner = pair[0];
	return child;
}

/* The generator's exit code; the service ends it when it is itself told to stop. */
static int end_generator(pid_t generator)
{
	int status = 0;

	if (generator <= 0)
		return EXIT_SUCCESS;
	kill(generator, SIGTERM); /* no effect on one that has ended */
	waitpid(generator, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SUCCESS;
}

static int finish(const struct service *service, int generator_status)
{
	struct work_errors errors = work_verify(&service->work);

	printf("{\"event\":\"end\",\"kernels\":%llu,\"verified\":true,\"bad_counters\":%llu}\n",
	       (unsigned long long)service->work.launched, (unsigned long long)errors.counters);
	return errors.counters ? EXIT_CORRUPTED : generator_status;
}

static int serve(struct options *options)
{
	struct service service;
	int owner = -1, listener = service_listen(&options->port);
	pid_t generator = 0;

	if (options->commands || options->load.rate > 0)
		generator = fork_generator(options, options->port, &owner);
	if (switchboard_open(options->switchboard))
		usage_error("--switchboard: cannot map %s", options->switchboard);
	setup(&service, options);
	printf("{\"event\":\"ready\",\"pid\":%d,\"port\":%d,\"gpu\":\"%s\",\"iters_per_us\":%.6g}\n", (int)getpid(),
	       options->port, cuda_device_name(), service.work.iters_per_us);
	if (generator && write(owner, "", 1) != 1)
		return EXIT_LOAD;
	service_run(listener, owner, options->http, handle, &service);
	return finish(&service, end_generator(generator));
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	clock_setup();
	if (options.connect) {
		generate(&options, options.connect);
		return EXIT_SUCCESS;
	}
	return serve(&options);
}

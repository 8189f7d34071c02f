/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpsched-be: a best-effort job. Endless units of work, a few in flight or one at each tick of a rate: kernels of one
 * length, or chains of kernels as one CUDA graph. Its state shows every kernel that was lost or run twice. It obeys
 * stat, pause, resume and quit on standard input and prints JSON lines.
 */
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chain.h"
#include "clock.h"
#include "commands.h"
#include "cuda_driver.h"
#include "exit_codes.h"
#include "options.h"
#include "switchboard.h"
#include "work.h"

#define MAX_QUEUE 64
#define COMMANDS_EVERY_US 1000

static const char help[] =
    "Usage: gpsched-be [OPTION]...\n"
    "A best-effort GPU job: endless kernels, each of which leaves a trace that can be checked.\n\n"
    "  --kernel-us US      length of a kernel (400)\n"
    "  --chain FILE        a unit is one CUDA graph of kernels of these lengths, in us, one a line\n"
    "  --queue N           units in flight, 1 to 64 (8)\n"
    "  --rate HZ           one unit a period; one that is late is left out (0: as fast as it goes)\n"
    "  --phase SHARE       where in the period, so that jobs of equal rate do not coincide (0)\n"
    "  --switchboard FILE  obey the switches in this file: use the GPU in turn with all others that share it\n"
    "  --blocks N          blocks of 256 threads a kernel (2112)\n"
    "  --seconds S         stop after S seconds of program time (0 = never)\n"
    "  --verify            at the end, check every counter and state word on the GPU\n"
    "  --commands          obey lines on standard input: stat, pause (drains the queue), resume, quit\n"
    "  --iters-per-us N    do not measure the GPU's speed\n"
    "  --gpu N             number of the GPU (0)\n"
    "  --help              this text\n\n"
    "Prints a JSON line when ready, for every command, and at the end. SIGTERM ends it cleanly. Times are program "
    "time:\n"
    "real time divided by GPSCHED_TIME_SCALE.\n" EXIT_CODES_HELP;

struct options {
	double kernel_us, seconds, iters_per_us, rate, phase;
	const char *chain, *switchboard;
	int queue, gpu;
	uint32_t blocks;
	bool verify, commands;
};

struct job {
	struct work work;
	struct chain chain;
	CUstream stream;
	CUevent events[MAX_QUEUE];
	uint64_t launched, completed; /* units */
	double start_us, last_us, largest_gap_us, due_us;
	bool paused, input_ended;
};

static volatile sig_atomic_t stopping;

static void stop(int signal_number)
{
	(void)signal_number;
	stopping = 1;
}

static struct options parse(int argc, char **argv)
{
	static const struct option known[] = {
	    {"kernel-us", 1, NULL, 'k'},   {"queue", 1, NULL, 'q'},
	    {"blocks", 1, NULL, 'b'},	   {"seconds", 1, NULL, 's'},
	    {"verify", 0, NULL, 'v'},	   {"commands", 0, NULL, 'c'},
	    {"gpu", 1, NULL, 'g'},	   {"iters-per-us", 1, NULL, 'i'},
	    {"help", 0, NULL, 'h'},	   {"chain", 1, NULL, 'C'},
	    {"rate", 1, NULL, 'r'},	   {"phase", 1, NULL, 'p'},
	    {"switchboard", 1, NULL, 't'}, {NULL, 0, NULL, 0},
	};
	struct options options = {.kernel_us = 400, .queue = 8, .blocks = 2112};

	for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		switch (option) {
		case 'k':
			options.kernel_us = option_number("--kernel-us", optarg, 1, 1e6);
			break;
		case 'q':
			options.queue = (int)option_integer("--queue", optarg, 1, MAX_QUEUE);
			break;
		case 'b':
			options.blocks = (uint32_t)option_integer("--blocks", optarg, 1, 1 << 20);
			break;
		case 's':
			options.seconds = option_number("--seconds", optarg, 0, 1e6);
			break;
		case 'i':
			options.iters_per_us = option_number("--iters-per-us", optarg, 1e-3, 1e6);
			break;
		case 'g':
			options.gpu = (int)option_integer("--gpu", optarg, 0, 1023);
			break;
		case 'C':
			options.chain = optarg;
			break;
		case 'r':
			options.rate = option_number("--rate", optarg, 0, 1e6);
			break;
		case 'p':
			options.phase = option_number("--phase", optarg, 0, 1);
			break;
		case 't':
			options.switchboard = optarg;
			break;
		case 'v':
			options.verify = true;
			break;
		case 'c':
			options.commands = true;
			break;
		case 'h':
			fputs(help, stdout);
			exit(EXIT_SUCCESS);
		default: /* getopt has printed the line */
			exit(EXIT_USAGE);
		}
	}
	if (optind < argc)
		usage_error("unexpected argument '%s'", argv[optind]);
	return options;
}

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = stop};

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void print_state(const struct job *job, const char *event)
{
	double now = clock_now_us();

	printf("{\"event\":\"%s\",\"kernels\":%llu,\"time_us\":%.1f,\"elapsed_us\":%.1f,\"largest_gap_us\":%.1f}\n",
	       event, (unsigned long long)job->completed, now, now - job->start_us, job->largest_gap_us);
}

/* Waits for the oldest unit in flight. */
static void retire(struct job *job, int queue)
{
	double now;

	CHECK(cuEventSynchronize(job->events[job->completed % (uint64_t)queue]));
	now = clock_now_us();
	if (now - job->last_us > job->largest_gap_us)
		job->largest_gap_us = now - job->last_us;
	job->last_us = now;
	job->completed++;
}

static void drain(struct job *job, int queue)
{
	while (job->completed < job->launched)
		retire(job, queue);
}

/* In turns (SEQ) or with a rate one unit is in flight, else as many as the queue takes. */
static void run_unit(struct job *job, const struct options *options)
{
	int turn = seq_take();

	if (turn)
		drain(job, options->queue);
	if (job->launched - job->completed == (uint64_t)options->queue)
		retire(job, options->queue);
	chain_launch(&job->chain, &job->work, job->stream, 0);
	CHECK(cuEventRecord(job->events[job->launched++ % (uint64_t)options->queue], job->stream));
	if (turn || options->rate > 0)
		drain(job, options->queue);
	seq_give(turn);
}

/* The next tick after now, on a grid that all programs share. */
static double next_tick_us(const struct options *options)
{
	double period = 1e6 / options->rate;

	return (floor(clock_now_us() / period - options->phase) + 1 + options->phase) * period;
}

/* Whether a unit is to start now; without a rate always. Waits a little for the next tick, so that commands are heard.
 */
static bool is_due(struct job *job, const struct options *options)
{
	if (!(options->rate > 0))
		return true;
	if (!(job->due_us > 0))
		job->due_us = next_tick_us(options);
	clock_sleep_until(fmin(job->due_us, clock_now_us() + COMMANDS_EVERY_US));
	if (clock_now_us() < job->due_us)
		return false;
	job->due_us = next_tick_us(options);
	return true;
}

static void obey(struct job *job, const char *line, int queue)
{
	if (!strcmp(line, "stat")) {
		print_state(job, "stat");
		job->largest_gap_us = 0;
	} else if (!strcmp(line, "pause")) {
		drain(job, queue);
		job->paused = true;
		print_state(job, "paused");
	} else if (!strcmp(line, "resume")) {
		job->paused = false;
		job->last_us = clock_now_us();
		job->due_us = 0; /* the next tick is found anew */
		print_state(job, "resumed");
	} else if (!strcmp(line, "quit")) {
		stopping = 1;
	} else {
		printf("{\"event\":\"error\",\"message\":\"unknown command; known: stat, pause, resume, quit\"}\n");
	}
}

static void obey_commands(struct job *job, const struct options *options)
{
	char line[COMMAND_BYTES];
	int got;

	while ((got = command_read(line, job->paused ? 100 : 0)) == 1)
		obey(job, line, options->queue);
	if (got == -1)
		stopping = 1; /* who gave the commands is gone */
}

static void run(struct job *job, const struct options *options)
{
	job->start_us = job->last_us = clock_now_us();
	while (!stopping) {
		if (options->seconds > 0 && clock_now_us() - job->start_us >= options->seconds * 1e6)
			break;
		if (options->commands)
			obey_commands(job, options);
		if (job->paused || stopping)
			continue;
		if (is_due(job, options))
			run_unit(job, options);
	}
	drain(job, options->queue);
}

static int finish(const struct job *job, bool verify)
{
	double elapsed = clock_now_us() - job->start_us;
	struct work_errors errors = {0, 0};

	if (verify)
		errors = work_verify(&job->work);
	printf("{\"event\":\"end\",\"kernels\":%llu,\"elapsed_us\":%.1f,\"verified\":%s,\"bad_counters\":%llu,"
	       "\"bad_states\":%llu}\n",
	       (unsigned long long)job->completed, elapsed, verify ? "true" : "false",
	       (unsigned long long)errors.counters, (unsigned long long)errors.states);
	return errors.counters || errors.states ? EXIT_CORRUPTED : EXIT_SUCCESS;
}

static void setup(struct job *job, const struct options *options)
{
	cuda_open(options->gpu, false);
	work_setup(&job->work, options->blocks, options->iters_per_us);
	/* The calibration's kernels count too: verification starts from a clean sheet. */
	CHECK(cuMemsetD32_v2(job->work.state, 0, job->work.n));
	CHECK(cuMemsetD32_v2(job->work.count, 0, job->work.n));
	CHECK(cuCtxSynchronize());
	job->work.launched = 0;
	CHECK(cuStreamCreate(&job->stream, CU_STREAM_NON_BLOCKING));
	chain_setup(&job->chain, &job->work, options->chain, 1, options->kernel_us);
	if (options->chain)
		chain_capture(&job->chain, &job->work, job->stream);
	for (int i = 0; i < options->queue; i++)
		CHECK(cuEventCreate(&job->events[i], CU_EVENT_DISABLE_TIMING));
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	static struct job job;

	setvbuf(stdout, NULL, _IOLBF, 0);
	clock_setup();
	catch_signals();
	if (switchboard_open(options.switchboard))
		usage_error("--switchboard: cannot map %s", options.switchboard);
	setup(&job, &options);
	printf("{\"event\":\"ready\",\"pid\":%d,\"gpu\":\"%s\",\"iters_per_us\":%.6g}\n", (int)getpid(),
	       cuda_device_name(), job.work.iters_per_us);
	run(&job, &options);
	return finish(&job, options.verify);
}

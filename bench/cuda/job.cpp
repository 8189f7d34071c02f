// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <cmath>
#include <csignal>
#include <cstring>
#include <getopt.h>
#include <unistd.h>

extern "C" {
#include "clock.h"
#include "commands.h"
#include "exit_codes.h"
#include "options.h"
#include "switchboard.h"
}

namespace
{

constexpr double COMMANDS_EVERY_US = 1000;

const char help[] = "A best-effort GPU job that compares its state with a run on the CPU at its end.\n\n"
		    "  --rate HZ           one unit a period; one that is late is left out (0: as fast as it goes)\n"
		    "  --phase SHARE       where in the period (0)\n"
		    "  --switchboard FILE  use the GPU in turn with all others that share this file\n"
		    "  --units N           end after N units (0 = never)\n"
		    "  --help              this text\n\n"
		    "Obeys stat, pause, resume and quit on standard input and prints JSON lines.\n" EXIT_CODES_HELP;

volatile sig_atomic_t stopping;

struct Options {
	double rate = 0, phase = 0;
	uint64_t units = 0;
	const char *switchboard = nullptr;
};

struct Job {
	Options options;
	std::unique_ptr<Work> work;
	uint64_t units = 0;
	double start_us = 0, last_us = 0, largest_gap_us = 0, due_us = 0;
	bool paused = false;
};

void stop(int)
{
	stopping = 1;
}

Options parse(int argc, char **argv)
{
	static const option known[] = {{"rate", 1, nullptr, 'r'},  {"phase", 1, nullptr, 'p'},
				       {"units", 1, nullptr, 'u'}, {"switchboard", 1, nullptr, 's'},
				       {"help", 0, nullptr, 'h'},  {nullptr, 0, nullptr, 0}};
	Options options;

	for (int option; (option = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
		switch (option) {
		case 'r':
			options.rate = option_number("--rate", optarg, 0, 1e6);
			break;
		case 'p':
			options.phase = option_number("--phase", optarg, 0, 1);
			break;
		case 'u':
			options.units = (uint64_t)option_integer("--units", optarg, 0, 1000000000);
			break;
		case 's':
			options.switchboard = optarg;
			break;
		case 'h':
			fputs(help, stdout);
			exit(EXIT_SUCCESS);
		default:
			exit(EXIT_USAGE);
		}
	}
	if (optind < argc)
		usage_error("unexpected argument '%s'", argv[optind]);
	return options;
}

void print_state(const Job &job, const char *event)
{
	double now = clock_now_us();

	printf("{\"event\":\"%s\",\"kernels\":%llu,\"time_us\":%.1f,\"elapsed_us\":%.1f,\"largest_gap_us\":%.1f}\n",
	       event, (unsigned long long)job.units, now, now - job.start_us, job.largest_gap_us);
}

void obey(Job &job, const char *line)
{
	if (!strcmp(line, "stat")) {
		print_state(job, "stat");
		job.largest_gap_us = 0;
	} else if (!strcmp(line, "pause")) {
		job.paused = true;
		print_state(job, "paused");
	} else if (!strcmp(line, "resume")) {
		job.paused = false;
		job.last_us = clock_now_us();
		job.due_us = 0;
		print_state(job, "resumed");
	} else if (!strcmp(line, "quit")) {
		stopping = 1;
	} else {
		printf("{\"event\":\"error\",\"message\":\"unknown command; known: stat, pause, resume, quit\"}\n");
	}
}

double next_tick_us(const Options &options)
{
	double period = 1e6 / options.rate;

	return (floor(clock_now_us() / period - options.phase) + 1 + options.phase) * period;
}

bool is_due(Job &job)
{
	if (!(job.options.rate > 0))
		return true;
	if (!(job.due_us > 0))
		job.due_us = next_tick_us(job.options);
	clock_sleep_until(fmin(job.due_us, clock_now_us() + COMMANDS_EVERY_US));
	if (clock_now_us() < job.due_us)
		return false;
	job.due_us = next_tick_us(job.options);
	return true;
}

void run_unit(Job &job)
{
	int turn = seq_take();

	job.work->unit(job.units++);
	seq_give(turn);
	double now = clock_now_us();
	job.largest_gap_us = fmax(job.largest_gap_us, now - job.last_us);
	job.last_us = now;
}

void run(Job &job)
{
	char line[COMMAND_BYTES];
	int got;

	job.start_us = job.last_us = clock_now_us();
	while (!stopping && (!job.options.units || job.units < job.options.units)) {
		while ((got = command_read(line, job.paused ? 100 : 0)) == 1)
			obey(job, line);
		if (got == -1 && !job.options.units)
			stopping = 1; /* who gave the commands is gone */
		if (!job.paused && !stopping && is_due(job))
			run_unit(job);
	}
}

void open_device(char *name, size_t bytes)
{
	cudaDeviceProp properties;
	cudaError_t error = cudaGetDeviceProperties(&properties, 0);

	if (error != cudaSuccess) {
		fprintf(stderr, "no GPU (%s); see nvidia-smi\n", cudaGetErrorName(error));
		exit(EXIT_NO_DEVICE);
	}
	CUDA(cudaSetDevice(0));
	snprintf(name, bytes, "%s", properties.name);
}

} // namespace

DeviceGraph::DeviceGraph()
    : host(generate_graph(50000, 5000000, 1)), rows(host.rows), columns(host.columns), weights(host.weights),
      vertices(host.vertices()), blocks((vertices + THREADS - 1) / THREADS)
{
}

int *Flag::clear()
{
	CUDA(cudaMemset(word_.get(), 0, sizeof(int)));
	return word_.get();
}

bool Flag::read() const
{
	return word_.copy()[0] != 0;
}

int run_job(int argc, char **argv, std::unique_ptr<Work> (*make)())
{
	Job job;
	char name[256];

	setvbuf(stdout, nullptr, _IOLBF, 0);
	clock_setup();
	job.options = parse(argc, argv);
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	signal(SIGPIPE, SIG_IGN);
	if (switchboard_open(job.options.switchboard))
		usage_error("--switchboard: cannot map %s", job.options.switchboard);
	open_device(name, sizeof(name));
	job.work = make();
	CUDA(cudaDeviceSynchronize());
	printf("{\"event\":\"ready\",\"pid\":%d,\"gpu\":\"%s\"}\n", (int)getpid(), name);
	run(job);
	uint64_t wrong = job.work->verify(job.units);
	printf("{\"event\":\"end\",\"kernels\":%llu,\"elapsed_us\":%.1f,\"verified\":true,\"bad_counters\":0,"
	       "\"bad_states\":%llu}\n",
	       (unsigned long long)job.units, clock_now_us() - job.start_us, (unsigned long long)wrong);
	return wrong ? EXIT_CORRUPTED : EXIT_SUCCESS;
}

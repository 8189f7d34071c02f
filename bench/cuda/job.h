/* SPDX-License-Identifier: Apache-2.0 */
/* A best-effort job on the CUDA runtime: options, commands and JSON lines are those of gpsched-be. */
#ifndef GPSCHED_BENCH_JOB_H
#define GPSCHED_BENCH_JOB_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <cuda_runtime.h>

#include "graph.h"

/* Ends the program with one line and exit code 3 when the call fails. */
#define CUDA(call)                                                                                                     \
	do {                                                                                                           \
		cudaError_t error_ = (call);                                                                           \
		if (error_ != cudaSuccess) {                                                                           \
			fprintf(stderr, "%s failed: %s\n", #call, cudaGetErrorName(error_));                           \
			exit(3);                                                                                       \
		}                                                                                                      \
	} while (0)

/* An array on the GPU. */
template <typename T> class Device
{
      public:
	explicit Device(size_t count) : count_(count)
	{
		CUDA(cudaMalloc(&data_, count * sizeof(T)));
	}

	explicit Device(const std::vector<T> &host) : Device(host.size())
	{
		CUDA(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
	}

	Device(const Device &) = delete;
	Device &operator=(const Device &) = delete;

	~Device()
	{
		cudaFree(data_);
	}

	T *get() const
	{
		return data_;
	}

	std::vector<T> copy() const
	{
		std::vector<T> host(count_);

		CUDA(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
		return host;
	}

      private:
	T *data_ = nullptr;
	size_t count_;
};

/* What a program does again and again. */
class Work
{
      public:
	virtual ~Work() = default;
	/* Runs the unit with this number to its end. */
	virtual void unit(uint64_t number) = 0;
	/* Compares the state after `units` units with a run on the CPU; returns how many elements are wrong. */
	virtual uint64_t verify(uint64_t units) = 0;
};

/* The graph of all graph programs, on both sides. */
struct DeviceGraph {
	DeviceGraph();

	Graph host;
	Device<uint32_t> rows, columns, weights;
	uint32_t vertices;
	unsigned int blocks; /* of THREADS threads, one a vertex */

	/* Vertices with many edges, so that units differ. */
	uint32_t source(uint64_t number) const
	{
		return (uint32_t)(number % 64);
	}
};

constexpr unsigned int THREADS = 256;

/* A word on the GPU by which kernels tell the host that something changed. */
class Flag
{
      public:
	Flag() : word_(1)
	{
	}

	int *clear();
	bool read() const;

      private:
	Device<int> word_;
};

template <typename T> uint64_t count_differences(const std::vector<T> &a, const std::vector<T> &b)
{
	uint64_t wrong = a.size() != b.size();

	for (size_t i = 0; i < a.size() && i < b.size(); i++)
		wrong += a[i] != b[i];
	return wrong;
}

/* Runs the program; returns its exit code. */
int run_job(int argc, char **argv, std::unique_ptr<Work> (*make)());

#endif

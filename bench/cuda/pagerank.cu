// SPDX-License-Identifier: Apache-2.0
/* gpsched-pagerank: 20 iterations of PageRank from the uniform vector in each unit. */
#include "job.h"

#include <cmath>

namespace
{

constexpr int ITERATIONS = 20;
constexpr double TOLERANCE = 1e-3; /* relative: single against double precision */

__global__ void spread(const uint32_t *rows, const uint32_t *columns, uint32_t n, const float *rank, float *next,
		       const float *dangling)
{
	uint32_t vertex = blockIdx.x * blockDim.x + threadIdx.x;
	float sum = 0;

	if (vertex >= n)
		return;
	for (uint32_t i = rows[vertex]; i < rows[vertex + 1]; i++)
		sum += rank[columns[i]] / (float)(rows[columns[i] + 1] - rows[columns[i]]);
	next[vertex] = 0.15f / (float)n + 0.85f * (sum + *dangling / (float)n);
}

__global__ void collect(const uint32_t *rows, uint32_t n, const float *rank, float *dangling)
{
	uint32_t vertex = blockIdx.x * blockDim.x + threadIdx.x;

	if (vertex < n && rows[vertex] == rows[vertex + 1])
		atomicAdd(dangling, rank[vertex]);
}

class PageRank : public Work
{
      public:
	PageRank()
	    : start_(std::vector<float>(graph_.vertices, 1.0f / (float)graph_.vertices)), rank_(graph_.vertices),
	      next_(graph_.vertices), dangling_(1)
	{
	}

	void unit(uint64_t) override
	{
		float *from = rank_.get(), *to = next_.get();

		CUDA(cudaMemcpyAsync(from, start_.get(), graph_.vertices * sizeof(float), cudaMemcpyDeviceToDevice));
		for (int i = 0; i < ITERATIONS; i++, std::swap(from, to)) {
			CUDA(cudaMemsetAsync(dangling_.get(), 0, sizeof(float)));
			collect<<<graph_.blocks, THREADS>>>(graph_.rows.get(), graph_.vertices, from, dangling_.get());
			spread<<<graph_.blocks, THREADS>>>(graph_.rows.get(), graph_.columns.get(), graph_.vertices,
							   from, to, dangling_.get());
		}
		CUDA(cudaDeviceSynchronize()); /* after an even number of iterations the result lies in rank_ */
	}

	uint64_t verify(uint64_t units) override
	{
		std::vector<double> expected = reference_pagerank(graph_.host, ITERATIONS);
		std::vector<float> rank = rank_.copy();
		uint64_t wrong = 0;

		for (size_t i = 0; units && i < rank.size(); i++)
			wrong += !(fabs(rank[i] - expected[i]) <= TOLERANCE * expected[i]);
		return wrong;
	}

      private:
	DeviceGraph graph_;
	Device<float> start_, rank_, next_, dangling_;
};

static_assert(ITERATIONS % 2 == 0, "the result lies in the first of the two vectors");

} // namespace

int main(int argc, char **argv)
{
	return run_job(argc, argv, []() -> std::unique_ptr<Work> { return std::make_unique<PageRank>(); });
}

// SPDX-License-Identifier: Apache-2.0
/* gpsched-sssp: shortest paths by Bellman and Ford, from another source in each unit. */
#include "job.h"

namespace
{

__global__ void relax(const uint32_t *rows, const uint32_t *columns, const uint32_t *weights, uint32_t n,
		      uint32_t *distances, int *changed)
{
	uint32_t vertex = blockIdx.x * blockDim.x + threadIdx.x;

	if (vertex >= n || distances[vertex] == UNREACHED)
		return;
	for (uint32_t i = rows[vertex]; i < rows[vertex + 1]; i++) {
		uint32_t through = distances[vertex] + weights[i];

		if (through < distances[columns[i]] && atomicMin(&distances[columns[i]], through) > through)
			*changed = 1;
	}
}

class Sssp : public Work
{
      public:
	Sssp() : distances_(graph_.vertices)
	{
	}

	void unit(uint64_t number) override
	{
		CUDA(cudaMemset(distances_.get(), 0xff, graph_.vertices * sizeof(uint32_t)));
		CUDA(cudaMemset(distances_.get() + graph_.source(number), 0, sizeof(uint32_t)));
		for (uint32_t round = 0; round < graph_.vertices; round++) {
			relax<<<graph_.blocks, THREADS>>>(graph_.rows.get(), graph_.columns.get(), graph_.weights.get(),
							  graph_.vertices, distances_.get(), changed_.clear());
			if (!changed_.read())
				break;
		}
	}

	uint64_t verify(uint64_t units) override
	{
		if (!units)
			return 0;
		return count_differences(distances_.copy(), reference_sssp(graph_.host, graph_.source(units - 1)));
	}

      private:
	DeviceGraph graph_;
	Device<uint32_t> distances_;
	Flag changed_;
};

} // namespace

int main(int argc, char **argv)
{
	return run_job(argc, argv, []() -> std::unique_ptr<Work> { return std::make_unique<Sssp>(); });
}

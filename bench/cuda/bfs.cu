// SPDX-License-Identifier: Apache-2.0
/* gpsched-bfs: breadth-first search, level by level, from another source in each unit. */
#include "job.h"

namespace
{

__global__ void expand(const uint32_t *rows, const uint32_t *columns, uint32_t n, uint32_t level, uint32_t *hops,
		       int *changed)
{
	uint32_t vertex = blockIdx.x * blockDim.x + threadIdx.x;

	if (vertex >= n || hops[vertex] != level)
		return;
	for (uint32_t i = rows[vertex]; i < rows[vertex + 1]; i++)
		if (hops[columns[i]] == UNREACHED) { /* several threads may write: all write the same */
			hops[columns[i]] = level + 1;
			*changed = 1;
		}
}

class Bfs : public Work
{
      public:
	Bfs() : hops_(graph_.vertices)
	{
	}

	void unit(uint64_t number) override
	{
		CUDA(cudaMemset(hops_.get(), 0xff, graph_.vertices * sizeof(uint32_t)));
		CUDA(cudaMemset(hops_.get() + graph_.source(number), 0, sizeof(uint32_t)));
		for (uint32_t level = 0; level < graph_.vertices; level++) {
			expand<<<graph_.blocks, THREADS>>>(graph_.rows.get(), graph_.columns.get(), graph_.vertices,
							   level, hops_.get(), changed_.clear());
			if (!changed_.read())
				break;
		}
	}

	uint64_t verify(uint64_t units) override
	{
		return units ? count_differences(hops_.copy(), reference_bfs(graph_.host, graph_.source(units - 1)))
			     : 0;
	}

      private:
	DeviceGraph graph_;
	Device<uint32_t> hops_;
	Flag changed_;
};

} // namespace

int main(int argc, char **argv)
{
	return run_job(argc, argv, []() -> std::unique_ptr<Work> { return std::make_unique<Bfs>(); });
}

// SPDX-License-Identifier: Apache-2.0
/* gpsched-components: connected components by spreading the lowest label, from scratch in each unit. */
#include "job.h"

#include <numeric>

namespace
{

__global__ void lower(const uint32_t *rows, const uint32_t *columns, uint32_t n, uint32_t *labels, int *changed)
{
	uint32_t vertex = blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t lowest;

	if (vertex >= n)
		return;
	lowest = labels[vertex];
	for (uint32_t i = rows[vertex]; i < rows[vertex + 1]; i++)
		lowest = min(lowest, labels[columns[i]]);
	if (lowest < labels[vertex] && atomicMin(&labels[vertex], lowest) > lowest)
		*changed = 1;
}

std::vector<uint32_t> own_labels(uint32_t n)
{
	std::vector<uint32_t> labels(n);

	std::iota(labels.begin(), labels.end(), 0);
	return labels;
}

class Components : public Work
{
      public:
	Components() : start_(own_labels(graph_.vertices)), labels_(graph_.vertices)
	{
	}

	void unit(uint64_t) override
	{
		CUDA(cudaMemcpyAsync(labels_.get(), start_.get(), graph_.vertices * sizeof(uint32_t),
				     cudaMemcpyDeviceToDevice));
		for (uint32_t round = 0; round < graph_.vertices; round++) {
			lower<<<graph_.blocks, THREADS>>>(graph_.rows.get(), graph_.columns.get(), graph_.vertices,
							  labels_.get(), changed_.clear());
			if (!changed_.read())
				break;
		}
	}

	uint64_t verify(uint64_t units) override
	{
		return units ? count_differences(labels_.copy(), reference_components(graph_.host)) : 0;
	}

      private:
	DeviceGraph graph_;
	Device<uint32_t> start_, labels_;
	Flag changed_;
};

} // namespace

int main(int argc, char **argv)
{
	return run_job(argc, argv, []() -> std::unique_ptr<Work> { return std::make_unique<Components>(); });
}

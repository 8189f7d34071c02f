// SPDX-License-Identifier: Apache-2.0
/*
 * gpsched-stencil: a coupled map lattice (Kaneko 1984) on a large periodic grid, step after step for ever. Its state is
 * not idempotent and it is chaotic: one step lost or done twice anywhere changes all that follows. The grid consists of
 * equal tiles, which stay equal, so that a CPU can follow one of them, bit by bit.
 */
#include "job.h"

namespace
{

constexpr uint32_t SIDE = 32, GRID = 3072; /* cells, of a tile and of the grid */
constexpr int STEPS = 60;		   /* a unit */

__device__ float mapped(const float *state, uint32_t x, uint32_t y)
{
	float value = state[y * GRID + x];

	return 1.0f - 1.7f * (value * value);
}

__global__ void step(const float *from, float *to)
{
	uint32_t x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	uint32_t left = (x + GRID - 1) % GRID, right = (x + 1) % GRID;
	uint32_t up = (y + GRID - 1) % GRID, down = (y + 1) % GRID;
	float around = (mapped(from, x, up) + mapped(from, x, down)) + (mapped(from, left, y) + mapped(from, right, y));

	to[y * GRID + x] = 0.75f * mapped(from, x, y) + 0.0625f * around;
}

std::vector<float> tiled(const std::vector<float> &tile)
{
	std::vector<float> grid((size_t)GRID * GRID);

	for (size_t y = 0; y < GRID; y++)
		for (size_t x = 0; x < GRID; x++)
			grid[y * GRID + x] = tile[y % SIDE * SIDE + x % SIDE];
	return grid;
}

class Stencil : public Work
{
      public:
	Stencil() : one_(tiled(stencil_start(SIDE))), other_((size_t)GRID * GRID)
	{
	}

	void unit(uint64_t) override
	{
		dim3 threads(32, 8), blocks(GRID / 32, GRID / 8);

		for (int i = 0; i < STEPS; i += 2) {
			step<<<blocks, threads>>>(one_.get(), other_.get());
			step<<<blocks, threads>>>(other_.get(), one_.get());
		}
		CUDA(cudaDeviceSynchronize());
	}

	uint64_t verify(uint64_t units) override
	{
		return count_differences(one_.copy(),
					 tiled(reference_stencil(stencil_start(SIDE), SIDE, units * STEPS)));
	}

      private:
	Device<float> one_, other_;
};

} // namespace

int main(int argc, char **argv)
{
	return run_job(argc, argv, []() -> std::unique_ptr<Work> { return std::make_unique<Stencil>(); });
}

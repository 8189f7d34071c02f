/* SPDX-License-Identifier: Apache-2.0 */
/* A generated graph in compressed rows, and the algorithms on a CPU that the GPU's results are compared with. */
#ifndef GPSCHED_BENCH_GRAPH_H
#define GPSCHED_BENCH_GRAPH_H

#include <cstdint>
#include <vector>

/* Undirected: each edge stands in the rows of both its ends, with the same weight (1 to 255). */
struct Graph {
	std::vector<uint32_t> rows;    /* vertices + 1 offsets into the two others */
	std::vector<uint32_t> columns; /* neighbours */
	std::vector<uint32_t> weights;

	uint32_t vertices() const
	{
		return (uint32_t)rows.size() - 1;
	}
};

constexpr uint32_t UNREACHED = UINT32_MAX;

/* `edges` edges whose ends favour low vertices, as degrees in real graphs are skewed, among all but the last 2 % of the
 * vertices; those form chains of four, so that there are several components. The same seed gives the same graph. */
Graph generate_graph(uint32_t vertices, uint32_t edges, uint64_t seed);

/* Hops from `source`, UNREACHED where there is no path. */
std::vector<uint32_t> reference_bfs(const Graph &graph, uint32_t source);

/* Least sum of weights from `source`, UNREACHED where there is no path. */
std::vector<uint32_t> reference_sssp(const Graph &graph, uint32_t source);

/* `iterations` of PageRank with damping 0.85 from the uniform vector; rank of vertices without edges is spread evenly.
 */
std::vector<double> reference_pagerank(const Graph &graph, int iterations);

/* The lowest vertex of each vertex's component. */
std::vector<uint32_t> reference_components(const Graph &graph);

/* `steps` of the stencil on a tile of `side` x `side` cells with periodic borders (stencil.cu). */
std::vector<float> reference_stencil(std::vector<float> tile, uint32_t side, uint64_t steps);

/* The stencil's first state: one tile. */
std::vector<float> stencil_start(uint32_t side);

#endif

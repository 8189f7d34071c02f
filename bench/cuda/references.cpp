// SPDX-License-Identifier: Apache-2.0
/* C entry points to the algorithms on the CPU, for the tests. Arrays are the caller's. */
#include "graph.h"

#include <algorithm>

namespace
{

const Graph &graph_of(uint32_t vertices, uint32_t edges)
{
	static Graph graph;
	static uint32_t of;

	if (graph.rows.size() != (size_t)vertices + 1 || of != edges)
		graph = generate_graph(vertices, edges, 1);
	of = edges;
	return graph;
}

} // namespace

extern "C" {

uint32_t test_graph(uint32_t vertices, uint32_t edges, uint32_t *rows, uint32_t *columns, uint32_t *weights)
{
	const Graph &graph = graph_of(vertices, edges);

	if (rows) {
		std::copy(graph.rows.begin(), graph.rows.end(), rows);
		std::copy(graph.columns.begin(), graph.columns.end(), columns);
		std::copy(graph.weights.begin(), graph.weights.end(), weights);
	}
	return (uint32_t)graph.columns.size();
}

void test_bfs(uint32_t vertices, uint32_t edges, uint32_t source, uint32_t *out)
{
	std::vector<uint32_t> result = reference_bfs(graph_of(vertices, edges), source);

	std::copy(result.begin(), result.end(), out);
}

void test_sssp(uint32_t vertices, uint32_t edges, uint32_t source, uint32_t *out)
{
	std::vector<uint32_t> result = reference_sssp(graph_of(vertices, edges), source);

	std::copy(result.begin(), result.end(), out);
}

void test_components(uint32_t vertices, uint32_t edges, uint32_t *out)
{
	std::vector<uint32_t> result = reference_components(graph_of(vertices, edges));

	std::copy(result.begin(), result.end(), out);
}

void test_pagerank(uint32_t vertices, uint32_t edges, int iterations, double *out)
{
	std::vector<double> result = reference_pagerank(graph_of(vertices, edges), iterations);

	std::copy(result.begin(), result.end(), out);
}

void test_stencil(uint32_t side, uint64_t steps, float *out)
{
	std::vector<float> result = reference_stencil(stencil_start(side), side, steps);

	std::copy(result.begin(), result.end(), out);
}
}

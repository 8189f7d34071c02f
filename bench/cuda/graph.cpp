// SPDX-License-Identifier: Apache-2.0
#include "graph.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace
{

/* splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014). */
class Random
{
      public:
	explicit Random(uint64_t seed) : state_(seed)
	{
	}

	uint64_t next()
	{
		uint64_t z = state_ += 0x9e3779b97f4a7c15;

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
		z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
		return z ^ (z >> 31);
	}

	double uniform()
	{
		return (double)(next() >> 11) * 0x1p-53;
	}

      private:
	uint64_t state_;
};

struct Edge {
	uint32_t from, to, weight;
};

Graph from_edges(uint32_t vertices, const std::vector<Edge> &edges)
{
	Graph graph;

	graph.rows.assign(vertices + 1, 0);
	for (const Edge &edge : edges) {
		graph.rows[edge.from + 1]++;
		graph.rows[edge.to + 1]++;
	}
	std::partial_sum(graph.rows.begin(), graph.rows.end(), graph.rows.begin());
	graph.columns.resize(graph.rows.back());
	graph.weights.resize(graph.rows.back());
	std::vector<uint32_t> next(graph.rows.begin(), graph.rows.end() - 1);
	auto put = [&](uint32_t from, uint32_t to, uint32_t weight) {
		graph.columns[next[from]] = to;
		graph.weights[next[from]++] = weight;
	};
	for (const Edge &edge : edges) {
		put(edge.from, edge.to, edge.weight);
		put(edge.to, edge.from, edge.weight);
	}
	return graph;
}

float logistic(float x)
{
	return 1.0f - 1.7f * (x * x);
}

} // namespace

Graph generate_graph(uint32_t vertices, uint32_t count, uint64_t seed)
{
	Random random(seed);
	uint32_t core = vertices - vertices / 50;
	std::vector<Edge> edges;
	auto end = [&] {
		double r = random.uniform();

		return (uint32_t)(r * r * core);
	};

	edges.reserve(count + vertices / 50);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t from = end(), to = end();

		if (from != to)
			edges.push_back({from, to, 1 + (uint32_t)(random.next() % 255)});
	}
	for (uint32_t vertex = core; vertex + 1 < vertices; vertex++)
		if ((vertex - core) % 4 != 3)
			edges.push_back({vertex, vertex + 1, 1});
	return from_edges(vertices, edges);
}

std::vector<uint32_t> reference_bfs(const Graph &graph, uint32_t source)
{
	std::vector<uint32_t> hops(graph.vertices(), UNREACHED);
	std::queue<uint32_t> waiting({source});

	hops[source] = 0;
	for (; !waiting.empty(); waiting.pop()) {
		uint32_t vertex = waiting.front();

		for (uint32_t i = graph.rows[vertex]; i < graph.rows[vertex + 1]; i++) {
			uint32_t neighbour = graph.columns[i];

			if (hops[neighbour] == UNREACHED) {
				hops[neighbour] = hops[vertex] + 1;
				waiting.push(neighbour);
			}
		}
	}
	return hops;
}

std::vector<uint32_t> reference_sssp(const Graph &graph, uint32_t source)
{
	using Entry = std::pair<uint32_t, uint32_t>; /* distance, vertex */
	std::vector<uint32_t> distances(graph.vertices(), UNREACHED);
	std::priority_queue<Entry, std::vector<Entry>, std::greater<>> waiting;

	distances[source] = 0;
	waiting.push({0, source});
	while (!waiting.empty()) {
		auto [distance, vertex] = waiting.top();

		waiting.pop();
		if (distance > distances[vertex])
			continue;
		for (uint32_t i = graph.rows[vertex]; i < graph.rows[vertex + 1]; i++) {
			uint32_t neighbour = graph.columns[i], through = distance + graph.weights[i];

			if (through < distances[neighbour]) {
				distances[neighbour] = through;
				waiting.push({through, neighbour});
			}
		}
	}
	return distances;
}

std::vector<double> reference_pagerank(const Graph &graph, int iterations)
{
	uint32_t n = graph.vertices();
	std::vector<double> rank(n, 1.0 / n), next(n);

	for (int iteration = 0; iteration < iterations; iteration++) {
		double dangling = 0;

		for (uint32_t vertex = 0; vertex < n; vertex++)
			if (graph.rows[vertex] == graph.rows[vertex + 1])
				dangling += rank[vertex];
		for (uint32_t vertex = 0; vertex < n; vertex++) {
			double sum = 0;

			for (uint32_t i = graph.rows[vertex]; i < graph.rows[vertex + 1]; i++) {
				uint32_t from = graph.columns[i];

				sum += rank[from] / (graph.rows[from + 1] - graph.rows[from]);
			}
			next[vertex] = 0.15 / n + 0.85 * (sum + dangling / n);
		}
		rank.swap(next);
	}
	return rank;
}

std::vector<uint32_t> reference_components(const Graph &graph)
{
	std::vector<uint32_t> parent(graph.vertices());
	auto root = [&](uint32_t vertex) {
		while (parent[vertex] != vertex)
			vertex = parent[vertex] = parent[parent[vertex]];
		return vertex;
	};

	std::iota(parent.begin(), parent.end(), 0);
	for (uint32_t vertex = 0; vertex < graph.vertices(); vertex++)
		for (uint32_t i = graph.rows[vertex]; i < graph.rows[vertex + 1]; i++) {
			uint32_t a = root(vertex), b = root(graph.columns[i]);

			parent[std::max(a, b)] = std::min(a, b);
		}
	for (uint32_t vertex = 0; vertex < graph.vertices(); vertex++)
		parent[vertex] = root(vertex);
	return parent;
}

std::vector<float> stencil_start(uint32_t side)
{
	std::vector<float> tile(side * side);
	Random random(1);

	for (float &cell : tile)
		cell = (float)random.uniform();
	return tile;
}

/* The order of the operations is that of the GPU's kernel; both are compiled without fused multiply-add. */
std::vector<float> reference_stencil(std::vector<float> tile, uint32_t side, uint64_t steps)
{
	std::vector<float> mapped(tile.size());

	for (uint64_t step = 0; step < steps; step++) {
		std::transform(tile.begin(), tile.end(), mapped.begin(), logistic);
		for (uint32_t y = 0; y < side; y++) {
			const float *up = &mapped[(y + side - 1) % side * side], *row = &mapped[y * side];
			const float *down = &mapped[(y + 1) % side * side];

			for (uint32_t x = 0; x < side; x++) {
				uint32_t left = (x + side - 1) % side, right = (x + 1) % side;
				float around = (up[x] + down[x]) + (row[left] + row[right]);

				tile[y * side + x] = 0.75f * row[x] + 0.0625f * around;
			}
		}
	}
	return tile;
}

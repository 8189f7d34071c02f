"""The CUDA C++ programs: their CPU references against scipy, and what can be known of them without a GPU."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components, dijkstra


ROOT = Path(__file__).parents[3]
BUILD = ROOT / "bench/build/cuda"
PROGRAMS = ("stencil", "bfs", "sssp", "pagerank", "components")
VERTICES, EDGES = 2000, 6000
UNREACHED = 2**32 - 1


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    if not shutil.which("c++"):
        pytest.skip("no C++ compiler: the references cannot be built")
    subprocess.run(["make", "-s", "-C", str(ROOT / "bench/cuda"), "references"], check=True, timeout=120)
    return ctypes.CDLL(str(BUILD / "libreferences.so"))


@pytest.fixture(scope="session")
def graph(library: ctypes.CDLL) -> csr_matrix:
    count = library.test_graph(VERTICES, EDGES, None, None, None)
    rows, columns, weights = (np.empty(size, np.uint32) for size in (VERTICES + 1, count, count))
    library.test_graph(VERTICES, EDGES, *(array.ctypes.data_as(ctypes.c_void_p) for array in (rows, columns, weights)))
    assert rows[-1] == count
    assert np.all(np.diff(rows.astype(np.int64)) >= 0)
    assert columns.max() < VERTICES
    assert 1 <= weights.min() <= weights.max() <= 255
    sources = np.repeat(np.arange(VERTICES), np.diff(rows))
    # Of several edges between the same two vertices the lightest counts; csr_matrix would add them up.
    order = np.lexsort((weights, columns, sources))
    first = np.unique(np.stack([sources[order], columns[order]]), axis=1, return_index=True)[1]
    kept = order[first]
    data = (weights[kept].astype(float), (sources[kept], columns[kept]))
    return csr_matrix(data, shape=(VERTICES, VERTICES))


def call(library: ctypes.CDLL, name: str, *arguments: int, kind: type = np.uint32) -> NDArray[np.generic]:
    out = np.empty(VERTICES, kind)
    getattr(library, name)(VERTICES, EDGES, *arguments, out.ctypes.data_as(ctypes.c_void_p))
    return out


def expected(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isinf(distances), UNREACHED, distances)


@pytest.mark.parametrize("source", [0, 1, 63, VERTICES - 1])
def test_shortest_paths(library: ctypes.CDLL, graph: csr_matrix, source: int) -> None:
    assert np.array_equal(call(library, "test_sssp", source), expected(dijkstra(graph, indices=source)))
    hops = dijkstra(graph, indices=source, unweighted=True)
    assert np.array_equal(call(library, "test_bfs", source), expected(hops))
    assert np.isinf(hops).any()  # there is something that cannot be reached


def test_components(library: ctypes.CDLL, graph: csr_matrix) -> None:
    count, labels = connected_components(graph, directed=False)
    lowest = np.full(count, VERTICES)
    np.minimum.at(lowest, labels, np.arange(VERTICES))
    assert count > 5
    assert np.array_equal(call(library, "test_components"), lowest[labels])


def test_pagerank(library: ctypes.CDLL) -> None:
    """Against the power iteration on the matrix itself, in which an edge that stands twice counts twice."""
    count = library.test_graph(VERTICES, EDGES, None, None, None)
    rows, columns, weights = (np.empty(size, np.uint32) for size in (VERTICES + 1, count, count))
    library.test_graph(VERTICES, EDGES, *(array.ctypes.data_as(ctypes.c_void_p) for array in (rows, columns, weights)))
    degrees = np.diff(rows)
    into = csr_matrix((np.ones(count), (np.repeat(np.arange(VERTICES), degrees), columns)), shape=(VERTICES, VERTICES))
    rank = np.full(VERTICES, 1 / VERTICES)
    for _ in range(20):
        shares = np.divide(rank, degrees, out=np.zeros(VERTICES), where=degrees > 0)
        rank = 0.15 / VERTICES + 0.85 * (into @ shares + rank[degrees == 0].sum() / VERTICES)
    computed = call(library, "test_pagerank", 20, kind=np.float64)
    assert computed == pytest.approx(rank, rel=1e-9)
    assert computed.sum() == pytest.approx(1.0)


def stencil(library: ctypes.CDLL, steps: int) -> NDArray[np.float32]:
    out = np.empty((16, 16), np.float32)
    library.test_stencil(16, ctypes.c_uint64(steps), out.ctypes.data_as(ctypes.c_void_p))
    return out


def test_stencil_step_by_step_and_never_the_same_twice(library: ctypes.CDLL) -> None:
    state = stencil(library, 0)
    assert state.min() >= 0
    assert state.max() < 1
    for step in range(1, 40):
        mapped = np.float32(1) - np.float32(1.7) * (state * state)
        around = (np.roll(mapped, 1, 0) + np.roll(mapped, -1, 0)) + (np.roll(mapped, 1, 1) + np.roll(mapped, -1, 1))
        after = np.float32(0.75) * mapped + np.float32(0.0625) * around
        assert np.array_equal(stencil(library, step), after)  # bit by bit
        assert (after != state).all()
        state = after
    assert np.abs(stencil(library, 5000)).max() <= 1
    assert (stencil(library, 5000) != stencil(library, 5001)).all()


@pytest.fixture(scope="session")
def programs() -> Path:
    if not shutil.which("nvcc"):
        pytest.skip("no nvcc: the CUDA programs cannot be compiled")
    subprocess.run(["make", "-s", "-C", str(ROOT / "bench/cuda")], check=True, timeout=280)
    return BUILD


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compile_for_both_generations_and_say_what_is_missing(programs: Path, name: str) -> None:
    program = programs / f"gpsched-{name}"
    code = program.read_bytes()
    assert b"sm_80" in code
    assert b"sm_90" in code
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run([program], capture_output=True, text=True, env=hidden, timeout=60, check=False)
    assert result.returncode == 77
    assert result.stderr.startswith("no GPU (")
    assert subprocess.run([program, "--rate", "x"], capture_output=True, timeout=60, check=False).returncode == 2

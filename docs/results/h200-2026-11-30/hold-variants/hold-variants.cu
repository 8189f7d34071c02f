// LC loop with in-process holds of several kinds. Prints a line per variant.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <algorithm>
#include <string>
#include <cstring>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#define CK(x)                                                                                                          \
	do {                                                                                                           \
		cudaError_t e = (x);                                                                                   \
		if (e) {                                                                                               \
			fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e));                      \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)
#define CU(x)                                                                                                          \
	do {                                                                                                           \
		CUresult e = (x);                                                                                      \
		if (e) {                                                                                               \
			fprintf(stderr, "%s:%d CU %d\n", __FILE__, __LINE__, (int)e);                                  \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)
static double now()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
static void spin(double until)
{
	while (now() < until)
		;
}
__global__ void hold(volatile unsigned *f, unsigned seq, unsigned long long limit)
{
	if (threadIdx.x)
		return;
	unsigned long long s, n;
	asm volatile("mov.u64 %0,%globaltimer;" : "=l"(s));
	while ((int)(*f - seq) < 0) {
		asm volatile("mov.u64 %0,%globaltimer;" : "=l"(n));
		if (n - s > limit) {
			*f = seq;
			break;
		}
	}
}
__global__ void work(float *p, int iters)
{
	float a = p[threadIdx.x];
	for (int i = 0; i < iters; i++)
		a = a * 1.0001f + 0.1f;
	p[blockIdx.x * blockDim.x + threadIdx.x] = a;
}
int main(int c, char **v)
{
	int n = atoi(v[1]);
	const char *who = v[2];
	cudaStream_t s, h, h2;
	int lo, hi;
	CK(cudaDeviceGetStreamPriorityRange(&lo, &hi));
	CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CK(cudaStreamCreateWithPriority(&h, cudaStreamNonBlocking, hi));
	CK(cudaStreamCreateWithPriority(&h2, cudaStreamNonBlocking, hi));
	float *d;
	CK(cudaMalloc(&d, 132 * 8 * 256 * 4));
	char *in;
	CK(cudaMalloc(&in, 602112));
	void *hin;
	CK(cudaMallocHost(&hin, 602112));
	float out;
	int fd = memfd_create("flag", 0);
	if (ftruncate(fd, 4096))
		return 1;
	volatile unsigned *flag = (unsigned *)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CK(cudaHostRegister((void *)flag, 4096, cudaHostRegisterMapped));
	unsigned *df;
	CK(cudaHostGetDevicePointer((void **)&df, (void *)flag, 0));
	cudaEvent_t ev;
	CK(cudaEventCreateWithFlags(&ev, cudaEventDisableTiming));
	int it = 100;
	{
		work<<<132 * 4, 256, 0, s>>>(d, it);
		CK(cudaStreamSynchronize(s));
		double b = 0;
		for (int k = 0; k < 20; k++) {
			double t = now();
			for (int i = 0; i < 20; i++)
				work<<<132 * 4, 256, 0, s>>>(d, it);
			CK(cudaStreamSynchronize(s));
			b = (now() - t) / 20;
			it = std::max(10, (int)(it * 40.0 / b));
		}
		fprintf(stderr, "iters %d kernel %.1f us\n", it, b);
	}
	cudaGraph_t g;
	cudaGraphExec_t ge;
	CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
	for (int i = 0; i < 50; i++)
		work<<<132 * 4, 256, 0, s>>>(d, it);
	CK(cudaStreamEndCapture(s, &g));
	CK(cudaGraphInstantiate(&ge, g, 0));
	CK(cudaGraphLaunch(ge, s));
	CK(cudaStreamSynchronize(s));
	if (c > 3)
		sleep(atoi(v[3]));
	unsigned seq = 0;
	hold<<<1, 32, 0, h>>>(df, 0, 0);
	hold<<<1, 32, 0, h2>>>(df, 0, 0);
	CK(cudaDeviceSynchronize());
	struct V {
		const char *name;
		int kind;
		int rel;
		int lead;
	}; // rel 0 graph return,1 sum return,2 d2h begin (async pinned? pageable blocking) , 3: at end (before limit)
	std::vector<V> vs = {{"none", 0, 0, 500},
			     {"x2 graph", 2, 0, 500},
			     {"x2 sum", 2, 1, 500},
			     {"x1 graph", 1, 0, 500},
			     {"x1 sum", 1, 1, 500},
			     {"waitval graph", 3, 0, 500},
			     {"waitval sum", 3, 1, 500},
			     {"waitval d2h", 3, 2, 500},
			     {"event graph", 4, 0, 500},
			     {"event sum", 4, 1, 500},
			     {"two-streams x1+x1 sum", 5, 1, 500},
			     {"waitval-only sum", 6, 1, 500},
			     {"x2 sum lead300", 2, 1, 300},
			     {"waitval sum lead300", 3, 1, 300},
			     {"waitval d2h lead200", 3, 2, 200},
			     {"x2 graph lead200", 2, 0, 200},
			     {"x3 sum", 7, 1, 500},
			     {"waitval end", 3, 3, 500},
			     {"x1+big sum", 8, 1, 500},
			     {"x2 3rd", 2, 4, 500},
			     {"x1 3rd", 1, 4, 500},
			     {"waitval 3rd", 3, 4, 500}};
	bool sums[2] = {true, false};
	for (int eager = 0; eager < 2; eager++)
		for (bool sum : sums) {
			if (eager && !sum)
				continue;
			for (auto &x : vs) {
				if (eager && x.rel == 0 && x.kind) {
				}
				std::vector<double> L;
				int nn = n;
				double next = now() + 5000;
				for (int i = 0; i < nn; i++) {
					spin(next);
					next += 10000;
					if (next < now())
						next = now() + 10000;
					double t0 = now();
					unsigned q = ++seq;
					unsigned long long lim = 20000000ull;
					if (x.kind == 1 || x.kind == 3 || x.kind == 4 || x.kind == 8)
						hold<<<x.kind == 8 ? 132 : 1, 32, 0, h>>>(df, q, lim);
					if (x.kind == 2) {
						hold<<<1, 32, 0, h>>>(df, q, lim);
						hold<<<1, 32, 0, h>>>(df, q, lim);
					}
					if (x.kind == 7)
						for (int k = 0; k < 3; k++)
							hold<<<1, 32, 0, h>>>(df, q, lim);
					if (x.kind == 5) {
						hold<<<1, 32, 0, h>>>(df, q, lim);
						hold<<<1, 32, 0, h2>>>(df, q, lim);
					}
					if (x.kind == 3 || x.kind == 6)
						CU(cuStreamWaitValue32((CUstream)h2, (CUdeviceptr)df, q,
								       CU_STREAM_WAIT_VALUE_GEQ));
					if (x.kind == 4) {
						CK(cudaEventRecord(ev, h));
						CK(cudaStreamWaitEvent(h2, ev, 0));
						hold<<<1, 32, 0, h2>>>(df, q, lim);
					}
					spin(t0 + x.lead);
					double t = now();
					CK(cudaMemcpyAsync(in, hin, 602112, cudaMemcpyHostToDevice, s));
					spin(t + 50);
					if (!eager)
						CK(cudaGraphLaunch(ge, s));
					else
						for (int k = 0; k < 50; k++) {
							work<<<132 * 4, 256, 0, s>>>(d, it);
							if (k == 2 && x.rel == 4)
								*flag = q;
						}
					if (x.rel == 0)
						*flag = q;
					if (sum) {
						spin(now() + 50);
						work<<<132, 256, 0, s>>>(d, 10);
					}
					if (x.rel == 1)
						*flag = q;
					spin(now() + 15);
					if (x.rel == 2)
						*flag = q;
					CK(cudaMemcpyAsync(&out, d, 4, cudaMemcpyDeviceToHost, s));
					CK(cudaStreamSynchronize(s));
					L.push_back(now() - t);
					*flag = q;
				}
				std::sort(L.begin(), L.end());
				double m = 0;
				for (double l : L)
					m += l;
				m /= L.size();
				printf("%-8s %-6s %-5s %-24s lead %4d mean %7.0f p10 %7.0f p50 %7.0f p90 %7.0f max "
				       "%7.0f\n",
				       who, eager ? "eager" : "graph", sum ? "+sum" : "", x.name, x.lead, m,
				       L[L.size() / 10], L[L.size() / 2], L[L.size() * 9 / 10], L.back());
				fflush(stdout);
				if (!strcmp(who, "alone") && x.kind == 0)
					break;
			}
		}
}

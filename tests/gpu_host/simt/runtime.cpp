// SPDX-License-Identifier: Apache-2.0
//
// The part of the CUDA runtime that the library and its tests use, for one device of compute
// capability 9.0 whose memory is the host's. Streams do their work when somebody waits for it: a
// kernel stays where it is until then, so that a dependent launch behind it can begin first.
// Length: functions of one interface, most of them one line.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/gpu_host/simt/grid.hpp"
#include "tests/gpu_host/simt/kernels.hpp"
#include "tests/gpu_host/simt/shared_memory.hpp"
#include "tests/gpu_host/simt/tensor_map.hpp"

namespace goldenrule::simt {
namespace {

/// What a stream does next: a kernel, or work of the host.
struct Operation {
  std::shared_ptr<const Launch> kernel;
  std::function<void()> work;
};
using Operations = std::vector<Operation>;

struct Stream {
  std::vector<Launch> pending;  // each depends on the one in front of it
  std::unique_ptr<Operations> capture;
};

/// Longer chains are cut.
constexpr std::size_t kLongestChain = 6;

struct Runtime {
  std::recursive_mutex mutex;
  std::map<const void*, KnownKernel> kernels;
  std::map<const void*, int> shared_limits;
  Stream null_stream;
  std::map<cudaStream_t, std::unique_ptr<Stream>> streams;
  cudaError_t last_error = cudaSuccess;
  cudaError_t failure = cudaSuccess;  // of a kernel; the next wait reports it
  std::string failure_text;
};
Runtime& runtime() {
  static Runtime one;
  return one;
}

cudaError_t returned(cudaError_t error) {
  if (error != cudaSuccess) runtime().last_error = error;
  return error;
}

void flush(Stream& stream) {
  const std::vector<Launch> chain = std::exchange(stream.pending, {});
  if (chain.empty()) return;
  const std::string failure = run(chain);
  if (failure.empty()) return;
  std::fprintf(stderr, "on the host: %s\n", failure.c_str());
  runtime().failure_text = failure;
  runtime().failure = cudaErrorLaunchFailure;
}

void flush_all() {
  flush(runtime().null_stream);
  for (auto& [handle, stream] : runtime().streams) flush(*stream);
}

/// Waits for all streams, and reports what failed meanwhile once.
cudaError_t wait_for_all() {
  flush_all();
  return returned(std::exchange(runtime().failure, cudaSuccess));
}

Stream& stream_of(cudaStream_t handle) {
  const auto found = runtime().streams.find(handle);
  return found == runtime().streams.end() ? runtime().null_stream : *found->second;
}

void submit(Stream& stream, Operation operation) {
  if (stream.capture != nullptr) {
    stream.capture->push_back(std::move(operation));
    return;
  }
  if (operation.kernel == nullptr) {
    flush(stream);
    operation.work();
    return;
  }
  if (!operation.kernel->dependent || stream.pending.size() >= kLongestChain) flush(stream);
  stream.pending.push_back(*operation.kernel);
}

const KnownKernel* known(const void* function) {
  static const bool once = (add_library_kernels(), true);
  static_cast<void>(once);
  return find_kernel(function);
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* function, void** arguments) {
  const KnownKernel* kernel = known(function);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  constexpr int kGranted = 48 << 10;  // without cudaFuncSetAttribute
  const auto limit = runtime().shared_limits.find(function);
  const int granted = limit == runtime().shared_limits.end() ? kGranted : limit->second;
  if (config.gridDim.x == 0 || config.blockDim.x == 0 || config.blockDim.x > 1024 ||
      config.dynamicSmemBytes > static_cast<std::size_t>(std::max(granted, kGranted))) {
    return cudaErrorInvalidValue;
  }
  bool dependent = false, has_clusters = false;
  unsigned cluster = 1;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    dependent |= config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                 config.attrs[i].val.programmaticStreamSerializationAllowed != 0;
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension) {
      has_clusters = true;
      cluster = config.attrs[i].val.clusterDim.x;
    }
  }
  if (cluster == 0 || cluster > 16 || config.gridDim.x % cluster != 0) return cudaErrorInvalidValue;
  submit(stream_of(config.stream),
         {std::make_shared<Launch>(Launch{.name = kernel->name,
                                          .kernel = kernel->binder(arguments),
                                          .blocks = config.gridDim.x,
                                          .threads = static_cast<int>(config.blockDim.x),
                                          .shared_bytes = config.dynamicSmemBytes,
                                          .dependent = dependent,
                                          .cluster = cluster,
                                          .has_clusters = has_clusters}),
          {}});
  return cudaSuccess;
}

}  // namespace

std::string take_failure() { return std::exchange(runtime().failure_text, {}); }

void add_kernel(const void* function, std::string name, Binder binder) {
  runtime().kernels.try_emplace(function, KnownKernel{std::move(name), std::move(binder)});
}

const KnownKernel* find_kernel(const void* function) {
  const auto found = runtime().kernels.find(function);
  return found == runtime().kernels.end() ? nullptr : &found->second;
}

}  // namespace goldenrule::simt

using goldenrule::simt::returned;
using goldenrule::simt::runtime;
namespace simt = goldenrule::simt;

#define LOCK() const std::lock_guard<std::recursive_mutex> lock(runtime().mutex)

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return returned(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = simt::kMultiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = int{simt::kMultiprocessorSharedBytes};
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = int{simt::kSharedBytes};
      return cudaSuccess;
    default:
      return returned(cudaErrorInvalidValue);
  }
}

cudaError_t cudaGetLastError() { return std::exchange(runtime().last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return runtime().last_error; }
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorLaunchFailure:
      return "a kernel failed on the host, see stderr";
    case cudaErrorInvalidDeviceFunction:
      return "no such kernel on the host (tests/gpu_host/kernels.cpp)";
    case cudaErrorInvalidValue:
      return "invalid value";
    default:
      return "an error of the runtime on the host";
  }
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  LOCK();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value > static_cast<int>(simt::kSharedBytes)) return returned(cudaErrorInvalidValue);
  runtime().shared_limits[function] = value;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* /*function*/) {
  *attributes = {};
  attributes->ptxVersion = attributes->binaryVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* /*function*/,
                                                          int threads, size_t shared) {
  *blocks = simt::resident_blocks(threads, shared);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* /*function*/,
                                           const cudaLaunchConfig_t* /*config*/) {
  *clusters = 1;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  LOCK();
  return returned(simt::launch(*config, function, arguments));
}

cudaError_t cudaMalloc(void** p, size_t bytes) {
  LOCK();
  constexpr std::size_t kAlignment = 256;  // as the device's; AddressSanitizer sees the exact end
  if (posix_memalign(p, kAlignment, bytes) != 0) return returned(cudaErrorMemoryAllocation);
  std::memset(*p, 0xff, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  LOCK();
  const cudaError_t error = simt::wait_for_all();
  std::free(p);
  return error;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = std::size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/) {
  LOCK();
  const cudaError_t error = simt::wait_for_all();
  std::memcpy(to, from, bytes);
  return error;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  LOCK();
  simt::submit(simt::stream_of(stream), {nullptr, [=] { std::memcpy(to, from, bytes); }});
  return cudaSuccess;
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind /*kind*/) {
  LOCK();
  const cudaError_t error = simt::wait_for_all();
  for (std::size_t i = 0; i < height; ++i) {
    std::memcpy(static_cast<char*>(to) + i * to_pitch,
                static_cast<const char*>(from) + i * from_pitch, width);
  }
  return error;
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  LOCK();
  const cudaError_t error = simt::wait_for_all();
  std::memset(p, value, bytes);
  return error;
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  LOCK();
  simt::submit(simt::stream_of(stream), {nullptr, [=] { std::memset(p, value, bytes); }});
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  LOCK();
  return simt::wait_for_all();
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  LOCK();
  auto made = std::make_unique<simt::Stream>();
  *stream = reinterpret_cast<cudaStream_t>(made.get());
  runtime().streams[*stream] = std::move(made);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  LOCK();
  simt::flush(simt::stream_of(stream));
  runtime().streams.erase(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) { return cudaDeviceSynchronize(); }
cudaError_t cudaStreamQuery(cudaStream_t /*stream*/) { return cudaDeviceSynchronize(); }
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  LOCK();
  simt::submit(simt::stream_of(stream), {nullptr, [=] { function(data); }});
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  LOCK();
  simt::stream_of(stream).capture = std::make_unique<simt::Operations>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  LOCK();
  *graph = reinterpret_cast<cudaGraph_t>(simt::stream_of(stream).capture.release());
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<simt::Operations*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *executable = reinterpret_cast<cudaGraphExec_t>(
      new simt::Operations(*reinterpret_cast<simt::Operations*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<simt::Operations*>(executable);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  LOCK();
  for (const simt::Operation& operation : *reinterpret_cast<simt::Operations*>(executable)) {
    simt::submit(simt::stream_of(stream), operation);
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = reinterpret_cast<cudaEvent_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<char*>(event);
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                             unsigned int /*version*/, unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = known ? simt::encode_function() : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"

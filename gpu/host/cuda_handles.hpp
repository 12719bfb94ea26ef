// SPDX-License-Identifier: Apache-2.0
//
// Ownership of CUDA objects for tests and tools (the library itself owns none): device memory,
// streams, events, graphs, and one check that turns a CUDA error into an exception and clears it,
// so that the next check does not report it again.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <utility>

#include "fixtures/call/error.hpp"

namespace goldenrule::gpu {

/// Throws Error(kArgument) naming `what` where `error` is not success.
inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw Error(ErrorKind::kArgument, what, "success", cudaGetErrorString(error));
}

/// Owns one handle; `Destroy` is called without a check, because a destructor cannot report.
template <class Handle, auto Destroy>
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(Handle handle) : handle_(handle) {}
  CudaHandle(CudaHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  CudaHandle(const CudaHandle&) = delete;
  CudaHandle& operator=(const CudaHandle&) = delete;
  ~CudaHandle() {
    if (handle_ != nullptr) static_cast<void>(Destroy(handle_));
  }
  [[nodiscard]] Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using Stream = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using Event = CudaHandle<cudaEvent_t, cudaEventDestroy>;
using Graph = CudaHandle<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = CudaHandle<cudaGraphExec_t, cudaGraphExecDestroy>;
using DeviceMemory = CudaHandle<void*, cudaFree>;

inline Stream make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return Stream(stream);
}

inline Event make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "cudaEventCreate");
  return Event(event);
}

inline DeviceMemory allocate_device(std::size_t bytes) {
  void* p = nullptr;
  check_cuda(cudaMalloc(&p, bytes == 0 ? 1 : bytes), "cudaMalloc");
  return DeviceMemory(p);
}

/// Captures what `record(stream)` launches into an executable graph.
template <class F>
GraphExec capture(cudaStream_t stream, F&& record) {
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
  record(stream);
  cudaGraph_t raw = nullptr;
  check_cuda(cudaStreamEndCapture(stream, &raw), "end capture");
  const Graph graph(raw);
  cudaGraphExec_t exec = nullptr;
  check_cuda(cudaGraphInstantiate(&exec, graph.get(), 0), "cudaGraphInstantiate");
  return GraphExec(exec);
}

/// Number of CUDA devices; 0 without a driver.
inline int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return count;
}

}  // namespace goldenrule::gpu

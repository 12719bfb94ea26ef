// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/fake_runtime.hpp"

#include <cudaTypedefs.h>

#include <cstdlib>

namespace goldenrule::test {

FakeRuntime& fake_runtime() {
  static FakeRuntime runtime;
  return runtime;
}

void FakeRuntime::add_device(const FakeDevice& device) {
  if (device_count == kMost) std::abort();
  current = device_count++;
  devices[static_cast<std::size_t>(current)] = device;
}

const std::string& FakeRuntime::name_of(const void* function) const {
  static const std::string none;
  const auto it = kernels.find(function);
  return it == kernels.end() ? none : it->second;
}

bool FakeRuntime::has_code(const void* function) const {
  const std::string& name = name_of(function);
  const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
  const bool only_sm90a = is("prefill_gdn") || is("prefill_kda") || is("attention_decode_kernel");
  const FakeDevice& device = devices[static_cast<std::size_t>(current)];
  return !only_sm90a || (device.capability == 90 && !device.lacks_sm90a);
}

namespace {

const FakeDevice& device_of(int id) { return fake_runtime().devices[static_cast<std::size_t>(id)]; }

/// An error as the runtime returns it: it stays behind until somebody asks for the last.
cudaError_t failed(cudaError_t error) {
  fake_runtime().last_error = error;
  return error;
}

/// 0: launched without clusters.
unsigned cluster_of(const cudaLaunchConfig_t& config) {
  unsigned size = 0;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id != cudaLaunchAttributeClusterDimension) continue;
    size = config.attrs[i].val.clusterDim.x;
  }
  return size;
}

/// On the current device.
bool is_cluster_allowed(const void* function, unsigned size) {
  constexpr unsigned kPortable = 8;
  const auto& r = fake_runtime();
  return size <= kPortable || r.any_cluster.contains({r.current, function});
}

/// cuTensorMapEncodeTiled: a map that nobody reads.
CUresult encode_nothing(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                        const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                        CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                        CUtensorMapFloatOOBfill) {
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace goldenrule::test

using goldenrule::test::cluster_of;
using goldenrule::test::device_of;
using goldenrule::test::failed;
using goldenrule::test::fake_runtime;
using goldenrule::test::is_cluster_allowed;

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = fake_runtime().current;
  const cudaError_t answer = fake_runtime().get_device_answer;
  return answer == cudaSuccess ? answer : failed(answer);
}

cudaError_t cudaGetLastError() { return std::exchange(fake_runtime().last_error, cudaSuccess); }

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "an error";
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const auto& d = device_of(device);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = d.capability / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = d.capability % 10;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = d.multiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = d.shared_per_multiprocessor;
      return cudaSuccess;
    default:
      return failed(cudaErrorInvalidValue);
  }
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  auto& r = fake_runtime();
  if (!r.has_code(function)) return failed(cudaErrorNoKernelImageForDevice);
  r.loaded.insert({r.current, function});
  *attributes = {};
  attributes->ptxVersion = device_of(r.current).code;
  attributes->binaryVersion = device_of(r.current).capability;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  auto& r = fake_runtime();
  if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
    r.any_cluster.insert({r.current, function});
    return cudaSuccess;
  }
  constexpr int kReserved = 1024;  // of every block, for the system
  const bool fits = value + kReserved <= device_of(r.current).shared_per_multiprocessor;
  if (!fits || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
    return failed(cudaErrorInvalidValue);
  }
  r.shared_limit[{r.current, function}] = value;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* /*function*/,
                                                          int /*threads*/, std::size_t shared) {
  constexpr std::size_t kReserved = 1024;
  *blocks = static_cast<int>(
      static_cast<std::size_t>(device_of(fake_runtime().current).shared_per_multiprocessor) /
      (shared + kReserved));
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* function,
                                           const cudaLaunchConfig_t* config) {
  const unsigned size = cluster_of(*config);
  if (!is_cluster_allowed(function, size)) return failed(cudaErrorInvalidClusterSize);
  *clusters = size <= device_of(fake_runtime().current).largest_cluster ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  auto& r = fake_runtime();
  constexpr std::size_t kAlways = 48 << 10;  // allowed without an attribute
  const auto limit = r.shared_limit.find({r.current, function});
  const std::size_t most =
      limit == r.shared_limit.end() ? kAlways : static_cast<std::size_t>(limit->second);
  if (!r.has_code(function)) return failed(cudaErrorNoKernelImageForDevice);
  if (config->dynamicSmemBytes > most) return failed(cudaErrorInvalidValue);
  const unsigned cluster = cluster_of(*config);
  if (!is_cluster_allowed(function, cluster) || cluster > device_of(r.current).largest_cluster) {
    return failed(cudaErrorInvalidClusterSize);
  }
  r.last = {.device = r.current,
            .function = function,
            .blocks = config->gridDim.x,
            .threads = config->blockDim.x,
            .cluster = cluster,
            .shared_bytes = config->dynamicSmemBytes,
            .dependent = false,
            .argument = arguments[0]};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      r.last.dependent = config->attrs[i].val.programmaticStreamSerializationAllowed != 0;
    }
  }
  ++r.launches;
  if (r.on_launch != nullptr) r.on_launch(r.last);
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* /*symbol*/, void** function,
                                             unsigned /*version*/, unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = reinterpret_cast<void*>(&goldenrule::test::encode_nothing);
  *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// What compiled .cu files say of themselves when the program starts. nvcc chose these names.
// NOLINTBEGIN(bugprone-reserved-identifier)

void** __cudaRegisterFatBinary(void* /*image*/) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}
void __cudaUnregisterFatBinary(void** /*handle*/) {}
void __cudaRegisterFunction(void** /*handle*/, const char* host, char* /*device*/, const char* name,
                            int /*threads*/, void* /*tid*/, void* /*bid*/, void* /*block*/,
                            void* /*grid*/, int* /*warp*/) {
  fake_runtime().kernels[host] = name;
}

// Only host stubs of kernels refer to these, and nobody calls a stub.
unsigned __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) { std::abort(); }
cudaError_t __cudaGetKernel(void**, const void*) { std::abort(); }
cudaError_t __cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, void*) {
  std::abort();
}

// NOLINTEND(bugprone-reserved-identifier)
}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
//
// The interface of XLA is a header of jaxlib's (GOLDENRULE_XLA_HEADERS): the package is also built
// without it, and without this source.
#include "tools/python/extension/gpu_xla.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace goldenrule::python::gpu {
namespace {

namespace nb = nanobind;
namespace ffi = xla::ffi;

// What was compiled outlives whoever opened the library.
const Library* served = nullptr;

ffi::Error error_of(goldenrule_gpu_status status, const char* message) {
  const std::string text = std::string("goldenrule: ") + message;
  switch (status) {
    case GOLDENRULE_GPU_OK:
      return ffi::Error::Success();
    case GOLDENRULE_GPU_INVALID_ARGUMENT:
      return ffi::Error(ffi::ErrorCode::kInvalidArgument, text);
    case GOLDENRULE_GPU_UNSUPPORTED:
      return ffi::Error(ffi::ErrorCode::kUnimplemented, text);
    case GOLDENRULE_GPU_UNSUPPORTED_ARCHITECTURE:
    case GOLDENRULE_GPU_CUDA_ERROR:
    case GOLDENRULE_GPU_NO_DEVICE:
      break;
  }
  return ffi::Error(ffi::ErrorCode::kInternal, text);
}

// Where the addresses of a program go. An operand that is also a result has no place of its own.
struct Buffers {
  ffi::RemainingArgs operands;
  ffi::RemainingRets results;
  ffi::Span<const std::int64_t> operand_places, result_places;

  // Whether each is a place of an aggregate of so many bytes.
  [[nodiscard]] bool fit(std::size_t size) const {
    const auto fits = [size](std::int64_t place) {
      return place < 0 || static_cast<std::size_t>(place) <= size - sizeof(void*);
    };
    return operands.size() == operand_places.size() && results.size() == result_places.size() &&
           std::all_of(operand_places.begin(), operand_places.end(), fits) &&
           std::all_of(result_places.begin(), result_places.end(), fits);
  }

  void write(std::byte* aggregate, std::int64_t workspace) const {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      put(aggregate, operand_places[i], operands.get<ffi::AnyBuffer>(i)->untyped_data());
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      void* data = (*results.get<ffi::AnyBuffer>(i))->untyped_data();
      put(aggregate, result_places[i], result_places[i] == workspace ? aligned(data) : data);
    }
  }

 private:
  static constexpr std::uintptr_t kAlignment = 256;

  static void* aligned(void* data) {
    return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(data) + kAlignment - 1) &
                                   ~(kAlignment - 1));
  }

  // A buffer of no elements has no address, and is there all the same.
  static void put(std::byte* aggregate, std::int64_t place, void* data) {
    if (place < 0) return;
    if (data == nullptr) data = reinterpret_cast<void*>(kAlignment);
    std::memcpy(aggregate + place, &data, sizeof data);
  }
};

template <class Args>
ffi::Error launch(const Functions<Args>& functions, std::span<const std::int64_t> bytes,
                  const Buffers& buffers, void* stream) {
  Args args;
  if (bytes.size_bytes() != sizeof args || !buffers.fit(sizeof args)) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                      "goldenrule: expected an aggregate of " + std::to_string(sizeof args) +
                          " bytes, actual " + std::to_string(bytes.size_bytes()) +
                          ": the program was compiled by another release");
  }
  std::memcpy(&args, bytes.data(), sizeof args);
  std::int64_t workspace = -1;
  if constexpr (std::is_same_v<Args, goldenrule_gpu_prefill_args>) {
    workspace = offsetof(goldenrule_gpu_prefill_args, workspace);
  }
  buffers.write(reinterpret_cast<std::byte*>(&args), workspace);
  args.stream = stream;
  std::array<char, 512> message{};
  return error_of(functions.run(&args, message.data(), message.size()), message.data());
}

ffi::Error dispatch(std::int32_t aggregate, ffi::Span<const std::int64_t> bytes,
                    const Buffers& buffers, void* stream) {
  const std::span<const std::int64_t> words(bytes.begin(), bytes.size());
  switch (static_cast<Aggregate>(aggregate)) {
    case Aggregate::kRecurrentCall:
      return launch(served->recurrent, words, buffers, stream);
    case Aggregate::kPrefillCall:
      return launch(served->prefill, words, buffers, stream);
    case Aggregate::kAttentionCall:
      return launch(served->attention, words, buffers, stream);
  }
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, "goldenrule: unknown kind of call");
}

using Places = ffi::Span<const std::int64_t>;

ffi::Error run_on_cuda(void* stream, ffi::RemainingArgs operands, ffi::RemainingRets results,
                       std::int32_t aggregate, Places bytes, Places operand_places,
                       Places result_places, bool /*on_host*/) {
  return dispatch(aggregate, bytes, {operands, results, operand_places, result_places}, stream);
}

// The kernels on the CPU are a library for tests; that of a GPU reads no memory of the host.
ffi::Error run_on_host(ffi::RemainingArgs operands, ffi::RemainingRets results,
                       std::int32_t aggregate, Places bytes, Places operand_places,
                       Places result_places, bool on_host) {
  if (!on_host) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                      "goldenrule: expected arrays of a CUDA device, actual of the host");
  }
  const ffi::Error error =
      dispatch(aggregate, bytes, {operands, results, operand_places, result_places}, nullptr);
  if (error.success() && served->wait != nullptr && served->wait() != 0) {
    return ffi::Error(ffi::ErrorCode::kInternal, "goldenrule: a kernel failed");
  }
  return error;
}

// Before a program runs on a device for the first time, so that nothing is loaded while XLA
// captures its commands into a graph.
ffi::Error load(std::int32_t device, ffi::RemainingArgs /*operands*/,
                ffi::RemainingRets /*results*/, ffi::Dictionary /*attributes*/) {
  static std::array<std::atomic<bool>, 64> loaded{};
  const auto index = static_cast<std::size_t>(device);
  if (index < loaded.size() && loaded[index]) return ffi::Error::Success();
  std::array<char, 512> message{};
  const goldenrule_gpu_status status = served->initialize(message.data(), message.size());
  if (status == GOLDENRULE_GPU_OK && index < loaded.size()) loaded[index] = true;
  return error_of(status, message.data());
}

template <class Binding>
auto with_call(Binding binding) {
  return std::move(binding)
      .RemainingArgs()
      .RemainingRets()
      .template Attr<std::int32_t>("aggregate")
      .template Attr<Places>("bytes")
      .template Attr<Places>("operand_places")
      .template Attr<Places>("result_places")
      .template Attr<bool>("on_host");
}

XLA_FFI_Error* execute_on_cuda(XLA_FFI_CallFrame* frame) {
  static auto* handler = with_call(ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>())
                             .To(run_on_cuda, {ffi::Traits::kCmdBufferCompatible})
                             .release();
  return handler->Call(frame);
}

XLA_FFI_Error* execute_on_host(XLA_FFI_CallFrame* frame) {
  static auto* handler = with_call(ffi::Ffi::Bind()).To(run_on_host).release();
  return handler->Call(frame);
}

XLA_FFI_Error* initialize_on_cuda(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::BindInitialize()
                             .Ctx<ffi::DeviceOrdinal>()
                             .RemainingArgs()
                             .RemainingRets()
                             .Attrs()
                             .To(load)
                             .release();
  return handler->Call(frame);
}

nb::object capsule(XLA_FFI_Handler* handler) {
  return nb::steal(PyCapsule_New(reinterpret_cast<void*>(handler), nullptr, nullptr));
}

}  // namespace

nb::dict xla_handlers(const Library& library, bool on_host) {
  served = new Library(library);
  nb::dict handlers;
  handlers["execute"] = capsule(on_host ? execute_on_host : execute_on_cuda);
  if (!on_host) handlers["initialize"] = capsule(initialize_on_cuda);
  return handlers;
}

}  // namespace goldenrule::python::gpu

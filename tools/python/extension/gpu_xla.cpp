// SPDX-License-Identifier: Apache-2.0
//
// The interface of XLA is a header of jaxlib's (GOLDENRULE_XLA_HEADERS): the package is also built
// without it, and without this source.
#include "tools/python/extension/gpu_xla.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace goldenrule::python::gpu {
namespace {

namespace nb = nanobind;
namespace ffi = xla::ffi;

// The libraries of the two platforms: what was compiled outlives whoever opened them, and a process
// may have both.
const Library* cuda_library = nullptr;
const Library* host_library = nullptr;

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

  // Why a call cannot be made of them: each has a place in an aggregate of so many bytes. Else "".
  [[nodiscard]] std::string misfit(std::size_t size) const {
    const std::string operand = misfit("operands", operands.size(), operand_places, size);
    return operand.empty() ? misfit("results", results.size(), result_places, size) : operand;
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

  static std::string misfit(const char* what, std::size_t count,
                            ffi::Span<const std::int64_t> places, std::size_t size) {
    if (places.size() != count) {
      return std::string("expected places of ") + std::to_string(count) + " " + what +
             ", actual of " + std::to_string(places.size());
    }
    const auto last = static_cast<std::int64_t>(size - sizeof(void*));
    for (const std::int64_t place : places) {
      if (place > last) {
        return std::string("expected places of ") + what + " up to " + std::to_string(last) +
               ", actual " + std::to_string(place);
      }
    }
    return "";
  }

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

ffi::Error invalid(const std::string& text) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, "goldenrule: " + text);
}

template <class Args>
ffi::Error launch(const Functions<Args>& functions, std::span<const std::int64_t> bytes,
                  const Buffers& buffers, void* stream) {
  Args args;
  if (bytes.size_bytes() != sizeof args) {
    return invalid("expected an aggregate of " + std::to_string(sizeof args) + " bytes, actual " +
                   std::to_string(bytes.size_bytes()) +
                   ": the program was compiled by another release");
  }
  if (const std::string why = buffers.misfit(sizeof args); !why.empty()) return invalid(why);
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

ffi::Error dispatch(const Library& library, std::int32_t aggregate,
                    ffi::Span<const std::int64_t> bytes, const Buffers& buffers, void* stream) {
  const std::span<const std::int64_t> words(bytes.begin(), bytes.size());
  switch (static_cast<Aggregate>(aggregate)) {
    case Aggregate::kRecurrentCall:
      return launch(library.recurrent, words, buffers, stream);
    case Aggregate::kPrefillCall:
      return launch(library.prefill, words, buffers, stream);
    case Aggregate::kAttentionCall:
      return launch(library.attention, words, buffers, stream);
  }
  return invalid("expected an aggregate of 0 to 2, actual " + std::to_string(aggregate));
}

using Places = ffi::Span<const std::int64_t>;

ffi::Error run_on_cuda(void* stream, ffi::RemainingArgs operands, ffi::RemainingRets results,
                       std::int32_t aggregate, Places bytes, Places operand_places,
                       Places result_places, bool /*on_host*/) {
  return dispatch(*cuda_library, aggregate, bytes,
                  {operands, results, operand_places, result_places}, stream);
}

// The kernels on the CPU are a library for tests, which runs one call at a time; that of a GPU
// reads no memory of the host.
ffi::Error run_on_host(ffi::RemainingArgs operands, ffi::RemainingRets results,
                       std::int32_t aggregate, Places bytes, Places operand_places,
                       Places result_places, bool on_host) {
  if (!on_host) {
    return invalid("expected arrays of a CUDA device, actual of the host");
  }
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  ffi::Error error = dispatch(*host_library, aggregate, bytes,
                              {operands, results, operand_places, result_places}, nullptr);
  if (error.success() && host_library->wait != nullptr && host_library->wait() != 0) {
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
  const goldenrule_gpu_status status = cuda_library->initialize(message.data(), message.size());
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
  (on_host ? host_library : cuda_library) = new Library(library);
  nb::dict handlers;
  handlers["execute"] = capsule(on_host ? execute_on_host : execute_on_cuda);
  if (!on_host) handlers["initialize"] = capsule(initialize_on_cuda);
  return handlers;
}

}  // namespace goldenrule::python::gpu

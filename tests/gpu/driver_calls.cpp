// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/driver_calls.hpp"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace goldenrule::test {
namespace {

std::array<std::uint64_t, kDriverCallKinds> counts{};
std::mutex mutex;
std::uint64_t watched = 0;

constexpr const char* kWords[] = {"loads", "compilations", "allocations", "waits", "copies"};

struct NamedKind {
  std::string_view part;
  bool from_begin;
  DriverCall kind;
};
/// The first row that a name fits decides.
constexpr NamedKind kKinds[] = {
    {"cuModuleLoad", true, DriverCall::kLoad},
    {"cuLibraryLoad", true, DriverCall::kLoad},
    {"cuLink", true, DriverCall::kCompile},
    {"nvrtc", true, DriverCall::kCompile},
    {"nvJitLink", true, DriverCall::kCompile},
    {"nvvm", true, DriverCall::kCompile},
    {"cuMemAlloc", true, DriverCall::kAllocate},
    {"cuMemHostAlloc", true, DriverCall::kAllocate},
    {"cuMemHostRegister", true, DriverCall::kAllocate},
    {"cuMemCreate", true, DriverCall::kAllocate},
    {"cuMemAddressReserve", true, DriverCall::kAllocate},
    {"cuMemPoolCreate", true, DriverCall::kAllocate},
    {"cuArrayCreate", true, DriverCall::kAllocate},
    {"cuArray3DCreate", true, DriverCall::kAllocate},
    {"cuMipmappedArrayCreate", true, DriverCall::kAllocate},
    {"Synchronize", false, DriverCall::kWait},
    {"cuMemcpy", true, DriverCall::kCopy},
    {"cuMemset", true, DriverCall::kCopy},
};

/// Code that adds 1 to `count` and goes on at `function`. r11 is nobody's at the edge of a call.
void* counting_code(std::uint64_t* count, void* function) {
  constexpr std::size_t kPage = 4096;
  void* const page =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::runtime_error("driver_calls: no memory for code");
  auto* at = static_cast<unsigned char*>(page);
  const auto put = [&](std::initializer_list<unsigned char> bytes) {
    for (const unsigned char byte : bytes) *at++ = byte;
  };
  const auto put_address = [&](const void* address) {
    std::memcpy(at, &address, sizeof address);
    at += sizeof address;
  };
  put({0xf3, 0x0f, 0x1e, 0xfa});  // endbr64
  put({0x49, 0xbb});              // mov r11, count
  put_address(count);
  put({0xf0, 0x49, 0xff, 0x03});  // lock inc qword [r11]
  put({0x49, 0xbb});              // mov r11, function
  put_address(function);
  put({0x41, 0xff, 0xe3});  // jmp r11
  if (mprotect(page, kPage, PROT_READ | PROT_EXEC) != 0) {
    throw std::runtime_error("driver_calls: memory cannot hold code");
  }
  return page;
}

using GetProcAddress = int (*)(const char* name, void** function, int version, std::uint64_t flags,
                               void* status);
GetProcAddress get_proc_address[2];  // cuGetProcAddress, which ignores the status, and its _v2

template <int kVersion>
int find_function(const char* name, void** function, int version, std::uint64_t flags,
                  void* status) {
  const int error = get_proc_address[kVersion](name, function, version, flags, status);
  if (error == 0 && function != nullptr && *function != nullptr) {
    *function = watch_driver_function(name, *function);
  }
  return error;
}

}  // namespace

DriverCall kind_of_driver_call(std::string_view name) {
  for (const NamedKind& row : kKinds) {
    if (row.from_begin ? name.starts_with(row.part) : name.find(row.part) != name.npos) {
      return row.kind;
    }
  }
  return DriverCall::kNone;
}

DriverCalls DriverCalls::since(const DriverCalls& before) const {
  DriverCalls more;
  for (std::size_t i = 0; i < counts.size(); ++i) more.counts[i] = counts[i] - before.counts[i];
  return more;
}

void DriverCalls::add(const DriverCalls& more) {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += more.counts[i];
}

std::string DriverCalls::text() const {
  std::string all;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    all += (all.empty() ? "" : ", ") + std::to_string(counts[i]) + " " + kWords[i];
  }
  return all;
}

DriverCalls driver_calls() { return {counts}; }
std::uint64_t watched_driver_functions() { return watched; }

void* watch_driver_function(const char* name, void* function) {
  const std::string_view known = name;
  ++watched;
  if (known == "cuGetProcAddress" || known == "cuGetProcAddress_v2") {
    // The runtime asks for the first by a version of the interface that has a status, too.
    const bool second = known == "cuGetProcAddress_v2";
    auto& real = get_proc_address[second ? 1 : 0];
    real = reinterpret_cast<GetProcAddress>(function);
    return reinterpret_cast<void*>(second ? &find_function<1> : &find_function<0>);
  }
  return counted_driver_call(name, function);
}

void* counted_driver_call(const char* name, void* function) {
  const DriverCall kind = kind_of_driver_call(name);
  if (kind == DriverCall::kNone) return function;
  static std::map<std::pair<DriverCall, void*>, void*> known;
  const std::lock_guard lock(mutex);
  void*& code = known[{kind, function}];
  if (code == nullptr) code = counting_code(&counts[static_cast<std::size_t>(kind)], function);
  return code;
}

}  // namespace goldenrule::test

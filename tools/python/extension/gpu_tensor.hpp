// SPDX-License-Identifier: Apache-2.0
//
// What a GPU call reads of a tensor, without a copy and without the framework that made it.
//
// A type with the exchange functions of DLPack 1.3 (`__dlpack_c_exchange_api__`: torch since 2.10)
// is read by one call of C, in about 40 ns. Any other object is read by attributes as torch tensors
// have them: shape, dtype, stride(), data_ptr(), get_device().
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace goldenrule::python::gpu {

inline constexpr int kMostAxes = 8;
inline constexpr int kHost = -1;

/// Valid while the tensor lives and keeps its shape.
class Seen {
 public:
  Seen() = default;
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;

  /// Throws the Python error that names the argument.
  void read(const char* name, nanobind::handle tensor);

  /// As a tensor of this shape over the same memory, whose `lead` outer axes are the outer axes of
  /// this one, folded or unfolded. false, and nothing is changed: the inner axes are others, or
  /// there are more or fewer elements. Throws where only a copy would do.
  bool lead_by(const char* name, std::span<const std::int64_t> shape, std::size_t lead);

  /// As a tensor of this shape, where this one has further axes of one, or all in one axis, and no
  /// gap.
  bool unpacked_as(std::span<const std::int64_t> shape);

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::span<const std::int64_t> shape() const { return {shape_, axes_}; }
  /// In elements.
  [[nodiscard]] std::span<const std::int64_t> stride() const { return {stride_, axes_}; }
  /// Number of gpu/goldenrule_gpu.h; 0: a type that is not there.
  [[nodiscard]] std::int32_t dtype() const { return dtype_; }
  /// Index of a CUDA device, or kHost.
  [[nodiscard]] int device() const { return device_; }

 private:
  struct Exchange;
  void read_exchanged(const char* name, const Exchange& exchange, nanobind::handle tensor);
  void set_own(std::span<const std::int64_t> shape, std::size_t from, std::int64_t step);
  void read_attributes(const char* name, nanobind::handle tensor);
  static Exchange exchange_of(nanobind::handle type);
  static Exchange found_exchange(nanobind::handle type);

  void* data_ = nullptr;
  const std::int64_t* shape_ = nullptr;
  const std::int64_t* stride_ = nullptr;
  std::size_t axes_ = 0;
  std::int32_t dtype_ = 0;
  int device_ = kHost;
  // Where the tensor itself has no such list in C.
  std::array<std::int64_t, kMostAxes> own_shape_;
  std::array<std::int64_t, kMostAxes> own_stride_;
};

/// Sets a Python error of one line and throws it.
[[noreturn]] void refuse(PyObject* kind, const std::string& text);

/// "[3, 1, 2]"
[[nodiscard]] std::string listed(std::span<const std::int64_t> numbers);

/// As str() or repr() of Python say it.
[[nodiscard]] std::string said(nanobind::handle object);
[[nodiscard]] std::string shown(nanobind::handle object);

}  // namespace goldenrule::python::gpu

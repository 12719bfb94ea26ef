// SPDX-License-Identifier: Apache-2.0
#include "tools/python/extension/gpu_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace goldenrule::python::gpu {
namespace {

namespace nb = nanobind;

// A tensor of no elements has no address, and is there all the same.
void* const kNowhere = reinterpret_cast<void*>(256);

bool asks_for_gradient(nb::handle tensor) {
  const nb::object asked = nb::getattr(tensor, "requires_grad", nb::none());
  return asked.ptr() == Py_True;
}

}  // namespace

Tensors::Tensors(const Arguments& arguments, const Given& given, std::byte* args, bool graded)
    : arguments_(arguments), given_(given), args_(args) {
  for (std::size_t place = 0; place < arguments.table().size(); ++place) {
    if (arguments.table()[place].kind != Kind::kTensor || given[place] == nullptr) continue;
    if (graded && asks_for_gradient(given[place])) {
      refuse(PyExc_RuntimeError, std::string(name(place)) +
                                     ": expected no gradient (the kernels are forward only; use "
                                     "torch.no_grad()), actual requires_grad=True");
    }
    seen_[place].read(name(place), given[place]);
  }
}

const Seen& Tensors::at(std::size_t place) const {
  if (!has(place)) {
    refuse(PyExc_ValueError, std::string(name(place)) + ": expected a tensor, actual None");
  }
  return seen_[place];
}

std::int64_t Tensors::rows(std::size_t place) const {
  const auto shape = at(place).shape();
  return shape.empty() ? 0 : shape[0];
}

std::span<const std::int64_t> Tensors::extents(std::size_t place, const char* axes,
                                               std::size_t count) const {
  const auto shape = at(place).shape();
  if (shape.size() != count) {
    refuse(PyExc_ValueError, std::string(name(place)) + ": expected the axes " + axes +
                                 ", actual the shape " + listed(shape));
  }
  return shape;
}

void Tensors::check(std::size_t place, std::span<const std::int64_t> shape) const {
  const Seen& seen = seen_[place];
  if (!std::ranges::equal(seen.shape(), shape)) {
    refuse(PyExc_ValueError, std::string(name(place)) + ": expected the shape " + listed(shape) +
                                 ", actual " + listed(seen.shape()));
  }
  if (seen.device() != device_) {
    refuse(PyExc_ValueError, std::string(name(place)) + ": expected device " +
                                 std::to_string(device_) + ", actual " +
                                 std::to_string(seen.device()) + " (-1: the host)");
  }
  if (seen.dtype() == 0) {
    refuse(PyExc_TypeError,
           std::string(name(place)) +
               ": expected one of float32, float16, bfloat16, int64, int32, actual " +
               said(nb::handle(given_[place]).attr("dtype")));
  }
}

void Tensors::put(std::size_t place, const Shape& expected, std::size_t strided) {
  if (!has(place)) return;
  const auto shape = expected.list();
  check(place, shape);
  const Seen& seen = seen_[place];
  // Without an element the strides are what the maker of the tensor liked.
  std::array<std::int64_t, kMostAxes> dense{};
  std::span<const std::int64_t> stride = seen.stride();
  if (std::ranges::find(shape, 0) != shape.end()) {
    std::int64_t step = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      dense[axis] = std::max<std::int64_t>(step, 1);
      step *= shape[axis];
    }
    stride = std::span(dense).first(shape.size());
  }
  if (strided < shape.size() && stride.back() != 1 && shape.back() > 1) {
    refuse(PyExc_ValueError, std::string(name(place)) +
                                 ": expected a last axis of stride 1, actual stride " +
                                 listed(stride));
  }
  goldenrule_gpu_tensor tensor{};
  tensor.data = seen.data() == nullptr ? kNowhere : seen.data();
  std::ranges::copy(stride.first(strided), tensor.stride);
  tensor.dtype = seen.dtype();
  std::memcpy(args_ + arguments_.table()[place].offset, &tensor, sizeof tensor);
}

void Tensors::put_tokens(std::size_t place, const Shape& shape, std::size_t lead,
                         std::size_t strided) {
  if (!has(place)) return;
  if (!std::ranges::equal(seen_[place].shape(), shape.list())) {
    seen_[place].lead_by(name(place), shape.list(), lead);
  }
  put(place, shape, strided);
}

void Tensors::put_parameter(std::size_t place, const Shape& shape) {
  if (!has(place)) return;
  if (!std::ranges::equal(seen_[place].shape(), shape.list())) {
    seen_[place].unpacked_as(shape.list());
  }
  put(place, shape, 1);
}

}  // namespace goldenrule::python::gpu

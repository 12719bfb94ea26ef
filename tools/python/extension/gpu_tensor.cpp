// SPDX-License-Identifier: Apache-2.0
#include "tools/python/extension/gpu_tensor.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/goldenrule_gpu.h"

namespace goldenrule::python::gpu {

namespace nb = nanobind;

// The binary interface of DLPack 1.3.
struct DlTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t axes;
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

namespace {

struct DlExchange {
  std::uint32_t major;
  std::uint32_t minor;
  void* previous;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  int (*view_of_object)(void* object, DlTensor* view);
  void* current_stream;
};

enum DlDevice : std::int32_t { kDlCpu = 1, kDlCuda = 2, kDlPinned = 3, kDlManaged = 13 };

std::int32_t dtype_of(const DlTensor& tensor) {
  enum Code : std::uint8_t { kInt = 0, kFloat = 2, kBfloat = 4 };
  if (tensor.lanes != 1) return 0;
  switch (tensor.code << 8 | tensor.bits) {
    case kFloat << 8 | 32:
      return GOLDENRULE_GPU_F32;
    case kFloat << 8 | 16:
      return GOLDENRULE_GPU_F16;
    case kBfloat << 8 | 16:
      return GOLDENRULE_GPU_BF16;
    case kInt << 8 | 64:
      return GOLDENRULE_GPU_I64;
    case kInt << 8 | 32:
      return GOLDENRULE_GPU_I32;
    default:
      return 0;
  }
}

std::int32_t dtype_named(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  constexpr std::pair<std::string_view, std::int32_t> kNames[] = {
      {"float32", GOLDENRULE_GPU_F32},   {"float16", GOLDENRULE_GPU_F16},
      {"bfloat16", GOLDENRULE_GPU_BF16}, {"int64", GOLDENRULE_GPU_I64},
      {"int32", GOLDENRULE_GPU_I32},
  };
  for (const auto& [known, number] : kNames) {
    if (name == known) return number;
  }
  return 0;
}

int device_of(const char* name, const DlTensor& tensor) {
  switch (tensor.device_type) {
    case kDlCpu:
    case kDlPinned:
      return kHost;
    case kDlCuda:
    case kDlManaged:
      return tensor.device_id;
    default:
      refuse(PyExc_ValueError, std::string(name) + ": expected a tensor of a CUDA device, actual " +
                                   "one of DLPack's device type " +
                                   std::to_string(tensor.device_type));
  }
}

std::size_t read_list(const char* name, nb::handle numbers,
                      std::array<std::int64_t, kMostAxes>& list) {
  const std::size_t count = nb::len(numbers);
  if (count > list.size()) {
    refuse(PyExc_ValueError, std::string(name) + ": expected at most " +
                                 std::to_string(list.size()) + " axes, actual " +
                                 std::to_string(count));
  }
  for (std::size_t axis = 0; axis < count; ++axis)
    list[axis] = nb::cast<std::int64_t>(numbers[axis]);
  return count;
}

std::int64_t product(std::span<const std::int64_t> extents) {
  std::int64_t all = 1;
  for (const std::int64_t extent : extents) all *= extent;
  return all;
}

}  // namespace

void refuse(PyObject* kind, const std::string& text) {
  PyErr_SetString(kind, text.c_str());
  throw nb::python_error();
}

std::string listed(std::span<const std::int64_t> numbers) {
  std::string text = "[";
  for (const std::int64_t number : numbers) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(number);
  }
  return text + "]";
}

std::string said(nb::handle object) { return nb::str(object).c_str(); }

std::string shown(nb::handle object) { return nb::repr(object).c_str(); }

// How a type of tensors is read: by `view`, or by attributes, or not at all.
struct Seen::Exchange {
  int (*view)(void*, DlTensor*) = nullptr;
  bool refused = false;
};

// A subclass of torch.Tensor whose operations are its own (FakeTensor, DTensor) holds no elements
// where its data pointer says.
Seen::Exchange Seen::found_exchange(nb::handle type) {
  const nb::object dispatch = nb::getattr(type, "__torch_dispatch__", nb::none());
  const nb::object name = nb::getattr(dispatch, "__name__", nb::str(""));
  if (!dispatch.is_none() && said(name) != "_disabled_torch_dispatch_impl") {
    return {.refused = true};
  }
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return {};
  const auto* functions =
      static_cast<const DlExchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (functions->major != 1) return {};
  return {.view = functions->view_of_object};
}

Seen::Exchange Seen::exchange_of(nb::handle type) {
  // Under the interpreter's lock. Types are kept, so that no other has the address of a known one.
  static std::vector<std::pair<PyObject*, Exchange>>& known =
      *new std::vector<std::pair<PyObject*, Exchange>>;
  constexpr std::size_t kMostKnown = 32;
  for (const auto& [one, exchange] : known) {
    if (one == type.ptr()) return exchange;
  }
  const Exchange found = found_exchange(type);
  if (known.size() < kMostKnown) known.emplace_back(type.inc_ref().ptr(), found);
  return found;
}

void Seen::read(const char* name, nb::handle tensor) {
  const Exchange exchange = exchange_of(tensor.type());
  if (exchange.refused) {
    refuse(PyExc_TypeError, std::string(name) + ": expected a tensor whose elements lie where it " +
                                "says, actual " + shown(tensor.type()));
  }
  if (exchange.view != nullptr) {
    read_exchanged(name, exchange, tensor);
  } else {
    read_attributes(name, tensor);
  }
}

void Seen::read_exchanged(const char* name, const Exchange& exchange, nb::handle tensor) {
  DlTensor view;
  if (exchange.view(tensor.ptr(), &view) != 0) {
    const nb::python_error why;
    refuse(PyExc_TypeError, std::string(name) + ": " + said(why.value()));
  }
  axes_ = static_cast<std::size_t>(view.axes);
  data_ = static_cast<std::byte*>(view.data) + view.byte_offset;
  if (view.data == nullptr) data_ = nullptr;
  dtype_ = dtype_of(view);
  device_ = device_of(name, view);
  shape_ = view.shape;
  stride_ = view.strides;
  if (stride_ != nullptr || axes_ == 0) return;
  if (axes_ > own_stride_.size()) refuse(PyExc_ValueError, std::string(name) + ": too many axes");
  set_own(shape(), axes_, 1);
}

void Seen::read_attributes(const char* name, nb::handle tensor) {
  if (!nb::hasattr(tensor, "data_ptr") || !nb::hasattr(tensor, "get_device")) {
    refuse(PyExc_TypeError, std::string(name) + ": expected a tensor, actual " + shown(tensor));
  }
  axes_ = read_list(name, tensor.attr("shape"), own_shape_);
  read_list(name, tensor.attr("stride")(), own_stride_);
  shape_ = own_shape_.data();
  stride_ = own_stride_.data();
  data_ = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(tensor.attr("data_ptr")()));
  dtype_ = dtype_named(said(tensor.attr("dtype")));
  device_ = nb::cast<int>(tensor.attr("get_device")());
}

// Own lists, with dense strides of the axes below `from`, of which the innermost has this one.
void Seen::set_own(std::span<const std::int64_t> shape, std::size_t from, std::int64_t step) {
  std::ranges::copy(shape, own_shape_.begin());
  for (std::size_t axis = from; axis-- > 0;) {
    own_stride_[axis] = step;
    step *= std::max<std::int64_t>(shape[axis], 1);
  }
  shape_ = own_shape_.data();
  stride_ = own_stride_.data();
  axes_ = shape.size();
}

bool Seen::lead_by(const char* name, std::span<const std::int64_t> wanted, std::size_t lead) {
  const auto actual = shape();
  const std::size_t inner = wanted.size() - lead;
  if (actual.size() <= inner || actual.size() > kMostAxes) return false;
  const std::size_t outer = actual.size() - inner;
  if (!std::ranges::equal(actual.subspan(outer), wanted.subspan(lead))) return false;
  if (product(actual.first(outer)) != product(wanted.first(lead))) return false;
  // Two axes for two others might be the same ones in another order.
  const auto is_long = [](std::int64_t extent) { return extent != 1; };
  if (std::ranges::count_if(actual.first(outer), is_long) > 1 &&
      std::ranges::count_if(wanted.first(lead), is_long) > 1) {
    return false;
  }
  std::int64_t step = 0;  // of one token; 0: no axis of more than one so far
  std::int64_t next = 0;
  for (std::size_t axis = outer; axis-- > 0;) {
    if (actual[axis] == 1) continue;
    if (step == 0) {
      step = next = stride_[axis];
    } else if (stride_[axis] != next && product(actual) != 0) {
      refuse(PyExc_ValueError, std::string(name) + ": expected strides that allow the shape " +
                                   listed(wanted) + " without a copy, actual shape " +
                                   listed(actual) + ", stride " + listed(stride()));
    }
    next *= actual[axis];
  }
  std::array<std::int64_t, kMostAxes> kept{};
  std::ranges::copy(stride().subspan(outer), kept.begin());
  set_own(wanted, lead, step == 0 ? stride_[outer - 1] : step);
  std::copy_n(kept.begin(), inner, own_stride_.begin() + static_cast<std::ptrdiff_t>(lead));
  return true;
}

bool Seen::unpacked_as(std::span<const std::int64_t> wanted) {
  std::array<std::int64_t, kMostAxes> extents{};
  std::size_t count = 0;
  std::int64_t step = 1;
  for (std::size_t axis = axes_; axis-- > 0;) {
    if (shape_[axis] == 1) continue;
    if (stride_[axis] != step || count == extents.size()) return false;
    step *= shape_[axis];
    extents[count++] = shape_[axis];
  }
  const std::int64_t all = product(wanted);
  const bool flat = count == 0 ? all == 1 : count == 1 && extents[0] == all;
  const auto found = std::span(extents).first(count);
  if (!flat) {
    std::ranges::reverse(found);
    std::array<std::int64_t, kMostAxes> squeezed{};
    const auto end = std::ranges::copy_if(wanted, squeezed.begin(), [](auto n) { return n != 1; });
    if (!std::equal(found.begin(), found.end(), squeezed.begin(), end.out)) return false;
  }
  set_own(wanted, wanted.size(), 1);
  return true;
}

}  // namespace goldenrule::python::gpu

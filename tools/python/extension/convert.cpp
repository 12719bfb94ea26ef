// SPDX-License-Identifier: Apache-2.0
#include "tools/python/extension/convert.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "fixtures/call/error.hpp"
#include "tools/python/extension/arbiter.hpp"

namespace goldenrule::python {
namespace {

namespace nb = nanobind;

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A tensor that has not been copied yet.
struct Given {
  call::DType dtype;
  call::Shape shape;
  Bytes bytes;
};
using GivenTensors = std::map<std::string, Given>;

template <class E>
void set_field(E& field, nb::handle value) {
  if constexpr (std::is_enum_v<E>) {
    field = call::parse_name<E>(nb::cast<std::string>(value));
  } else if constexpr (std::is_same_v<E, std::optional<double>>) {
    field = nb::cast<double>(value);
  } else {
    field = nb::cast<E>(value);
  }
}

call::Convention to_convention(const nb::dict& values, call::Family family) {
  call::Convention convention;
  std::size_t known = 0;
  call::for_each_field_of(family, convention, [&](const char* name, auto& field) {
    if (!values.contains(name)) return;
    ++known;
    set_field(field, values[name]);
  });
  if (known != values.size()) {
    throw Error(ErrorKind::kArgument, "convention", "known attributes", "others among them");
  }
  return convention;
}

GivenTensors to_given(const char* group, const nb::dict& tensors) {
  GivenTensors given;
  for (const auto& [key, value] : tensors) {
    const auto name = nb::cast<std::string>(key);
    const auto [dtype, shape, bytes] = nb::cast<std::tuple<nb::str, nb::tuple, Bytes>>(value);
    Given tensor{.dtype = call::parse_dtype(dtype.c_str()), .shape = {}, .bytes = bytes};
    for (const nb::handle extent : shape) tensor.shape.push_back(nb::cast<std::int64_t>(extent));
    const auto expected = static_cast<std::size_t>(call::element_count(tensor.shape)) *
                          call::info(tensor.dtype).bytes;
    if (bytes.size() != expected) {
      throw Error(ErrorKind::kShape, std::string(group) + " " + name,
                  std::to_string(expected) + " bytes", std::to_string(bytes.size()));
    }
    given.emplace(name, std::move(tensor));
  }
  return given;
}

verdict::Shapes shapes_of(const GivenTensors& given) {
  verdict::Shapes shapes;
  for (const auto& [name, tensor] : given) shapes[name] = tensor.shape;
  return shapes;
}

double bytes_of(const GivenTensors& given) {
  double bytes = 0.0;
  for (const auto& item : given) bytes += static_cast<double>(item.second.bytes.size());
  return bytes;
}

call::TensorMap copied(const GivenTensors& given) {
  call::TensorMap tensors;
  for (const auto& [name, from] : given) {
    call::Tensor tensor(from.dtype, from.shape);
    std::ranges::copy(std::as_bytes(std::span(from.bytes.data(), from.bytes.size())),
                      tensor.bytes().begin());
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

GivenTensors given_stages(const nb::dict& call) {
  if (!call.contains("stages")) return {};
  return to_given("stages", nb::cast<nb::dict>(call["stages"]));
}

nb::dict convention_dict(const call::Convention& convention, call::Family family) {
  nb::dict values;
  call::for_each_field_of(family, convention, [&](const char* name, const auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_enum_v<Field>) {
      values[name] = std::string(call::name_of(field));
    } else if constexpr (std::is_same_v<Field, std::optional<double>>) {
      if (field) values[name] = *field;
    } else {
      values[name] = field;
    }
  });
  return values;
}

nb::dict tensor_dict(call::TensorMap tensors) {
  nb::dict result;
  for (auto& [name, tensor] : tensors) result[name.c_str()] = to_tuple(std::move(tensor));
  return result;
}

// A flat array of T in memory that `owner` holds.
template <class T, class Owner>
nb::object owned(T* data, std::size_t count, std::unique_ptr<Owner> owner) {
  const nb::capsule capsule(owner.get(),
                            [](void* p) noexcept { delete static_cast<Owner*>(p); });  // NOLINT
  (void)owner.release();
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {count}, capsule));
}

template <class T>
nb::object vector_array(std::vector<T> values) {
  auto owner = std::make_unique<std::vector<T>>(std::move(values));
  T* const data = owner->data();
  const std::size_t count = owner->size();
  return owned(data, count, std::move(owner));
}

nb::dict departure_dict(const Departure& departure) {
  nb::dict fields;
  fields["tensor"] = departure.tensor;
  fields["violations"] = departure.violations;
  fields["first"] = to_dict(departure.first);
  fields["worst"] = to_dict(departure.coordinates);
  fields["value"] = departure.worst.value;
  fields["other"] = departure.worst.golden;
  fields["error"] = departure.worst.error;
  fields["bound"] = departure.worst.budget;
  return fields;
}

}  // namespace

call::Record to_record(const nb::dict& call, bool explained) {
  call::Record record;
  record.op = call::parse_name<call::Op>(nb::cast<std::string>(call["op"]));
  record.mode = call::parse_name<call::Mode>(nb::cast<std::string>(call["mode"]));
  record.convention =
      to_convention(nb::cast<nb::dict>(call["convention"]), call::family_of(record.op));
  record.source = nb::cast<std::string>(call["source"]);
  record.contract = nb::cast<std::string>(call["contract"]);
  record.case_line = nb::cast<std::string>(call["case"]);
  const GivenTensors inputs = to_given("inputs", nb::cast<nb::dict>(call["inputs"]));
  const GivenTensors outputs = to_given("outputs", nb::cast<nb::dict>(call["outputs"]));
  const GivenTensors stages = given_stages(call);
  admit({.op = record.op,
         .mode = record.mode,
         .inputs = shapes_of(inputs),
         .outputs = shapes_of(outputs),
         .stages = shapes_of(stages),
         .tensor_bytes = bytes_of(inputs) + bytes_of(outputs) + bytes_of(stages)},
        explained);
  record.inputs = copied(inputs);
  record.outputs = copied(outputs);
  return record;
}

std::optional<verdict::KernelStages> to_stages(const nb::dict& call) {
  const GivenTensors given = given_stages(call);
  if (given.empty()) return std::nullopt;
  verdict::KernelStages stages;
  stages.tensors = copied(given);
  stages.chunk = nb::cast<std::int64_t>(call["stage_chunk"]);
  for (const auto& [name, form] : nb::cast<nb::dict>(call["stage_forms"])) {
    stages.forms[nb::cast<std::string>(name)] = nb::cast<std::string>(form);
  }
  return stages;
}

nb::dict to_dict(call::Record record) {
  nb::dict call;
  call["op"] = std::string(call::name_of(record.op));
  call["mode"] = std::string(call::name_of(record.mode));
  call["convention"] = convention_dict(record.convention, call::family_of(record.op));
  call["source"] = record.source;
  call["contract"] = record.contract;
  call["case"] = record.case_line;
  call["inputs"] = tensor_dict(std::move(record.inputs));
  call["outputs"] = tensor_dict(std::move(record.outputs));
  return call;
}

void put_stages(call::TensorMap stages, std::int64_t chunk,
                const std::map<std::string, std::string>& forms, nb::dict& call) {
  nb::dict form_of;
  for (const auto& [name, form] : forms) form_of[name.c_str()] = form;
  call["stages"] = tensor_dict(std::move(stages));
  call["stage_chunk"] = chunk;
  call["stage_forms"] = form_of;
}

nb::tuple to_tuple(call::Tensor tensor) {
  auto owner = std::make_unique<call::Tensor>(std::move(tensor));
  const std::string dtype(call::info(owner->dtype()).name);
  const nb::tuple shape = to_tuple(owner->shape());
  auto* const data = reinterpret_cast<std::uint8_t*>(owner->bytes().data());
  const std::size_t size = owner->bytes().size();
  return nb::make_tuple(dtype, shape, owned(data, size, std::move(owner)));
}

nb::object to_array(std::vector<double> values) { return vector_array(std::move(values)); }
nb::object to_array(std::vector<float> values) { return vector_array(std::move(values)); }

nb::dict to_dict(const verdict::Coordinates& coordinates) {
  nb::dict indices;
  for (const auto& [name, index] : coordinates) indices[name.c_str()] = index;
  return indices;
}

nb::list to_list(const std::vector<RelationRow>& rows) {
  nb::list result;
  for (const RelationRow& row : rows) {
    nb::dict fields;
    fields["name"] = row.name;
    fields["meaning"] = row.meaning;
    fields["applies"] = row.applies;
    fields["bits"] = row.bits;
    fields["compared"] = row.compared;
    fields["bound_to_signal"] = row.bound_to_signal;
    nb::list departures;
    for (const Departure& departure : row.departures) departures.append(departure_dict(departure));
    fields["departures"] = departures;
    result.append(fields);
  }
  return result;
}

nb::tuple to_tuple(const call::Shape& shape) {
  nb::list extents;
  for (const std::int64_t extent : shape) extents.append(extent);
  return nb::tuple(extents);
}

}  // namespace goldenrule::python

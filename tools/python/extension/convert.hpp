// SPDX-License-Identifier: Apache-2.0
//
// Between Python objects and records. Only the package's own modules call this
// (goldenrule/_calls.py), with what they have made of a user's tensors: the storage type by its
// name, the shape, and the bytes in one piece. What does not fit is refused here all the same.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "fixtures/call/record.hpp"
#include "reference/verdict/stages.hpp"
#include "tools/python/extension/arbiter.hpp"

namespace goldenrule::python {

/// {"op", "mode", "convention": {attribute: value}, "inputs", "outputs": {name: (dtype, shape,
/// bytes)}, "source", "contract", "case"}. Tensors are copied, and only where the memory that the
/// verdict needs (`explained`: and an explanation) is there. Throws Error and TooLarge.
[[nodiscard]] call::Record to_record(const nanobind::dict& call, bool explained);

/// What `call` has of the stages of its kernel: "stages" as the outputs, "stage_chunk" and
/// "stage_forms" {name: form}. Nothing where there are none.
[[nodiscard]] std::optional<verdict::KernelStages> to_stages(const nanobind::dict& call);

/// The same, without its outputs where it has none. The tensors move into the arrays.
[[nodiscard]] nanobind::dict to_dict(call::Record record);

/// Adds what to_stages takes.
void put_stages(call::TensorMap stages, std::int64_t chunk,
                const std::map<std::string, std::string>& forms, nanobind::dict& call);

/// A flat array of bytes that owns the tensor.
[[nodiscard]] nanobind::tuple to_tuple(call::Tensor tensor);

/// A flat array that owns the numbers.
[[nodiscard]] nanobind::object to_array(std::vector<double> values);
[[nodiscard]] nanobind::object to_array(std::vector<float> values);

[[nodiscard]] nanobind::tuple to_tuple(const call::Shape& shape);

/// {"token": 3, ..}
[[nodiscard]] nanobind::dict to_dict(const verdict::Coordinates& coordinates);

/// What relations say, a dict for each, with dicts of "departures".
[[nodiscard]] nanobind::list to_list(const std::vector<RelationRow>& rows);

}  // namespace goldenrule::python

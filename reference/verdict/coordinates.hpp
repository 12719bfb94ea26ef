// SPDX-License-Identifier: Apache-2.0
//
// Names for the index of an element, in the terms of the call: which sequence, which of its tokens,
// which head, which key and value channel. A packed token index or a [.., V, K] position says
// nothing to the person who wrote the kernel.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/call/axis.hpp"

namespace goldenrule::verdict {

using Coordinates = std::vector<std::pair<std::string, std::int64_t>>;

/// Of element `index` of output `name` of a validated record.
[[nodiscard]] Coordinates coordinates(const call::Record& record, const std::string& name,
                                      const call::Shape& index);

/// "sequence 2, token 17, head 3, value 101"; of a state on the way of a prefill call
/// "checkpoint 3, sequence 1, after 128 tokens, head 2, key 60, value 29".
[[nodiscard]] std::string to_string(const Coordinates& coordinates);

/// Whether the last two axes are the channels of a head, or a state. A place of a ring is neither,
/// an lse has no channels, and counts have neither heads nor channels.
[[nodiscard]] bool has_plane(std::span<const call::Axis> axes);

}  // namespace goldenrule::verdict

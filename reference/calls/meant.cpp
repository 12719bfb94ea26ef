// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "reference/calls/mistake.hpp"

namespace goldenrule::calls {
namespace {

// The value of attribute `name` as a file and a case line have it; numbers have no name here.
std::string_view value_of(const call::Convention& convention, std::string_view name) {
  std::string_view found;
  call::for_each_field(convention, [&](const char* field, const auto& value) {
    if constexpr (std::is_enum_v<std::decay_t<decltype(value)>>) {
      if (name == field) found = call::name_of(value);
    }
  });
  return found;
}

}  // namespace

std::optional<std::string> meant_convention(const Mistake& mistake, const call::Record& record) {
  for (const Meant& m : mistake.meant) {
    if (!m.from.empty() && value_of(record.convention, m.name) != m.from) continue;
    return std::string(m.name) + "=" + std::string(m.to);
  }
  return std::nullopt;
}

}  // namespace goldenrule::calls

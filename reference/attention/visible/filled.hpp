// SPDX-License-Identifier: Apache-2.0
//
// Sentences with numbers in them; the library of references needs no library of formats.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace goldenrule::attention {

[[nodiscard]] inline std::string text_of(std::integral auto number) {
  return std::to_string(number);
}
[[nodiscard]] inline std::string text_of(std::string_view text) { return std::string(text); }

/// `pattern` with the parts in the places of its "{}", of which it has as many.
template <class... Parts>
[[nodiscard]] std::string filled(std::string_view pattern, const Parts&... parts) {
  std::string text;
  const auto add = [&](const std::string& part) {
    const std::size_t at = pattern.find("{}");
    text += pattern.substr(0, at);
    text += part;
    pattern.remove_prefix(at + 2);
  };
  (add(text_of(parts)), ...);
  text += pattern;
  return text;
}

/// "0, 2, 5"
template <class Members>
[[nodiscard]] std::string joined(const Members& members, std::string_view between) {
  std::string text;
  for (const auto& member : members) {
    if (!text.empty()) text += between;
    text += text_of(member);
  }
  return text;
}

}  // namespace goldenrule::attention

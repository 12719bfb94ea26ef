// SPDX-License-Identifier: Apache-2.0
//
// A form that reproduces rows, beside the others that cannot be told from it in the call.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "reference/attention/visible/forms.hpp"

namespace goldenrule::attention {

/// A form of the rows in one order of keys.
struct Match {
  Form form;
  std::size_t order = 0;
  std::vector<std::string>
      same;  ///< forms that cost little more and mean the same sets in this call
  std::vector<std::string> others;  ///< forms that reproduce the rows by other sets
};

[[nodiscard]] inline std::string keys_words(std::size_t order) {
  return order == 0 ? "its keys" : "its cached keys";
}

/// Adds the words of `form`, unless they are said already.
inline void add_words(const Form& form, std::size_t order, const Match& match,
                      std::vector<std::string>& to) {
  constexpr std::size_t kMost = 2;
  const std::string words = keys_words(order) + " " + form.words;
  if (to.size() >= kMost || std::ranges::find(to, words) != to.end()) return;
  const std::string said = keys_words(match.order) + " " + match.form.words;
  if (!words.starts_with(said)) to.push_back(words);
}

}  // namespace goldenrule::attention

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "reference/calls/mistake.hpp"

namespace goldenrule::calls {
namespace {

std::string joined(std::span<const Aspect> aspects, std::string_view Aspect::*part,
                   std::string_view between) {
  std::string text;
  for (const Aspect& aspect : aspects) {
    if (!text.empty()) text += between;
    text += aspect.*part;
  }
  return text;
}

}  // namespace

std::string joined_name(std::span<const Aspect> aspects) {
  return joined(aspects, &Aspect::name, "_");
}

std::string joined_meaning(std::span<const Aspect> aspects) {
  return joined(aspects, &Aspect::meaning, ", ");
}

bool are_of_a_kind(const Mistake& a, const Mistake& b) {
  return !a.aspects.empty() && !b.aspects.empty() &&
         a.aspects.front().name == b.aspects.front().name;
}

void share(const Mistake& mistake, const Mistake& other, std::vector<Aspect>& shared) {
  if (shared.empty()) shared.assign(mistake.aspects.begin(), mistake.aspects.end());
  std::erase_if(shared, [&](const Aspect& aspect) {
    return std::ranges::find(other.aspects, aspect.name, &Aspect::name) == other.aspects.end();
  });
}

// The words of a part stand in their order.
bool is_name_of(const Mistake& mistake, std::string_view name) {
  if (name == mistake.name) return true;
  std::vector<Aspect> said;
  for (const Aspect& aspect : mistake.aspects) {
    said.push_back(aspect);
    if (!(std::string(name) + "_").starts_with(joined_name(said) + "_")) said.pop_back();
  }
  return !said.empty() && joined_name(said) == name;
}

}  // namespace goldenrule::calls

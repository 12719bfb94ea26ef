// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/visible/row_words.hpp"

#include <set>

#include "reference/attention/visible/filled.hpp"

namespace goldenrule::attention {
namespace {

// "heads 4 to 7", "head 2", "heads 0, 2, 5"; empty for all.
std::string set_words(const char* word, const std::set<std::int64_t>& members, std::int64_t size) {
  constexpr std::size_t kListed = 8;
  if (std::ssize(members) == size) return "";
  if (members.size() == 1) return filled("{} {}", word, *members.begin());
  if (*members.rbegin() - *members.begin() + 1 == std::ssize(members)) {
    return filled("{}s {} to {}", word, *members.begin(), *members.rbegin());
  }
  if (members.size() <= kListed) return filled("{}s {}", word, joined(members, ", "));
  return filled("{} of {} {}s", members.size(), size, word);
}

std::string range_words(const KeyLine& line, const Interval& interval) {
  if (interval.first >= interval.last) return "none";
  const Range range = line.positions(interval);
  return filled("{} to {}", range.first, range.last - 1);
}

}  // namespace

std::string whose_words(const Plan& plan, const std::vector<Place>& rows) {
  std::set<std::int64_t> requests, heads;
  std::set<std::pair<std::int64_t, std::int64_t>> pairs;
  for (const Place& place : rows) {
    requests.insert(static_cast<std::int64_t>(place.request));
    heads.insert(place.row.head);
    pairs.emplace(place.request, place.row.head);
  }
  const bool is_box = pairs.size() == requests.size() * heads.size();
  std::string words = is_box ? "each failing query" : "each failing query and head";
  const std::string of_heads = set_words("head", heads, plan.dims.HV);
  const std::string of_requests = set_words("request", requests, std::ssize(plan.requests));
  if (!of_heads.empty()) words += " of " + of_heads;
  if (!of_requests.empty()) words += " of " + of_requests;
  return words;
}

std::string interval_words(const Place& place, const KeyLine& line, const Interval& seen,
                           const Interval& declared) {
  return filled("query {}, head {} of request {} sees positions {} instead of {}", place.row.query,
                place.row.head, place.request, range_words(line, seen),
                range_words(line, declared));
}

}  // namespace goldenrule::attention

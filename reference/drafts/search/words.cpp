// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/search/words.hpp"

#include <array>
#include <span>
#include <string_view>

namespace goldenrule::drafts {
namespace {

template <class E>
std::string_view word(std::span<const std::string_view> of, E e) {
  return of[static_cast<std::size_t>(e)];
}

constexpr std::array<std::string_view, kTests> kTestWords{
    "accepts as a right one",
    "accepts where u <= p, whatever q is",
    "accepts where u p <= q, the ratio upside down",
    "accepts where (1 - u) q <= p",
    "accepts where q <= p, whatever u is",
    "accepts where u <= the product of p / q from the first draft to this one",
    "accepts where the draft is the target's likeliest token",
    "accepts also where the draft is the target's likeliest token",
    "accepts where the draft is the token that its uniform draws from p",
    "accepts every draft",
    "accepts no draft, as if p were 0"};

constexpr std::array<std::string_view, kFroms> kFromWords{
    "its own position",
    "the next position in memory",
    "the position before in memory",
    "the next position, of the last its own",
    "the position before, of the first its own",
    "the first position",
    "the last position",
    "the same position of the first request"};

constexpr std::array<std::string_view, kStops> kStopWords{
    "counts up to the first failure",
    "counts all that pass, behind a failure too",
    "counts up to the last that passes",
    "counts all drafts or none",
    "counts one more",
    "counts one less",
    "does not test the first draft"};

constexpr std::array<std::string_view, kWeights> kWeightWords{
    "weighs as a right one", "weighs tokens by p, q not taken off", "weighs tokens by q",
    "weighs tokens by |p - q|", "weighs tokens by p - q, which may be below 0"};

constexpr std::array<std::string_view, kChosen> kChosenWords{
    "chooses as a right one",
    "compares sums with the uniform itself, not times the sum of all weights",
    "chooses by the uniform of the last decision",
    "chooses in the place of a rejected draft by the uniform that rejected it",
    "chooses by what is drawn for the first request",
    "takes the largest weight times noise, not over it",
    "takes the largest weight",
    "takes the rejected draft itself"};

class Clauses {
 public:
  template <class E>
  void add(std::span<const std::string_view> of, E e) {
    if (e != E{}) add(std::string(word(of, e)));
  }
  void add_from(std::string_view what, From from) {
    if (from != From::kOwn)
      add("reads " + std::string(what) + " of " + std::string(word(kFromWords, from)));
  }
  [[nodiscard]] std::string text() const { return text_; }

 private:
  void add(const std::string& clause) { text_ += (text_.empty() ? "" : ", and ") + clause; }

  std::string text_;
};

}  // namespace

std::string words(const CountPoint& point) {
  Clauses clauses;
  clauses.add(kTestWords, point.test);
  clauses.add_from("what the target says", point.target);
  clauses.add_from("the uniform", point.uniform);
  clauses.add(kStopWords, point.stop);
  return clauses.text();
}

std::string words(const TokenPoint& point) {
  Clauses clauses;
  clauses.add(kWeightWords, point.weights);
  clauses.add_from("what the target says", point.target);
  clauses.add_from("q", point.draft);
  clauses.add(kChosenWords, point.chosen);
  return clauses.text();
}

}  // namespace goldenrule::drafts

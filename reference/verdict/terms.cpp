// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/terms.hpp"

#include <charconv>
#include <cmath>

#include "fixtures/call/error.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::verdict {
namespace {

Error refusal(const std::string& expected, const std::string& actual) {
  return {ErrorKind::kArgument, "--terms", expected, "'" + actual + "'"};
}

std::string text_of(const Element& element) {
  return element.output + call::to_string(element.index);
}

// Position of the element in storage order.
std::int64_t position(const call::Shape& shape, const Element& element) {
  const call::Shape& index = element.index;
  std::int64_t at = 0;
  bool inside = index.size() == shape.size();
  for (std::size_t i = 0; inside && i < shape.size(); ++i) {
    inside = index[i] < shape[i];
    at = at * shape[i] + index[i];
  }
  if (!inside) throw refusal("an index within " + call::to_string(shape), text_of(element));
  return at;
}

}  // namespace

Element parse_element(const std::string& text) {
  const Error wrong = refusal("an output and an index, as o[1,3,0,7]", text);
  const std::size_t open = text.find('[');
  if (open == std::string::npos || open == 0 || text.back() != ']') throw wrong;
  Element element{.output = text.substr(0, open), .index = {}};
  const char* at = text.data() + open + 1;
  const char* const end = text.data() + text.size() - 1;
  while (true) {
    std::int64_t number = -1;
    const auto [next, status] = std::from_chars(at, end, number);
    if (status != std::errc() || number < 0) throw wrong;
    element.index.push_back(number);
    if (next == end) return element;
    if (*next != ',') throw wrong;
    at = next + 1;
  }
}

Terms terms_of(const Judgement& judgement, const Element& element) {
  const auto output = judgement.record.outputs.find(element.output);
  if (output == judgement.record.outputs.end()) {
    throw refusal("an output that is judged", text_of(element));
  }
  const std::int64_t position_in_storage = position(output->second.shape(), element);
  const auto at = static_cast<std::size_t>(position_in_storage);
  Expectations expected = judgement.expected;
  judgement.slice->grant(judgement.record, judgement.contract, GrantDetail::kTerms, expected);
  const Expected& e = expected.outputs.at(element.output);
  if (!e.grant.given) {
    throw refusal("an output that contract " + judgement.contract.name + " gives a budget",
                  text_of(element));
  }
  if (!e.exact.is_defined(at)) throw refusal("an element that a kernel writes", text_of(element));
  const Budget budget(element.output, output->second.dtype(), e, judgement.contract);
  Terms terms{.element = element,
              .coordinates = coordinates(judgement.record, element.output, element.index)};
  terms.value = output->second[position_in_storage];
  terms.golden = e.exact.golden[at];
  terms.radius = static_cast<double>(e.exact.radius[at]);
  terms.kept = !e.exact.touched.empty() && e.exact.touched[at / e.exact.block] == Touch::kKept;
  if (!terms.kept && !e.grant.sigma.empty()) {
    terms.multiple = e.grant.multiple;
    terms.sigma = static_cast<double>(e.grant.sigma[at]);
    terms.bias = static_cast<double>(e.grant.bias[at]);
  }
  terms.flushed = terms.kept ? 0.0 : budget.flushed(at);
  terms.budget = std::isfinite(terms.golden) ? budget(at) : 0.0;
  terms.half_ulp = terms.kept ? terms.budget : terms.budget - budget.spread(at) - terms.flushed;
  terms.passes = passes(terms.value, e, at, terms.budget);
  return terms;
}

}  // namespace goldenrule::verdict

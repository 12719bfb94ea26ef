// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/unknown/draw.hpp"

#include <array>
#include <utility>

#include "fixtures/cases/case.hpp"
#include "reference/verdict/kernels.hpp"

namespace goldenrule::suites {
namespace {

constexpr std::uint64_t kSeedOfRoundings = 7;

constexpr std::array kUnknownKinds{
    UnknownKind{"orders of steps", "decay, predict, write and read of a token in another order",
                draw_order},
    UnknownKind{"orders in chunks", "one or two of the decays of a chunk missing",
                draw_chunk_order},
    UnknownKind{"tails", "an axis not read or not written beyond its last full tile", draw_tail},
    UnknownKind{"places", "right numbers where an affine map of places puts them", draw_places},
    UnknownKind{"blocks", "a mistake in some sequences or heads", draw_blocks},
    UnknownKind{"visible sets", "attention over other keys", draw_visible_set},
    UnknownKind{"merges", "parts of attention merged in another way", draw_merge},
    UnknownKind{"pairs", "two mistakes at once, of table and generators", draw_pair},
    UnknownKind{"pairs in blocks", "two mistakes, each in blocks of its own", draw_pair_in_blocks},
    UnknownKind{"decisions", "another test, place, stop or choice of draft acceptance",
                draw_decision},
    UnknownKind{"other chunks", "decays missing in chunks of other lengths, or three of them",
                draw_other_chunk, true},
    UnknownKind{"other tails", "tails of other widths that are not read, or hold other results",
                draw_other_tail, true}};

}  // namespace

Draw drawn_call(const verdict::Slice& slice, std::string line) {
  Draw draw{.line = std::move(line), .planted = {}, .slice = &slice};
  draw.call = cases::make_record(cases::parse(draw.line));
  draw.contract = &slice.default_contract(draw.call);
  return draw;
}

void plant(Draw& draw, const Plant& mistake) {
  draw.made = calls::stored(
      draw.call, *draw.contract,
      mistake(verdict::emulated_kernel(*draw.slice, *draw.contract, kSeedOfRoundings)));
  draw.exact = mistake(verdict::exact_kernel(*draw.slice));
}

std::span<const UnknownKind> unknown_kinds() { return kUnknownKinds; }

const UnknownKind& kind_of(std::int64_t number) {
  return kUnknownKinds[static_cast<std::size_t>(number % std::ssize(kUnknownKinds))];
}

Draw draw_unknown(std::uint64_t seed, std::int64_t number) {
  const UnknownKind& kind = kind_of(number);
  const std::int64_t number_of_kind = number / std::ssize(kUnknownKinds);
  Draws draws(seed, std::string(kind.name) + " " + std::to_string(number_of_kind));
  return kind.draw(draws);
}

}  // namespace goldenrule::suites

// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in what is committed, cropped and released.
#include <array>

#include "reference/drafts/mistakes/mistake.hpp"

namespace goldenrule::drafts {
namespace {

void stop_ignored(const Work&, call::Record& record) { record.inputs.erase("stop_tokens"); }

void without_last_row(const Work& work, std::int64_t n, Returned& r) {
  if (work.row(n).padded() || !r.committed || *r.committed == 0) return;
  const call::Convention& c = work.call.convention;
  const std::int64_t committed = *r.committed - 1;
  const std::int64_t length = work.row(n).start + committed;
  r.committed = committed;
  r.keep[static_cast<std::size_t>(committed)] = 0;
  if (c.draft_crop == call::DraftCrop::kNewStart) r.draft_len = length;
  r.target_len = length;
  r.release_from = (length + c.page_size - 1) / c.page_size;
}

void to_new_start(const Work&, std::int64_t, Returned& r) { r.draft_len = r.target_len; }
void to_start(const Work& work, std::int64_t n, Returned& r) { r.draft_len = work.row(n).start; }
void not_cropped(const Work& work, std::int64_t n, Returned& r) {
  if (!work.row(n).padded()) r.draft_len = work.row(n).start + work.plan.dims.drafts + 1;
}

void partial_page(const Work& work, std::int64_t n, Returned& r) {
  if (work.row(n).padded() || !r.target_len) return;
  r.release_from = *r.target_len / work.call.convention.page_size;
}
void padding_released(const Work& work, std::int64_t n, Returned& r) {
  if (work.row(n).padded()) r.release_from = 0;
}

constexpr std::array kNewStart{calls::Meant{"draft_crop", "start", "new_start"}};
constexpr std::array kStart{calls::Meant{"draft_crop", "new_start", "start"}};

constexpr std::array kCommitMistakes{
    mistake<stop_ignored>("stop_ignored", "committing", "emits what stands behind a stop token"),
    mistake<without_last_row>("commit_without_bonus_row", "committing",
                              "commits start + a tokens: forgets that the anchor is one of them"),
    mistake<to_new_start>("crop_to_new_start", "committing",
                          "crops the draft's cache to the new start, which leaves rows of noise",
                          "", kNewStart),
    mistake<to_start>("crop_to_start", "committing",
                      "crops the draft's cache to the old start, where the new one is wanted", "",
                      kStart),
    mistake<not_cropped>("crop_skipped", "committing",
                         "leaves all rows of the block in the draft's cache"),
    mistake<partial_page>("partial_page_released", "committing",
                          "releases the last page though a part of it is used", "SGLang #7112"),
    mistake<padding_released>("padding_released", "committing",
                              "releases pages of a row of padding"),
};

}  // namespace

std::span<const calls::Mistake> commit_mistakes() { return kCommitMistakes; }

}  // namespace goldenrule::drafts

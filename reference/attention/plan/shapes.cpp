// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "fixtures/call/error.hpp"
#include "reference/attention/plan/plan.hpp"

namespace goldenrule::attention {
namespace {

enum class Kind : std::uint8_t { kFloat, kInteger };
enum class Part : std::uint8_t { kCall, kFresh, kCache, kDense, kCsr, kOptional };

struct TensorRow {
  std::string_view name;
  Kind kind;
  Part part;
  std::array<std::string_view, 4> axes;  ///< letters; empty: no such axis
};

// Every tensor of a call. The first that has a letter decides its extent.
constexpr std::array kTensors{
    TensorRow{"cu_seqlens_q", Kind::kInteger, Part::kCall, {"N+1"}},
    TensorRow{"q", Kind::kFloat, Part::kCall, {"total_q", "HV", "K"}},
    TensorRow{"k", Kind::kFloat, Part::kFresh, {"total_k", "H", "K"}},
    TensorRow{"v", Kind::kFloat, Part::kFresh, {"total_k", "H", "V"}},
    TensorRow{"cu_seqlens_k", Kind::kInteger, Part::kFresh, {"N+1"}},
    TensorRow{"k_cache", Kind::kFloat, Part::kCache, {"pages", "P", "H", "K"}},
    TensorRow{"v_cache", Kind::kFloat, Part::kCache, {"pages", "P", "H", "V"}},
    TensorRow{"kv_lens", Kind::kInteger, Part::kCache, {"N"}},
    TensorRow{"page_table", Kind::kInteger, Part::kDense, {"N", "W"}},
    TensorRow{"page_indptr", Kind::kInteger, Part::kCsr, {"N+1"}},
    TensorRow{"page_indices", Kind::kInteger, Part::kCsr, {"nnz"}},
    TensorRow{"last_page_len", Kind::kInteger, Part::kOptional, {"N"}},
    TensorRow{"q_offset", Kind::kInteger, Part::kOptional, {"N"}},
    TensorRow{"valid_q", Kind::kInteger, Part::kOptional, {"N"}},
};

std::string place(std::string_view name) { return "/inputs/" + std::string(name); }

bool has(const Call& call, std::string_view name) {
  return call.record.find_input(std::string(name)) != nullptr;
}
bool has_any(const Call& call, Part part) {
  for (const TensorRow& row : kTensors) {
    if (row.part == part && has(call, row.name)) return true;
  }
  return false;
}

void need(const Call& call, Part part, std::string_view reason) {
  for (const TensorRow& row : kTensors) {
    if (row.part == part && !has(call, row.name)) {
      throw Error(ErrorKind::kSchema, place(row.name), "a tensor, " + std::string(reason), "none");
    }
  }
}
void refuse(const Call& call, Part part, std::string_view reason) {
  for (const TensorRow& row : kTensors) {
    if (row.part == part && has(call, row.name)) {
      throw Error(ErrorKind::kSchema, place(row.name), "none, " + std::string(reason), "a tensor");
    }
  }
}

void check_presence(const Call& call) {
  for (const auto& [name, tensor] : call.record.inputs) {
    bool known = false;
    for (const TensorRow& row : kTensors) known = known || row.name == name;
    if (!known) throw Error(ErrorKind::kSchema, place(name), "an input of attention", name);
  }
  need(call, Part::kCall, "in every call");
  const bool fresh = has_any(call, Part::kFresh);
  const bool cache = has_any(call, Part::kCache);
  if (!fresh && !cache) need(call, Part::kFresh, "since there is no cache");
  if (fresh) need(call, Part::kFresh, "with the other fresh keys and values");
  if (!cache) {
    refuse(call, Part::kDense, "since there is no cache");
    refuse(call, Part::kCsr, "since there is no cache");
    if (call.attributes.block_kv == BlockKv::kInCache) {
      need(call, Part::kCache, "since block_kv is in_cache");
    }
    if (has(call, "last_page_len")) {
      throw Error(ErrorKind::kSchema, place("last_page_len"), "none, since there is no cache",
                  "a tensor");
    }
    return;
  }
  need(call, Part::kCache, "with the rest of the cache");
  if (has_any(call, Part::kCsr)) {
    need(call, Part::kCsr, "with the rest of the table");
    refuse(call, Part::kDense, "since page_indptr and page_indices are the table");
  } else {
    need(call, Part::kDense, "or page_indptr and page_indices");
  }
  if (call.attributes.block_kv == BlockKv::kInCache) {
    refuse(call, Part::kFresh, "since block_kv is in_cache");
  }
}

// Extents by their letters, and where each was found.
class Letters {
 public:
  void bind(std::string_view name, std::string_view letter, std::int64_t extent) {
    const auto [it, is_new] = extent_.try_emplace(letter, extent, name);
    if (is_new && letter == "N+1") bind(name, "N", extent - 1);
    if (it->second.first == extent) return;
    throw Error(ErrorKind::kShape, place(name),
                std::string(letter) + " = " + std::to_string(it->second.first) + " as in " +
                    place(it->second.second),
                std::to_string(extent));
  }
  [[nodiscard]] std::int64_t operator[](std::string_view letter) const {
    const auto it = extent_.find(letter);
    return it == extent_.end() ? 0 : it->second.first;
  }
  void check(std::string_view letter, std::int64_t low, std::int64_t high) const {
    const auto it = extent_.find(letter);
    if (it == extent_.end()) return;
    const auto [extent, name] = it->second;
    if (extent >= low && extent <= high) return;
    throw Error(ErrorKind::kShape, place(name),
                std::string(letter) + " of " + std::to_string(low) + " to " + std::to_string(high),
                std::to_string(extent));
  }

 private:
  std::map<std::string_view, std::pair<std::int64_t, std::string_view>> extent_;
};

std::array<std::string_view, 4> axes_of(const TensorRow& row, KvLayout layout) {
  std::array<std::string_view, 4> axes = row.axes;
  if (axes[0] == "pages" && layout == KvLayout::kHnd) std::swap(axes[1], axes[2]);
  return axes;
}

std::string words(std::span<const std::string_view> axes) {
  std::string text = "[";
  for (const std::string_view axis : axes) {
    if (axis.empty()) break;
    if (text.size() > 1) text += ',';
    text += axis;
  }
  return text + "]";
}

void check_tensor(const TensorRow& row, const call::Tensor& tensor, KvLayout layout,
                  Letters& letters) {
  if (call::info(tensor.dtype()).is_float != (row.kind == Kind::kFloat)) {
    throw Error(ErrorKind::kType, place(row.name),
                row.kind == Kind::kFloat ? "a floating-point type" : "an integer type",
                std::string(call::info(tensor.dtype()).name));
  }
  const auto axes = axes_of(row, layout);
  std::size_t rank = 0;
  while (rank < axes.size() && !axes[rank].empty()) ++rank;
  if (tensor.shape().size() != rank) {
    throw Error(ErrorKind::kShape, place(row.name), words(axes), call::to_string(tensor.shape()));
  }
  if (rank == 1 && axes[0] == "N+1" && tensor.shape()[0] < 1) {
    throw Error(ErrorKind::kShape, place(row.name), "N+1 of at least 1", "0");
  }
  for (std::size_t i = 0; i < rank; ++i) letters.bind(row.name, axes[i], tensor.shape()[i]);
}

}  // namespace

Dims validate(const Call& call) {
  check_presence(call);
  Letters letters;
  for (const TensorRow& row : kTensors) {
    const call::Tensor* tensor = call.record.find_input(std::string(row.name));
    if (tensor != nullptr) check_tensor(row, *tensor, call.attributes.kv_layout, letters);
  }
  for (const std::string_view letter : {"HV", "H"}) letters.check(letter, 1, kMaxHeads);
  letters.check("P", 1, kMaxPosition);
  for (const std::string_view letter : {"K", "V"}) letters.check(letter, 1, kMaxHeadDim);
  if (letters["HV"] % letters["H"] != 0) {
    throw Error(ErrorKind::kShape, "/inputs/q",
                "a multiple of the H=" + std::to_string(letters["H"]) + " key heads",
                "HV=" + std::to_string(letters["HV"]));
  }
  Dims d;
  d.N = letters["N"];
  d.HV = letters["HV"];
  d.H = letters["H"];
  d.K = letters["K"];
  d.V = letters["V"];
  d.total_q = letters["total_q"];
  d.total_k = letters["total_k"];
  d.pages = letters["pages"];
  d.P = letters["P"];
  d.has_fresh = has(call, "k");
  d.has_cache = has(call, "k_cache");
  return d;
}

}  // namespace goldenrule::attention

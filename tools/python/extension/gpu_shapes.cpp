// SPDX-License-Identifier: Apache-2.0
//
// Which shapes the tensors of a call have, by the extents of a few of them.
#include <algorithm>
#include <cmath>
#include <string>

#include "tools/python/extension/gpu_tables.hpp"
#include "tools/python/extension/gpu_tensors.hpp"

namespace goldenrule::python::gpu {
namespace {

template <class Args>
consteval std::size_t at(std::string_view name) {
  return place_of(kArgumentsOf<Args>, name);
}

template <class Args>
void put_lists(Tensors& tensors, std::int64_t rows, std::initializer_list<std::size_t> places) {
  for (const std::size_t place : places) tensors.put(place, {rows}, 1);
}

template <class Args>
Shape state_shape(const Args& args) {
  return args.state_layout == GOLDENRULE_GPU_STATE_KV ? Shape{args.K, args.V}
                                                      : Shape{args.V, args.K};
}

template <class Args>
void put_scale(const Tensors& tensors, Args& args) {
  if (!tensors.has(at<Args>("scale")) && args.K > 0) {
    args.scale = std::pow(static_cast<double>(args.K), -0.5);
  }
}

// The tensors of tokens, whose outer axes are `rows`, and the parameters of the gate.
template <class Args>
void put_tokens(Tensors& tensors, Args& args, const Shape& rows) {
  const bool kda = args.op == GOLDENRULE_GPU_KDA;
  const std::int64_t heads = args.gate_head == GOLDENRULE_GPU_GATE_HEAD_QK ? args.H : args.HV;
  const std::size_t lead = rows.list().size();
  const auto put = [&](std::size_t place, const Shape& inner) {
    tensors.put_tokens(place, rows.with(inner), lead, lead + 1);
  };
  put(at<Args>("q"), {args.H, args.K});
  put(at<Args>("k"), {args.H, args.K});
  put(at<Args>("v"), {args.HV, args.V});
  put(at<Args>("o"), {args.HV, args.V});
  put(at<Args>("gate"), kda ? Shape{args.HV, args.K} : Shape{args.HV});
  put(at<Args>("beta"), {args.HV});
  tensors.put_parameter(at<Args>("A_log"), {heads});
  tensors.put_parameter(at<Args>("dt_bias"), kda ? Shape{heads, args.K} : Shape{heads});
  put_scale(tensors, args);
}

template <class Args>
void put_pool(Tensors& tensors, Args& args, std::int64_t slots) {
  args.slots = slots;
  const Shape pool = Shape{slots, args.HV}.with(state_shape(args));
  tensors.put(at<Args>("state"), pool, 3);
  tensors.put(at<Args>("final_state"), pool, 3);
}

// ---- decode, MTP, replay, commits

// B and T of a call with cu_seqlens, whose tokens are [1,total,..].
void put_packed_rows(Tensors& tensors, Recurrent& args, std::int64_t most) {
  if (args.B != 1) {
    refuse(PyExc_ValueError,
           "k: expected a first axis of 1 beside cu_seqlens, actual " + std::to_string(args.B));
  }
  constexpr std::size_t slots = at<Recurrent>("ssm_state_indices");
  constexpr std::size_t kept = at<Recurrent>("intermediate_states");
  if (tensors.has(slots) && tensors.at(slots).shape().size() == 2) {
    most = tensors.at(slots).shape()[1];
  }
  if (most == 0) {
    most = std::min<std::int64_t>(args.T, GOLDENRULE_GPU_MAX_T);
    if (tensors.has(at<Recurrent>("intermediate_state_indices")) && tensors.has(kept) &&
        tensors.at(kept).shape().size() > 1) {
      most = std::min(most, tensors.at(kept).shape()[1]);
    }
  }
  args.tokens = args.T;
  args.T = most;
  args.B = std::max<std::int64_t>(tensors.rows(at<Recurrent>("cu_seqlens")) - 1, 0);
  tensors.put(at<Recurrent>("cu_seqlens"), {args.B + 1}, 1);
}

// A state for each token, a buffer of rows, or, without a list of them, packed as the tokens.
void put_kept_states(Tensors& tensors, Recurrent& args) {
  constexpr std::size_t kept = at<Recurrent>("intermediate_states");
  if (!tensors.has(kept)) return;
  const auto shape = tensors.at(kept).shape();
  std::int64_t slots = shape.size() > 1 ? shape[0] : args.B;
  args.intermediate_rows = shape.size() > 1 ? shape[1] : args.T;
  if (tensors.has(at<Recurrent>("intermediate_state_indices"))) {
    args.intermediate_slots = slots;
  } else {
    slots = tensors.has(at<Recurrent>("cu_seqlens")) ? 1 : args.B;
  }
  tensors.put(kept, Shape{slots, args.intermediate_rows, args.HV}.with(state_shape(args)), 4);
}

void put_rings(Tensors& tensors, Recurrent& args) {
  const auto shape = tensors.at(at<Recurrent>("ring_d")).shape();
  if (shape.size() == 4) {  // refused below else
    args.rings = shape[0];
    args.ring_places = shape[2];
  }
  const Shape outer{args.rings, args.HV, args.ring_places};
  const bool channels = args.op == GOLDENRULE_GPU_KDA && args.gate_kind != GOLDENRULE_GPU_GATE_NONE;
  tensors.put(at<Recurrent>("ring_d"), outer.with({args.V}), 3);
  tensors.put(at<Recurrent>("ring_k"), {args.rings, args.H, args.ring_places, args.K}, 3);
  tensors.put(at<Recurrent>("ring_g"), channels ? outer.with({args.K}) : outer, 3);
  put_lists<Recurrent>(tensors, args.B,
                       {at<Recurrent>("ring_indices"), at<Recurrent>("ring_start"),
                        at<Recurrent>("ring_count"), at<Recurrent>("ring_flush")});
}

// ---- attention

// Pages of a cache; what they say of heads.
std::int64_t read_pages(const Tensors& tensors, Attention& args, std::size_t place) {
  const bool heads_first = args.kv_layout == GOLDENRULE_GPU_PAGES_HND;
  const auto shape = tensors.extents(place, heads_first ? "pages,H,slots,K" : "pages,slots,H,K", 4);
  args.pages = shape[0];
  args.page_size = shape[heads_first ? 2 : 1];
  return shape[heads_first ? 1 : 2];
}

void put_keys(Tensors& tensors, Attention& args) {
  constexpr std::size_t k = at<Attention>("k"), v = at<Attention>("v");
  constexpr std::size_t k_cache = at<Attention>("k_cache"), v_cache = at<Attention>("v_cache");
  if (tensors.has(k)) {
    args.fresh = tensors.extents(k, "fresh,H,K", 3)[0];
    args.H = tensors.at(k).shape()[1];
    args.V = tensors.extents(v, "fresh,H,V", 3)[2];
  }
  if (tensors.has(k_cache)) {
    args.H = read_pages(tensors, args, k_cache);
    args.V = tensors.extents(v_cache, "pages,..,V", 4)[3];
  } else if (!tensors.has(k)) {
    refuse(PyExc_ValueError, "k: expected a tensor, or one of k_cache, actual None");
  }
  tensors.put(k, {args.fresh, args.H, args.K}, 2);
  tensors.put(v, {args.fresh, args.H, args.V}, 2);
  const Shape pages = args.kv_layout == GOLDENRULE_GPU_PAGES_HND
                          ? Shape{args.pages, args.H, args.page_size}
                          : Shape{args.pages, args.page_size, args.H};
  tensors.put(k_cache, pages.with({args.K}), 3);
  tensors.put(v_cache, pages.with({args.V}), 3);
}

void put_requests(Tensors& tensors, Attention& args) {
  constexpr std::size_t table = at<Attention>("page_table");
  constexpr std::size_t entries = at<Attention>("page_indices");
  if (tensors.has(table)) args.table_width = tensors.extents(table, "N,columns", 2)[1];
  if (tensors.has(entries)) args.table_size = tensors.rows(entries);
  put_lists<Attention>(
      tensors, args.N + 1,
      {at<Attention>("cu_seqlens_q"), at<Attention>("cu_seqlens_k"), at<Attention>("page_indptr")});
  put_lists<Attention>(
      tensors, args.N,
      {at<Attention>("kv_lens"), at<Attention>("q_offset"), at<Attention>("valid_q")});
  tensors.put(table, {args.N, args.table_width}, 1);
  tensors.put(entries, {args.table_size}, 1);
}

}  // namespace

void fill(Tensors& tensors, Recurrent& args) {
  const std::int64_t most = args.T;  // max_tokens
  const auto keys = tensors.extents(at<Recurrent>("k"), "B,T,H,K", 4);
  const auto values = tensors.extents(at<Recurrent>("v"), "B,T,HV,V", 4);
  args.B = keys[0];
  args.T = keys[1];
  args.H = keys[2];
  args.K = keys[3];
  args.HV = values[2];
  args.V = values[3];
  put_tokens(tensors, args, {args.B, args.T});
  tensors.put_tokens(at<Recurrent>("parent_tokens"), {args.B, args.T}, 2, 2);
  if (tensors.has(at<Recurrent>("cu_seqlens"))) put_packed_rows(tensors, args, most);
  put_pool(tensors, args, tensors.rows(at<Recurrent>("state")));
  put_kept_states(tensors, args);
  put_lists<Recurrent>(
      tensors, args.B,
      {at<Recurrent>("state_indices"), at<Recurrent>("output_state_indices"),
       at<Recurrent>("num_accepted_tokens"), at<Recurrent>("accepted_tokens"),
       at<Recurrent>("intermediate_state_indices"), at<Recurrent>("checkpoint_state_indices"),
       at<Recurrent>("checkpoint_tokens")});
  tensors.put(at<Recurrent>("ssm_state_indices"), {args.B, args.T}, 2);
  if (tensors.has(at<Recurrent>("ring_d"))) put_rings(tensors, args);
}

void fill(Tensors& tensors, Prefill& args) {
  // [total,H,K], or rows of equal length, [B,T,H,K].
  const bool rows = tensors.at(at<Prefill>("q")).shape().size() == 4;
  const auto keys = tensors.extents(at<Prefill>("q"), rows ? "B,T,H,K" : "total,H,K", rows ? 4 : 3);
  const auto values =
      tensors.extents(at<Prefill>("v"), rows ? "B,T,HV,V" : "total,HV,V", rows ? 4 : 3);
  args.total = rows ? keys[0] * keys[1] : keys[0];
  args.H = keys[keys.size() - 2];
  args.K = keys.back();
  args.HV = values[values.size() - 2];
  args.V = values.back();
  args.N = std::max<std::int64_t>(tensors.rows(at<Prefill>("cu_seqlens")) - 1, 0);
  put_tokens(tensors, args, {args.total});
  const bool start = tensors.has(at<Prefill>("state"));
  const std::size_t pool = start ? at<Prefill>("state") : at<Prefill>("final_state");
  put_pool(tensors, args, tensors.has(pool) ? tensors.rows(pool) : args.N);
  if (tensors.has(at<Prefill>("checkpoints"))) {
    args.checkpoint_rows = tensors.rows(at<Prefill>("checkpoints"));
    tensors.put(at<Prefill>("checkpoints"),
                Shape{args.checkpoint_rows, args.HV}.with(state_shape(args)), 3);
    put_lists<Prefill>(tensors, args.N + 1, {at<Prefill>("cu_checkpoints")});
    put_lists<Prefill>(tensors, args.checkpoint_rows, {at<Prefill>("checkpoint_offsets")});
    put_lists<Prefill>(tensors, args.N, {at<Prefill>("start_positions")});
  }
  put_lists<Prefill>(tensors, args.N + 1, {at<Prefill>("cu_seqlens")});
  put_lists<Prefill>(tensors, args.N,
                     {at<Prefill>("state_indices"), at<Prefill>("output_state_indices")});
}

void fill(Tensors& tensors, Attention& args) {
  // [total,HV,K], or requests of equal length, [N,T,HV,K].
  const bool rows = tensors.at(at<Attention>("q")).shape().size() == 4;
  const auto queries =
      tensors.extents(at<Attention>("q"), rows ? "N,T,HV,K" : "total,HV,K", rows ? 4 : 3);
  args.total = rows ? queries[0] * queries[1] : queries[0];
  args.HV = queries[queries.size() - 2];
  args.K = queries.back();
  args.N = std::max<std::int64_t>(tensors.rows(at<Attention>("cu_seqlens_q")) - 1, 0);
  tensors.put_tokens(at<Attention>("q"), {args.total, args.HV, args.K}, 1, 2);
  put_keys(tensors, args);
  tensors.put_tokens(at<Attention>("o"), {args.total, args.HV, args.V}, 1, 2);
  const bool heads_first = args.lse_layout == GOLDENRULE_GPU_LSE_HT;
  tensors.put(at<Attention>("lse"),
              heads_first ? Shape{args.HV, args.total} : Shape{args.total, args.HV}, 2);
  put_requests(tensors, args);
  put_scale(tensors, args);
  if (!tensors.has(at<Attention>("most_q")) && args.N > 0) {
    args.most_q = (args.total + args.N - 1) / args.N;
  }
}

}  // namespace goldenrule::python::gpu

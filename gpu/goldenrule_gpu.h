/* SPDX-License-Identifier: Apache-2.0
 *
 * Length: one header is the whole interface, so that a caller copies one file.
 *
 * The C interface of goldenrule's GPU kernels: decode, multi-token prediction (MTP) and prefill of
 * the gated delta rule (GDN) and of Kimi Delta Attention (KDA), and attention over a paged cache as
 * block diffusion decodes and drafts are verified with it. Usable from C, C++, ctypes and dlopen.
 *
 * Why three aggregates: decode is MTP with T = 1, and KDA is GDN with one gate per key channel, so
 * one description and one entry point cover all of them; prefill has sequences of unequal length in
 * one packed row of tokens, attention the pages of a cache. Nothing about a call hides in a default
 * that another caller could read differently. Per row b, value head j, q/k head h(j), token t:
 *
 *     k^ = norm(k_t)      q^ = scale * norm(q_t)
 *     S' = diag(alpha_t) S_{t-1}            one alpha per head (GDN) or per key channel (KDA)
 *     d  = beta_t (v_t - S'^T k^)           S_t = S' + k^ d^T            o_t = S_t^T q^
 *
 * Decode and MTP: all arithmetic is fp32; the state stays in fp32 registers over all T tokens and
 * is rounded once per store, o once. d_t and o_t come from the closed form of the rule over up to
 * eight tokens (gpu/delta/shared/token_weights.cuh), so MTP agrees with repeated decode within the
 * budget of both, not to the bit. Once goldenrule_gpu_initialize has run, a call allocates no
 * memory of the device, waits for nothing and loads nothing; it needs no workspace and can be
 * captured in a CUDA graph; slots and counts are read on the device, so a replay follows what they
 * hold then.
 *
 * The bits of a row do not depend on the other rows, on B, or on flags. Those of a token do not
 * depend on how many tokens follow it, nor on alignment, with one exception: the tensor cores serve
 * K = 128, T = 2 to 8 (with rings 1 to 8), q and k in bf16 aligned to four elements, and dense
 * states aligned to 16 bytes. With rings they also ask for ring_k in bf16, for at most 16 places
 * beyond T and, for KDA, for a gate. Their sums have another order, so a token has the same bits at
 * any of these T, and beside other T and other alignments it agrees within the budget of both.
 *
 * Extents: B rows, T tokens per row (0..16), H query/key heads, HV value heads (HV % H == 0),
 * K key dimension (1..256), V value dimension (>= 1), P pool slots.
 *
 * Rules on which kernels disagree:
 *   - a row whose start slot is pad_slot, or lies outside the pool, is padded: o = 0, no state is
 *     read or written, its rows of intermediate_states are not written;
 *   - a write to pad_slot or outside the pool is skipped;
 *   - T = 0 and accepted_tokens = 0: the final state is the start state;
 *   - num_accepted_tokens outside 1..T, or a cursor of a ring out of range: the row is padded;
 *     accepted_tokens outside 0..T: the final write is skipped;
 *   - alpha = 0 erases a finite state exactly; softplus is finite for every finite input;
 *   - o, the states that are written, intermediate_states, checkpoints, rings and the workspace
 *     share no memory with each other nor with anything that is read, o not with v either; but
 *     final_state may be state itself, with the same strides. The host refuses what it sees by
 *     addresses, extents and strides; views that interleave without touching (q, k, v and o as
 *     parts of one row) pass where they step alike;
 *   - two writers of one slot, or a row that reads a slot which another row of the same call
 *     writes, have no defined result (never one outside the pool); give a separate final_state
 *     to read a pool as it was, and goldenrule_gpu_recurrent_check to find such calls.
 */
#ifndef GOLDENRULE_GPU_H
#define GOLDENRULE_GPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. Fields are only added, at the end of an aggregate and of an enum,
 * and a field of 0 is one that is not used: a program works with every library whose
 * goldenrule_gpu_version is that of its header or later, and with an earlier one as long as it
 * uses no field that was added since. The number goes up with each addition. */
#define GOLDENRULE_GPU_VERSION 4

#if defined(__GNUC__)
#define GOLDENRULE_GPU_API __attribute__((visibility("default")))
#else
#define GOLDENRULE_GPU_API
#endif

#define GOLDENRULE_GPU_MAX_K 256
#define GOLDENRULE_GPU_MAX_T 16
#define GOLDENRULE_GPU_MAX_PLACES (1 << 20)
#define GOLDENRULE_GPU_MAX_HEAD_DIM 256
#define GOLDENRULE_GPU_MAX_KEYS (1 << 29)

typedef enum goldenrule_gpu_status {
  GOLDENRULE_GPU_OK = 0,
  GOLDENRULE_GPU_INVALID_ARGUMENT = 1,         /* the message names argument, expected, actual */
  GOLDENRULE_GPU_UNSUPPORTED = 2,              /* well-formed, but no kernel covers it */
  GOLDENRULE_GPU_UNSUPPORTED_ARCHITECTURE = 3, /* compute capability below 8.0 */
  GOLDENRULE_GPU_CUDA_ERROR = 4, /* the CUDA runtime refused; its text is the message */
  GOLDENRULE_GPU_NO_DEVICE = 5   /* arguments are checked first: these were right */
} goldenrule_gpu_status;

/* The values of all enums are those of fixtures/call (dtype.hpp, record.hpp, convention.hpp). */
typedef enum goldenrule_gpu_dtype {
  GOLDENRULE_GPU_F32 = 1,
  GOLDENRULE_GPU_F16 = 2,
  GOLDENRULE_GPU_BF16 = 3,
  GOLDENRULE_GPU_I64 = 4,
  GOLDENRULE_GPU_I32 = 5
} goldenrule_gpu_dtype;

typedef enum goldenrule_gpu_op {
  GOLDENRULE_GPU_GATED_DELTA_RULE = 0,
  GOLDENRULE_GPU_KDA = 1
} goldenrule_gpu_op;

typedef enum goldenrule_gpu_state_layout {
  GOLDENRULE_GPU_STATE_VK = 0, /* [.., V, K] */
  GOLDENRULE_GPU_STATE_KV = 1  /* [.., K, V] */
} goldenrule_gpu_state_layout;

typedef enum goldenrule_gpu_gate {
  GOLDENRULE_GPU_GATE_SOFTPLUS = 0, /* log alpha = -exp(A_log) softplus(gate + dt_bias) */
  GOLDENRULE_GPU_GATE_BOUNDED = 1, /* log alpha = lower_bound sigmoid(exp(A_log)(gate + dt_bias)) */
  GOLDENRULE_GPU_GATE_LOG = 2,     /* log alpha = gate */
  GOLDENRULE_GPU_GATE_LOG2 = 3,    /* log2 alpha = gate */
  GOLDENRULE_GPU_GATE_LINEAR = 4,  /* alpha = gate */
  GOLDENRULE_GPU_GATE_NONE = 5     /* alpha = 1; gate must be absent */
} goldenrule_gpu_gate;

typedef enum goldenrule_gpu_beta {
  GOLDENRULE_GPU_BETA_SIGMOID = 0,
  GOLDENRULE_GPU_BETA_SIGMOID2 = 1, /* 2 sigmoid */
  GOLDENRULE_GPU_BETA_DIRECT = 2
} goldenrule_gpu_beta;

typedef enum goldenrule_gpu_norm { /* n = sqrt(sum of squares over K) */
                                   GOLDENRULE_GPU_NORM_NONE = 0,
                                   GOLDENRULE_GPU_NORM_RSQRT_SUM_EPS = 1, /* x / sqrt(n^2 + eps) */
                                   GOLDENRULE_GPU_NORM_MAX_NORM_EPS = 2,  /* x / max(n, eps) */
                                   GOLDENRULE_GPU_NORM_NORM_PLUS_EPS = 3  /* x / (n + eps) */
} goldenrule_gpu_norm;

typedef enum goldenrule_gpu_head_map {
  GOLDENRULE_GPU_HEADS_GROUPED = 0, /* h(j) = j / (HV / H) */
  GOLDENRULE_GPU_HEADS_TILED = 1    /* h(j) = j % H */
} goldenrule_gpu_head_map;

typedef enum goldenrule_gpu_gate_head { /* which head indexes A_log and dt_bias */
                                        GOLDENRULE_GPU_GATE_HEAD_V = 0,
                                        GOLDENRULE_GPU_GATE_HEAD_QK = 1
} goldenrule_gpu_gate_head;

typedef enum goldenrule_gpu_checkpoint_form { /* of a prefill with checkpoint_every = n */
                                              GOLDENRULE_GPU_CHECKPOINTS_AFTER = 0, /* n, 2n, .. */
                                              GOLDENRULE_GPU_CHECKPOINTS_BEFORE = 1 /* 0, n, .. */
} goldenrule_gpu_checkpoint_form;

typedef enum goldenrule_gpu_mask { /* which keys t a query at position t_q sees */
                                   GOLDENRULE_GPU_MASK_FULL = 0,
                                   GOLDENRULE_GPU_MASK_CAUSAL = 1, /* t <= t_q */
                                   /* floor(t / block) <= floor(t_q / block) */
                                   GOLDENRULE_GPU_MASK_BLOCK_CAUSAL = 2
} goldenrule_gpu_mask;

typedef enum goldenrule_gpu_block_base { /* where blocks are counted from */
                                         GOLDENRULE_GPU_BLOCKS_ABSOLUTE = 0, /* position 0 */
                                         GOLDENRULE_GPU_BLOCKS_SEGMENT = 1   /* the first query */
} goldenrule_gpu_block_base;

typedef enum goldenrule_gpu_block_kv { /* where the keys of the queried tokens are */
                                       GOLDENRULE_GPU_BLOCK_SEPARATE = 0, /* in k and v */
                                       GOLDENRULE_GPU_BLOCK_IN_CACHE = 1
} goldenrule_gpu_block_kv;

typedef enum goldenrule_gpu_kv_layout {
  GOLDENRULE_GPU_PAGES_NHD = 0, /* [pages, slots, H, ..] */
  GOLDENRULE_GPU_PAGES_HND = 1  /* [pages, H, slots, ..] */
} goldenrule_gpu_kv_layout;

typedef enum goldenrule_gpu_lse_base {
  GOLDENRULE_GPU_LSE_E = 0,
  GOLDENRULE_GPU_LSE_2 = 1
} goldenrule_gpu_lse_base;

typedef enum goldenrule_gpu_lse_layout {
  GOLDENRULE_GPU_LSE_TH = 0, /* [total, HV] */
  GOLDENRULE_GPU_LSE_HT = 1  /* [HV, total] */
} goldenrule_gpu_lse_layout;

enum {
  /* Programmatic dependent launch: the launch may be scheduled while the kernel before it in the
   * stream drains. Until that one is complete it reads nothing but state_indices, to ask the L2 for
   * states early; what it computes with is read afterwards (but see STATE_READY). Ignored where the
   * code that the device runs cannot wait: below 9.0, and where a driver was made to compile PTX
   * for 8.0. */
  GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH = 1,
  /* Prefill only. Products of the tensor cores from several bf16 terms, so that the state is as
   * good as that of the recurrent kernels; takes longer. */
  GOLDENRULE_GPU_FLAG_PRECISE = 2,
  /* Prefill only. No sequence is computed in segments side by side, whatever its length: better
   * where many sequences already fill the device. */
  GOLDENRULE_GPU_FLAG_NEVER_SPLIT = 4,
  /* Decode and MTP only. A dependent launch behind this call may begin as soon as every block of
   * the call has begun: before anything is written. It has to wait (griddepcontrol.wait,
   * cudaGridDependencySynchronize, or our own flag above) before it reads what this call writes and
   * before it writes what this call reads. Without the flag it begins when the call is complete. */
  GOLDENRULE_GPU_FLAG_TRIGGER_EARLY = 8,
  /* Decode and MTP only. o is not wanted and must be absent: the call commits tokens to states, as
   * after a verification that kept none. */
  GOLDENRULE_GPU_FLAG_NO_OUTPUT = 16,
  /* Since version 4. Decode and MTP only; without DEPENDENT_LAUNCH it means nothing. The caller
   * vouches for `state` and state_indices: whatever writes them is complete when the kernel in
   * front lets this launch begin. So it is in a model of layers, whose states were written a step
   * ago, if the kernel in front waits for its own before it triggers. Decode (T = 1) then takes
   * slot and state before it waits; tokens are read, and anything is written, afterwards. Where the
   * caller is wrong, a row is computed from slot and state as they were before that write, or in
   * part before it; nothing outside the pool is touched. Kernels with nothing to gain, and rows
   * that start from num_accepted_tokens, wait as without the flag. */
  GOLDENRULE_GPU_FLAG_STATE_READY = 32
};

/* A device tensor. `stride` counts elements of the outer axes, in order; the last axis of q, k, v,
 * o, of a KDA gate and of the states is contiguous and has no entry. With dense = 1 there is no gap
 * anywhere and `stride` is ignored; with 0 the stride of an axis of more than one element is 1 or
 * more (a broadcast, stride 0, is refused), and entries of other axes, or beyond them, are ignored.
 * Absent: data = NULL. Pointers are aligned to the element size. */
typedef struct goldenrule_gpu_tensor {
  void* data;
  int64_t stride[4];
  int32_t dtype;
  int32_t dense;
} goldenrule_gpu_tensor;

typedef struct goldenrule_gpu_recurrent_args {
  uint64_t struct_size; /* sizeof(goldenrule_gpu_recurrent_args): the version of the caller */

  int32_t op;
  int32_t state_layout;
  int32_t gate_kind;
  int32_t beta_kind;
  int32_t qk_norm;
  int32_t head_map;
  int32_t gate_head;
  int32_t disable_state_update; /* 1: no slot of the pool is written */
  uint32_t flags;
  int32_t reserved; /* 0 */

  int64_t B, T, H, HV, K, V;
  int64_t slots;             /* P, of state and final_state */
  int64_t intermediate_rows; /* second extent of intermediate_states, >= T */
  int64_t pad_slot;          /* usually -1 */

  double scale; /* multiplies q^; taken literally, 0 included */
  double l2_eps;
  double softplus_beta;      /* 1 */
  double softplus_threshold; /* 20 */
  double lower_bound;        /* -5; for GATE_BOUNDED */

  goldenrule_gpu_tensor q;       /* [B,T,H,K]  f32, f16, bf16 */
  goldenrule_gpu_tensor k;       /* [B,T,H,K]  as q */
  goldenrule_gpu_tensor v;       /* [B,T,HV,V] f32, f16, bf16 */
  goldenrule_gpu_tensor gate;    /* [B,T,HV]; KDA [B,T,HV,K]. a for softplus and bounded, else g */
  goldenrule_gpu_tensor A_log;   /* [HV] or [H], see gate_head; optional (= 0) for bounded */
  goldenrule_gpu_tensor dt_bias; /* [HV] or [H]; KDA [..,K]; optional (= 0) */
  goldenrule_gpu_tensor beta;    /* [B,T,HV] */
  goldenrule_gpu_tensor o;       /* [B,T,HV,V] f32, f16, bf16: output; see FLAG_NO_OUTPUT */

  goldenrule_gpu_tensor state;       /* [P,HV,V,K] or [P,HV,K,V], f32 or bf16 */
  goldenrule_gpu_tensor final_state; /* absent: state is updated in place. Same dtype as state;
                                        slots that are not written keep their content */
  goldenrule_gpu_tensor intermediate_states; /* [B,rows,HV,..]: row t = state after token t */

  /* [B] i32 or i64, at any stride. */
  goldenrule_gpu_tensor state_indices;        /* start slot; absent: row b uses slot b */
  goldenrule_gpu_tensor output_state_indices; /* absent: the start slot */
  /* [B,T]: the state after token t goes to this slot, and no other is written. The row starts from
   * state_indices[b], or without them from ssm_state_indices[b, num_accepted_tokens[b] - 1]. */
  goldenrule_gpu_tensor ssm_state_indices;
  goldenrule_gpu_tensor num_accepted_tokens; /* beside ssm_state_indices without state_indices */
  goldenrule_gpu_tensor accepted_tokens;     /* final state = after this many tokens */

  void* stream; /* cudaStream_t */

  /* Since version 2. Replay: rings of tokens in the place of states. A row starts from the state of
   * its slot and its ring_count pending tokens, oldest first, from place ring_start on, modulo
   * ring_places; for each of them
   *
   *     S = diag(exp(g)) S + k d^T
   *
   * without q, v or beta. d, k^ and log alpha of the tokens of this call go to the places behind
   * the pending ones. Where ring_flush is 1 the state after the pending tokens, and none of this
   * call's own, is the final state; elsewhere no state is written. How many tokens were accepted
   * the caller says in the cursors of its next call. So a verification is a call with rings, and a
   * commit is a change of two numbers; T = 0 with ring_flush empties rings alone.
   * A row is padded, too, where its ring lies outside the rings, ring_start outside the places,
   * ring_count outside 0..ring_places - its tokens or ring_flush outside 0..1; no row may have the
   * ring of another. Beside rings there are no intermediate_states, ssm_state_indices and
   * accepted_tokens.
   */
  int64_t rings;       /* J */
  int64_t ring_places; /* W, T and more */

  goldenrule_gpu_tensor ring_d; /* [J,HV,W,V] f32, f16, bf16: read and written; absent: no rings */
  goldenrule_gpu_tensor ring_k; /* [J,H,W,K]  f32, f16, bf16: of each q/k head */
  goldenrule_gpu_tensor ring_g; /* [J,HV,W]; KDA [J,HV,W,K]; of gate_kind NONE [J,HV,W] */
  /* [B] i32 or i64, at any stride. */
  goldenrule_gpu_tensor ring_indices; /* absent: row b has ring b */
  goldenrule_gpu_tensor ring_start;
  goldenrule_gpu_tensor ring_count;
  goldenrule_gpu_tensor ring_flush; /* absent: 0 */

  /* Since version 3. Verification of drafts as serving engines call it.
   *
   *   - cu_seqlens: rows of unequal length, packed. Row b has the tokens cu_seqlens[b] to
   *     cu_seqlens[b+1]-1; where other tensors are said to be [B,T,..] they are [1,tokens,..] then,
   *     and T is the most tokens of a row. ssm_state_indices stay [B,T]. Bounds are clamped to
   *     [0, tokens] and a row to T tokens; what ends before it begins is empty.
   *   - parent_tokens make the tokens of a row a tree: token t continues the state after the token
   *     of its row that it names, which stands in front of it, or with -1 that which the row starts
   *     from. What is neither counts as -1. "The state after n tokens" is that after token n - 1.
   *   - With intermediate_slots > 0 intermediate_states is a buffer of so many rows,
   *     [intermediate_slots,intermediate_rows,HV,..]: row b takes row intermediate_state_indices[b]
   *     of it, or row b without that list; outside the buffer (-1) no state of the row is kept.
   *     Without, packed tokens keep their states where they stand: [1,intermediate_rows,HV,..].
   *     Its dtype may be another than that of state.
   *   - A second slot of the pool for the state of a row after checkpoint_tokens[b] of its tokens
   *     (the start state after 0); padding, disabled updates and counts out of range as those of
   *     the final state.
   * Beside rings only cu_seqlens. */
  int64_t tokens;             /* with cu_seqlens: of all rows; 0 without */
  int64_t intermediate_slots; /* 0: intermediate_states has the rows of the call */

  goldenrule_gpu_tensor cu_seqlens;                 /* [B+1] i32 or i64 */
  goldenrule_gpu_tensor parent_tokens;              /* [B,T] i32 or i64; absent: t - 1 */
  goldenrule_gpu_tensor intermediate_state_indices; /* [B] i32 or i64, at any stride */
  goldenrule_gpu_tensor checkpoint_state_indices;   /* likewise */
  goldenrule_gpu_tensor checkpoint_tokens;          /* likewise; beside checkpoint_state_indices */
} goldenrule_gpu_recurrent_args;

/* Fills `args`, of struct_size = sizeof *args bytes, with the defaults: everything absent,
 * struct_size, pad_slot -1, norm RSQRT_SUM_EPS with eps 1e-6, softplus 1 and 20, lower_bound -5,
 * scale 1. */
GOLDENRULE_GPU_API void goldenrule_gpu_recurrent_defaults(goldenrule_gpu_recurrent_args* args,
                                                          size_t struct_size);

/* The layout of goldenrule_gpu_recurrent_args for callers without a C compiler (ctypes): lines
 * "name type offset" in the order of the struct, after a first line that ends with its size in
 * bytes. Types: u64, i32, u32, i64, f64, tensor (goldenrule_gpu_tensor), pointer. */
GOLDENRULE_GPU_API const char* goldenrule_gpu_recurrent_fields(void);

/* Checks everything that the host can see and never reads device memory. On failure writes one
 * line naming argument, expected and actual into message[0..message_size); NULL is allowed. Where
 * there is no device the answer to a call that is right is GOLDENRULE_GPU_NO_DEVICE, so tensors
 * that exist by shape alone can be checked anywhere, under addresses of one's own choice. */
GOLDENRULE_GPU_API goldenrule_gpu_status goldenrule_gpu_recurrent_validate(
    const goldenrule_gpu_recurrent_args* args, char* message, size_t message_size);

/* Bytes of workspace: 0 for every argument. */
GOLDENRULE_GPU_API size_t
goldenrule_gpu_recurrent_workspace_size(const goldenrule_gpu_recurrent_args* args);

/* Validates and launches on args->stream of the current device. After a refusal nothing was
 * launched and nothing is written. */
GOLDENRULE_GPU_API goldenrule_gpu_status goldenrule_gpu_recurrent(
    const goldenrule_gpu_recurrent_args* args, char* message, size_t message_size);

/* Loads every kernel of the dispatch table on the current device, so that no later call of
 * goldenrule_gpu_recurrent, _prefill or _attention does. Without it the first call of each loads
 * its own, which may wait for the device and, where the library holds only PTX for it, compiles
 * them: call it once per device before a capture and before launching on a stream that waits for
 * the host. The kernels of the three check functions are loaded too. What was loaded belongs to the
 * primary context of the device: other contexts are not supported, nor is cudaDeviceReset. */
GOLDENRULE_GPU_API goldenrule_gpu_status goldenrule_gpu_initialize(char* message,
                                                                   size_t message_size);

/* Debugging: what only the device can see. `report` is device memory of this layout, written by a
 * kernel on args->stream; `first` is the lowest offending row (ssm: b * T + t), -1 if there is
 * none. */
typedef struct goldenrule_gpu_index_report {
  int64_t start_out_of_range, first_start_out_of_range;   /* neither pad_slot nor inside the pool */
  int64_t output_out_of_range, first_output_out_of_range; /* output or ssm slots */
  int64_t written_twice, first_written_twice;             /* a slot with two writers */
  int64_t read_after_write, first_read_after_write;       /* reads a slot that another row writes */
  int64_t count_out_of_range, first_count_out_of_range;   /* accepted counts */
  /* Since version 2; written where the struct_size of the call is that of version 2 or larger. */
  int64_t ring_out_of_range, first_ring_out_of_range;     /* ring_indices */
  int64_t ring_of_two_rows, first_ring_of_two_rows;       /* of a row in front, too */
  int64_t cursor_out_of_range, first_cursor_out_of_range; /* ring_start, _count, _flush */
  /* Since version 3, likewise. Slots and counts of checkpoints are among those above. */
  int64_t bounds_out_of_range, first_bounds_out_of_range; /* cu_seqlens; longer rows than T */
  int64_t parent_out_of_range, first_parent_out_of_range; /* first: of its place in the row */
  int64_t kept_out_of_range, first_kept_out_of_range;     /* below -1, or beyond the buffer */
  int64_t kept_of_two_rows, first_kept_of_two_rows;       /* of a row in front, too */
} goldenrule_gpu_index_report;

GOLDENRULE_GPU_API goldenrule_gpu_status goldenrule_gpu_recurrent_check(
    const goldenrule_gpu_recurrent_args* args, goldenrule_gpu_index_report* device_report,
    char* message, size_t message_size);

/* Prefill: N sequences of any lengths, 0 included, packed one behind the other. Sequence n is the
 * tokens cu_seqlens[n] to cu_seqlens[n+1]-1; rows of o that belong to no sequence are not written.
 * The host knows the sizes, only the device reads lengths, slots and positions, so a replayed graph
 * follows what they hold then. The bits of a sequence depend on its own data, length and heads, on
 * the shape and alignment of the tensors and on the flags, not on N, nor on the other sequences.
 *
 *   - Without `state` every sequence starts from zeros. The final state goes to `final_state`, or
 *     without one back to `state`.
 *   - Slots, also without `state`: state_indices, or slot n for sequence n; written is
 *     output_state_indices, or the same slot. Padding and skipped writes as above.
 *   - A sequence of no tokens: the final state is the start state.
 *   - Row r of `checkpoints` belongs to sequence n with cu_checkpoints[n] <= r <
 * cu_checkpoints[n+1] and holds the state after some of its tokens: after checkpoint_offsets[r] of
 * them, ascending within a sequence; or without that list, with i = r - cu_checkpoints[n] and the
 * first token at position start_positions[n] (0 if absent), at the i-th multiple of
 * checkpoint_every that is above (CHECKPOINTS_AFTER) or not below (CHECKPOINTS_BEFORE) that
 * position. With 0 these are (i + 1) * checkpoint_every and i * checkpoint_every tokens.
 *   - Bounds are clamped to [0, total] and [0, checkpoint_rows]; what ends before it begins is
 *     empty. A checkpoint beyond the sequence, or before that of an earlier row, is not written. */
typedef struct goldenrule_gpu_prefill_args {
  uint64_t struct_size; /* sizeof(goldenrule_gpu_prefill_args) */

  int32_t op;
  int32_t state_layout;
  int32_t gate_kind;
  int32_t beta_kind;
  int32_t qk_norm;
  int32_t head_map;
  int32_t gate_head;
  int32_t disable_state_update; /* 1: no final state is written; checkpoints are */
  int32_t checkpoint_form;
  uint32_t flags;

  int64_t total; /* tokens of all sequences */
  int64_t N;     /* sequences */
  int64_t H, HV, K, V;
  int64_t slots;            /* P, of state and final_state; at least N without state_indices */
  int64_t checkpoint_rows;  /* first extent of checkpoints; 0: none, all about them is ignored */
  int64_t checkpoint_every; /* 1 and more; 0 beside checkpoint_offsets */
  int64_t pad_slot;         /* usually -1 */

  double scale; /* multiplies q^; taken literally, 0 included */
  double l2_eps;
  double softplus_beta;      /* 1 */
  double softplus_threshold; /* 20 */
  double lower_bound;        /* -5; for GATE_BOUNDED */

  goldenrule_gpu_tensor q;       /* [total,H,K]  f32, f16, bf16 */
  goldenrule_gpu_tensor k;       /* [total,H,K]  as q */
  goldenrule_gpu_tensor v;       /* [total,HV,V] f32, f16, bf16 */
  goldenrule_gpu_tensor gate;    /* [total,HV]; KDA [total,HV,K]. a for softplus, bounded, else g */
  goldenrule_gpu_tensor A_log;   /* [HV] or [H], see gate_head; optional (= 0) for bounded */
  goldenrule_gpu_tensor dt_bias; /* [HV] or [H]; KDA [..,K]; optional (= 0) */
  goldenrule_gpu_tensor beta;    /* [total,HV] */
  goldenrule_gpu_tensor o;       /* [total,HV,V] f32, f16, bf16: output */

  goldenrule_gpu_tensor state;       /* [P,HV,V,K] or [P,HV,K,V], f32 or bf16; optional (= 0) */
  goldenrule_gpu_tensor final_state; /* likewise; absent: state is updated in place. One of the two
                                        is there unless disable_state_update is 1 */
  goldenrule_gpu_tensor checkpoints; /* [rows,HV,..], same dtype */

  goldenrule_gpu_tensor cu_seqlens; /* [N+1] i32 or i64 */
  /* [N] i32 or i64, at any stride. */
  goldenrule_gpu_tensor state_indices;        /* absent: sequence n uses slot n */
  goldenrule_gpu_tensor output_state_indices; /* absent: the start slot */
  goldenrule_gpu_tensor cu_checkpoints;       /* [N+1] */
  goldenrule_gpu_tensor checkpoint_offsets;   /* [rows]; absent: see checkpoint_every */
  goldenrule_gpu_tensor start_positions;      /* [N]; absent: 0. Not beside checkpoint_offsets */

  /* goldenrule_gpu_prefill_workspace_size bytes of device memory, aligned to 256 bytes, that no
   * other call uses before this one is complete. Their content means nothing. NULL for 0 bytes. */
  uint64_t workspace_size;
  void* workspace;

  void* stream; /* cudaStream_t */
} goldenrule_gpu_prefill_args;

/* As the functions of the same names for the recurrent call. */
GOLDENRULE_GPU_API void goldenrule_gpu_prefill_defaults(goldenrule_gpu_prefill_args* args,
                                                        size_t struct_size);
GOLDENRULE_GPU_API const char* goldenrule_gpu_prefill_fields(void);
GOLDENRULE_GPU_API goldenrule_gpu_status goldenrule_gpu_prefill_validate(
    const goldenrule_gpu_prefill_args* args, char* message, size_t message_size);

/* Bytes of workspace: a function of op, flags, total, N, H, HV, K, V and checkpoint_rows alone; 0
 * for arguments of which one is refused by itself. */
GOLDENRULE_GPU_API size_t
goldenrule_gpu_prefill_workspace_size(const goldenrule_gpu_prefill_args* args);

GOLDENRULE_GPU_API goldenrule_gpu_status
goldenrule_gpu_prefill(const goldenrule_gpu_prefill_args* args, char* message, size_t message_size);

/* Debugging, as goldenrule_gpu_index_report; `first` is the lowest sequence, for
 * checkpoint_out_of_order the lowest row of checkpoints or, where cu_checkpoints itself is out of
 * order, 0. */
typedef struct goldenrule_gpu_prefill_report {
  int64_t start_out_of_range, first_start_out_of_range;
  int64_t output_out_of_range, first_output_out_of_range;
  int64_t written_twice, first_written_twice;
  int64_t read_after_write, first_read_after_write;
  /* Sequences one of whose bounds was clamped, and sequence 0 where cu_seqlens[0] is not 0. */
  int64_t bound_out_of_range, first_bound_out_of_range;
  int64_t checkpoint_out_of_order, first_checkpoint_out_of_order; /* rows that are not written */
} goldenrule_gpu_prefill_report;

GOLDENRULE_GPU_API goldenrule_gpu_status goldenrule_gpu_prefill_check(
    const goldenrule_gpu_prefill_args* args, goldenrule_gpu_prefill_report* device_report,
    char* message, size_t message_size);

/* Attention of packed queries over a paged cache and fresh keys: block-diffusion decode, drafts and
 * their verification. Request n has the queries cu_seqlens_q[n] to cu_seqlens_q[n+1]-1 and as keys
 * the kv_lens[n] first slots of its pages in the order of its table, then the fresh keys
 * cu_seqlens_k[n] to cu_seqlens_k[n+1]-1. Key t = 0, 1, .. is counted over both, and query i stands
 * at position t_q = q_offset[n] + i. With key head h(j) and the visible set V(i):
 *
 *     s_t = scale <q_i, k_t>     o_i = sum_V(i) exp(s_t) v_t / sum_V(i) exp(s_t)
 *     lse_i = log sum_V(i) exp(s_t)
 *
 * Key t is in V(i) where it exists, its page exists, the mask has it, t_q - t <= window_left and
 * t - t_q <= window_right (-1: any).
 *
 *   - V(i) empty: o = 0, lse = -inf.
 *   - A page that is negative or not below `pages` is missing: its keys are not visible.
 *   - Queries beyond valid_q are padding: o = 0, lse = -inf, and the keys that the call brings at
 *     their positions do not exist (fresh ones, or of the cache with BLOCK_IN_CACHE).
 *   - Bounds are clamped to [0, total], [0, fresh] and [0, table_size], lengths to what the table
 *     holds and to MAX_KEYS, valid_q to the queries; rows of o and lse that belong to no request
 *     are not written. goldenrule_gpu_attention_check reports all of these.
 *   - Whatever no query sees (slots beyond kv_lens, unused pages, padding), NaN and infinity
 *     included, reaches no output. A NaN in a v that some queries of a request see reaches, on the
 *     tensor cores, also those that do not see it, of the same request and key head.
 *
 * All products are exact and added in fp32; exp(s - m) is rounded to the type of q for the product
 * with v, sums of it are not: contract flash_bf16 (`goldenrule list contracts`).
 *
 * The tensors choose the kernel by type, dimensions and alignment, most_q * HV / H its rows, and
 * N * H the number of blocks that share the keys of a request, unless `splits` does. Nothing else
 * does: lengths, widths, pages, strides, masks and scales of any value are served by one kernel.
 * The bits of a request depend on its own data and lengths, on that choice and on nothing else. */
typedef struct goldenrule_gpu_attention_args {
  uint64_t struct_size; /* sizeof(goldenrule_gpu_attention_args) */

  int32_t mask;
  int32_t block_base; /* of MASK_BLOCK_CAUSAL */
  int32_t block_kv;
  int32_t kv_layout;
  int32_t head_map;
  int32_t lse_base;
  int32_t lse_layout;
  uint32_t flags; /* GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH */

  int64_t total; /* queries of all requests */
  int64_t N;     /* requests */
  /* The queries of a request that the grid is made for: longer requests are right too, and slower;
   * 0 where total is 0. */
  int64_t most_q;
  int64_t fresh;            /* rows of k and v */
  int64_t H, HV;            /* key/value heads, query heads */
  int64_t K, V;             /* of a key and of a value, 1 to MAX_HEAD_DIM */
  int64_t pages, page_size; /* of the cache; page_size 0: there is none */
  int64_t table_width;      /* columns of page_table */
  int64_t table_size;       /* entries of page_indices */
  int64_t block;            /* of MASK_BLOCK_CAUSAL */
  int64_t window_left, window_right;
  /* Blocks that share the keys of a request, 1, 2, 4, 8, 9 or 16; 0: by N * H. Where the device or
   * the kernel of these rows has no such cluster, the most below it are taken. */
  int64_t splits;

  double scale; /* multiplies the scores; taken literally, 0 included */

  goldenrule_gpu_tensor q;       /* [total,HV,K] f16, bf16 */
  goldenrule_gpu_tensor k;       /* [fresh,H,K]  as q; optional beside a cache, not IN_CACHE */
  goldenrule_gpu_tensor v;       /* [fresh,H,V]  as q; with k */
  goldenrule_gpu_tensor k_cache; /* [pages,page_size,H,K] or by kv_layout; as q */
  goldenrule_gpu_tensor v_cache; /* [pages,page_size,H,V] */
  goldenrule_gpu_tensor o;       /* [total,HV,V] f32, f16, bf16: output */
  goldenrule_gpu_tensor lse;     /* [total,HV] or by lse_layout; f32; optional output */

  /* i32 or i64; those of a request at any stride. */
  goldenrule_gpu_tensor cu_seqlens_q; /* [N+1] */
  goldenrule_gpu_tensor cu_seqlens_k; /* [N+1], with k */
  goldenrule_gpu_tensor kv_lens;      /* [N], with a cache */
  goldenrule_gpu_tensor page_table;   /* [N,table_width], rows at any stride */
  goldenrule_gpu_tensor page_indptr;  /* [N+1]: request n has the pages page_indices[indptr[n]..] */
  goldenrule_gpu_tensor page_indices; /* [table_size]; in the place of page_table */
  goldenrule_gpu_tensor q_offset;     /* [N]; absent: kv_lens; IN_CACHE: kv_lens - queries */
  goldenrule_gpu_tensor valid_q;      /* [N]; absent: all */

  void* stream; /* cudaStream_t */
} goldenrule_gpu_attention_args;

/* As the functions of the same names for the recurrent call; there is no workspace. scale is 1 and
 * windows are -1 by default. */
GOLDENRULE_GPU_API void goldenrule_gpu_attention_defaults(goldenrule_gpu_attention_args* args,
                                                          size_t struct_size);
GOLDENRULE_GPU_API const char* goldenrule_gpu_attention_fields(void);
GOLDENRULE_GPU_API goldenrule_gpu_status goldenrule_gpu_attention_validate(
    const goldenrule_gpu_attention_args* args, char* message, size_t message_size);
GOLDENRULE_GPU_API goldenrule_gpu_status goldenrule_gpu_attention(
    const goldenrule_gpu_attention_args* args, char* message, size_t message_size);

/* Debugging, as goldenrule_gpu_index_report; `first` is the lowest request, of pages the place in
 * page_indices, or n * table_width + column. */
typedef struct goldenrule_gpu_attention_report {
  /* Requests one of whose bounds was clamped, and request 0 where the first bound is not 0. */
  int64_t query_bound_out_of_range, first_query_bound_out_of_range;
  int64_t fresh_bound_out_of_range, first_fresh_bound_out_of_range;
  int64_t table_bound_out_of_range, first_table_bound_out_of_range;
  int64_t length_out_of_range, first_length_out_of_range; /* kv_lens */
  int64_t valid_out_of_range, first_valid_out_of_range;
  int64_t page_out_of_range, first_page_out_of_range; /* within kv_lens, neither -1 nor a page */
  int64_t page_missing, first_page_missing;           /* -1 within kv_lens */
} goldenrule_gpu_attention_report;

GOLDENRULE_GPU_API goldenrule_gpu_status goldenrule_gpu_attention_check(
    const goldenrule_gpu_attention_args* args, goldenrule_gpu_attention_report* device_report,
    char* message, size_t message_size);

/* The dispatch table is fixed when the library is built. A hit is a launch served by it; a miss
 * is a valid call without an entry, answered GOLDENRULE_GPU_UNSUPPORTED. */
GOLDENRULE_GPU_API uint64_t goldenrule_gpu_dispatch_hits(void);
GOLDENRULE_GPU_API uint64_t goldenrule_gpu_dispatch_misses(void);
GOLDENRULE_GPU_API int32_t goldenrule_gpu_dispatch_size(void);
/* Name ("vk_f32_head_few_r64x2": 64 value rows per block of 2 warps) and hits of entry i, 0 <= i <
 * size; NULL and 0 outside. */
GOLDENRULE_GPU_API const char* goldenrule_gpu_dispatch_name(int32_t i);
GOLDENRULE_GPU_API uint64_t goldenrule_gpu_dispatch_entry_hits(int32_t i);

GOLDENRULE_GPU_API const char* goldenrule_gpu_status_name(goldenrule_gpu_status status);

/* GOLDENRULE_GPU_VERSION of the header that the library was compiled with. */
GOLDENRULE_GPU_API int32_t goldenrule_gpu_version(void);

#ifdef __cplusplus
}
#endif
#endif

// SPDX-License-Identifier: Apache-2.0
//
// What a file declares before it is read, and how much memory its verdict needs: so that a small
// file that describes a huge call is refused before anything is allocated.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "fixtures/call/record.hpp"

namespace goldenrule::verdict {

using Shapes = std::map<std::string, call::Shape>;

/// What a file declares before any of its tensors is read.
struct Declared {
  call::Op op{};
  call::Mode mode = call::Mode::kDecode;
  Shapes inputs, outputs;        ///< outputs: those that are judged
  Shapes stages = {};            ///< of a kernel
  std::int64_t stage_chunk = 0;  ///< as the file declares it; 0: not at all
  double file_bytes = 0.0;       ///< what is read to get them
  double tensor_bytes = 0.0;     ///< of all that is loaded
  /// Of attention: how its pages are laid out, and the bytes of an element of keys and values,
  /// where all have one type.
  call::KvLayout kv_layout = call::KvLayout::kNhd;
  double key_bytes = 8.0;
};

/// In bytes. Doubles, since hostile shapes leave the range of integers.
struct Need {
  double verdict = 0.0;      ///< the process, the tensors and their verdict
  double explanation = 0.0;  ///< beside that
};

}  // namespace goldenrule::verdict

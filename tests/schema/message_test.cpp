// SPDX-License-Identifier: Apache-2.0
//
// What crosses from the process that reads a file: every field, and nothing that the receiver did
// not check. A reader that was taken over by its file may answer anything.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstring>
#include <random>

#include "fixtures/schema/message.hpp"
#include "tests/schema/support.hpp"

using namespace goldenrule;
using namespace goldenrule::schema;
using Bytes = std::vector<std::byte>;

namespace {

isolation::Shared shared(const Bytes& bytes) {
  if (bytes.empty()) return {nullptr, 0};
  void* p =
      ::mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(p != MAP_FAILED);
  std::memcpy(p, bytes.data(), bytes.size());
  return {static_cast<std::byte*>(p), bytes.size()};
}

// The bytes that a child sends.
Bytes sent(const std::function<void(const isolation::Answer&)>& send_it) {
  const isolation::Shared answer =
      isolation::run(0, {.memory_bytes = 1 << 28, .answer_bytes = 1 << 28, .seconds = 10},
                     [&](int, const isolation::Answer& to) { send_it(to); });
  return {answer.bytes().begin(), answer.bytes().end()};
}

// A file with everything that a file can hold.
Fixture everything() {
  Fixture f = small_fixture();
  f.record.source = "a kernel";
  f.record.contract = "ideal";
  f.record.case_line = "op=kda";
  f.record.convention.scale = 0.25;
  f.pattern = std::string("production");
  f.seed = -3;
  return f;
}

// Error or a value, and nothing else; true for a value.
bool survives(const Bytes& bytes) {
  try {
    (void)receive_file(shared(bytes));
    return true;
  } catch (const Error& e) {
    CHECK(std::string(e.what()).size() < 300'000);
    return false;
  }
}

}  // namespace

TEST_SUITE("message") {
  TEST_CASE("every field arrives") {
    const Fixture f = everything();
    const Bytes bytes =
        sent([&](const isolation::Answer& to) { send(to, ReadFile{.fixture = f}); });
    const ReadFile got = receive_file(shared(bytes));
    CHECK(got.has_inputs);
    check_equal(f, got.fixture);
    CHECK(got.fixture.record.convention == f.record.convention);
  }

  TEST_CASE("an error arrives as it was thrown") {
    const Error error(ErrorKind::kShape, "/inputs/q", "[1,2]", "[2,1]");
    const Bytes bytes = sent([&](const isolation::Answer& to) { send(to, error); });
    try {
      (void)receive_file(shared(bytes));
      FAIL("no error");
    } catch (const Error& e) {
      CHECK(e.kind() == error.kind());
      CHECK(e.where() == error.where());
      CHECK(e.expected() == error.expected());
      CHECK(e.actual() == error.actual());
    }
  }

  TEST_CASE("a file of another kind is refused") {
    const Bytes bytes = sent([](const isolation::Answer& to) { send(to, Description()); });
    CHECK_THROWS_AS((void)receive_file(shared(bytes)), Error);
    CHECK(receive_description(shared(bytes)).datasets.empty());
  }

  TEST_CASE("no beginning of an answer is one, nor is one with more behind it") {
    Bytes bytes =
        sent([&](const isolation::Answer& to) { send(to, ReadFile{.fixture = everything()}); });
    CHECK(survives(bytes));
    for (std::size_t n = 0; n < bytes.size(); n += n < 2000 ? 1 : 97) {
      CAPTURE(n);
      CHECK_FALSE(survives({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}));
    }
    bytes.push_back(std::byte{0});
    CHECK_FALSE(survives(bytes));
  }

  TEST_CASE("any other answer is an error or a value") {
    const Bytes right =
        sent([&](const isolation::Answer& to) { send(to, ReadFile{.fixture = everything()}); });
    std::mt19937_64 random(17);
    int values = 0;
    for (int round = 0; round < 20'000; ++round) {
      Bytes bytes = right;
      for (std::uint64_t n = random() % 3 + 1; n > 0; --n) {
        // Counts and enumerations are 8 bytes each: small, huge and random ones.
        const std::uint64_t number =
            random() % 3 == 0 ? random() % 16 : random() >> (random() % 64);
        std::memcpy(bytes.data() + random() % (bytes.size() - 8), &number, sizeof number);
      }
      values += survives(bytes) ? 1 : 0;
    }
    MESSAGE(values, " of 20000 changed answers are values");
    CHECK(values > 0);
    CHECK(values < 20'000);
  }
}
